"""One unit on one agent, as a pure state machine of instructions, worker events and the lease.

```
  Absent ──prepare──▶ Preparing ──Prepared─▶ Prepared ──start──▶ Replicating
    ▲                     └──────── remove ─────┴──── remove, lease over ─┐
    └──────forget────── Stopped ◀────────── the worker has ended ── Stopping
```
`Replicating` means that the unit may write from now on. It is reported when the start is accepted,
before the worker takes over the progress row, so that no leader mistakes a worker that is about to write
for one that only waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coordinator.core.messages import UnitStatus
from schemas.units import (
    Prepared,
    PrepareProgress,
    UnitOperation,
    UnitPhase,
    UnitProgress,
    UnitProgressed,
    WorkerEnded,
    WorkerEvent,
)


@dataclass(frozen=True, slots=True)
class AgentUnit:
    """A unit as its agent holds it."""

    unit: str
    assignment: int = 0
    state: UnitPhase = UnitPhase.ABSENT
    closed: int = 0
    """The highest assignment that must not be taken up again."""
    deadline: float = 0.0
    """The end of the lease, in seconds of the agent's monotonic clock."""
    mark: UnitProgress | None = None
    rows_per_s: int = 0
    error: str | None = None
    steps: int = 0
    """The steps that the worker has reported while it prepares; see `UnitStatus`."""

    @property
    def status(self) -> UnitStatus:
        return UnitStatus(
            self.unit, self.assignment, self.state, self.mark, self.rows_per_s, self.error, self.steps
        )


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction that the agent has found valid."""

    op: UnitOperation
    assignment: int
    mark: UnitProgress | None = None
    deadline: float = 0.0
    """The end of the lease that a start grants."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease for this assignment until `deadline`."""

    assignment: int
    deadline: float


@dataclass(frozen=True, slots=True)
class UnitTick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the worker because the agent itself ends."""


UnitEvent = Instruction | WorkerEvent | Granted | UnitTick | Halt


@dataclass(frozen=True, slots=True)
class PrepareWorker:
    """Prepare a worker that writes nothing yet; it then reports `Prepared`."""

    unit: str
    assignment: int
    mark: UnitProgress | None


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Let the worker take the unit over under `assignment`, then write rows."""

    unit: str
    assignment: int
    mark: UnitProgress | None


@dataclass(frozen=True, slots=True)
class RemoveWorker:
    """Stop writing at once and close; the worker then reports `WorkerEnded`."""

    unit: str
    assignment: int


UnitEffect = PrepareWorker | StartWorker | RemoveWorker

_RUNS = frozenset({UnitPhase.PREPARING, UnitPhase.PREPARED, UnitPhase.REPLICATING})
_EMPTY = frozenset({UnitPhase.ABSENT, UnitPhase.STOPPED})


def step_agent_unit(
    held: AgentUnit, event: UnitEvent, now: float
) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    """Return the unit after `event` at `now` (seconds of the agent's monotonic clock), and what its
    worker has to do.

    Late events, that is events of another assignment than the one held, change nothing.
    """
    match event:
        case Instruction():
            return _follow_instruction(held, event, now)
        case WorkerEnded(assignment, mark, error) if (
            assignment == held.assignment and held.state not in _EMPTY
        ):
            return _mark_ended(held, mark, error), ()
        case Prepared(assignment) if assignment == held.assignment and held.state is UnitPhase.PREPARING:
            return replace(held, state=UnitPhase.PREPARED), ()
        case PrepareProgress(assignment) if (
            assignment == held.assignment and held.state is UnitPhase.PREPARING
        ):
            return replace(held, steps=held.steps + 1), ()
        case UnitProgressed(assignment, mark, rows, error) if (
            assignment == held.assignment and held.state not in _EMPTY
        ):
            return replace(held, mark=mark, rows_per_s=rows, error=error), ()
        case Granted(assignment, deadline) if assignment == held.assignment:
            return _expire_lease(replace(held, deadline=max(held.deadline, deadline)), now)
        case UnitTick():
            return _expire_lease(held, now)
        case Halt():
            return _halt_worker(held)
    return held, ()


def _follow_instruction(
    held: AgentUnit, instruction: Instruction, now: float
) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if instruction.op is UnitOperation.REMOVE:
        return _remove_worker(held, instruction.assignment)
    if instruction.op is UnitOperation.FORGET:
        noted = held.state is UnitPhase.STOPPED and held.assignment <= instruction.assignment
        return AgentUnit(held.unit, closed=held.closed) if noted else held, ()
    if instruction.op is UnitOperation.PREPARE:
        return _prepare_worker(held, instruction)
    startable = (
        held.assignment == instruction.assignment
        and held.state is UnitPhase.PREPARED
        and instruction.deadline > now
    )
    if not startable:
        return held, ()
    started = replace(held, state=UnitPhase.REPLICATING, deadline=instruction.deadline)
    return started, (StartWorker(held.unit, held.assignment, instruction.mark),)


def _prepare_worker(held: AgentUnit, instruction: Instruction) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if instruction.assignment <= max(held.closed, held.assignment):
        return held, ()
    if held.state not in _EMPTY:
        return _halt_worker(held)  # the older replica ends first; the leader repeats its prepare
    opened = AgentUnit(
        held.unit,
        instruction.assignment,
        UnitPhase.PREPARING,
        max(held.closed, held.assignment),
        mark=instruction.mark,
    )
    return opened, (PrepareWorker(held.unit, instruction.assignment, instruction.mark),)


def _remove_worker(held: AgentUnit, assignment: int) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    held = replace(held, closed=max(held.closed, assignment))
    return (held, ()) if held.assignment > assignment else _halt_worker(held)


def _halt_worker(held: AgentUnit) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if held.state not in _RUNS:
        return held, ()
    return replace(held, state=UnitPhase.STOPPING, rows_per_s=0), (RemoveWorker(held.unit, held.assignment),)


def _expire_lease(held: AgentUnit, now: float) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    over = held.state is UnitPhase.REPLICATING and held.deadline <= now
    return _halt_worker(held) if over else (held, ())


def _mark_ended(held: AgentUnit, mark: UnitProgress | None, error: str | None) -> AgentUnit:
    return replace(
        held,
        state=UnitPhase.STOPPED,
        closed=max(held.closed, held.assignment),
        mark=mark or held.mark,
        rows_per_s=0,
        error=error,
    )
