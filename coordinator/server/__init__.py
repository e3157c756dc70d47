"""The coordinator process: election, the leader's core, batch system and heartbeat transport. REST uses
`coordinator`.
"""
