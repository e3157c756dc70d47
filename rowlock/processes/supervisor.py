"""Decides what `rowlock run` does when a process starts, ends or must end. Pure: `step(state, event, now)`.

    waiting ──start──▶ running ──exit──▶ waiting (backoff)
                         │ exit 2 ─────▶ done (a person must act), and the run ends with exit code 2
                         └ stop ───────▶ stopping ──exit──▶ done

The processes are a coordinator and an agent: neither can do anything without the other, so that a refusal of one ends the run. What
happens to the processes of single units is the agent's (rowlock/agent/capture.py, rowlock/agent/apply.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from schemas.backoff import Backoff

RESTARTS = Backoff(first=1.0, longest=30.0, quiet=60.0)
"""Of a process that ends; `quiet`: one that ran this long starts again after the first pause."""
STOP_S = 45.0
"""How long a process may take to stop before it is killed, on a machine with time to spare."""
REFUSED = 2
"""Exit code of a process that must not be started again before a person has acted."""


class Phase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Child:
    """One process. `since`: when it was asked to stop; `backoff`: since when it runs, or when to start it (waiting)."""

    name: str
    backoff: Backoff
    phase: Phase = Phase.WAITING
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    children: dict[str, Child] = field(default_factory=dict)
    stopping: bool = False
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class SupervisorTick:
    """Time has passed. `pressure`: how many times over the machine's processors are wanted (deploy.embedded.patience)."""

    pressure: float = 1.0


@dataclass(frozen=True, slots=True)
class Exited:
    """A process ended; `code` is negative for a signal."""

    name: str
    code: int


@dataclass(frozen=True, slots=True)
class StopAsked:
    """SIGTERM, SIGINT, the goal is reached (0) or cannot be reached (2)."""

    exit_code: int = 0
    reason: str = "asked"


Event = SupervisorTick | Exited | StopAsked


@dataclass(frozen=True, slots=True)
class Start:
    name: str


@dataclass(frozen=True, slots=True)
class Terminate:
    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    name: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something to log. level: info | warning | error."""

    level: str
    phrase: str
    name: str
    fields: dict[str, object] = field(default_factory=dict)


Effect = Start | Terminate | Kill | Note


def begin(names: Iterable[str]) -> State:
    return State(children={name: Child(name, RESTARTS) for name in names})


def finished(state: State) -> bool:
    """Tell whether nothing runs and nothing will: the run ends with `state.exit_code`."""
    return all(child.phase is Phase.DONE for child in state.children.values())


def step(state: State, event: Event, now: float) -> tuple[State, list[Effect]]:
    """Return the next state and what to do. `now`: a monotonic clock, seconds."""
    if isinstance(event, Exited):
        return _on_exit(state, state.children[event.name], event.code, now)
    if isinstance(event, StopAsked):
        return _on_stop(state, event, now)
    return _on_tick(state, event.pressure, now)


def _with(state: State, child: Child) -> State:
    return replace(state, children={**state.children, child.name: child})


def _on_tick(state: State, pressure: float, now: float) -> tuple[State, list[Effect]]:
    effects: list[Effect] = []
    for child in state.children.values():
        if child.phase is Phase.WAITING and child.backoff.next_at <= now:
            state = _with(state, replace(child, phase=Phase.RUNNING, backoff=child.backoff.started(now)))
            effects.append(Start(child.name))
        elif child.phase is Phase.STOPPING and now - child.since >= STOP_S * pressure:
            state = _with(state, replace(child, since=now))
            effects += [Note("error", "did not stop in time, killed", child.name), Kill(child.name)]
    return state, effects


def _on_stop(state: State, asked: StopAsked, now: float) -> tuple[State, list[Effect]]:
    if state.stopping:
        return state, []
    effects: list[Effect] = [Note("info", "stopping", "all", {"reason": asked.reason})]
    state = replace(state, stopping=True, exit_code=asked.exit_code)
    for child in state.children.values():
        if child.phase is Phase.RUNNING:
            state = _with(state, replace(child, phase=Phase.STOPPING, since=now))
            effects.append(Terminate(child.name))
        elif child.phase is Phase.WAITING:
            state = _with(state, replace(child, phase=Phase.DONE))
    return state, effects


def _on_exit(state: State, child: Child, code: int, now: float) -> tuple[State, list[Effect]]:
    if child.phase is Phase.STOPPING:
        level = "info" if code == 0 else "warning"
        return _with(state, replace(child, phase=Phase.DONE)), [
            Note(level, "stopped", child.name, {"code": code})
        ]
    if code == REFUSED:
        note = Note("error", "refused to run and is not restarted; its message is above", child.name)
        state = _with(state, replace(child, phase=Phase.DONE))
        state, effects = _on_stop(state, StopAsked(REFUSED, f"the {child.name} refused to run"), now)
        return state, [note, *effects]
    return _restart(state, child, code, now)


def _restart(state: State, child: Child, code: int, now: float) -> tuple[State, list[Effect]]:
    backoff = child.backoff.failed(now)
    child = replace(child, phase=Phase.WAITING, backoff=backoff)
    fields: dict[str, object] = {"code": code, "restart_in_s": backoff.pause, "failures": backoff.failures}
    return _with(state, child), [Note("warning", "ended unexpectedly, will be restarted", child.name, fields)]
