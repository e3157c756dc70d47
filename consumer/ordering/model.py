"""The consumer's data between decoding and target: routed tables, row changes, net changes, progress.

Plain data without I/O. Rows are tuples of wire values (schemas/table/model.py) in the order of the
*target* table's columns, after routing (renamed table, added columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Literal

import msgspec

from schemas.table.model import Key, Row, Table
from schemas.wire.position import ZERO, Position

ChangeId = tuple[int, int]
"""(Kafka offset, part): the order of tickets. Part 1 is the insert half of an update that moves the key."""


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The options by which a routed table becomes a topic's records, from its route
    (schemas.config.kinds.topics.TopicConfig).
    """

    format: str = "rowlock"
    key: tuple[str, ...] = ()
    """Columns of the routing key; (): the primary key."""
    partitions: int | None = None
    """None: as the topic has them."""
    partitioner: str = "murmur2"
    tombstones: bool = True
    columns: tuple[str, ...] = ()
    """The columns that are written; (): all."""
    where: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    """(column, values as text) pairs that a row must have."""
    masks: tuple[tuple[str, str], ...] = ()
    """(column, "sha256" or a fixed text) pairs."""
    kinds: tuple[tuple[str, str], ...] = ()  # (source, its type) of the pipeline's sources

    @property
    def names_origin(self) -> bool:
        """True if records name the source's table."""
        return self.format not in ("plain", "canal-json")


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """The topic to which a table is written as events, and the origin of these, in the source's names."""

    name: str
    options: TopicOptions
    source: str
    connector: str
    """The source's type."""
    db: str
    table: str
    whole: Table
    """The routed table with all its columns, whichever part of it a `TargetTable` has."""
    added: tuple[tuple[str, str], ...] = ()
    """The values of added columns."""


LossKind = Literal["digits", "characters", "bytes", "spaces", "padding", "label"]
"""What a value of a lossy column may lose: digits after the point, spaces after a number of characters
or bytes, all trailing spaces, its length, or that it is no label."""


@dataclass(frozen=True, slots=True)
class LossyColumn:
    """A column of the target in which the server changes some values silently
    (`refuse_losses`).

    `at`: its place in a row. `room`: the digits, characters or bytes that it stores.
    """

    at: int
    name: str
    loss: LossKind
    room: int


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table of the target that one topic writes, in target terms."""

    table: Table
    """The table with the columns that rowlock writes; its `unique` are the unique indexes of the *real*
    target table, not only of the source."""
    key_at: tuple[int, ...]
    """Ordinals of the key's columns."""
    unique_at: tuple[tuple[int, ...], ...]
    """Ordinals of each unique index's columns."""
    added: tuple[str, ...] = ()
    """Columns of `add:`."""
    more: bool = False
    """Whether the real table has columns that rowlock does not write."""
    topic: TargetTopic | None = None
    """The topic of a table that is written as events: every change is written, not the net change."""
    lossy: tuple[LossyColumn, ...] = ()
    """Columns of the real table in which the server would change a value silently."""
    has_kept_rows: bool = False
    """Whether `rowlock_kept` may have keys of the table: a key that is written or deleted leaves it."""
    has_same_key_kinds: bool = False
    """Whether the key's columns are known to have the kinds of `table` in the real table, too."""

    @property
    def schema(self) -> str:
        return self.table.db

    @property
    def name(self) -> str:
        return self.table.name


class RowChange(msgspec.Struct, gc=False):
    """One row change in offset order: insert (before None), delete (after None) or update, possibly of
    the key.

    `position`, `gen`, `ts_ms` (source commit time) and `wire` (the event's JSON) are its origin.
    `refused`: why it cannot be applied, known without the target; it is quarantined. `snapshot`: a row
    read by a snapshot: the complete state of its key (`after`), not a change.
    """

    id: ChangeId
    before: Row | None
    after: Row | None
    position: Position = ZERO
    gen: int = 0
    ts_ms: int = 0
    wire: bytes = b"{}"
    refused: str | None = None
    snapshot: bool = False


@dataclass(slots=True)
class NetChange:
    """The net change of a batch in one table.

    It is applied in this order: delete `deletes` and the keys of `replaces`, write `snapshot` in place,
    insert `replaces`, write `updates` in place. Each list is sorted by key; no key is in two lists.

    In place means: columns that the table does not name keep their values, and the key gets the bytes of
    the written row if the target treats other bytes as equal (-0.0 and 0.0, a case, trailing spaces). A
    missing row is inserted.

    `updates`: key and unique values compare equal from first before-image to last after-image.
    `snapshot`: rows read by a snapshot, with later changes; the target's row under the key is unknown.
    In a first snapshot every row is missing, and costs no more than an insert.
    """

    table: TargetTable
    deletes: list[Key] = field(default_factory=list)
    replaces: list[Row] = field(default_factory=list)
    updates: list[Row] = field(default_factory=list)
    snapshot: list[Row] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.deletes) + len(self.replaces) + len(self.updates) + len(self.snapshot)

    @property
    def deleted(self) -> int:
        """The number of its changes after which the row does not exist."""
        return len(self.deletes)

    @property
    def rows(self) -> Iterator[Row]:
        """The rows after the change."""
        return chain(self.snapshot, self.replaces, self.updates)

    def list_keys_of_new_rows(self) -> list[Key]:
        """Return the keys whose former row, if there was one, is not the row after the change."""
        at = self.table.key_at
        written = (tuple(row[i] for i in at) for row in chain(self.snapshot, self.replaces))
        return [*self.deletes, *written]


