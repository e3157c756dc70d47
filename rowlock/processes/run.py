"""`rowlock run`: a coordinator and an agent in one process tree, restarted when they die, ended when
this process ends.

They are `rowlock coordinator` and `rowlock agent`; the agent runs one process per source and one for all
pipelines. rowlock/processes/supervisor.py (pure) decides on restarts; this module handles the processes.
Each child has a pipe from this process as its stdin (rowlock/processes/child.py), so even `kill -9` of
the run leaves no process.
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

from rowlock.errors import CommandError
from rowlock.processes import supervisor
from rowlock.processes.child_process import ChildCommand, ChildProcess
from rowlock.processes.supervisor import (
    ChildExited,
    KillChild,
    LogNote,
    StartChild,
    StopRequested,
    SupervisorEffect,
    SupervisorEvent,
    SupervisorState,
    SupervisorTick,
    TerminateChild,
)
from schemas.config.addresses import join_address, split_address
from schemas.config.changes import handed
from schemas.config.model import Config
from schemas.io.kafka_passwords import use_kafka_passwords
from schemas.io.signals import on_stop_signals
from schemas.patience import measure_pressure

SUPERVISOR_TICK_S = 0.2
ADDRESS_S = 15.0
"""Seconds for which a run that has just ended may still hold its addresses."""
_LOG = structlog.get_logger()

Goal = Callable[[], bool]
"""Returns whether the run has reached its goal; raises CommandError if it never will."""


def build_run_commands(
    config: Config, *, all_needed: bool = False, without: Sequence[str] = ()
) -> dict[str, ChildCommand]:
    """Return the commands of a run's two processes: a coordinator, and an agent that connects to it.

    The addresses are those of the configuration; without any, free ports of the loopback interface, so
    that several runs fit on one machine. `all_needed`: the agent ends as soon as a unit needs a person.
    `without`: see rowlock.coordinator.inventory.
    """
    coordinator = ["coordinator", "-c", str(config.path), "--name", build_agent_name()]
    agent = ["agent", "-c", str(config.path), "--name", build_agent_name()]
    if "coordination" not in config.model_fields_set:
        listen, rest = _free_addresses(config.coordination.rest)
        coordinator += ["--listen", listen, "--rest", rest, "--or-any-port"]
        agent += ["--coordinator", listen]
    for name in without:
        coordinator += ["--without", name]
    if all_needed:
        agent += ["--end-on-refusal"]
    return {"coordinator": _build_rowlock_command(coordinator), "agent": _build_rowlock_command(agent)}


def await_addresses(config: Config, patience_s: float = ADDRESS_S) -> None:
    """Raise CommandError if another process keeps listening on the addresses of this run's coordinator.

    This is checked before anything is started: otherwise the new agent would take the name, and with it
    the units, of the running run's agent, the new coordinator would be refused, and both runs would end.
    A run that has just ended releases the addresses in a moment.
    """
    if "coordination" not in config.model_fields_set:
        return
    until = time.monotonic() + patience_s
    settings = config.coordination
    for address in filter(None, (settings.listen, settings.rest, settings.agent_metrics)):
        while (why := _explain_taken_address(address)) is not None:
            if time.monotonic() >= until:
                raise CommandError(
                    f"{address} of coordination is taken ({why})",
                    "if another `rowlock run` or `rowlock coordinator` of this configuration runs here, it "
                    "already does the work (see `rowlock status`); otherwise configure free addresses",
                )
            time.sleep(SUPERVISOR_TICK_S)


def _explain_taken_address(address: str) -> str | None:
    host, port = split_address(address)
    if port == 0:
        return None
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(place[:2], family=family).close()
    except OSError as error:
        return None if error.errno != errno.EADDRINUSE else "the address is in use"
    return None


def build_agent_name() -> str:
    """Return the name of this machine's agent. Another run here with the same prefix takes over its units."""
    return f"run-{socket.gethostname()}"


def _build_rowlock_command(words: Sequence[str]) -> ChildCommand:
    return [sys.executable, "-m", "rowlock.processes.child", "rowlock.cli", *words]


def _free_addresses(rest: str) -> tuple[str, str]:
    """Return the coordinator's addresses for agents and for REST: `rest` if that is free, because
    commands ask there.
    """
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


