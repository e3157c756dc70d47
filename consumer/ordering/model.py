"""The consumer's data between decode and target: routed tables, row changes, net changes, progress.

Everything here is plain data without I/O. Rows are tuples of wire values (schemas/table/model.py) in the order of the
*target* table's columns, after routing (renamed table, added columns).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import msgspec

from schemas.table.model import Key, Row, Table
from schemas.wire.position import ZERO, Position

ChangeId = tuple[int, int]
"""(Kafka offset, part): the order of tickets. Part 1 is the insert half of an update that moves the key."""


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Options by which a routed table becomes records of a topic, as its route says (schemas.config.kinds.topics.TopicConfig).

    `key`: columns of the routing key, () is the primary key; `partitions`: None is what the topic has; `columns`: those that are written,
    () is all; `where`: (column, values as text) pairs that a row must have; `masks`: (column, "sha256" or a fixed text) pairs.
    """

    format: str = "rowlock"
    key: tuple[str, ...] = ()
    partitions: int | None = None
    partitioner: str = "murmur2"
    tombstones: bool = True
    columns: tuple[str, ...] = ()
    where: tuple[tuple[str, tuple[str | None, ...]], ...] = ()
    masks: tuple[tuple[str, str], ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()  # (source, its kind) of the pipeline's sources

    @property
    def names_origin(self) -> bool:
        """Tell whether records say of which source's table they are."""
        return self.format not in ("plain", "canal-json")


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """The topic that a table is written to as events, and where these come from, in the source's names. `connector`: the source's kind.
    `whole`: the routed table with all its columns, whichever part of it a `TargetTable` has; `added`: the values of added columns."""

    name: str
    options: TopicOptions
    source: str
    connector: str
    db: str
    table: str
    whole: Table
    added: tuple[tuple[str, str], ...] = ()


LossKind = Literal["digits", "characters", "bytes", "spaces", "padding", "label"]
"""What the value of a lossy column may lose: digits behind the point, spaces behind so many characters or bytes, all spaces at its end, its length,
that it is no label."""


@dataclass(frozen=True, slots=True)
class LossyColumn:
    """A column of the target whose server changes some values without an error (consumer.tables.lossy_columns).

    `at`: its place in a row. `room`: the digits, characters or bytes that it stores.
    """

    at: int
    name: str
    loss: LossKind
    room: int


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table of the target that one topic writes, in target terms.

    `table` is the model with the columns that rowlock writes; `unique` of it are the unique indexes of the *real*
    target table (not only of the source). `key_at` and `unique_at` are column ordinals. `added`: columns of `add:`.
    `more`: the real table has columns that rowlock does not write. `topic`: it is written as events: every change counts, not the net one.
    `lossy`: columns of the real table whose server would change a value without an error.
    """

    table: Table
    key_at: tuple[int, ...]
    unique_at: tuple[tuple[int, ...], ...]
    added: tuple[str, ...] = ()
    more: bool = False
    topic: TargetTopic | None = None
    lossy: tuple[LossyColumn, ...] = ()

    @property
    def schema(self) -> str:
        return self.table.db

    @property
    def name(self) -> str:
        return self.table.name


class RowChange(msgspec.Struct, gc=False):
    """One row change in offset order: insert (before None), delete (after None) or update, possibly of the key.

    `position`, `gen`, `ts_ms` (source commit time) and `wire` (the event's JSON) are where it comes from.
    `refused`: why it cannot be applied, known without asking the target: it goes to quarantine.
    `snapshot`: a row that a snapshot read: the whole state of its key (`after`), and no change of one.
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
    """The net change of a gather in one table; applied as: delete `deletes` and the keys of `replaces`, then write `snapshot` in place,
    then insert `replaces`, then write `updates` in place. Each list is sorted by key; no key is in two lists.

    In place: the row's columns that the table does not name keep their values, and its key gets the bytes of the row that is written, where the
    target holds other bytes equal (-0.0 and 0.0, a case, trailing spaces). Where the row is missing, it is inserted.

    `updates`: key and unique values compare equal from first before-image to last after-image.
    `snapshot`: what a snapshot read of a key, and what became of it since: of the row that the target has under the key nothing is known. In a
    first snapshot every row is missing, and costs no more than an insert.
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
    def rows(self) -> Iterator[Row]:
        """The rows that it leaves."""
        return chain(self.snapshot, self.replaces, self.updates)


@dataclass(slots=True)
class EveryChange:
    """Every change of a gather in a table that is written as events, in event order."""

    table: TargetTable
    changes: list[RowChange]

    @property
    def size(self) -> int:
        return len(self.changes)

    @property
    def rows(self) -> Iterator[Row]:
        """The rows that its changes leave, one after another."""
        return (change.after for change in self.changes if change.after is not None)


ReducedChanges = NetChange | EveryChange
"""A gather of one table, as it is written."""


@dataclass(frozen=True, slots=True)
class ApplyUnit:
    """An apply unit: one topic of one pipeline."""

    pipeline: str
    topic: str


class LaneProgress(msgspec.Struct, frozen=True):
    """A row of `rowlock_progress`. `offset`: last applied Kafka offset (-1: none). `layout`: JSON of consumer.ordering.layout."""

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
    """A row of `rowlock_unit`: what holds for the unit as a whole.

    `definition`: JSON of the source's schemas.table.model.Table in force (None before the first). `ddl`: None, or
    JSON (consumer.tables.evolution.plans.ChangeMark) while statements run that commit by themselves. `stopped`: why the unit waits for a person, and
    `since_ms` since when.
    """

    definition: str | None = msgspec.field(name="definition")
    ddl: str | None = msgspec.field(name="ddl")
    stopped: str | None = msgspec.field(name="stopped")
    since_ms: int | None = msgspec.field(name="since_ms", default=None)

    def __eq__(self, other: object) -> bool:
        """Compare what holds, not since when."""
        if not isinstance(other, UnitState):
            return NotImplemented
        return (self.definition, self.ddl, self.stopped) == (other.definition, other.ddl, other.stopped)

    def __hash__(self) -> int:
        return hash((self.definition, self.ddl, self.stopped))


class QuarantineEntry(msgspec.Struct, frozen=True):
    """An entry of `rowlock_quarantine`: an event (whole, as its wire JSON) that could not be applied, or that came
    later for a held key. `key`: JSON of the exact target key; `folded`: the folded key as text, by which later
    changes of the key are recognised. `part`: which half of a key move."""

    offset: int = msgspec.field(name="offset")
    part: int = msgspec.field(name="part")
    table: str = msgspec.field(name="table")  # "schema.name" in the target
    key: str = msgspec.field(name="key")
    folded: str = msgspec.field(name="folded")
    event: str = msgspec.field(name="event")
    error: str = msgspec.field(name="error")  # why; for entries queued behind another: "held behind offset N"
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms")
