"""Events that are not row changes: definitions, DDL, TRUNCATE, snapshot rows and chunk markers (design.md §4).

All chain `source.prev` through the topic's TopicTail, like TableCodec does for rows. They return (Kafka key, value).
"""

from __future__ import annotations

from collections.abc import Sequence

from producer.decoders.context import SourceContext, TopicTail, TransactionContext
from schemas.event import Chunk
from schemas.table import Row, Table


def encode_definition(
    table: Table,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    row: int,
    ddl: str | None = None,
) -> tuple[bytes, bytes]:
    """Return an `m` event with the definition in force from here on; `row` DEFINITION_ROW unless a DDL caused it."""
    raise NotImplementedError


def encode_truncate(
    table: Table, source: SourceContext, tail: TopicTail, tx: TransactionContext, *, row: int, ddl: str
) -> tuple[bytes, bytes]:
    """Return a `t` event."""
    raise NotImplementedError


def encode_snapshot(
    table: Table,
    source: SourceContext,
    tail: TopicTail,
    tx: TransactionContext,
    *,
    rows: Sequence[Row],
    first_row: int,
) -> list[tuple[bytes, bytes]]:
    """Return `r` events; `tx` stands at the HIGH watermark (file, pos), `first_row` is negative and counts up."""
    raise NotImplementedError


def encode_chunk(
    table: Table, source: SourceContext, tail: TopicTail, tx: TransactionContext, *, row: int, chunk: Chunk
) -> tuple[bytes, bytes]:
    """Return the chunk's end marker (`m` with `chunk`); `row` is the one after the chunk's last row."""
    raise NotImplementedError
