"""Plain rows: the value is the row as a JSON object, the key the routing key as one; a null value is a
deleted row. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from consumer.errors import TargetConfigError
from consumer.targets.kafka.formats.model import FormattedRecord, Place, RoutedTable, State
from schemas.table.model import Row, Table

_ENCODE = msgspec.json.Encoder().encode


class JsonKeys:
    """Record keys: JSON objects of the routing key's columns, in the order of the route's `key`."""

    def __init__(self, routed: RoutedTable) -> None:
        names = routed.table.column_names
        self._columns = tuple((names[at], at) for at in routed.key_at)

    def __call__(self, row: Row) -> bytes:
        return _ENCODE({name: row[at] for name, at in self._columns})


class PlainFormat:
    """The format `plain`; see RecordFormat.

    It represents neither a TRUNCATE (each row is deleted) nor a definition.
    """

    def __init__(self, routed: RoutedTable) -> None:
        """Create the format. Raises TargetConfigError if the route has no tombstones."""
        if not routed.tombstones:
            raise TargetConfigError(
                f"topic {routed.topic}: format plain marks a deleted row by a null value alone",
                "set `tombstones: true`",
            )
        self._names = routed.table.column_names
        self._key = JsonKeys(routed)

    def build_change_records(
        self, before: Row | None, after: Row | None, place: Place
    ) -> list[FormattedRecord]:
        new = None if after is None else self._key(after)
        records: list[FormattedRecord] = []
        if before is not None and (old := self._key(before)) != new:
            records.append(FormattedRecord(old, None))
        if after is not None:
            records.append(FormattedRecord(new, _ENCODE(dict(zip(self._names, after, strict=True)))))
        return records

    def build_clear_records(self, where: dict[str, str] | None, place: Place) -> list[FormattedRecord]:
        del where, place
        return []

    def build_definition_records(self, definition: Table, place: Place) -> list[FormattedRecord]:
        del definition, place
        return []

    def decode_state(self, key: bytes | None, value: bytes | None) -> State | None:
        if key is None:
            return None
        values: dict[str, Any] | None = None if value is None else msgspec.json.decode(value)
        return State(key, values)
