"""`rowlock run`: one process a source and one a pipeline, restarted when they die, all ended when this one ends.

What to do is decided by rowlock/supervisor.py (pure); here are the processes. Each child holds a pipe from this process
as its stdin (rowlock/child.py), so even `kill -9` of the run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

import structlog

from rowlock import relay, supervisor
from rowlock.processes import Command, child_command, environment, kill_group
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
from schemas.config import Config

TICK_S = 0.2
_LOG = structlog.get_logger()

Goal = Callable[[], bool]
"""Tells whether the run has reached what it was started for; raises CommandError when it never will."""


def capture_command(config: Config, source: str) -> Command:
    return child_command("producer.main", config.path, "--source", source)


def apply_command(config: Config, pipeline: str) -> Command:
    return child_command("consumer.main", config.path, "--pipeline", pipeline)


def commands(config: Config) -> dict[Child, Command]:
    """Return the processes of a configuration: sources that a pipeline reads, and all pipelines."""
    read = {name for pipeline in config.pipelines.values() for name in pipeline.sources} or set(
        config.sources
    )
    out: dict[Child, Command] = {}
    for name in sorted(read):
        only = config.sources[name].snapshot == "only"
        out[Child(f"capture {name}", "capture", may_finish=only)] = capture_command(config, name)
    for name in config.pipelines:
        out[Child(f"apply {name}", "apply")] = apply_command(config, name)
    return out


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
    children = commands(config)
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
