"""`rowlock run`: a coordinator and an agent in one process tree, restarted when they die, ended when this one ends.

They are `rowlock coordinator` and `rowlock agent`; the agent runs a process a source and one for all pipelines. When
one is started again is decided by rowlock/processes/supervisor.py (pure); here are the processes. Each child holds a pipe from this
process as its stdin (rowlock/processes/child.py), so even `kill -9` of the run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from deploy.embedded.patience import pressure
from rowlock.errors import CommandError
from rowlock.processes import supervisor
from rowlock.processes.child_process import ChildProcess, Command
from rowlock.processes.supervisor import (
    Effect,
    Event,
    Exited,
    Kill,
    Note,
    Start,
    State,
    StopAsked,
    SupervisorTick,
    Terminate,
)
from schemas.config.addresses import join_address, split_address
from schemas.config.changes import handed
from schemas.config.model import Config
from schemas.io.signals import on_stop_signals

TICK_S = 0.2
ADDRESS_S = 15.0
"""How long a run that has just ended may still hold its addresses."""
_LOG = structlog.get_logger()

Goal = Callable[[], bool]
"""Tells whether the run has reached what it was started for; raises CommandError when it never will."""


def commands(config: Config, *, all_needed: bool = False, without: Sequence[str] = ()) -> dict[str, Command]:
    """Return the two processes of a run: a coordinator and an agent that asks it. `without`: see rowlock.coordinator.unit_catalogue.

    Addresses are the configuration's; where it has none, ports of the loopback that are free now, so that several runs
    fit on one machine. `all_needed`: the agent ends as soon as a unit needs a person.
    """
    coordinator = ["coordinator", "-c", str(config.path), "--name", agent_name()]
    agent = ["agent", "-c", str(config.path), "--name", agent_name()]
    if "coordination" not in config.model_fields_set:
        listen, rest = _free_addresses(config.coordination.rest)
        coordinator += ["--listen", listen, "--rest", rest, "--or-any-port"]
        agent += ["--coordinator", listen]
    for name in without:
        coordinator += ["--without", name]
    if all_needed:
        agent += ["--end-on-refusal"]
    return {"coordinator": _child(coordinator), "agent": _child(agent)}


def await_addresses(config: Config, patience_s: float = ADDRESS_S) -> None:
    """Raise CommandError when somebody else goes on listening where this run's coordinator is to.

    Said before anything has started: its agent would take the name, and with it the units, of the agent of the run that is
    there, its coordinator would be refused, and both runs would end. One that has just ended lets go of them in a moment.
    """
    if "coordination" not in config.model_fields_set:
        return
    until = time.monotonic() + patience_s
    for address in (config.coordination.listen, config.coordination.rest):
        while (why := _taken(address)) is not None:
            if time.monotonic() >= until:
                raise CommandError(
                    f"{address} of coordination is taken ({why}): if another `rowlock run` or `rowlock coordinator` of this "
                    "configuration runs here, it does the work already (see `rowlock status`); else give free addresses"
                )
            time.sleep(TICK_S)


def _taken(address: str) -> str | None:
    host, port = split_address(address)
    if port == 0:
        return None
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(place[:2], family=family).close()
    except OSError as error:
        return None if error.errno != errno.EADDRINUSE else "the address is in use"
    return None


def agent_name() -> str:
    """Return the name of this machine's agent: another run here, of the same prefix, takes its units over."""
    return f"run-{socket.gethostname()}"


def _child(words: Sequence[str]) -> Command:
    return [sys.executable, "-m", "rowlock.processes.child", "rowlock.cli", *words]


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
    """The running children, by name. Their ends arrive in `exits`.

    They are handed `config`, so that one that is started again runs under what is in force whatever the file says meanwhile; a child that
    takes another one says so.
    """

    def __init__(
        self, commands: Mapping[str, Command], exits: queue.SimpleQueue[Event], config: Config | None = None
    ) -> None:
        self._commands, self._config = commands, config
        self._exits = exits
        self._running: dict[str, ChildProcess] = {}

    def start(self, name: str) -> None:
        self._running[name] = ChildProcess(
            name,
            self._commands[name],
            lambda line: self._said(name, line),
            lambda code: self._exits.put(Exited(name, code)),
            self._config,
        )

    def _said(self, name: str, line: dict[str, Any]) -> None:
        """The command line's changes are a child's own: they are in its command."""
        if handed.is_said(line):
            self._config = handed.said(line)
        else:
            _LOG.debug("status", child=name, status=line)

    def terminate(self, name: str) -> None:
        self._running[name].terminate()

    def kill(self, name: str) -> None:
        self._running[name].kill()

    def kill_all(self) -> None:
        """End what is left, without grace. For the way out after an error of our own."""
        for process in self._running.values():
            if not process.wait(0):
                process.kill()


def run(
    config: Config,
    goal: Goal | None = None,
    *,
    without: Sequence[str] = (),
) -> int:
    """Run all processes until a signal or the goal ends it. Returns the exit code. `without`: see rowlock.coordinator.unit_catalogue.
    Raises CommandError when its addresses are taken.

    `goal` is asked about once a second in a thread of its own, so that a slow answer does not delay a restart.
    """
    await_addresses(config)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    children = commands(config, all_needed=goal is not None, without=without)
    processes = Processes(children, events, config)
    state = supervisor.begin(children)
    done = threading.Event()
    try:
        with on_stop_signals(lambda name: events.put(StopAsked(reason=name))):
            if goal is not None:
                watch = (goal, events, done)
                threading.Thread(target=_watch_goal, args=watch, name="goal", daemon=True).start()
            return _loop(state, processes, events)
    finally:
        done.set()
        processes.kill_all()


def _loop(state: State, processes: Processes, events: queue.SimpleQueue[Event]) -> int:
    event: Event = SupervisorTick()
    while True:
        state, effects = supervisor.step(state, event, time.monotonic())
        for effect in effects:
            _execute(effect, processes)
        if supervisor.finished(state):
            return state.exit_code
        try:
            event = events.get(timeout=TICK_S)
        except queue.Empty:
            event = SupervisorTick(pressure())


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
