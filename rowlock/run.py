"""`rowlock run`: a coordinator and an agent in one process tree, restarted when they die, ended when this one ends.

They are `rowlock coordinator` and `rowlock agent`; the agent runs a process a source and one for all pipelines. When
one is started again is decided by rowlock/supervisor.py (pure); here are the processes. Each child holds a pipe from this
process as its stdin (rowlock/child.py), so even `kill -9` of the run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

import structlog

from rowlock import relay, supervisor
from rowlock.processes import Command, environment, kill_group
from rowlock.supervisor import (
    Child,
    Effect,
    Event,
    Exited,
    Kill,
    Note,
    Start,
    State,
    StopAsked,
    Terminate,
    Tick,
)
from schemas.addresses import join_address, split_address
from schemas.config import Config

TICK_S = 0.2
_LOG = structlog.get_logger()

Goal = Callable[[], bool]
"""Tells whether the run has reached what it was started for; raises CommandError when it never will."""


def commands(config: Config, *, all_needed: bool = False) -> dict[Child, Command]:
    """Return the two processes of a run: a coordinator and an agent that asks it.

    Addresses are the configuration's; where it has none, ports of the loopback that are free now, so that several runs
    fit on one machine. `all_needed`: the agent ends as soon as a unit needs a person.
    """
    coordinator = ["coordinator", "-c", str(config.path), "--name", agent_name()]
    agent = ["agent", "-c", str(config.path), "--name", agent_name()]
    if "coordination" not in config.model_fields_set:
        listen, rest = _free_addresses(config.coordination.rest)
        coordinator += ["--listen", listen, "--rest", rest, "--or-any-port"]
        agent += ["--coordinator", listen]
    if all_needed:
        agent += ["--end-on-refusal"]
    return {
        Child("coordinator", "coordinator"): _child(coordinator),
        Child("agent", "agent"): _child(agent),
    }


def agent_name() -> str:
    """Return the name of this machine's agent: another run here, of the same prefix, takes its units over."""
    return f"run-{socket.gethostname()}"


def _child(words: Sequence[str]) -> Command:
    return [sys.executable, "-m", "rowlock.child", "rowlock.cli", *words]


def _free_addresses(rest: str) -> tuple[str, str]:
    """Return where the coordinator listens for agents, and for REST: at `rest` if that is free (commands look there)."""
    with contextlib.ExitStack() as taken:
        ports = []
        for port in (0, split_address(rest)[1]):
            try:
                server = taken.enter_context(socket.create_server((_LOOPBACK, port)))
            except OSError:
                server = taken.enter_context(socket.create_server((_LOOPBACK, 0)))
            ports.append(server.getsockname()[1])
    return join_address(_LOOPBACK, ports[0]), join_address(_LOOPBACK, ports[1])


_LOOPBACK = "127.0.0.1"


class Processes:
    """The running children, by name. Their ends arrive in `exits`."""

    def __init__(
        self,
        commands: dict[str, Command],
        exits: queue.SimpleQueue[Event],
        on_status: relay.OnStatus | None = None,
    ) -> None:
        self._commands = commands
        self._on_status = on_status
        self._exits = exits
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        process = subprocess.Popen(
            self._commands[name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if relay.wants_log_lines() else None,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops them in order
            env=environment(),
        )
        self._running[name] = process
        if process.stdout is not None:
            relay.follow(name, process.stdout, process.stderr, self._on_status)
        _LOG.info("started", child=name, child_pid=process.pid)
        threading.Thread(target=self._wait, args=(name, process), name=f"wait {name}", daemon=True).start()

    def _wait(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        kill_group(process.pid)
        self._exits.put(Exited(name, code))

    def terminate(self, name: str) -> None:
        self._running[name].terminate()

    def kill(self, name: str) -> None:
        kill_group(self._running[name].pid)

    def kill_all(self) -> None:
        """End what is left, without grace. For the way out after an error of our own."""
        for process in self._running.values():
            if process.poll() is None:
                kill_group(process.pid)


def run(
    config: Config,
    goal: Goal | None = None,
    *,
    stop: threading.Event | None = None,
    on_status: relay.OnStatus | None = None,
) -> int:
    """Run all processes until a signal, `stop` or the goal ends it. Returns the exit code.

    `goal` is asked about once a second in a thread of its own, so that a slow answer does not delay a restart.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    children = commands(config, all_needed=goal is not None)
    processes = Processes({child.name: command for child, command in children.items()}, events, on_status)
    state = supervisor.begin(list(children), all_needed=goal is not None)
    done = threading.Event()
    try:
        with _signals(events):
            _watch(goal, stop, events, done)
            return _loop(state, processes, events)
    finally:
        done.set()
        processes.kill_all()


def _loop(state: State, processes: Processes, events: queue.SimpleQueue[Event]) -> int:
    event: Event = Tick()
    while True:
        state, effects = supervisor.step(state, event, time.monotonic())
        for effect in effects:
            _execute(effect, processes)
        if supervisor.finished(state):
            return state.exit_code
        try:
            event = events.get(timeout=TICK_S)
        except queue.Empty:
            event = Tick()


def _execute(effect: Effect, processes: Processes) -> None:
    match effect:
        case Start(name):
            processes.start(name)
        case Terminate(name):
            processes.terminate(name)
        case Kill(name):
            processes.kill(name)
        case Note(level, phrase, name, fields):
            getattr(_LOG, level)(phrase, child=name, **fields)


@contextlib.contextmanager
def _signals(events: queue.SimpleQueue[Event]) -> Iterator[None]:
    """Turn SIGTERM and SIGINT into a clean stop, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _: FrameType | None) -> None:
        # A SimpleQueue may be put to from a handler; a logger may not be called from one.
        events.put(StopAsked(reason=signal.Signals(number).name))

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(
    goal: Goal | None, stop: threading.Event | None, events: queue.SimpleQueue[Event], done: threading.Event
) -> None:
    if stop is not None:
        threading.Thread(target=_watch_stop, args=(stop, events, done), name="stop", daemon=True).start()
    if goal is not None:
        threading.Thread(target=_watch_goal, args=(goal, events, done), name="goal", daemon=True).start()


def _watch_stop(stop: threading.Event, events: queue.SimpleQueue[Event], done: threading.Event) -> None:
    while not done.is_set():
        if stop.wait(TICK_S):
            events.put(StopAsked())
            return


def _watch_goal(goal: Goal, events: queue.SimpleQueue[Event], done: threading.Event) -> None:
    while not done.wait(0.5):
        try:
            if goal():
                events.put(StopAsked(reason="caught up"))
                return
        except Exception as error:  # noqa: BLE001 - reported, and it ends the run with an error
            _LOG.error("cannot catch up", reason=str(error))
            events.put(StopAsked(supervisor.REFUSED, reason="the goal cannot be reached"))
            return
