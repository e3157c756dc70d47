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


def version_of(definition: Table | None) -> str:
    """Return the version of an event with this definition: the lowest whose readers read it rightly."""
    kinds = () if definition is None else (column.type.kind for column in definition.columns)
    return NUMBERS_VERSION if any(kind in _NUMBERS for kind in kinds) else ENVELOPE_VERSION


_NUMBERS = frozenset(NUMBERED.values())

Op = Literal["c", "u", "d", "r", "t", "m"]


class Source(msgspec.Struct, omit_defaults=False):
    """The origin of an event. `ts_ms`: commit time at the source; `gen`: assignment number of the capture unit."""

    version: str
    connector: str  # mysql | mariadb | oracle
    name: str  # the source's name in the configuration
    ts_ms: int
    snapshot: str  # "true" for snapshot rows and chunk markers, else "false"
    db: str
    table: str
    server_id: int
    gtid: str | None
    file: str
    pos: int
    row: int
    position: Position
    prev: Position | None  # highest position before it in this topic; None: none known
    gen: int


class Transaction(msgspec.Struct):
    """`total_order` counts from 1 over the captured rows of the source transaction; `last` marks its last captured row."""

    id: str
    total_order: int
    last: bool


class Chunk(msgspec.Struct, kw_only=True):
    """End marker of a snapshot chunk: the rows of `(after, upto]` in key order are in the topic before it.

    `after` None: from the beginning; `upto` None: to the end of the table. Valid only under the `gen` of its rows.
    `repeated`: the table was snapshotted before; keys of the range that neither the chunk nor a later event has
    are to be deleted. `last`: the table's snapshot is complete with this chunk.
    """

    number: int
    after: tuple[Value, ...] | None
    upto: tuple[Value, ...] | None
    first_row: int  # `row` of the chunk's first position: its rows have rows in [first_row, the marker's row)
    rows: int
    last: bool
    repeated: bool = False


class Undecodable(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Columns whose value in the image is `{"undecodable": base64}`: the bytes as the source stores them. Never of the key."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class LogRows(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Rows of a materialized view log that the event was made of: (ROWID, SEQUENCE$$) of each, and their XID$$ where the log has it."""

    rows: tuple[tuple[str, int], ...]
    xid: str | None = None


class ColumnChanges(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Columns of which a statement speaks, by name. A column that is dropped and added is another one, whatever its type.

    `renamed`: old name → new name. `modified`: columns that it defines anew, by their new names. `converted`: CONVERT TO CHARACTER SET.
    """

    renamed: dict[str, str] = {}
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    converted: bool = False


class Event(msgspec.Struct, kw_only=True):
    """One event. op: c u d r(snapshot read) t(truncate) m(definition, DDL or chunk marker).

    An `m` event has `definition` (the table from here on; with `ddl`, the statement, if one caused it), `chunk` or `stop`
    (no event of the table follows until it is copied anew). `effect`: what the statement did to the table's rows
    ("kept"); without it nobody knows. `columns`: what the statement says of columns, if that is all it does and all of it is known.
    `copy`: with a definition: the table is copied again from here on; with a chunk: the copy that it is of.
    `log`: of a source whose log is deleted once it is read: by which rows of it the event is known again.
    """

    op: Op
    before: dict[str, Value] | None = None
    after: dict[str, Value] | None = None
    source: Source
    transaction: Transaction | None = None
    ts_ms: int  # when capture made the event
    definition: Table | None = None
    ddl: str | None = None
    chunk: Chunk | None = None
    effect: str | None = None
    stop: TableStop | None = None
    copy: CopyMark | None = None
    columns: ColumnChanges | None = None
    undecodable: Undecodable | None = None
    log: LogRows | None = None
