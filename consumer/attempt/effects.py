"""The effects that an attempt requests from its driver. Plain values.

The product carries effects out with threads and connections (consumer.attempt.drivers), the simulation
with a modelled target and its own schedule (tests/sim). A `Machine` is a generator: it yields an effect,
and the driver sends it the effect's result or throws the effect's error into it.

The class of an effect names the type of its result, so mypy knows what `ask_driver` returns, and refuses
a driver's handler that returns something else.

```python
def example() -> Machine[int]:
    rows, state, held = yield from ask_driver(BeginAttempt())
    yield Sleep(0.5)   # an effect without a result needs no `ask_driver`
    return len(rows)
```
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.keys import KeyComparison
from consumer.attempt.operations import Operation
from consumer.attempt.readers.reader import RecordSlice
from consumer.ordering.model import LaneProgress, QuarantineEntry, TargetTable, UnitState
from consumer.tables.definition import ActiveDefinition
from consumer.tables.stored import StoredDefinition
from consumer.targets.alterations import AlterTable, DropTable
from schemas.problems import Problem
from schemas.table.model import Key, Table

if TYPE_CHECKING:
    from consumer.attempt.copies.table_sweep import TableSweep
    from consumer.attempt.lane_group import LaneGroup

R = TypeVar("R")
"""The type of an effect's result."""
T = TypeVar("T")
D = TypeVar("D")
"""The class of a driver."""
E = TypeVar("E", bound="Effect[Any]")


class Effect(Generic[R]):
    """A request to the driver, with a result of type `R`."""

    __slots__ = ()

    @classmethod
    def bind_handler(cls: type[E], handler: Callable[[D, E], R]) -> Binding[D]:
        """Return an entry of a HandlerTable: `handler`, a method of the driver, carries this effect out."""
        return cls, handler

    @classmethod
    def refuse(cls: type[E], reason: str) -> Binding[object]:
        """Return an entry of a HandlerTable for an effect that the driver never meets because of `reason`."""

        def raise_refusal(_driver: object, effect: E) -> NoReturn:
            raise NotImplementedError(f"{effect} is not carried out here: {reason}")

        return cls, raise_refusal


EffectHandler = Callable[[D, Any], Any]
"""(driver, effect) → the effect's result."""
Binding = tuple[type[Effect[Any]], EffectHandler[D]]
"""A class of effects, and the handler that carries out its effects."""
Machine = Generator[Effect[Any], object, T]
"""A generator of effects that returns a T."""


def ask_driver(effect: Effect[R]) -> Machine[R]:
    """Yield one effect, and return its result."""
    return cast(R, (yield effect))


class HandlerTable(Generic[D]):
    """The handlers of a driver of class `D`, by the class of the effect."""

    def __init__(self, *bindings: Binding[D]) -> None:
        self.handlers = dict(bindings)
        if len(self.handlers) != len(bindings):
            raise ValueError("an effect has two handlers")

    def carry_out(self, driver: D, effect: Effect[R]) -> R:
        """Carry out an effect, and return its result."""
        return cast(R, self.handlers[type(effect)](driver, effect))


# --- the target


@dataclass(frozen=True, slots=True)
class BeginAttempt(Effect[tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]]):
    """Begin an attempt at the unit under its fencing token."""


@dataclass(frozen=True, slots=True)
class ReadProgress(Effect[list[LaneProgress]]):
    """Read the unit's lane rows without locks, over session `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class ReadQuarantine(Effect[list[QuarantineEntry]]):
    """Read the unit's quarantine entries without locks.

    A transaction guards what depends on them.
    """


@dataclass(frozen=True, slots=True)
class Transact(Effect[None]):
    """Carry out `operations` in one transaction that guards the rows of `guards`, over session `number`.

    `displaced`: the driver adds the number of rows displaced by each WriteChanges at once, so that it is
    known even if the outcome of the commit is not. `lock_wait_s`: seconds to wait for a row lock; None: the
    session's limit.
    """

    number: int
    guards: Sequence[LaneProgress]
    operations: Sequence[Operation]
    displaced: list[int] = field(default_factory=list)
    lock_wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class CheckSession(Effect[None]):
    """Drop session `number` if its connection is broken. Requested after an error."""

    number: int


@dataclass(frozen=True, slots=True)
class DropSession(Effect[None]):
    """Close session `number`, so that the next effect over it opens a new one."""

    number: int


@dataclass(frozen=True, slots=True)
class StopUnit(Effect[None]):
    """Record in the target that the unit is stopped, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class ListKeys(Effect[Sequence[Key]]):
    """List a page of the keys of `table` with `after` < key <= `upto`, in the target's order, of rows
    that match `where`.

    `table` has its key's columns and no others. The result has the keys as the target shows them; none
    at the end.
    """

    table: TargetTable
    after: Key | None
    upto: Key | None
    where: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class LookUpKeys(Effect[Sequence[Key]]):
    """Look up the rows that the target finds under `keys`. `table`: as in ListKeys.

    The result has their keys as the target shows them. A key that the target cannot hold is not among
    them.
    """

    table: TargetTable
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class FindKeptKeys(Effect[Sequence[str]]):
    """Find those of `keys` whose rows of `table` ("schema.name") the unit keeps although the source removed
    them. Keys are in the form of `format_entry_key`.
    """

    table: str
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class FindKeptRows(Effect[bool]):
    """Find out whether the unit keeps any row that the source removed."""


