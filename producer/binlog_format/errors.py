"""Errors of a row event.

All stop the table or the stream: a row that cannot be read exactly is never guessed.
"""

from __future__ import annotations

from schemas.problems import ProblemError


class DecodeError(ProblemError):
    """A binlog event cannot be decoded without guessing."""


class DefinitionMismatch(DecodeError):  # noqa: N818 - named for what is wrong
    """The TABLE_MAP in the log does not fit the table definition."""


class IncompleteRowImage(DecodeError):  # noqa: N818 - named for what is wrong
    """A row image lacks columns (binlog_row_image MINIMAL or NOBLOB), or has only the changed parts of a
    JSON document.
    """


class UndecodableRow(DecodeError):  # noqa: N818 - named for what is wrong
    """A row image is not full, or contains an unknown type or form."""


class OversizedValue(DecodeError):  # noqa: N818 - named for what is wrong
    """A published value is larger than any event of Kafka, and was not kept."""
