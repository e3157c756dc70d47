"""The envelope of rowlock's own topics (schemas/wire/event.py), with rows under the target's names and
the origin in the source's. Pure.

What a target does not learn of the source's log (file, server, GTID, place in the transaction) stays
empty; an event's identity is its position and gen, as in the source's own topic.
"""

from __future__ import annotations

from typing import Any

import msgspec

from consumer.targets.kafka.formats.model import FormattedRecord, Place, RoutedTable, State
from consumer.targets.kafka.formats.plain import JsonKeys
from schemas.table.model import Row, Table
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope, EventOp, Source, choose_event_version


class _Origin(msgspec.Struct):
    name: str = msgspec.field(name="name")
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")


class _Read(msgspec.Struct):
    op: str = msgspec.field(name="op")
    source: _Origin = msgspec.field(name="source")
    before: dict[str, Any] | None = msgspec.field(name="before", default=None)
    after: dict[str, Any] | None = msgspec.field(name="after", default=None)


_READ = msgspec.json.Decoder(_Read)


class RowlockFormat:
    """The format `rowlock`; see RecordFormat."""

    def __init__(self, routed: RoutedTable) -> None:
        self._routed = routed
        self._names = routed.table.column_names
        self._key = JsonKeys(routed)

    def build_change_records(
        self, before: Row | None, after: Row | None, place: Place
    ) -> list[FormattedRecord]:
        old = None if before is None else self._key(before)
        new = None if after is None else self._key(after)
        moves = old != new
        if (
            before is not None
            and after is not None
            and not moves
            and self._routed.has_same_key(before, after)
        ):
            return [FormattedRecord(new, self._encode_event("u", place, before, after))]
        records: list[FormattedRecord] = []
        if before is not None:
            records.append(FormattedRecord(old, self._encode_event("d", place, before, None)))
            if moves and self._routed.tombstones:  # under one key it would delete other rows
                records.append(FormattedRecord(old, None))
        if after is not None:
            records.append(
                FormattedRecord(new, self._encode_event("r" if place.snapshot else "c", place, None, after))
            )
        return records

    def build_clear_records(self, where: dict[str, str] | None, place: Place) -> list[FormattedRecord]:
        del where  # the origin determines the rows
        return [FormattedRecord(None, self._encode_event("t", place, None, None))]

    def build_definition_records(self, definition: Table, place: Place) -> list[FormattedRecord]:
        return [FormattedRecord(None, self._encode_event("m", place, None, None, definition))]

    def decode_state(self, key: bytes | None, value: bytes | None) -> State | None:
        if value is None:
            return State(key)
        event = _READ.decode(value)
        origin = (event.source.name, event.source.db, event.source.table)
        if event.op == "t":
            return State(None, cleared=True, origin=origin)
        if event.op == "m":
            return None
        return State(key, event.after, origin=origin, deleted=event.before if event.after is None else None)

    def _encode_event(
        self,
        op: EventOp,
        place: Place,
        before: Row | None,
        after: Row | None,
        definition: Table | None = None,
    ) -> bytes:
        origin, position = self._routed.origin, place.position
        source = Source(
            version=choose_event_version(op, definition),
            connector=origin.connector,
            name=origin.source,
            ts_ms=place.ts_ms,
            snapshot="true" if place.snapshot else "false",
            db=origin.db,
            table=origin.table,
            server_id=0,
            gtid=None,
            file="",
            pos=position[2],
            row=position[3],
            position=position,
            prev=None,
            gen=place.gen,
        )
        images = (
            None if row is None else dict(zip(self._names, row, strict=True)) for row in (before, after)
        )
        return encode_event_value(
            EventEnvelope(
                op=op,
                before=next(images),
                after=next(images),
                source=source,
                ts_ms=place.ts_ms,
                definition=definition,
            )
        )
