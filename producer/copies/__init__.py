"""Copies of single tables that were asked for: their states, what a request or an event changes in them, and limits. Pure."""
