"""Heartbeats over gRPC: one bidirectional stream an agent, to the coordinator that leads.

`wire` turns the core's messages into bytes, `server` and `client` are the two ends, `pending_dispatches` remembers which dispatches
wait for an answer. Nothing here decides anything: what is lost is said again by the cores.
"""
