"""Checks of a source, by `rowlock check`, each start and each reconnect."""
