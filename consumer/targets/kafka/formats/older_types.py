"""Values of records that were written when a column was of another type: what the column's type of now cannot hold is not known. Pure.

A topic keeps its records when a column changes its type, and a record does not say which type it was written by. Whoever deletes the row writes
what is left of it. A column of the key cannot be left out: nobody would know which row it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from consumer.targets.kafka.formats.keyed import VALUE_ERRORS
from consumer.targets.kafka.formats.model import RoutedTable
from schemas.errors import EnvelopeError
from schemas.values.converter import Convert

UNREAD = (AttributeError, IndexError, struct.error, *VALUE_ERRORS)
"""Raised by what reads a column, or writes it again, for a value that is none of its type."""


def explain_older_key(column: str, error: Exception) -> str:
    """Return what is to say of a value of a key that does not convert, without the value."""
    return f"column {column} is of the key, and a value there is none of its type ({type(error).__name__}): it may be of an older type of the column"


class ImageReader:
    """Reads images of rows. `read`, `write`: a column's, in the order of the table's; None: the value is the same one."""

    def __init__(
        self, routed: RoutedTable, read: Sequence[Convert | None], write: Sequence[Convert | None]
    ) -> None:
        keys = {*routed.key_at, *routed.primary_at}
        self._topic = routed.topic
        self._columns = [
            (name, at in keys, taken, written)
            for at, (name, taken, written) in enumerate(
                zip(routed.table.column_names, read, write, strict=True)
            )
        ]

    def __call__(self, image: Mapping[str, object]) -> dict[str, object]:
        """Return column → wire value of the columns that the record has; None: it is of another type. Raises EnvelopeError: it is of the key, too."""
        found: dict[str, object] = {}
        for name, keyed, read, write in self._columns:
            if name not in image:
                continue
            value = image[name]
            try:
                if value is not None and read is not None:
                    value = read(value)
                if value is not None and write is not None:
                    write(value)
            except UNREAD as error:
                if keyed:
                    raise EnvelopeError(f"topic {self._topic}: {explain_older_key(name, error)}") from error
                value = None
            found[name] = value
        return found
