"""Requested copies of single tables: their states, the effects of requests and events on them, and limits.

Pure.
"""
