"""The agent's shell, with the owner played by the test: time, workers that fail or hang, and how a process
ends."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.agent.shell import CLEAN, SUPERSEDED, AgentShell
from coordinator.core.messages import (
    Announce,
    Checkpoint,
    Dispatch,
    DispatchResponse,
    Down,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Liveness,
    Superseded,
    Sync,
    Up,
)
from schemas.problems import decode_problem
from schemas.slots import SlotReport
from schemas.units import (
    Prepared,
    UnitOperation,
    UnitPhase,
    UnitProgress,
    UnitProgressed,
    WorkerEnded,
    WorkerEvent,
)
from tests.kits.transport import serving, threads_of, until

REV, EPOCH, UNIT = 5, 7, "apply/p/t"
MARK = UnitProgress(100, 200, (0, 1, 2, 3))


class FakeClient:
    """Keeps what is sent. `on_beat` hears of every heartbeat, in the agent's thread; None: nothing comes
    back."""

    def __init__(self) -> None:
        self.sent: list[Up] = []
        self.closed = False
        self.on_beat: Callable[[Heartbeat], None] | None = None

    def start(self) -> None:
        pass

    def send(self, message: Up) -> bool:
        assert not self.closed
        self.sent.append(message)
        if isinstance(message, Heartbeat) and self.on_beat is not None:
            self.on_beat(message)
        return True

    def close(self) -> None:
        self.closed = True

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in list(self.sent) if isinstance(message, kind)]


class FakeWorkers:
    """Says what a well-behaved worker says; `on` replaces what it does at a call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []
        self.on: dict[str, Callable[[str, int], None]] = {}
        self.report_event: Callable[[str, WorkerEvent], None]
        self.closed = threading.Event()

    def listen(self, on_event: Callable[[str, WorkerEvent], None]) -> None:
        self.report_event = on_event

    def prepare(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        self._called("prepare", unit, assignment, lambda: self.report_event(unit, Prepared(assignment)))

    def start(self, unit: str, assignment: int, mark: UnitProgress | None) -> None:
        self._called(
            "start", unit, assignment, lambda: self.report_event(unit, UnitProgressed(assignment, MARK, 9))
        )

    def remove(self, unit: str, assignment: int) -> None:
        self._called(
            "remove", unit, assignment, lambda: self.report_event(unit, WorkerEnded(assignment, MARK))
        )

    def close(self) -> None:
        self.closed.set()

    def _called(self, what: str, unit: str, assignment: int, normally: Callable[[], None]) -> None:
        self.calls.append((what, unit, assignment))
        if what in self.on:
            self.on[what](unit, assignment)
        else:
            normally()


class Owner:
    """What the owner says to the agent under test."""

    def __init__(self, agent: AgentShell, client: FakeClient, lease: float) -> None:
        self.agent, self.client, self.lease = agent, client, lease
        self._numbers = iter(range(1, 10**6))

    def header(self, assignment: int = 0) -> Header:
        return Header(REV, EPOCH, assignment, next(self._numbers))

    def announce(self) -> None:
        incarnation = until(lambda: self.client.of(Hello))[0].incarnation
        self.agent.receive(Announce(self.header(), "owner", incarnation, 0.05, self.lease))
        until(lambda: self.client.of(Sync))

    def dispatch(self, op: UnitOperation, assignment: int, echo: float = 0.0) -> None:
        self.agent.receive(Dispatch(self.header(assignment), UNIT, op, MARK, echo, self.lease))

    def replicate(self, assignment: int = 10) -> None:
        """Bring the unit to replicate, with one lease from now."""
        self.dispatch(UnitOperation.PREPARE, assignment)
        until(lambda: self.reported(UnitPhase.PREPARED))
        self.dispatch(UnitOperation.START, assignment, echo=time.monotonic())
        until(lambda: self.reported(UnitPhase.REPLICATING))

    def renew(self, beat: Heartbeat) -> None:
        """Answer a heartbeat: the unit's lease goes on from when it was sent."""
        granted = ((UNIT, 10),)
        self.agent.receive(HeartbeatResponse(self.header(), beat.sent, self.lease, 0.05, granted))

    def reported(self, state: UnitPhase) -> list[Any]:
        responses = [message.status for message in self.client.of(DispatchResponse)]
        return [status for status in responses if status.state is state]

    def beats(self) -> list[Heartbeat]:
        return self.client.of(Heartbeat)


class Running:
    def __init__(self, lease: float, patience: float) -> None:
        self.client, self.workers, self.stop = FakeClient(), FakeWorkers(), threading.Event()
        self.agent = AgentShell("a", self.client, self.workers, patience=patience)
        self.owner = Owner(self.agent, self.client, lease)
        self.code: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.thread = threading.Thread(
            target=lambda: self.code.put(self.agent.run(self.stop)), name="agent-under-test"
        )


@contextlib.contextmanager
def running(lease: float = 60.0, patience: float = 30.0) -> Iterator[Running]:
    run = Running(lease, patience)
    run.thread.start()
    try:
        yield run
    finally:
        run.stop.set()
        run.thread.join(20)
        assert not run.thread.is_alive()


def test_a_units_life() -> None:
    with running() as run:
        owner = run.owner
        owner.announce()
        owner.replicate(10)
        until(lambda: any(beat.statuses and beat.statuses[0].mark == MARK for beat in owner.beats()))
        assert owner.beats()[-1].statuses[0].rows_per_s == 9
        owner.dispatch(UnitOperation.REMOVE, 10)
        until(lambda: owner.reported(UnitPhase.STOPPED))
        owner.dispatch(UnitOperation.FORGET, 10)
        until(lambda: owner.beats()[-1].statuses == ())
        assert run.workers.calls == [("prepare", UNIT, 10), ("start", UNIT, 10), ("remove", UNIT, 10)]


def test_progress_goes_up_between_heartbeats() -> None:
    with running() as run:
        run.owner.announce()
        run.agent.receive(Announce(run.owner.header(), "owner", run.agent._state.incarnation, 30.0, 60.0))
        run.owner.replicate()
        run.workers.report_event(UNIT, UnitProgressed(10, UnitProgress(300, 400)))
        until(lambda: [m for c in run.client.of(Checkpoint) for _, _, m in c.marks if m.checkpoint_ts == 300])


def test_the_lease_ends_in_time_while_everything_else_hangs() -> None:
    """The network says nothing, a worker's call does not return: the core still sees the end of the lease."""
    hangs = threading.Event()
    with running(lease=0.5) as run:
        run.owner.announce()
        run.owner.replicate()
        run.workers.on["prepare"] = lambda unit, assignment: hangs.wait(20) and None
        run.agent.receive(Dispatch(run.owner.header(99), "other", UnitOperation.PREPARE, None))
        until(lambda: ("prepare", "other", 99) in run.workers.calls)
        until(lambda: any(s.state is UnitPhase.STOPPING for beat in run.owner.beats() for s in beat.statuses))
        assert not run.owner.reported(UnitPhase.STOPPED), "said before the worker has ended"
        hangs.set()
        until(lambda: run.owner.reported(UnitPhase.STOPPED))
        assert ("remove", UNIT, 10) in run.workers.calls


def test_a_lease_is_renewed_by_answers() -> None:
    """Over three leases the unit goes on; when nobody answers any more it stops."""
    lease = 1.0
    with running(lease=lease) as run:
        run.owner.announce()
        run.owner.replicate()
        begun = time.monotonic()
        run.client.on_beat = run.owner.renew
        run.agent.on_stream_opened()  # a heartbeat at once: the first would come a second after the Hello
        until(lambda: run.owner.beats() and run.owner.beats()[-1].sent > begun + 3 * lease)
        states = {status.state for beat in run.owner.beats() for status in beat.statuses}
        assert states == {UnitPhase.REPLICATING}
        assert ("remove", UNIT, 10) not in run.workers.calls
        run.client.on_beat = None
        until(lambda: run.owner.reported(UnitPhase.STOPPED))
        assert ("remove", UNIT, 10) in run.workers.calls


@pytest.mark.parametrize("call", ["prepare", "start", "remove"])
def test_a_worker_that_raises_has_ended(call: str) -> None:
    def fails(unit: str, assignment: int) -> None:
        raise RuntimeError(f"{unit} is broken")

    with running() as run:
        run.owner.announce()
        run.workers.on[call] = fails
        run.owner.dispatch(UnitOperation.PREPARE, 10)
        if call != "prepare":
            until(lambda: run.owner.reported(UnitPhase.PREPARED))
            run.owner.dispatch(UnitOperation.START, 10, echo=time.monotonic())
        if call == "remove":
            until(lambda: run.owner.reported(UnitPhase.REPLICATING))
            run.owner.dispatch(UnitOperation.REMOVE, 10)
        stopped = until(lambda: run.owner.reported(UnitPhase.STOPPED))[-1]
        assert decode_problem(stopped.error).what == f"RuntimeError: {UNIT} is broken"


def test_a_worker_that_ends_by_itself_is_reported() -> None:
    with running() as run:
        run.owner.announce()
        run.owner.replicate()
        run.workers.report_event(UNIT, WorkerEnded(10, MARK, "out of space"))
        assert until(lambda: run.owner.reported(UnitPhase.STOPPED))[-1].error == "out of space"


def test_a_clean_end() -> None:
    """Workers stop, the owner hears their last marks and that we leave, then the process ends with 0."""
    with running() as run:
        run.owner.announce()
        run.owner.replicate()
        run.stop.set()
        assert run.code.get(timeout=120) == CLEAN
        last = run.owner.beats()[-1]
        assert last.liveness is Liveness.STOPPING
        assert [(s.state, s.mark) for s in last.statuses] == [(UnitPhase.STOPPED, MARK)]
        assert run.workers.closed.is_set()
        assert run.client.closed
    until(lambda: not threads_of("workers-of-a", "agent-under-test"))


def test_workers_that_do_not_end_are_closed() -> None:
    with running(patience=0.3) as run:
        run.workers.on["remove"] = lambda unit, assignment: None
        run.owner.announce()
        run.owner.replicate()
        run.stop.set()
        assert run.code.get(timeout=120) == CLEAN
        assert run.workers.closed.is_set()
        assert run.owner.reported(UnitPhase.STOPPED)[-1].error == "closed with the agent"


def test_another_process_of_our_name() -> None:
    with running() as run:
        run.owner.announce()
        run.owner.replicate()
        run.agent.receive(Superseded(run.owner.header()))
        assert run.code.get(timeout=120) == SUPERSEDED
        assert ("remove", UNIT, 10) in run.workers.calls


def test_an_old_owner_is_not_obeyed() -> None:
    with running() as run:
        run.owner.announce()
        old: Down = Dispatch(Header(REV - 1, EPOCH, 10, 1), UNIT, UnitOperation.PREPARE)
        run.agent.receive(old)
        until(lambda: run.agent.dropped.get("old owner"))
        assert not run.workers.calls


def test_a_new_stream_is_used_at_once_and_draining_is_said() -> None:
    with running() as run:
        run.owner.announce()
        run.agent.receive(Announce(run.owner.header(), "owner", run.agent._state.incarnation, 600.0, 600.0))
        until(lambda: len(run.client.of(Sync)) == 2)
        run.agent.on_stream_opened()
        before = len(run.owner.beats())
        run.agent.drain()
        run.agent.on_stream_opened()
        until(lambda: len(run.owner.beats()) > before)
        until(lambda: run.owner.beats()[-1].liveness is Liveness.STOPPING)


def test_over_real_streams() -> None:
    """`AgentShell.connect`: a Hello comes up a stream of its own as soon as there is a leader; answers come
    down."""
    workers, stop = FakeWorkers(), threading.Event()
    slots = SlotReport(2, 4, 180, 2, {"host-b": "ModuleNotFoundError"})
    with serving(name="real") as server:
        agent = AgentShell.connect("a", [server.address], workers, get_slots=lambda: slots)
        thread = threading.Thread(target=agent.run, args=(stop,), name="agent-real")
        thread.start()
        server.lead(REV)
        hello = until(server.arrived)[0]
        assert isinstance(hello, Hello)
        assert server.server.push_messages(
            "a", [Announce(Header(REV, EPOCH, 0, 1), "o", hello.incarnation, 0.05, 60.0)]
        )
        until(lambda: [m for m in server.arrived() if isinstance(m, Sync)])
        assert server.server.push_messages(
            "a", [Dispatch(Header(REV, EPOCH, 10, 2), UNIT, UnitOperation.PREPARE, MARK)]
        )
        until(lambda: [m for m in server.arrived() if isinstance(m, DispatchResponse)])
        until(lambda: [m for m in server.arrived() if isinstance(m, Heartbeat) and m.slots == slots])
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
        until(server.closed)
        last = [m for m in server.arrived() if isinstance(m, Heartbeat)][-1]
        assert last.liveness is Liveness.STOPPING
        assert last.slots == slots
        assert [s.state for s in last.statuses] == [UnitPhase.STOPPED]
