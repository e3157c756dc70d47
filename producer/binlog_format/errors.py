"""Errors of a row event. All are stops: a row that cannot be read exactly is never guessed."""

from __future__ import annotations


class DecodeError(Exception):
    """A binlog event cannot be turned into events without guessing; the message says which and what to do."""


class DefinitionMismatch(DecodeError):  # noqa: N818 - named for what is wrong
    """The TABLE_MAP in the log does not fit the table definition at hand."""


class IncompleteRowImage(DecodeError):  # noqa: N818 - named for what is wrong
    """A row image lacks columns (binlog_row_image MINIMAL or NOBLOB), or holds only what changed in a JSON document."""


class UndecodableRow(DecodeError):  # noqa: N818 - named for what is wrong
    """A row image is not full, or holds a type or form that is not known."""
