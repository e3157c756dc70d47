"""Checks of a source, in `rowlock check`, at each start and at each reconnect."""
