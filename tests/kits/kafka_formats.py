"""Tables of events for tests of record formats, places in a source's log, and what a topic's records
leave."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from consumer.targets.kafka.formats.model import FormattedRecord, Origin, Place, RecordFormat, RoutedTable
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from tests.kits.schemas_strategies import TABLE

ORIGIN = Origin("branch1", "mysql", "bank", "acct")
PLACE = Place((0, 3, 4711, 2), 12, 1_790_000_000_123)
READ = Place((0, 3, 4711, -(2**53)), 12, 1_790_000_000_123, snapshot=True)
ACCOUNTS = Table(
    db="head",
    name="acct",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
        Column(name="naïve", type=ColumnType(kind=Kind.VARCHAR, length=20), default="none", nullable=False),
        Column(name="sum", type=ColumnType(kind=Kind.DECIMAL, precision=10, scale=2), default="0.00"),
        Column(name="branch", type=ColumnType(kind=Kind.VARCHAR, length=64), nullable=False),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="branch"), IndexPart(column="id"))),
)
LUCY: Row = (1, "lucy", "10.50", "b1")


def routed(
    table: Table = ACCOUNTS, key: tuple[str, ...] = ("branch", "id"), *, tombstones: bool = True
) -> RoutedTable:
    at = table.find_ordinals(key)
    return RoutedTable(
        table, at, table.find_ordinals(table.key.columns), f"{table.db}.{table.name}", ORIGIN, tombstones
    )


EVERYTHING = routed(TABLE, ("id",))


def one(type_: ColumnType, **column: Any) -> RoutedTable:
    """A table with an id and a column `v`."""
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="v", type=type_, **column),
    )
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return routed(Table(db="head", name="t", columns=columns, key=key), ("id",))


def shown(records: Iterable[FormattedRecord]) -> list[tuple[Any, Any]]:
    """The records' keys and values as JSON documents; every one is compact, and UTF-8 that escapes nothing it
    need not."""
    return [(_document(record.key), _document(record.value)) for record in records]


def _document(raw: bytes | None) -> Any:
    if raw is None:
        return None
    document = json.loads(raw)
    assert " " not in json.dumps(json.loads(raw.replace(b" ", b"")), separators=(",", ":"))
    return document


def compacted(
    form: RecordFormat, records: Iterable[FormattedRecord]
) -> dict[bytes | None, dict[str, object]]:
    """What a reader knows of a topic's rows behind these records, by `RecordFormat.state`."""
    rows: dict[bytes | None, dict[str, object]] = {}
    for record in records:
        state = form.decode_state(record.key, record.value)
        if state is None:
            continue
        if state.cleared:
            rows.clear()
        elif state.values is None:
            rows.pop(state.key, None)
        else:
            rows[state.key] = state.values
    return rows
