"""One unit on one agent: what it does with instructions, its worker's events and its lease. Pure.

```
  Absent ──prepare──▶ Preparing ──Prepared─▶ Prepared ──start──▶ Replicating
    ▲                     └──────── remove ─────┴──── remove, lease over ─┐
    └──────forget────── Stopped ◀────────── the worker has ended ── Stopping
```
`Replicating` means: from now on it may write. It is said when the start is accepted, before the worker takes over the
progress row, so that no owner can take a worker that is about to write for one that only waits.
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
    """`closed`: the highest assignment never to be taken up again. `deadline`: agent's monotonic seconds, end of the lease."""

    unit: str
    assignment: int = 0
    state: UnitPhase = UnitPhase.ABSENT
    closed: int = 0
    deadline: float = 0.0
    mark: UnitProgress | None = None
    rows_per_s: int = 0
    error: str | None = None
    steps: int = 0

    @property
    def status(self) -> UnitStatus:
        return UnitStatus(
            self.unit, self.assignment, self.state, self.mark, self.rows_per_s, self.error, self.steps
        )


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction that the agent has found valid. `deadline`: of the lease that comes with a start."""

    op: UnitOperation
    assignment: int
    mark: UnitProgress | None = None
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease for this assignment up to `deadline`."""

    assignment: int
    deadline: float


@dataclass(frozen=True, slots=True)
class UnitTick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop whatever runs, whoever says so (the agent itself ends)."""


UnitEvent = Instruction | WorkerEvent | Granted | UnitTick | Halt


@dataclass(frozen=True, slots=True)
class PrepareWorker:
    """Get a worker ready that writes nothing yet; then `Prepared`."""

    unit: str
    assignment: int
    mark: UnitProgress | None


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Take over the progress row with `assignment`, then write."""

    unit: str
    assignment: int
    mark: UnitProgress | None


@dataclass(frozen=True, slots=True)
class RemoveWorker:
    """Stop writing at once, close; then `WorkerEnded`."""

    unit: str
    assignment: int


UnitEffect = PrepareWorker | StartWorker | RemoveWorker

_RUNS = frozenset({UnitPhase.PREPARING, UnitPhase.PREPARED, UnitPhase.REPLICATING})
_EMPTY = frozenset({UnitPhase.ABSENT, UnitPhase.STOPPED})


def step_agent_unit(
    held: AgentUnit, event: UnitEvent, now: float
) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    """Return the unit after `event` at `now` (agent's monotonic seconds) and what its worker is to do.

    Events of another assignment than the one held change nothing: they are late.
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
    held: AgentUnit, told: Instruction, now: float
) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if told.op is UnitOperation.REMOVE:
        return _remove_worker(held, told.assignment)
    if told.op is UnitOperation.FORGET:
        noted = held.state is UnitPhase.STOPPED and held.assignment <= told.assignment
        return AgentUnit(held.unit, closed=held.closed) if noted else held, ()
    if told.op is UnitOperation.PREPARE:
        return _prepare_worker(held, told)
    startable = (
        held.assignment == told.assignment and held.state is UnitPhase.PREPARED and told.deadline > now
    )
    if not startable:
        return held, ()
    started = replace(held, state=UnitPhase.REPLICATING, deadline=told.deadline)
    return started, (StartWorker(held.unit, held.assignment, told.mark),)


def _prepare_worker(held: AgentUnit, told: Instruction) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if told.assignment <= max(held.closed, held.assignment):
        return held, ()
    if held.state not in _EMPTY:
        return _halt_worker(held)  # the older replica ends first; the owner says prepare again
    opened = AgentUnit(
        held.unit, told.assignment, UnitPhase.PREPARING, max(held.closed, held.assignment), mark=told.mark
    )
    return opened, (PrepareWorker(held.unit, told.assignment, told.mark),)


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
