"""The agent's shell: passes events and time to its pure core (`core/agent.py`), and carries out the
effects.

One thread runs the core and waits only for the next event or the next wake-up: it must notice the end of
a lease in time, even while the network or a worker hangs. Messages of the transport arrive through
`receive`; workers are called from another thread, in order.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from coordinator.core import agent as core
from coordinator.core.agent import AgentState
from coordinator.core.agent_state import FollowedConfiguration
from coordinator.core.agent_unit import AgentUnit, PrepareWorker, RemoveWorker, StartWorker, UnitEffect
from coordinator.core.messages import ConfigVersion, Down, FileAnswer
from coordinator.transport.client import HeartbeatClient, Security
from schemas.problems import Problem, encode_problem
from schemas.slots import SlotReport
from schemas.units import OldestAgents, UnitPhase, UnitProgress, WorkerEnded, WorkerEvent

_log = structlog.get_logger(__name__)

#: Exit codes of `AgentShell.run`.
CLEAN, SUPERSEDED, OUTDATED = 0, 3, 5
_SHUT_DOWN, _TERMS_BEGAN_ANEW = "shut down", "the coordinators' terms began anew"
_CODES = {_SHUT_DOWN: CLEAN, _TERMS_BEGAN_ANEW: OUTDATED}
#: Seconds between two checks of the stop event.
_GLANCE = 0.1
#: Seconds that a call of a worker may take without a warning.
_SLOW = 2.0
#: The most events that are handled before the next wake-up is computed again.
_BATCH = 256


class Workers(Protocol):
    """The workers that run an agent's units. Calls are made one after the other from one thread, and
    should return soon.

    For each (unit, assignment) `prepare` is called, then possibly `start`, then possibly `remove`. The
    workers report `Prepared`, now and then `UnitProgressed`, and exactly once `WorkerEnded`: when the
    worker cannot write any more, also if it ends by itself, with its error. A call that raises counts as
    `WorkerEnded` with that error.
    """

    def listen(self, on_event: Callable[[str, WorkerEvent], None]) -> None:
        """Called once, before all others. `on_event(unit, event)` may be called from any thread and
        never blocks.
        """

    def prepare(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        """Prepare the unit and write nothing. `mark`: the unit's progress as far as the leader knows."""

    def start(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        """Take over the progress row with `assignment`, then begin to write."""

    def remove(self, unit: str, assignment: int) -> None:
        """Stop writing at once, close, then report `WorkerEnded`."""

    def close(self) -> None:
        """Stop everything. When this returns no worker runs any more."""


class ConfigFile(Protocol):
    """The configuration of this machine, as it is loaded and as its file contains it. Called from the
    workers' thread; may read files.
    """

    @property
    def digest(self) -> str:
        """The digest of the loaded configuration; every other configuration has another one."""

    def read_file(self) -> tuple[str, tuple[str, ...]]:
        """Return the digest of the file's configuration, and why it could not be used, one line each.
        Nothing changes.
        """

    def adopt_config(self, digest: str) -> bool:
        """Read the file and, if it holds this configuration, use it for the units that are prepared from
        now on. False: it does not hold it.
        """


class AgentShell:
    """One incarnation of an agent.

    The client has to pass incoming messages to `receive`, and should call `on_stream_opened` when it has
    a new stream. `patience`: seconds that workers have to end after a shutdown before they are closed.
    `version`: of rowlock. `on_oldest_agents`: called, soon to return, when the oldest agents are others.
    `get_slots()`: what the apply process reports of its slots in Spark; never waits.
    """

    def __init__(
        self,
        name: str,
        client: HeartbeatClient,
        workers: Workers,
        clock: Callable[[], float] = time.monotonic,
        *,
        incarnation: str | None = None,
        patience: float = 30.0,
        file: ConfigFile | None = None,
        version: str = "",
        on_oldest_agents: Callable[[OldestAgents], None] = lambda oldest: None,
        get_slots: Callable[[], SlotReport | None] = lambda: None,
    ) -> None:
        self._get_slots = get_slots
        self._client, self._clock, self._patience, self._file = client, clock, patience, file
        self._on_oldest_agents = on_oldest_agents
        held = None if file is None else FollowedConfiguration(ConfigVersion(file.digest))
        self._state = AgentState(name, incarnation or uuid.uuid4().hex, version, configuration=held)
        self._events: queue.SimpleQueue[core.AgentEvent | None] = queue.SimpleQueue()
        self._workers = _WorkerThread(f"workers-of-{name}", workers, self._on_worker_event)
        self._ending_since: float | None = None
        self._ends: str | None = None
        self._is_outdated = threading.Event()

    @classmethod
    def connect(
        cls,
        name: str,
        peers: Sequence[str],
        workers: Workers,
        *,
        security: Security | None = None,
        system: str = "",
        token: str = "",
        file: ConfigFile | None = None,
        version: str = "",
        on_oldest_agents: Callable[[OldestAgents], None] = lambda oldest: None,
        get_slots: Callable[[], SlotReport | None] = lambda: None,
    ) -> AgentShell:
        """Return an agent with a client of its own.

        `peers`: every coordinator's "host:port". `system`: the Kafka prefix. `token`: authenticates the
        agent if it has no certificate. `file`: its configuration; None: it reports none. `get_slots`: as
        above.
        """
        client = HeartbeatClient(
            name,
            peers,
            lambda message: agent.receive(message),  # noqa: PLW0108  # the agent is created below
            on_open=lambda: agent.on_stream_opened(),  # noqa: PLW0108
            on_outdated=lambda: agent.end_outdated(),  # noqa: PLW0108
            security=security,
            system=system,
            token=token,
        )
        agent = cls(
            name, client, workers, file=file, version=version, on_oldest_agents=on_oldest_agents,
            get_slots=get_slots,
        )  # fmt: skip
        return agent

    def receive(self, message: Down) -> None:
        """Handle a message of the leader. May be called from any thread."""
        self._events.put(core.InstructionReceived(message))

    def on_stream_opened(self) -> None:
        """Send a heartbeat at once over a new stream. May be called from any thread."""
        self._events.put(None)

    def end_outdated(self) -> None:
        """End, because the coordinators' terms began anew. May be called from any thread."""
        self._is_outdated.set()

    def drain(self) -> None:
        """Ask for this agent's units to be moved away, for good. May be called from any thread."""
        self._events.put(core.DrainSelf())

    @property
    def dropped(self) -> dict[str, int]:
        """Messages that were not obeyed, by reason."""
        return dict(self._state.dropped)

    def list_units(self) -> tuple[AgentUnit, ...]:
        """Return the units that the agent holds. May be called from any thread."""
        return tuple(self._state.units.by_name.values())

    def run(self, stop: threading.Event) -> int:
        """Work until `stop` is set and all workers have ended (returns 0), another process has this
        agent's name (returns 3), or the coordinators' terms began anew (returns 5).
        """
        self._workers.start()
        self._client.start()
        _log.info("agent started", agent=self._state.name, incarnation=self._state.incarnation)
        try:
            while self._ends is None:
                self._run_round()
                self._end_when_due(stop.is_set())
            if self._ends == _SHUT_DOWN:
                # inform the leader at once, with the progress, and that no more units are accepted
                self._make_heartbeat_due()
        finally:
            self._workers.end_thread()
            self._workers.close_workers()
            self._client.close()
        _log.info("agent stopped", agent=self._state.name, reason=self._ends)
        return _CODES.get(self._ends, SUPERSEDED)

    # the core's thread

    def _run_round(self) -> None:
        """Wait for an event or the next wake-up, whichever comes first, and handle what is there."""
        due = core.compute_next_wakeup(self._state)
        wait = min(_GLANCE, max(0.0, due - self._clock()))
        try:
            self._handle_event(self._events.get(timeout=wait) if wait else self._events.get_nowait())
            for _ in range(_BATCH):
                if self._clock() >= due or self._ends is not None:
                    break
                self._handle_event(self._events.get_nowait())
        except queue.Empty:
            pass
        if self._clock() >= due:
            self._step_core(core.AgentTick(self._get_slots()))

    def _handle_event(self, event: core.AgentEvent | None) -> None:
        if event is None:
            self._make_heartbeat_due()
        else:
            self._step_core(event)

    def _step_core(self, event: core.AgentEvent) -> None:
        self._state, effects = core.step_agent(self._state, event, self._clock())
        for effect in effects:
            match effect:
                case core.SendUp(message):
                    self._client.send(message)
                case core.ExitAgent(why):
                    self._ends = why
                case core.ReadFile() | core.TakeConfig():
                    self._ask_file(effect)
                case core.UseOldestAgents(oldest):
                    self._on_oldest_agents(oldest)
                case _:
                    self._workers.queue_effect(effect)

    def _ask_file(self, asked: core.ReadFile | core.TakeConfig) -> None:
        """Queue a request to the file in the workers' thread, so that the order with preparations is kept."""
        if (file := self._file) is not None:
            self._workers.queue_work(lambda: self._events.put(_answer_file_request(file, asked)))

    def _make_heartbeat_due(self) -> None:
        """Send the next heartbeat now."""
        self._state.times.make_heartbeat_due(self._clock())
        self._step_core(core.AgentTick(self._get_slots()))

    def _end_when_due(self, stop: bool) -> None:
        """Shut down once when asked to, or when no coordinator will serve this agent any more. Close workers
        that do not end in time.
        """
        state, now = self._state, self._clock()
        why = _SHUT_DOWN if stop else _TERMS_BEGAN_ANEW if self._is_outdated.is_set() else None
        if why is not None and state.ending is None:
            self._step_core(core.Shutdown(why))
            self._make_heartbeat_due()
        if state.ending is None or self._ends is not None:
            return
        self._ending_since = now if self._ending_since is None else self._ending_since
        if now > self._ending_since + self._patience and not self._workers.closed:
            left = [held for held in state.units.by_name.values() if held.state is UnitPhase.STOPPING]
            _log.error(
                "workers did not end in time", agent=self._state.name, units=[held.unit for held in left]
            )
            self._workers.close_workers()
            for held in left:
                self._on_worker_event(held.unit, WorkerEnded(held.assignment, None, "closed with the agent"))

    def _on_worker_event(self, unit: str, event: WorkerEvent) -> None:
        """Pass on a worker's event. May be called from any thread."""
        self._events.put(core.WorkerEventReceived(unit, event))


def _answer_file_request(
    file: ConfigFile, asked: core.ReadFile | core.TakeConfig
) -> core.FileRead | core.ConfigTaken:
    """Read or adopt the configuration file, and return the result; an error is part of the result."""
    if isinstance(asked, core.ReadFile):
        try:
            answer = FileAnswer(asked.asked, *file.read_file())
        except Exception as error:  # noqa: BLE001  # reported to the leader
            _log.exception("configuration not readable")
            why = f"internal error of rowlock when it read its file: {type(error).__name__}: {error}"
            answer = FileAnswer(asked.asked, "", (why,))
        return core.FileRead(answer)
    try:
        taken = file.adopt_config(asked.version.digest)
    except Exception:  # noqa: BLE001  # the leader asks again
        _log.exception("configuration not adopted")
        taken = False
    return core.ConfigTaken(asked.version if taken else None)


class _WorkerThread:
    """The workers, and the thread that calls them in order. Only the core's thread uses `closed`."""

    def __init__(self, name: str, workers: Workers, on_event: Callable[[str, WorkerEvent], None]) -> None:
        self._workers = workers
        self._on_event = on_event
        self._queue: queue.SimpleQueue[tuple[str, int, Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.closed = False

    def start(self) -> None:
        self._workers.listen(self._on_event)
        self._thread.start()

    def queue_effect(self, effect: UnitEffect) -> None:
        workers = self._workers
        match effect:
            case PrepareWorker(unit, assignment, mark):
                self._queue.put((unit, assignment, lambda: workers.prepare(unit, assignment, mark)))
            case StartWorker(unit, assignment, mark):
                self._queue.put((unit, assignment, lambda: workers.start(unit, assignment, mark)))
            case RemoveWorker(unit, assignment):
                self._queue.put((unit, assignment, lambda: workers.remove(unit, assignment)))

    def queue_work(self, work: Callable[[], None]) -> None:
        """Run `work`, which must not raise, between two calls of the workers."""
        self._queue.put(("", 0, work))

    def end_thread(self) -> None:
        """End the thread after the queued calls. If a call hangs, the thread is abandoned."""
        self._queue.put(None)
        self._thread.join(5)

    def close_workers(self) -> None:
        if not self.closed:
            self.closed = True
            self._workers.close()

    def _run(self) -> None:
        while (asked := self._queue.get()) is not None:
            unit, assignment, call = asked
            begun = time.monotonic()
            try:
                call()
            except Exception as error:  # noqa: BLE001  # reported to the leader
                _log.exception("worker failed", unit=unit, assignment=assignment)
                why = encode_problem(Problem(f"{type(error).__name__}: {error}"))
                self._on_event(unit, WorkerEnded(assignment, None, why))
            if (seconds := time.monotonic() - begun) > _SLOW:
                _log.warning("worker call slow", unit=unit, seconds=round(seconds, 1))
