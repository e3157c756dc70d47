"""One unit on one agent: what it does with instructions, its worker's events and its lease. Pure.

```
  Absent ──prepare──▶ Preparing ──ready──▶ Prepared ──start──▶ Replicating
    ▲                     └──────── remove ─────┴──── remove, lease over ─┐
    └──────forget────── Stopped ◀────────── the worker has ended ── Stopping
```
`Replicating` means: from now on it may write. It is said when the start is accepted, before the worker takes over the
progress row, so that no owner can take a worker that is about to write for one that only waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from coordinator.core.messages import Mark, Op, Reported, UnitStatus


@dataclass(frozen=True, slots=True)
class AgentUnit:
    """`closed`: the highest epoch never to be taken up again. `deadline`: agent's monotonic seconds, end of the lease."""

    unit: str
    epoch: int = 0
    state: Reported = Reported.ABSENT
    closed: int = 0
    deadline: float = 0.0
    mark: Mark | None = None
    rows_per_s: int = 0
    error: str | None = None
    steps: int = 0

    @property
    def status(self) -> UnitStatus:
        return UnitStatus(
            self.unit, self.epoch, self.state, self.mark, self.rows_per_s, self.error, self.steps
        )


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction that the agent has found valid. `deadline`: of the lease that comes with a start."""

    op: Op
    epoch: int
    mark: Mark | None = None
    deadline: float = 0.0


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is prepared."""

    epoch: int


@dataclass(frozen=True, slots=True)
class GettingOn:
    """The worker is not ready yet, and has done something for it since it last said so."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """`error`: why the unit waits for a person; its worker is there all the same, and writes nothing meanwhile."""

    epoch: int
    mark: Mark
    rows_per_s: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker has ended: nothing of it can write any more. `error` if it ended by itself."""

    epoch: int
    mark: Mark | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Granted:
    """A lease for this epoch up to `deadline`."""

    epoch: int
    deadline: float


@dataclass(frozen=True, slots=True)
class UnitTick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop whatever runs, whoever says so (the agent itself ends)."""


WorkerEvent = Ready | GettingOn | Progressed | Ended
UnitEvent = Instruction | WorkerEvent | Granted | UnitTick | Halt


@dataclass(frozen=True, slots=True)
class OpenWorker:
    """Get a worker ready that writes nothing yet; then `Ready`."""

    unit: str
    epoch: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Take over the progress row with `epoch`, then write."""

    unit: str
    epoch: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Stop writing at once, close; then `Ended`."""

    unit: str
    epoch: int


UnitEffect = OpenWorker | StartWorker | StopWorker

_RUNS = frozenset({Reported.PREPARING, Reported.PREPARED, Reported.REPLICATING})
_EMPTY = frozenset({Reported.ABSENT, Reported.STOPPED})


def step(held: AgentUnit, event: UnitEvent, now: float) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    """Return the unit after `event` at `now` (agent's monotonic seconds) and what its worker is to do.

    Events of another epoch than the one held change nothing: they are late.
    """
    match event:
        case Instruction():
            return _told(held, event, now)
        case Ended(epoch, mark, error) if epoch == held.epoch and held.state not in _EMPTY:
            return _ended(held, mark, error), ()
        case Ready(epoch) if epoch == held.epoch and held.state is Reported.PREPARING:
            return replace(held, state=Reported.PREPARED), ()
        case GettingOn(epoch) if epoch == held.epoch and held.state is Reported.PREPARING:
            return replace(held, steps=held.steps + 1), ()
        case Progressed(epoch, mark, rows, error) if epoch == held.epoch and held.state not in _EMPTY:
            return replace(held, mark=mark, rows_per_s=rows, error=error), ()
        case Granted(epoch, deadline) if epoch == held.epoch:
            return _expire(replace(held, deadline=max(held.deadline, deadline)), now)
        case UnitTick():
            return _expire(held, now)
        case Halt():
            return _halt(held)
    return held, ()


def _told(held: AgentUnit, told: Instruction, now: float) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if told.op is Op.REMOVE:
        return _remove(held, told.epoch)
    if told.op is Op.FORGET:
        noted = held.state is Reported.STOPPED and held.epoch <= told.epoch
        return AgentUnit(held.unit, closed=held.closed) if noted else held, ()
    if told.op is Op.PREPARE:
        return _prepare(held, told)
    startable = held.epoch == told.epoch and held.state is Reported.PREPARED and told.deadline > now
    if not startable:
        return held, ()
    started = replace(held, state=Reported.REPLICATING, deadline=told.deadline)
    return started, (StartWorker(held.unit, held.epoch, told.mark),)


def _prepare(held: AgentUnit, told: Instruction) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if told.epoch <= max(held.closed, held.epoch):
        return held, ()
    if held.state not in _EMPTY:
        return _halt(held)  # the older replica ends first; the owner says prepare again
    opened = AgentUnit(
        held.unit, told.epoch, Reported.PREPARING, max(held.closed, held.epoch), mark=told.mark
    )
    return opened, (OpenWorker(held.unit, told.epoch, told.mark),)


def _remove(held: AgentUnit, epoch: int) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    held = replace(held, closed=max(held.closed, epoch))
    return (held, ()) if held.epoch > epoch else _halt(held)


def _halt(held: AgentUnit) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    if held.state not in _RUNS:
        return held, ()
    return replace(held, state=Reported.STOPPING, rows_per_s=0), (StopWorker(held.unit, held.epoch),)


def _expire(held: AgentUnit, now: float) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
    over = held.state is Reported.REPLICATING and held.deadline <= now
    return _halt(held) if over else (held, ())


def _ended(held: AgentUnit, mark: Mark | None, error: str | None) -> AgentUnit:
    return replace(
        held,
        state=Reported.STOPPED,
        closed=max(held.closed, held.epoch),
        mark=mark or held.mark,
        rows_per_s=0,
        error=error,
    )
