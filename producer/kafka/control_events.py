"""Events that are not row changes: definitions, DDL, TRUNCATE, snapshot rows and chunk markers.

Each of them sets `source.prev` from the topic's TopicTail and moves that on, as TableCodec does for
rows, and is returned as (Kafka key, value). Only snapshot rows are on the hot path; they use the same
envelope text as rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import orjson

from producer.decoders.envelope import EnvelopeRenderer, SourceContext, TopicTail, TransactionContext
from producer.sources.chunk_data import EmitChunk
from schemas.table.model import Key, Row, Table
from schemas.wire.codec import encode_event_value, mark_undecodable
from schemas.wire.copies import CopyMark
from schemas.wire.event import (
    Chunk,
    ColumnChanges,
    EventEnvelope,
    EventOp,
    Source,
    Transaction,
    Undecodable,
    choose_event_version,
)
from schemas.wire.records import TableStop

_RAW = b'{"undecodable":"'
_NO_KEY = b"{}"
"""The Kafka key of events without a row."""
_KEY_BYTES = 200_000
"""Size of the keys in a `k` event at most, unless it has one key: far below what Kafka accepts."""


def encode_definition(
    table: Table,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    row: int,
    ddl: str | None = None,
    effect: str | None = None,
    columns: ColumnChanges | None = None,
    copy: CopyMark | None = None,
) -> tuple[bytes, bytes]:
    """Return an `m` event with the definition that is active from here on.

    `row`: DEFINITION_ROW unless a statement caused the event. `effect`, `columns`: the statement's
    effect on rows, and its column changes. `copy`: the copy that begins here; the begin of a key sweep is
    a `k` event, which no reader takes for the begin of a copy.
    """
    name = (table.db, table.name)
    op: EventOp = "k" if copy is not None and copy.keys else "m"
    return _encode_control_event(
        op, name, source, tail, tx, row, definition=msgspec.structs.replace(table, left_out=()), ddl=ddl,
        effect=effect, copy=copy, columns=columns, left_out=table.left_out or None,
    )  # fmt: skip


def encode_stop(  # noqa: PLR0917 - like its siblings
    name: tuple[str, str],
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    row: int,
    stop: TableStop,
) -> tuple[bytes, bytes]:
    """Return the `m` event after which no more events of the table follow."""
    return _encode_control_event("m", name, source, tail, tx, row, stop=stop)


def encode_truncate(
    table: Table, source: SourceContext, tail: TopicTail, tx: TransactionContext, *, row: int, ddl: str
) -> tuple[bytes, bytes]:
    """Return a `t` event."""
    return _encode_control_event("t", (table.db, table.name), source, tail, tx, row, ddl=ddl)


def encode_removed_rows(
    table: Table, source: SourceContext, tail: TopicTail, tx: TransactionContext, *, row: int, ddl: str
) -> tuple[bytes, bytes]:
    """Return a `p` event: a statement removed rows of the table."""
    return _encode_control_event("p", (table.db, table.name), source, tail, tx, row, ddl=ddl)


def encode_keys(
    table: Table,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    keys: Sequence[Key],
    first_row: int,
) -> list[tuple[bytes, bytes]]:
    """Return the `k` events of a chunk of keys. The first one has the position row `first_row`."""
    name, out = (table.db, table.name), []
    for row, encoded in enumerate(_encode_in_groups(keys), first_row):
        key, value = _encode_control_event("k", name, source, tail, tx, row, snapshot="true", keys=())
        out.append((key, value.removesuffix(b"[]}") + encoded + b"}"))
    return out


def _encode_in_groups(keys: Sequence[Key]) -> Iterator[bytes]:
    """Yield the keys as JSON lists of at most `_KEY_BYTES`; a larger list is halved."""
    encoded, half = orjson.dumps(keys), len(keys) // 2
    if half and len(encoded) > _KEY_BYTES:
        yield from _encode_in_groups(keys[:half])
        yield from _encode_in_groups(keys[half:])
    elif keys:
        yield encoded


def encode_chunk(
    table: Table,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    row: int,
    chunk: Chunk,
    copy: CopyMark | None = None,
) -> tuple[bytes, bytes]:
    """Return the chunk's end marker (`m` with `chunk`). `row`: the one after the chunk's last row.

    `copy`: the copy of the chunk.
    """
    name = (table.db, table.name)
    return _encode_control_event("m", name, source, tail, tx, row, snapshot="true", chunk=chunk, copy=copy)


def encode_snapshot(
    table: Table,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    rows: Sequence[Row],
    first_row: int,
) -> list[tuple[bytes, bytes]]:
    """Return `r` events.

    `tx` is at the HIGH watermark (file, pos); `first_row` is negative and counts up.
    """
    names = table.column_names
    key_columns = [
        (name, i) for name, i in zip(table.key.columns, table.find_ordinals(table.key.columns), strict=True)
    ]
    frame = EnvelopeRenderer(table.db, table.name, source, snapshot="true")
    where, position, after_prev, end = (part.encode("latin-1") for part in frame.get_parts(tx))
    prev = frame.render_position(tail.last).encode()
    out = []
    for n, row in enumerate(rows):
        here = b"%b%d]" % (position, first_row + n)
        image = orjson.dumps(dict(zip(names, row, strict=True)))
        marked = _find_undecodable_columns(names, row) if _RAW in image else None
        value = b'{"op":"r","before":null,"after":%b%b%d,"position":%b,"prev":%b%b%d%b' % (
            image, where, first_row + n, here, prev, after_prev, tx.total_order + n + 1, end,
        )  # fmt: skip
        if marked is not None:
            value = mark_undecodable(value, marked)
        out.append((orjson.dumps({name: row[i] for name, i in key_columns}), value))
        prev = here
    if out:
        tx.total_order += len(out)
        tail.last = (source.epoch, tx.file_number, tx.pos, first_row + len(out) - 1)
    return out


def _find_undecodable_columns(names: tuple[str, ...], row: Row) -> Undecodable | None:
    """Return the raw columns of a snapshot row (producer/snapshot/text.py); None: there are none."""
    found = tuple(
        name
        for name, value in zip(names, row, strict=True)
        if isinstance(value, dict) and "undecodable" in value
    )
    return Undecodable(after=found) if found else None


def _encode_control_event(  # noqa: PLR0917 - private, called by those above
    op: EventOp,
    name: tuple[str, str],
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    row: int,
    snapshot: str = "false",
    **content: Any,
) -> tuple[bytes, bytes]:
    position = (source.epoch, tx.file_number, tx.pos, row)
    tx.total_order += 1
    event = EventEnvelope(
        op=op,
        source=Source(
            version=choose_event_version(op, content.get("definition")),
            connector=source.connector,
            name=source.name,
            ts_ms=tx.ts_ms,
            snapshot=snapshot,
            db=name[0],
            table=name[1],
            server_id=tx.server_id,
            gtid=tx.gtid,
            file=tx.file,
            pos=tx.pos,
            row=row,
            position=position,
            prev=tail.last,
            gen=source.gen,
        ),
        transaction=Transaction(id=tx.id, total_order=tx.total_order, last=False),
        ts_ms=tx.made_ms,
        **content,
    )
    tail.last = position
    return _NO_KEY, encode_event_value(event)


def encode_whole_chunk(
    emit: EmitChunk,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    first_row: int,
    copy: CopyMark | None = None,
) -> list[tuple[bytes, bytes]]:
    """Return the rows of a chunk and its end marker.

    The topic's next snapshot row is `first_row` + their number.

    `tx` is at `emit.at`. `first_row`: FIRST_SNAPSHOT_ROW in a topic without snapshot rows.
    """
    if copy is not None and copy.keys:
        records = encode_keys(emit.table, source, tail, tx, keys=emit.rows, first_row=first_row)
    else:
        records = encode_snapshot(emit.table, source, tail, tx, rows=emit.rows, first_row=first_row)
    row = first_row + len(records)
    marker = encode_chunk(
        emit.table, source, tail, tx, row=row, chunk=emit.build_end_marker(first_row), copy=copy
    )
    return [*records, marker]
