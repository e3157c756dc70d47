"""Values of records that were written when a column had another type; those that its present type
cannot hold are unknown. Pure.

A topic keeps its records when a column changes its type, and a record does not state by which type it
was written. A delete contains what can still be read of the row. A column of the key cannot be left
out, because the row would be unidentified.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from consumer.targets.kafka.formats.keyed import VALUE_ERRORS
from consumer.targets.kafka.formats.model import RoutedTable
from schemas.errors import EnvelopeError
from schemas.values.converter import Convert

UNREAD = (AttributeError, IndexError, struct.error, *VALUE_ERRORS)
"""Errors that reading or writing a column raises for a value of another type."""


def explain_older_key(column: str, error: Exception) -> str:
    """Return a message about a value of a key that does not convert, without the value."""
    return (
        f"column {column} belongs to the key, and a value there does not fit its type "
        f"({type(error).__name__}): it may be of an older type of the column"
    )


class ImageReader:
    """Reads images of rows.

    `read`, `write`: converters in the order of the table's columns; None: the value is used as it is.
    """

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
        """Return column → wire value of the record's columns; None for a value of another type.

        Raises EnvelopeError if such a column belongs to a key.
        """
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
