"""Decides what `rowlock run` does when a process starts, ends or must end. Pure: `step_supervisor(state,
event, now)`.

    waiting ──start──▶ running ──exit──▶ waiting (backoff)
                         │ exit 2 ─────▶ done (a person must act), and the run ends with exit code 2
                         └ stop ───────▶ stopping ──exit──▶ done

The processes are a coordinator and an agent. Neither can work without the other, so a refusal of one
ends the run. The agent handles the processes of single units (rowlock/agent/capture.py,
rowlock/agent/apply.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from schemas.backoff import Backoff

CHILD_RESTART_BACKOFF = Backoff(first=1.0, longest=30.0, quiet=60.0)
"""Of a process that ends. `quiet`: a process that ran this long starts again after the first pause."""
CHILD_STOP_TIMEOUT_S = 45.0
"""Seconds that a process may take to stop before it is killed, on an idle machine."""
REFUSED_EXIT_CODE = 2
"""The exit code of a process that must not be started again before a person has acted."""


class ChildPhase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class SupervisedChild:
    """One process."""

    name: str
    backoff: Backoff
    """Since when it runs, or when to start it (waiting)."""
    phase: ChildPhase = ChildPhase.WAITING
    since: float = 0.0
    """When it was asked to stop."""


@dataclass(frozen=True, slots=True)
class SupervisorState:
    children: dict[str, SupervisedChild] = field(default_factory=dict)
    stopping: bool = False
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class SupervisorTick:
    """Time has passed."""

    pressure: float = 1.0
    """The load of the machine in multiples of its processors (schemas.patience)."""


@dataclass(frozen=True, slots=True)
class ChildExited:
    """A process ended. `code` is negative for a signal."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """SIGTERM or SIGINT was received, or the goal is reached (0) or cannot be reached (2)."""

    exit_code: int = 0
    reason: str = "asked"


SupervisorEvent = SupervisorTick | ChildExited | StopRequested


@dataclass(frozen=True, slots=True)
class StartChild:
    name: str


@dataclass(frozen=True, slots=True)
class TerminateChild:
    name: str


@dataclass(frozen=True, slots=True)
class KillChild:
    name: str


@dataclass(frozen=True, slots=True)
class LogNote:
    """A log line. `level`: "info", "warning" or "error"."""

    level: str
    phrase: str
    name: str
    fields: dict[str, object] = field(default_factory=dict)


SupervisorEffect = StartChild | TerminateChild | KillChild | LogNote


def begin_supervision(names: Iterable[str]) -> SupervisorState:
    return SupervisorState(children={name: SupervisedChild(name, CHILD_RESTART_BACKOFF) for name in names})


def is_finished(state: SupervisorState) -> bool:
    """Return whether no process runs or will run any more: the run ends with `state.exit_code`."""
    return all(child.phase is ChildPhase.DONE for child in state.children.values())


def step_supervisor(
    state: SupervisorState, event: SupervisorEvent, now: float
) -> tuple[SupervisorState, list[SupervisorEffect]]:
    """Return the next state and what to do. `now`: a monotonic clock, in seconds."""
    if isinstance(event, ChildExited):
        return _on_exit(state, state.children[event.name], event.code, now)
    if isinstance(event, StopRequested):
        return _on_stop(state, event, now)
    return _on_tick(state, event.pressure, now)


def _replace_child(state: SupervisorState, child: SupervisedChild) -> SupervisorState:
    return replace(state, children={**state.children, child.name: child})


def _on_tick(
    state: SupervisorState, pressure: float, now: float
) -> tuple[SupervisorState, list[SupervisorEffect]]:
    effects: list[SupervisorEffect] = []
    for child in state.children.values():
        if child.phase is ChildPhase.WAITING and child.backoff.next_at <= now:
            state = _replace_child(
                state, replace(child, phase=ChildPhase.RUNNING, backoff=child.backoff.with_start(now))
            )
            effects.append(StartChild(child.name))
        elif child.phase is ChildPhase.STOPPING and now - child.since >= CHILD_STOP_TIMEOUT_S * pressure:
            state = _replace_child(state, replace(child, since=now))
            effects += [LogNote("error", "did not stop in time, killed", child.name), KillChild(child.name)]
    return state, effects


def _on_stop(
    state: SupervisorState, asked: StopRequested, now: float
) -> tuple[SupervisorState, list[SupervisorEffect]]:
    if state.stopping:
        return state, []
    effects: list[SupervisorEffect] = [LogNote("info", "stopping", "all", {"reason": asked.reason})]
    state = replace(state, stopping=True, exit_code=asked.exit_code)
    for child in state.children.values():
        if child.phase is ChildPhase.RUNNING:
            state = _replace_child(state, replace(child, phase=ChildPhase.STOPPING, since=now))
            effects.append(TerminateChild(child.name))
        elif child.phase is ChildPhase.WAITING:
            state = _replace_child(state, replace(child, phase=ChildPhase.DONE))
    return state, effects


def _on_exit(
    state: SupervisorState, child: SupervisedChild, code: int, now: float
) -> tuple[SupervisorState, list[SupervisorEffect]]:
    if child.phase is ChildPhase.STOPPING:
        level = "info" if code == 0 else "warning"
        return _replace_child(state, replace(child, phase=ChildPhase.DONE)), [
            LogNote(level, "stopped", child.name, {"code": code})
        ]
    if code == REFUSED_EXIT_CODE:
        note = LogNote("error", "refused to run and is not restarted; its message is above", child.name)
        state = _replace_child(state, replace(child, phase=ChildPhase.DONE))
        state, effects = _on_stop(
            state, StopRequested(REFUSED_EXIT_CODE, f"the {child.name} refused to run"), now
        )
        return state, [note, *effects]
    return _plan_restart(state, child, code, now)


def _plan_restart(
    state: SupervisorState, child: SupervisedChild, code: int, now: float
) -> tuple[SupervisorState, list[SupervisorEffect]]:
    backoff = child.backoff.with_failure(now)
    child = replace(child, phase=ChildPhase.WAITING, backoff=backoff)
    fields: dict[str, object] = {"code": code, "restart_in_s": backoff.pause, "failures": backoff.failures}
    return _replace_child(state, child), [
        LogNote("warning", "ended unexpectedly, will be restarted", child.name, fields)
    ]
