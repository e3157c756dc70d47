"""The model's topics as Kafka has them: events in the product's envelope, of one table, and where its rows go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer.router import Route, resolve, wanted_table
from schemas.codec import encode_event, encode_table
from schemas.event import ENVELOPE_VERSION, Chunk, Event, Source
from schemas.table import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

if TYPE_CHECKING:
    from tests.sim.source import Record, SourceRow

CI = "utf8mb4_general_ci"
BRANCH = "branch"
COLUMNS = ("k", "u1", "u2", "v")


def _column(name: str) -> Column:
    if name == "v":
        return Column(name=name, type=ColumnType(kind=Kind.INT, bits=64))
    return Column(
        name=name, type=ColumnType(kind=Kind.VARCHAR, length=10, collation=CI), nullable=name != "k"
    )


def _unique(name: str, column: str) -> UniqueIndex:
    return UniqueIndex(name=name, parts=(IndexPart(column=column),))


TABLE = Table(
    db="d",
    name="t",
    columns=tuple(map(_column, COLUMNS)),
    key=_unique("PRIMARY", "k"),
    unique=(_unique("u1", "u1"), _unique("u2", "u2")),
)
"""At the source: k is the key, u1 and u2 are unique, v is the version."""


def routes(branch: str) -> tuple[Route, ...]:
    """Return the routes of a pipeline that keeps the source's rows apart by the column `branch`, the last of the target's."""
    return (Route("d.t", "public.t", ((BRANCH, branch),)),)


def real_table(branch: str) -> bytes:
    """Return the target table as it is in the target, as JSON."""
    routed = resolve(routes(branch), "s", TABLE.db, TABLE.name)
    assert routed is not None
    return encode_table(wanted_table(TABLE, routed))


def event(record: Record) -> bytes:
    """Return the Kafka value of a record."""
    source = Source(
        version=ENVELOPE_VERSION, connector="mysql", name="s", ts_ms=0, snapshot="true" if record.snapshot else "false",
        db=TABLE.db, table=TABLE.name, server_id=1, gtid=None, file="binlog.000001",
        pos=record.position[2], row=record.position[3], position=record.position, prev=record.prev, gen=record.gen,
    )  # fmt: skip
    if record.definition:
        return encode_event(Event(op="m", source=source, definition=TABLE, ts_ms=0))
    if record.truncate:
        return encode_event(Event(op="t", source=source, ts_ms=0))
    if record.chunk is not None:
        chunk = Chunk(number=record.chunk, after=None, upto=None, first_row=0, rows=0, last=False)
        return encode_event(Event(op="m", source=source, chunk=chunk, ts_ms=0))
    before, after = _image(record.before), _image(record.after)
    if record.snapshot:
        return encode_event(Event(op="r", source=source, after=after, ts_ms=0))
    op = "c" if before is None else "d" if after is None else "u"
    return encode_event(Event(op=op, source=source, before=before, after=after, ts_ms=0))  # type: ignore[arg-type]


def _image(row: SourceRow | None) -> dict[str, str | int | None] | None:
    return None if row is None else dict(zip(COLUMNS, row, strict=True))
