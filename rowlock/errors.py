"""Errors that end a command: the message says who is to blame, what was seen and what to do; exit code 2."""

from __future__ import annotations


class CommandError(Exception):
    """A command cannot go on."""


class KafkaUnreachableError(CommandError):
    """No broker of `kafka.bootstrap` answers, or refuses this client."""
