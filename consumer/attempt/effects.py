"""The effects that an attempt requests from its driver. Plain values.

The product carries effects out with threads and connections (consumer.attempt.drivers.threads), the
simulation with a modelled target and its own schedule (tests/sim). A `Machine` is a generator: it yields
an effect, and the driver sends it the effect's result or throws the effect's error into it.

```python
def example() -> Machine[int]:
    rows, state, held = yield BeginAttempt()   # the driver: machine.send(result) or machine.throw(error)
    return len(rows)
```
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from consumer.attempt.operations import Operation
from consumer.ordering.model import LaneProgress, TargetTable
from consumer.tables.stored import StoredDefinition
from consumer.targets.alterations import AlterTable, DropTable
from schemas.table.model import Key, Table

if TYPE_CHECKING:
    from consumer.attempt.lane_group import LaneGroup

T = TypeVar("T")

# --- the target


@dataclass(frozen=True, slots=True)
class BeginAttempt:
    """Begin an attempt at the unit under its fencing token.

    Result: (lane rows, unit state, quarantine entries).
    """


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Read the unit's lane rows without locks, over session `number`. Result: the rows."""

    number: int


@dataclass(frozen=True, slots=True)
class ReadQuarantine:
    """Read the unit's quarantine entries without locks.

    A transaction guards what depends on them. Result: the entries.
    """


@dataclass(frozen=True, slots=True)
class Transact:
    """Carry out `operations` in one transaction that guards the rows of `guards`, over session `number`.

    `displaced`: the driver adds the number of rows displaced by each WriteChanges at once, so that it is
    known even if the outcome of the commit is not.
    """

    number: int
    guards: Sequence[LaneProgress]
    operations: Sequence[Operation]
    displaced: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckSession:
    """Drop session `number` if its connection is broken. Requested after an error."""

    number: int


@dataclass(frozen=True, slots=True)
class DropSession:
    """Close session `number`, so that the next effect over it opens a new one."""

    number: int


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Record in the target that the unit is stopped, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class ListKeys:
    """List a page of the keys of `table` with `after` < key <= `upto`, in the target's order, of rows
    that match `where`.

    `table` has its key's columns and no others. Result: the keys, as the target shows them; none at the
    end.
    """

    table: TargetTable
    after: Key | None
    upto: Key | None
    where: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class LookUpKeys:
    """Look up the rows that the target finds under `keys`. `table`: as in ListKeys.

    Result: their keys, as the target shows them. A key that the target cannot hold is not among them.
    """

    table: TargetTable
    keys: Sequence[Key]


# --- the definition


@dataclass(frozen=True, slots=True)
class RestoreDefinition:
    """Build the active definition from the stored definition `text`, or take it from the cache.

    Result: an ActiveDefinition.
    """

    text: str


@dataclass(frozen=True, slots=True)
class PrepareDefinition:
    """Build the active definition from `stored`; if it is the unit's `first`, create the target table.

    Result: an ActiveDefinition.
    """

    stored: StoredDefinition
    first: bool


@dataclass(frozen=True, slots=True)
class ExplainMisfit:
    """Check the target table of a definition as `check` does. Result: what is wrong with it, or None."""

    stored: StoredDefinition


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Read the target table of the definition `source`. Result: the table, or None."""

    source: Table


@dataclass(frozen=True, slots=True)
class ReadSharers:
    """Find the other units of the pipeline that write the target table of `source`. Result: their topics."""

    source: Table


@dataclass(frozen=True, slots=True)
class OwnConnection:
    """Find the connection that alters tables. Result: its id; None if tables are altered in transactions."""


@dataclass(frozen=True, slots=True)
class AlterTarget:
    """Alter or drop a table over `connection`; each statement commits by itself."""

    change: AlterTable | DropTable
    connection: int


@dataclass(frozen=True, slots=True)
class EndConnection:
    """End a connection over which a dead attempt may still alter the table, and wait until it has ended."""

    connection: int


# --- records, time, lanes


@dataclass(frozen=True, slots=True)
class NextSlice:
    """Read the next slice of the records given to the attempt.

    Result: a RecordSlice, None at the end. Raises InputLostError.
    """


@dataclass(frozen=True, slots=True)
class ReadMissing:
    """Read the next slice of the records [start, upto) from Kafka; the first of these effects opens the
    read.

    Result: a RecordSlice, None at the end.
    """

    start: int
    upto: int


@dataclass(frozen=True, slots=True)
class ReadPassed:
    """Read the next slice of the records [start, upto) from Kafka, which the attempt has read before.

    The first of these effects opens the read. Result: a RecordSlice, None at the end.
    """

    start: int
    upto: int


@dataclass(frozen=True, slots=True)
class ReadRest:
    """Read the next slice of the topic from the offset `start` to its present end.

    The effect after the last None opens the read again. Result: a RecordSlice, None at the end.
    """

    start: int


@dataclass(frozen=True, slots=True)
class AskSource:
    """Ask the source for the rows that it finds under `keys` of `table`, which is the source's own.

    Result: their keys, as the source shows them. Raises TransientError if the source cannot be reached,
    and TargetConfigError if it has no such table or refuses the user.
    """

    table: Table
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class FindBegin:
    """Find an event after the offset `after` with which a copy of the table begins.

    `hint`: the offset of one, if known. Result: (offset, value), or None.
    """

    after: int
    hint: int | None


@dataclass(frozen=True, slots=True)
class FindSnapshot:
    """Find Debezium's newest complete snapshot after the offset `after`, and read the table's definition
    at the source.

    Result: a TableSnapshot (consumer.attempt.copies.snapshots), or None.
    """

    after: int


@dataclass(frozen=True, slots=True)
class OpenKeys:
    """Open storage for the keys of a table. Result: a KeyComparison, which the requester closes."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait for `seconds`. A lane's pause ends early when the lanes are stopping."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until `ready()` is true. The function reads the lanes' shared state and is called again after
    every wake-up.
    """

    ready: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class StartLanes:
    """Run `lanes.run_lane(n)` for every lane, concurrently with the attempt.

    A lane's error goes to `lanes.record_lane_error`.
    """

    lanes: LaneGroup


@dataclass(frozen=True, slots=True)
class JoinLanes:
    """Wait until every lane of `lanes`, which are stopping, has ended."""

    lanes: LaneGroup


RecordEffect = NextSlice | ReadMissing | ReadPassed | ReadRest | FindBegin | FindSnapshot | AskSource
"""The effects that read the topic, or the source to which it belongs."""
AttemptEffect = (
    RecordEffect
    | BeginAttempt
    | ReadProgress
    | ReadQuarantine
    | Transact
    | CheckSession
    | DropSession
    | StopUnit
    | ListKeys
    | LookUpKeys
    | RestoreDefinition
    | PrepareDefinition
    | ExplainMisfit
    | ReadTable
    | ReadSharers
    | OwnConnection
    | AlterTarget
    | EndConnection
    | OpenKeys
    | Sleep
    | Await
    | StartLanes
    | JoinLanes
)
Machine = Generator[AttemptEffect, Any, T]
"""A generator of effects that returns a T."""


def ask_driver(effect: AttemptEffect) -> Machine[Any]:
    """Yield one effect, and return its result."""
    return (yield effect)
