"""Events with a place of their own instead of the log's: definitions and stops, which a start repeats
under its gen.
"""

from __future__ import annotations

import msgspec

from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.kafka.control_events import encode_definition, encode_stop
from producer.ports import EventWriter
from producer.tables import CapturedTables, TableName, TableState, format_table_name
from schemas.clock import read_clock_ms
from schemas.wire.copies import CopyMark
from schemas.wire.event import ColumnChanges
from schemas.wire.position import Position
from schemas.wire.records import StoredPosition


def build_definition_context(record: StoredPosition, position: Position) -> TransactionContext:
    """Return a context at `position`. The file's name is derived from the record's.

    Its time is the present one: an earlier one would look like a lag.
    """
    now = read_clock_ms()
    stem, _, number = record.file.rpartition(".")
    file = f"{stem}.{position[1]:0{len(number)}d}"
    return TransactionContext(
        id=f"{file}:{position[2]}", gtid=None, file=file, file_number=position[1], pos=position[2],
        ts_ms=now, server_id=record.identity.server_id, made_ms=now,
    )  # fmt: skip


def send_definition(
    writer: EventWriter,
    context: SourceContext,
    state: TableState,
    transaction: TransactionContext,
    ddl: str | None = None,
    *,
    effect: str | None = None,
    columns: ColumnChanges | None = None,
    copy: CopyMark | None = None,
) -> None:
    """Send the active definition at its own position, and record its offset once acknowledged.

    `copy`: the copy that begins with it.
    """
    state.topic.raise_ceiling_to_tail()  # the definition is lower than the topic's end, and becomes the tail
    key, value = encode_definition(
        state.table, context, state.topic.tail, transaction, row=state.defined_at[3], ddl=ddl, effect=effect,
        columns=columns, copy=copy,
    )  # fmt: skip
    state.topic.raise_ceiling()
    position = state.defined_at

    def record_offset(offset: int) -> None:
        state.record_definition(position, offset, copy)

    writer.send(state.topic.name, key, value, record_offset)


def send_stop(
    writer: EventWriter,
    context: SourceContext,
    captured: CapturedTables,
    name: TableName,
    record: StoredPosition,
) -> None:
    """Send the stop of a table at its `position`, and record its offset once acknowledged."""
    stopped, topic = captured.stopped[name], captured.get_topic(name)
    position = stopped.position
    if position is None:
        raise ValueError(f"the stop of {format_table_name(name)} has no place yet")
    context = msgspec.structs.replace(context, epoch=position[0])  # it may belong to an earlier era
    at = build_definition_context(record, position)
    at.ts_ms = stopped.stop.since_ms
    topic.raise_ceiling_to_tail()
    key, value = encode_stop(name, context, topic.tail, at, position[3], stopped.stop)
    topic.raise_ceiling()

    def record_offset(offset: int) -> None:
        stopped.offset = offset

    writer.send(topic.name, key, value, record_offset)
