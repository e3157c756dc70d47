"""The changes of one table in a poll, as events: `LoggedRows` of producer/sources/protocols.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from producer.binlog_format.errors import DefinitionMismatch
from producer.decoders.envelope import SourceContext, TransactionContext
from producer.sources.changes import TransactionHeader
from producer.sources.oracle.mlog import LoggedChange, LogPlace
from producer.tables import TableName, TableState
from schemas.table.model import Key, Row, Table, is_same_definition
from schemas.wire.codec import encode_event_value
from schemas.wire.event import ENVELOPE_VERSION, EventEnvelope, LogRows, Source, Transaction
from schemas.wire.position import Position

EncodedRecords = list[tuple[bytes, bytes]]
FILE = "mlog.0"
"""All places of the log are in one file."""
_NOWHERE = TransactionHeader(FILE, 0, 0, 0, None)


class OracleRows:
    """The changes of one table in a poll.

    `definition`: the one under which the rows were read. `published`: how many of the changes, from the
    first on, have an event.
    """

    def __init__(self, definition: Table, changes: Sequence[LoggedChange]) -> None:
        self.definition = definition
        self.changes = changes
        self._header = _NOWHERE
        self._first = 0
        self._tail: Position | None = None
        self.published = 0

    def set_position(self, header: TransactionHeader, first: int) -> None:
        """Set the place of the changes: the poll, and the ordinal of the first change in it."""
        self._header, self._first = header, first

    @property
    def header(self) -> TransactionHeader:
        return self._header

    @property
    def table(self) -> TableName:
        return self.definition.db, self.definition.name

    @property
    def places(self) -> list[LogPlace]:
        """The rows of the log that the topic has now."""
        return [place for change in self.changes[: self.published] for place in change.places]

    def build_records(
        self, table: TableState, source: SourceContext, transaction: TransactionContext
    ) -> EncodedRecords:
        if not is_same_definition(table.table, self.definition):
            raise DefinitionMismatch(f"rows of {'.'.join(self.table)} were read under another definition")
        self._tail = table.topic.tail.last
        records = [
            self._encode_event(change, self._first + i, table, source, transaction)
            for i, change in enumerate(self.changes)
        ]
        self.published = len(records)
        return records

    def _encode_event(
        self, change: LoggedChange, row: int, table: TableState, source: SourceContext, at: TransactionContext
    ) -> tuple[bytes, bytes]:
        names, tail = self.definition.column_names, table.topic.tail
        at.total_order += 1
        position = (source.epoch, at.file_number, at.pos, row)
        event = EventEnvelope(
            op=change.op, before=_build_image(names, change.before), after=_build_image(names, change.after),
            source=Source(
                version=ENVELOPE_VERSION, connector=source.connector, name=source.name, ts_ms=at.ts_ms,
                snapshot="false", db=self.table[0], table=self.table[1], server_id=at.server_id, gtid=None,
                file=at.file, pos=at.pos, row=row, position=position, prev=tail.last, gen=source.gen,
            ),
            transaction=Transaction(id=at.id, total_order=at.total_order, last=False), ts_ms=at.made_ms,
            log=LogRows(rows=tuple((rowid, sequence) for rowid, sequence in change.places), xid=change.xid),
        )  # fmt: skip
        tail.last = position
        (key,) = _list_image_keys(
            self.definition, [change.after if change.after is not None else change.before]
        )
        return msgspec.json.encode(
            dict(zip(self.definition.key.columns, key, strict=True))
        ), encode_event_value(event)

    def withdraw_rows(
        self,
        table: TableState,
        source: SourceContext,
        transaction: TransactionContext,
        records: EncodedRecords,
        keep: int,
    ) -> None:
        taken_back = len(records) - keep
        del records[keep:]
        self.published = keep
        if taken_back:
            transaction.total_order -= taken_back
            last = (source.epoch, transaction.file_number, transaction.pos, self._first + keep - 1)
            table.topic.tail.last = last if keep else self._tail

    def list_keys(self, _table: TableState, _source: SourceContext) -> Sequence[Key]:
        images = [image for change in self.changes for image in (change.before, change.after)]
        return _list_image_keys(self.definition, images)


def _build_image(names: tuple[str, ...], row: Row | None) -> dict[str, Any] | None:
    return None if row is None else dict(zip(names, row, strict=True))


def _list_image_keys(table: Table, images: Sequence[Row | None]) -> list[Key]:
    columns = table.find_ordinals(table.key.columns)
    return [tuple(image[i] for i in columns) for image in images if image is not None]