# --- the definition


@dataclass(frozen=True, slots=True)
class RestoreDefinition(Effect[ActiveDefinition]):
    """Build the active definition from the stored definition `text`, or take it from the cache."""

    text: str


@dataclass(frozen=True, slots=True)
class PrepareDefinition(Effect[ActiveDefinition]):
    """Build the active definition from `stored`; if it is the unit's `first`, create the target table."""

    stored: StoredDefinition
    first: bool


@dataclass(frozen=True, slots=True)
class ExplainMisfit(Effect[Problem | None]):
    """Check the target table of a definition as `check` does. The result is what is wrong with it."""

    stored: StoredDefinition


@dataclass(frozen=True, slots=True)
class ReadTable(Effect[Table | None]):
    """Read the target table of the definition `source`. The result is None if there is no table."""

    source: Table


@dataclass(frozen=True, slots=True)
class ReadSharers(Effect[Sequence[str]]):
    """Find the other units of the pipeline that write the target table of `source`; the result has their
    topics.
    """

    source: Table


@dataclass(frozen=True, slots=True)
class OwnConnection(Effect[int | None]):
    """Find the id of the connection that alters tables; None if tables are altered in transactions."""


@dataclass(frozen=True, slots=True)
class AlterTarget(Effect[None]):
    """Alter or drop a table over `connection`; each statement commits by itself."""

    change: AlterTable | DropTable
    connection: int


@dataclass(frozen=True, slots=True)
class EndConnection(Effect[None]):
    """End a connection over which a dead attempt may still alter the table, and wait until it has ended."""

    connection: int


# --- records, time, lanes


@dataclass(frozen=True, slots=True)
class NextSlice(Effect[RecordSlice | None]):
    """Read the next slice of the records given to the attempt.

    The result is None at the end.
    """


@dataclass(frozen=True, slots=True)
class ReadMissing(Effect[RecordSlice | None]):
    """Read the next slice of the records [start, upto) from Kafka; the first of these effects opens the
    read.

    The result is None at the end.
    """

    start: int
    upto: int


@dataclass(frozen=True, slots=True)
class ReadPassed(Effect[RecordSlice | None]):
    """Read the next slice of the records [start, upto) from Kafka, which the attempt has read before.

    The first of these effects opens the read. The result is None at the end.
    """

    start: int
    upto: int


@dataclass(frozen=True, slots=True)
class ReadRest(Effect[RecordSlice | None]):
    """Read the next slice of the topic from the offset `start` to its present end.

    The effect after the last None opens the read again. The result is None at the end.
    """

    start: int


@dataclass(frozen=True, slots=True)
class AskSource(Effect[Sequence[Key]]):
    """Ask the source for the rows that it finds under `keys` of `table`, which is the source's own.

    The result has their keys as the source shows them. Raises TransientError if the source cannot be reached,
    and TargetConfigError if it has no such table or refuses the user.
    """

    table: Table
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class FindBegin(Effect[tuple[int, bytes] | None]):
    """Find an event after the offset `after` with which a copy of the table begins.

    `hint`: the offset of one, if known. The result is (offset, value).
    """

    after: int
    hint: int | None


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table that Debezium has read again, at the offsets `first` to `last` of its topic.

    `table`: its present definition at the source.
    """

    first: int
    last: int
    table: Table


@dataclass(frozen=True, slots=True)
class FindSnapshot(Effect[TableSnapshot | None]):
    """Find Debezium's newest complete snapshot after the offset `after`, and read the table's definition
    at the source.
    """

    after: int


@dataclass(frozen=True, slots=True)
class OpenKeys(Effect[KeyComparison]):
    """Open storage for the keys of a table, which the requester closes."""


@dataclass(frozen=True, slots=True)
class TakeKeySweep(Effect["KeySweep | TableSweep | None"]):
    """Take what the process remembers of the unit's key sweep, which it forgets; None: nothing."""


@dataclass(frozen=True, slots=True)
class RememberKeySweep(Effect[None]):
    """Remember `sweep` for the unit's next attempt in this process."""

    sweep: KeySweep | TableSweep


@dataclass(frozen=True, slots=True)
class Sleep(Effect[None]):
    """Wait for `seconds`. A lane's pause ends early when the lanes are stopping."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ReadClock(Effect[float]):
    """Return the time in seconds, by a clock that never goes back."""


@dataclass(frozen=True, slots=True)
class Await(Effect[None]):
    """Wait until `ready()` is true. The function reads the lanes' shared state and is called again after
    every wake-up.
    """

    ready: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class StartLanes(Effect[None]):
    """Run `lanes.run_lane(n)` for every lane, concurrently with the attempt.

    A lane's error goes to `lanes.record_lane_error`.
    """

    lanes: LaneGroup


@dataclass(frozen=True, slots=True)
class JoinLanes(Effect[None]):
    """Wait until every lane of `lanes`, which are stopping, has ended."""

    lanes: LaneGroup
