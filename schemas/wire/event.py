"""The event envelope of design.md §4: Debezium's, with rowlock's additions inside `source`.

Versioning: `source.version` is the envelope's version "major.minor"; readers ignore unknown fields and refuse a
newer major version. Golden files in schemas/golden pin the format.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.table.model import NUMBERED, Table, Value
from schemas.wire.copies import CopyMark
from schemas.wire.position import Position
from schemas.wire.records import TableStop

ENVELOPE_VERSION = "1.0"
"""The version of events that readers of 1.0 read rightly."""
NUMBERS_VERSION = "2.0"
"""The version of definitions with labels as numbers (`Kind.ENUM_NUMBER`, `SET_NUMBER`), which readers of 1.0 refuse."""


def choose_event_version(definition: Table | None) -> str:
    """Return the version of an event with this definition: the lowest whose readers read it rightly."""
    kinds = () if definition is None else (column.type.kind for column in definition.columns)
    return NUMBERS_VERSION if any(kind in _NUMBERS for kind in kinds) else ENVELOPE_VERSION


_NUMBERS = frozenset(NUMBERED.values())

EventOp = Literal["c", "u", "d", "r", "t", "m"]


class Source(msgspec.Struct, omit_defaults=False):
    """The origin of an event. `ts_ms`: commit time at the source; `gen`: assignment number of the capture unit."""

    version: str = msgspec.field(name="version")
    connector: str = msgspec.field(name="connector")  # mysql | mariadb | oracle
    name: str = msgspec.field(name="name")  # the source's name in the configuration
    ts_ms: int = msgspec.field(name="ts_ms")
    snapshot: str = msgspec.field(name="snapshot")  # "true" for snapshot rows and chunk markers, else "false"
    db: str = msgspec.field(name="db")
    table: str = msgspec.field(name="table")
    server_id: int = msgspec.field(name="server_id")
    gtid: str | None = msgspec.field(name="gtid")
    file: str = msgspec.field(name="file")
    pos: int = msgspec.field(name="pos")
    row: int = msgspec.field(name="row")
    position: Position = msgspec.field(name="position")
    #: highest position before it in this topic; None: none known
    prev: Position | None = msgspec.field(name="prev")
    gen: int = msgspec.field(name="gen")


class Transaction(msgspec.Struct):
    """`total_order` counts from 1 over the captured rows of the source transaction; `last` marks its last captured row."""

    id: str = msgspec.field(name="id")
    total_order: int = msgspec.field(name="total_order")
    last: bool = msgspec.field(name="last")


class Chunk(msgspec.Struct, kw_only=True):
    """End marker of a snapshot chunk: the rows of `(after, upto]` in key order are in the topic before it.

    `after` None: from the beginning; `upto` None: to the end of the table. Valid only under the `gen` of its rows.
    `repeated`: the table was snapshotted before; keys of the range that neither the chunk nor a later event has
    are to be deleted. `last`: the table's snapshot is complete with this chunk.
    """

    number: int = msgspec.field(name="number")
    after: tuple[Value, ...] | None = msgspec.field(name="after")
    upto: tuple[Value, ...] | None = msgspec.field(name="upto")
    #: `row` of the chunk's first position: its rows have rows in [first_row, the marker's row)
    first_row: int = msgspec.field(name="first_row")
    rows: int = msgspec.field(name="rows")
    last: bool = msgspec.field(name="last")
    repeated: bool = msgspec.field(name="repeated", default=False)


class Undecodable(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Columns whose value in the image is `{"undecodable": base64}`: the bytes as the source stores them. Never of the key."""

    before: tuple[str, ...] = msgspec.field(name="before", default=())
    after: tuple[str, ...] = msgspec.field(name="after", default=())


class LogRows(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Rows of a materialized view log that the event was made of: (ROWID, SEQUENCE$$) of each, and their XID$$ where the log has it."""

    rows: tuple[tuple[str, int], ...] = msgspec.field(name="rows")
    xid: str | None = msgspec.field(name="xid", default=None)


class ColumnChanges(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Columns of which a statement speaks, by name. A column that is dropped and added is another one, whatever its type.

    `renamed`: old name → new name. `modified`: columns that it defines anew, by their new names. `converted`: CONVERT TO CHARACTER SET.
    """

    renamed: dict[str, str] = msgspec.field(name="renamed", default_factory=dict)
    added: tuple[str, ...] = msgspec.field(name="added", default=())
    dropped: tuple[str, ...] = msgspec.field(name="dropped", default=())
    modified: tuple[str, ...] = msgspec.field(name="modified", default=())
    converted: bool = msgspec.field(name="converted", default=False)


class EventEnvelope(msgspec.Struct, kw_only=True):
    """One event. op: c u d r(snapshot read) t(truncate) m(definition, DDL or chunk marker).

    An `m` event has `definition` (the table from here on; with `ddl`, the statement, if one caused it), `chunk` or `stop`
    (no event of the table follows until it is copied anew). `effect`: what the statement did to the table's rows
    ("kept"); without it nobody knows. `columns`: what the statement says of columns, if that is all it does and all of it is known.
    `copy`: with a definition: the table is copied again from here on; with a chunk: the copy that it is of.
    `log`: of a source whose log is deleted once it is read: by which rows of it the event is known again.
    """

    op: EventOp = msgspec.field(name="op")
    before: dict[str, Value] | None = msgspec.field(name="before", default=None)
    after: dict[str, Value] | None = msgspec.field(name="after", default=None)
    source: Source = msgspec.field(name="source")
    transaction: Transaction | None = msgspec.field(name="transaction", default=None)
    ts_ms: int = msgspec.field(name="ts_ms")  # when capture made the event
    definition: Table | None = msgspec.field(name="definition", default=None)
    ddl: str | None = msgspec.field(name="ddl", default=None)
    chunk: Chunk | None = msgspec.field(name="chunk", default=None)
    effect: str | None = msgspec.field(name="effect", default=None)
    stop: TableStop | None = msgspec.field(name="stop", default=None)
    copy: CopyMark | None = msgspec.field(name="copy", default=None)
    columns: ColumnChanges | None = msgspec.field(name="columns", default=None)
    undecodable: Undecodable | None = msgspec.field(name="undecodable", default=None)
    log: LogRows | None = msgspec.field(name="log", default=None)
