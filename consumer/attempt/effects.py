"""The effects that an attempt asks its driver for. Data only: the product carries it out with threads and connections
(consumer.attempt.drivers.threads), the simulation with a modelled target and a schedule of its own (tests/sim).

A machine is a generator: it yields an effect, is sent what the effect came to, or is thrown the error it ended with.

```python
def example() -> Machine[int]:
    rows, state, held = yield Begin()          # the driver: machine.send(result) or machine.throw(error)
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
    """Begin an attempt of the unit under its epoch. Sent: (lane rows, unit state, quarantine entries)."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """Read the unit's lane rows without locks, over session `number`. Sent: the rows."""

    number: int


@dataclass(frozen=True, slots=True)
class ReadQuarantine:
    """Read the unit's quarantine entries without locks; what rests on them is guarded by a transaction. Sent: the entries."""


@dataclass(frozen=True, slots=True)
class Transact:
    """Carry out `operations` in one transaction that guards the rows of `guards`, over session `number`.

    `displaced`: the driver adds what each `Write` displaced as it goes, so that it is known also where the outcome of the
    commit is not.
    """

    number: int
    guards: Sequence[LaneProgress]
    operations: Sequence[Operation]
    displaced: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CheckSession:
    """After an error: drop session `number` if its connection is broken."""

    number: int


@dataclass(frozen=True, slots=True)
class DropSession:
    """Close session `number`, so that the next effect over it makes a new one."""

    number: int


@dataclass(frozen=True, slots=True)
class StopUnit:
    """Record in the target that the unit waits for a person."""

    why: str


@dataclass(frozen=True, slots=True)
class ListKeys:
    """List keys of `table`, which has its key's columns and no others: some with `after` < key <= `upto`, in the order in which the target
    lists them, of rows where `where` holds. Sent: the keys, as the target shows them; none at the end."""

    table: TargetTable
    after: Key | None
    upto: Key | None
    where: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class LookUpKeys:
    """Look for the rows that the target finds under `keys`. `table`: as in ListKeys. Sent: their keys, as the target shows
    them; a key that the target cannot hold is not there."""

    table: TargetTable
    keys: Sequence[Key]


# --- the definition


@dataclass(frozen=True, slots=True)
class RestoreDefinition:
    """Build what follows from the stored definition `text`, or look it up. Sent: an InForce."""

    text: str


@dataclass(frozen=True, slots=True)
class PrepareDefinition:
    """Build what follows from a definition, with its target table made if it is the unit's `first`. Sent: an InForce."""

    stored: StoredDefinition
    first: bool


@dataclass(frozen=True, slots=True)
class ExplainMisfit:
    """Judge the target table of a definition as `check` does. Sent: what is wrong with it, or None."""

    stored: StoredDefinition


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Read the target table of the definition in force. Sent: it, or None."""

    source: Table


@dataclass(frozen=True, slots=True)
class ReadSharers:
    """Ask which other units of the pipeline write the target table of `source`. Sent: their topics."""

    source: Table


@dataclass(frozen=True, slots=True)
class OwnConnection:
    """Ask which connection changes tables. Sent: its number; None: tables are changed in transactions."""


@dataclass(frozen=True, slots=True)
class AlterTarget:
    """Change a table over `connection`, each statement committing by itself."""

    change: AlterTable | DropTable
    connection: int


@dataclass(frozen=True, slots=True)
class EndConnection:
    """End a connection over which a dead attempt may still change the table, and wait until it is gone."""

    connection: int


# --- records, time, lanes


@dataclass(frozen=True, slots=True)
class NextSlice:
    """Read on in what the attempt was given. Sent: a Slice, None at the end. Thrown: InputLostError."""


@dataclass(frozen=True, slots=True)
class ReadMissing:
    """Read on in the records [start, upto) of Kafka itself; the first of these effects opens them. Sent: a Slice, None at the end."""

    start: int
    upto: int


@dataclass(frozen=True, slots=True)
class ReadPassed:
    """Read on in the records [start, upto) of Kafka, which the attempt has passed; the first of these effects opens them. Sent: a Slice,
    None at the end."""

    start: int
    upto: int


@dataclass(frozen=True, slots=True)
class ReadBehind:
    """Read on in what the topic holds from the offset `start` to its present end; the effect behind the last None opens it anew. Sent: a
    Slice, None at the end."""

    start: int


@dataclass(frozen=True, slots=True)
class AskSource:
    """Ask the source for the rows that it finds under `keys` of `table`, its own. Sent: their keys, as it shows them. Thrown: TransientError (it
    cannot be reached), TargetConfigError (it has no such table, or refuses the user)."""

    table: Table
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class FindBegin:
    """Find an event behind the offset `after` with which a copy of the table begins. `hint`: where there is one, as far as is known.
    Sent: (offset, value), or None."""

    after: int
    hint: int | None


@dataclass(frozen=True, slots=True)
class FindSnapshot:
    """Find the newest whole snapshot of Debezium's behind the offset `after`, and read the table's definition at the source. Sent: a Reread
    (consumer.attempt.copies.snapshots), or None."""

    after: int


@dataclass(frozen=True, slots=True)
class OpenKeys:
    """Make room for the keys of a table. Sent: a KeyCheck, which who asked closes."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let `seconds` go by; a lane's pause ends early when the lanes are stopping."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Await:
    """Wait until `ready()`; it reads the lanes' shared state and is asked again whenever somebody was woken."""

    ready: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class StartLanes:
    """Drive `lanes.lane(n)` for every lane, beside this machine; an error of one goes to `lanes.failed`."""

    lanes: LaneGroup


@dataclass(frozen=True, slots=True)
class JoinLanes:
    """Wait until every lane of `lanes`, which are stopping, has ended."""

    lanes: LaneGroup


RecordEffect = NextSlice | ReadMissing | ReadPassed | ReadBehind | FindBegin | FindSnapshot | AskSource
"""Effects that say what stands in the topic, or at the source that it is of."""
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
"""A machine that ends with a T."""


def ask_driver(effect: AttemptEffect) -> Machine[Any]:
    """The machine that yields one effect and ends with what it came to."""
    return (yield effect)