class ChildProcesses:
    """The running children, by name. Their ends arrive in `exits`.

    They receive `config`, so that a restarted child runs under the active configuration whatever the
    file contains meanwhile. A child that adopts another configuration reports it.
    """

    def __init__(
        self,
        commands: Mapping[str, ChildCommand],
        exits: queue.SimpleQueue[SupervisorEvent],
        config: Config | None = None,
        use_config: Callable[[Config], object] = lambda _: None,
    ) -> None:
        """`use_config` is called with each configuration that a child adopts."""
        self._commands, self._config, self._use_config = commands, config, use_config
        self._exits = exits
        self._running: dict[str, ChildProcess] = {}

    def start(self, name: str) -> None:
        self._running[name] = ChildProcess(
            name,
            self._commands[name],
            lambda line: self._handle_line(name, line),
            lambda code: self._exits.put(ChildExited(name, code)),
            self._config,
        )

    def _handle_line(self, name: str, line: dict[str, Any]) -> None:
        """Note a configuration that a child has adopted. Overrides of the command line are not part of
        it: they are in the child's command.
        """
        if handed.is_announced_config(line):
            self._config = handed.decode_announced_config(line)
            use_kafka_passwords(self._config)
            self._use_config(self._config)
        else:
            _LOG.debug("status of a process", child=name, status=line)

    def terminate(self, name: str) -> None:
        self._running[name].terminate()

    def kill(self, name: str) -> None:
        self._running[name].kill()

    def kill_all(self) -> None:
        """End the remaining children at once. For the way out after an internal error."""
        for process in self._running.values():
            if not process.wait_for_exit(0):
                process.kill()


def run_processes(
    config: Config,
    goal: Goal | None = None,
    *,
    without: Sequence[str] = (),
    use_config: Callable[[Config], object] = lambda _: None,
) -> int:
    """Run all processes until a signal or the goal ends them, and return the exit code.

    Raises CommandError if the addresses are taken. `goal` is called about twice a second in a thread of
    its own, so that a slow answer does not delay a restart. `without`: see
    rowlock.coordinator.inventory. `use_config`: see ChildProcesses.
    """
    await_addresses(config)
    events: queue.SimpleQueue[SupervisorEvent] = queue.SimpleQueue()
    children = build_run_commands(config, all_needed=goal is not None, without=without)
    processes = ChildProcesses(children, events, config, use_config)
    state = supervisor.begin_supervision(children)
    done = threading.Event()
    try:
        with on_stop_signals(lambda name: events.put(StopRequested(reason=name))):
            if goal is not None:
                watch = (goal, events, done)
                threading.Thread(target=_watch_goal, args=watch, name="goal", daemon=True).start()
            return _run_loop(state, processes, events)
    finally:
        done.set()
        processes.kill_all()


def _run_loop(
    state: SupervisorState, processes: ChildProcesses, events: queue.SimpleQueue[SupervisorEvent]
) -> int:
    event: SupervisorEvent = SupervisorTick()
    while True:
        state, effects = supervisor.step_supervisor(state, event, time.monotonic())
        for effect in effects:
            _execute_effect(effect, processes)
        if supervisor.is_finished(state):
            return state.exit_code
        try:
            event = events.get(timeout=SUPERVISOR_TICK_S)
        except queue.Empty:
            event = SupervisorTick(measure_pressure())


def _execute_effect(effect: SupervisorEffect, processes: ChildProcesses) -> None:
    match effect:
        case StartChild(name):
            processes.start(name)
        case TerminateChild(name):
            processes.terminate(name)
        case KillChild(name):
            processes.kill(name)
        case LogNote(level, phrase, name, fields):
            getattr(_LOG, level)(phrase, child=name, **fields)


def _watch_goal(goal: Goal, events: queue.SimpleQueue[SupervisorEvent], done: threading.Event) -> None:
    while not done.wait(0.5):
        try:
            if goal():
                events.put(StopRequested(reason="caught up"))
                return
        except Exception as error:  # noqa: BLE001 - reported, and it ends the run with an error
            _LOG.error("catch-up failed", reason=str(error))
            events.put(StopRequested(supervisor.REFUSED_EXIT_CODE, reason="the goal cannot be reached"))
            return
