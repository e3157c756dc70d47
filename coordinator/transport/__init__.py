"""Heartbeats over gRPC: one bidirectional stream per agent, to the coordinator that leads.

`wire` encodes the core's messages, `server` and `client` are the two ends, `pending_dispatches`
remembers the dispatches without an answer. The transport makes no decisions: the cores repeat what is
lost.
"""
