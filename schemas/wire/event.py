"""The event envelope: Debezium's, with rowlock's additions inside `source`
(docs/adr/0002-definition-and-chunk-events.md).

Versioning: `source.version` is the envelope's version "major.minor"; readers ignore unknown fields and
refuse a newer major version. Golden files in schemas/golden pin the format.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from schemas.table.model import NUMBERED, LeftOutColumn, Table, Value
from schemas.wire.copies import CopyMark
from schemas.wire.position import Position
from schemas.wire.records import TableStop

ENVELOPE_VERSION = "1.0"
"""The version of events that readers of 1.0 understand correctly."""
NUMBERS_VERSION = "2.0"
"""The version of definitions with labels as numbers (`Kind.ENUM_NUMBER`, `SET_NUMBER`), which readers
of 1.0 refuse.
"""
NEWEST_VERSION = "3.0"
"""The version of events that readers of 2.0 refuse: about rows that a statement removed (`p`, `k`), which
they would keep, and definitions with a `text_of`, which they would take for a plain text.
"""


def choose_event_version(op: str, definition: Table | None) -> str:
    """Return the version of an event with this operation and definition: the lowest one with readers that
    understand it correctly.
    """
    types = () if definition is None else tuple(column.type for column in definition.columns)
    if op in ("p", "k") or any(type_.text_of is not None for type_ in types):
        return NEWEST_VERSION
    return NUMBERS_VERSION if any(type_.kind in _NUMBERS for type_ in types) else ENVELOPE_VERSION


_NUMBERS = frozenset(NUMBERED.values())

EventOp = Literal["c", "u", "d", "r", "t", "m", "p", "k"]


class Source(msgspec.Struct, omit_defaults=False):
    """The origin of an event.

    `ts_ms`: commit time at the source; `gen`: assignment number of the capture unit.
    """

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
    """A source transaction.

    `total_order` counts its captured rows from 1; `last` marks the last one.
    """

    id: str = msgspec.field(name="id")
    total_order: int = msgspec.field(name="total_order")
    last: bool = msgspec.field(name="last")


class Chunk(msgspec.Struct, kw_only=True):
    """The end marker of a snapshot chunk: the rows of `(after, upto]` in key order are in the topic
    before it.

    Valid only under the `gen` of its rows.
    """

    number: int = msgspec.field(name="number")
    after: tuple[Value, ...] | None = msgspec.field(name="after")
    """None: from the beginning."""
    upto: tuple[Value, ...] | None = msgspec.field(name="upto")
    """None: to the end of the table."""
    #: `row` of the chunk's first position: its rows have rows in [first_row, the marker's row)
    first_row: int = msgspec.field(name="first_row")
    rows: int = msgspec.field(name="rows")
    last: bool = msgspec.field(name="last")
    """The table's snapshot is complete with this chunk."""
    repeated: bool = msgspec.field(name="repeated", default=False)
    """The table was snapshotted before; keys of the range that are neither in the chunk nor in a later
    event must be deleted.
    """


class Undecodable(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Columns with the value `{"undecodable": base64}` in the image, the bytes as the source stores
    them.

    Never of the key.
    """

    before: tuple[str, ...] = msgspec.field(name="before", default=())
    after: tuple[str, ...] = msgspec.field(name="after", default=())


class LogRows(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Rows of a materialized view log from which the event was made: (ROWID, SEQUENCE$$) of each, and
    the XID$$ if it exists.
    """

    rows: tuple[tuple[str, int], ...] = msgspec.field(name="rows")
    xid: str | None = msgspec.field(name="xid", default=None)


class ColumnChanges(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The columns that a statement changes, by name.

    A column that is dropped and added is another one, whatever its type.
    """

    renamed: dict[str, str] = msgspec.field(name="renamed", default_factory=dict)
    """Old name → new name."""
    added: tuple[str, ...] = msgspec.field(name="added", default=())
    dropped: tuple[str, ...] = msgspec.field(name="dropped", default=())
    modified: tuple[str, ...] = msgspec.field(name="modified", default=())
    """Columns that are defined again, by their new names."""
    converted: bool = msgspec.field(name="converted", default=False)
    """CONVERT TO CHARACTER SET."""


class EventEnvelope(msgspec.Struct, kw_only=True):
    """One event. op: c u d r(snapshot read) t(truncate) m(definition, DDL or chunk marker)
    p(rows removed by a statement) k(keys of a sweep's chunk).

    An `m` event has `definition`, `chunk` or `stop`. A `p` event has `ddl`. A `k` event has `keys`, or, as
    the begin of a sweep, `definition` and `copy`.
    """

    op: EventOp = msgspec.field(name="op")
    before: dict[str, Value] | None = msgspec.field(name="before", default=None)
    after: dict[str, Value] | None = msgspec.field(name="after", default=None)
    source: Source = msgspec.field(name="source")
    transaction: Transaction | None = msgspec.field(name="transaction", default=None)
    ts_ms: int = msgspec.field(name="ts_ms")  # when capture made the event
    definition: Table | None = msgspec.field(name="definition", default=None)
    """The table from here on."""
    ddl: str | None = msgspec.field(name="ddl", default=None)
    """The statement that caused the definition, if one did."""
    chunk: Chunk | None = msgspec.field(name="chunk", default=None)
    effect: str | None = msgspec.field(name="effect", default=None)
    """The statement's effect on the table's rows ("kept"); None: unknown."""
    stop: TableStop | None = msgspec.field(name="stop", default=None)
    """No event of the table follows until it is copied again."""
    copy: CopyMark | None = msgspec.field(name="copy", default=None)
    """With a definition: the table is copied again from here on.

    With a chunk: the copy that it belongs to.
    """
    columns: ColumnChanges | None = msgspec.field(name="columns", default=None)
    """The statement's changes of columns, if it does nothing else and all of them are known."""
    undecodable: Undecodable | None = msgspec.field(name="undecodable", default=None)
    log: LogRows | None = msgspec.field(name="log", default=None)
    """For a source with a log that is deleted once it is read: the log rows that identify the event."""
    keys: tuple[tuple[Value, ...], ...] | None = msgspec.field(name="keys", default=None)
    """Keys of rows that exist at the source, each with its columns in the order of the table's key."""
    left_out: tuple[LeftOutColumn, ...] | None = msgspec.field(name="left_out", default=None)
    """With a definition: the source's columns that are not published. Capture needs their places in the log;
    readers ignore them.
    """