@dataclass(slots=True)
class EveryChange:
    """Every change of a batch in a table that is written as events, in event order."""

    table: TargetTable
    changes: list[RowChange]

    @property
    def size(self) -> int:
        return len(self.changes)

    @property
    def deleted(self) -> int:
        """The number of its changes after which the row does not exist."""
        return sum(change.after is None for change in self.changes)

    @property
    def rows(self) -> Iterator[Row]:
        """The rows after each of its changes."""
        return (change.after for change in self.changes if change.after is not None)


ReducedChanges = NetChange | EveryChange
"""A batch's changes of one table, as they are written."""


@dataclass(frozen=True, slots=True)
class ApplyUnit:
    """An apply unit: one topic of one pipeline."""

    pipeline: str
    topic: str


class LaneProgress(msgspec.Struct, frozen=True):
    """A row of `rowlock_progress`. `offset`: last applied Kafka offset (-1: none).

    `epoch`: the fencing token. `layout`: JSON of consumer.ordering.layout.Layout.
    """

    lane: int = msgspec.field(name="lane")
    epoch: int = msgspec.field(name="epoch")
    attempt: int = msgspec.field(name="attempt")
    topic_id: str = msgspec.field(name="topic_id")
    offset: int = msgspec.field(name="offset")
    position: Position = msgspec.field(name="position")
    gen: int = msgspec.field(name="gen")
    layout: str = msgspec.field(name="layout")
    #: source commit time of the last applied event
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms", default=0)


class UnitState(msgspec.Struct, frozen=True):
    """A row of `rowlock_unit`: the state of the unit as a whole.

    `definition`: JSON of the active definition (consumer.tables.stored), None before the first. `ddl`:
    JSON of a consumer.tables.evolution.plans.ChangeMark while statements run that commit by themselves,
    otherwise None. `stopped`: why the unit is stopped; `since_ms`: since when.
    """

    definition: str | None = msgspec.field(name="definition")
    ddl: str | None = msgspec.field(name="ddl")
    stopped: str | None = msgspec.field(name="stopped")
    since_ms: int | None = msgspec.field(name="since_ms", default=None)

    def __eq__(self, other: object) -> bool:
        """Compare the state, not its time."""
        if not isinstance(other, UnitState):
            return NotImplemented
        return (self.definition, self.ddl, self.stopped) == (other.definition, other.ddl, other.stopped)

    def __hash__(self) -> int:
        return hash((self.definition, self.ddl, self.stopped))


class QuarantineEntry(msgspec.Struct, frozen=True):
    """An entry of `rowlock_quarantine`: an event that could not be applied, or a later event of a
    quarantined key.

    `event`: the whole event as its wire JSON. `key`: JSON of the exact target key. `folded`: the folded
    key as text, by which later changes of the key are recognised. `part`: the half of a key move.
    """

    offset: int = msgspec.field(name="offset")
    part: int = msgspec.field(name="part")
    table: str = msgspec.field(name="table")  # "schema.name" in the target
    key: str = msgspec.field(name="key")
    folded: str = msgspec.field(name="folded")
    event: str = msgspec.field(name="event")
    error: str = msgspec.field(name="error")  # for queued entries see QUEUED_AFTER
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms")


class AgedEntry(QuarantineEntry, frozen=True):
    """A quarantine entry as a target reads it that knows when it was written. The age is not stored."""

    age_ms: int = msgspec.field(name="age_ms")
    """How long ago the entry was written when it was read, by the target's clock."""


def build_aged_entry(entry: QuarantineEntry, age_ms: int) -> AgedEntry:
    """Return the entry with another age."""
    stored = {name: getattr(entry, name) for name in QuarantineEntry.__struct_fields__}
    return AgedEntry(**stored, age_ms=age_ms)


def format_entry_key(key: Key) -> str:
    """Return a key of the target as entries of the quarantine hold it (`QuarantineEntry.key`)."""
    return msgspec.json.encode(key).decode()


@lru_cache(maxsize=1000)
def parse_entry_key(text: str) -> Key:
    """Return the exact key of an entry (`QuarantineEntry.key`)."""
    key: Key = tuple(msgspec.json.decode(text))
    return key


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows that the source removed by a statement and that stay in the target (`partitions: keep`)."""

    table: str
    """The target table, "schema.name"."""
    keys: Sequence[str]
    """Keys as the target shows them, in the form of `format_entry_key`."""
    offset: int
    """Kafka offset of the statement's event."""
    statement: str


@dataclass(frozen=True, slots=True)
class ResolvedEntry:
    """An entry of `rowlock_quarantine_closed`: it was quarantined once. Times are milliseconds since 1970."""

    entry: QuarantineEntry
    closed: str
    """Why it left the quarantine."""
    held_at_ms: int
    closed_at_ms: int
