"""The agent's core: whom it obeys, its leases, and that it reports Stopped only when nothing can write any
more."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from coordinator.agent.shell import AgentShell
from coordinator.core.agent import (
    AgentTick,
    DrainSelf,
    ExitAgent,
    WorkerEventReceived,
    compute_next_wakeup,
)
from coordinator.core.agent_unit import AgentUnit, RemoveWorker
from coordinator.core.messages import (
    Announce,
    Dispatch,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Liveness,
    Superseded,
    Sync,
)
from schemas.units import Prepared, UnitOperation, UnitPhase, UnitProgress, UnitProgressed, WorkerEnded
from tests.kits.agent_core import EPOCH, LEASE, REV, Driver
from tests.kits.agent_history import play
from tests.kits.coordination import Instant

HISTORIES = {
    "an older owner is rejected, and learns why": (
        "announce; announce o 6 ⇒ reject, 7 is known; prepare u#5 of 6 ⇒ reject, 7 is known; u is absent"
    ),
    "a later owner is obeyed only once it has announced itself": (
        "announce; prepare u#5 of 8 ⇒ nothing; announce p 8 ⇒ sync;"
        "prepare u#5 of 8 ⇒ prepare u#5, answer u#5 preparing"
    ),
    "the life of a unit; a stop that was sent twice does not lose the final report": (
        "announce; prepare u#5 ⇒ prepare u#5, answer u#5 preparing; prepare u#5 ⇒ answer u#5 preparing;"
        "start u#5 ⇒ answer u#5 preparing; u#5: prepared ⇒ report u#5 prepared;"
        "start u#5 ⇒ start u#5, answer u#5 replicating; remove u#5 ⇒ remove u#5, answer u#5 stopping;"
        "remove u#5 ⇒ answer u#5 stopping; u#5: ended 9/9 ⇒ report u#5 stopped 9/9;"
        "wait 5; tick ⇒ heartbeat u#5 stopped 9/9; remove u#5 ⇒ answer u#5 stopped 9/9;"
        "forget u#5 ⇒ answer u#0 absent; wait 5; tick ⇒ heartbeat"
    ),
    "an assignment whose stop overtook its prepare is never taken up, and stops no later one": (
        "announce; remove u#5; prepare u#5 ⇒ answer u#0 absent;"
        "prepare u#6 ⇒ prepare u#6, answer u#6 preparing; remove u#5 ⇒ answer u#6 preparing"
    ),
    "a higher assignment waits until the lower one has ended": (
        "replicate u; prepare u#9 ⇒ remove u#5, answer u#5 stopping; prepare u#9 ⇒ answer u#5 stopping;"
        "u#5: ended; prepare u#9 ⇒ prepare u#9, answer u#9 preparing"
    ),
    "a lease that is over when it arrives stops the unit": "replicate u; wait 15; grant u#5 after 10 ⇒ remove u#5",  # noqa: E501
    "a start whose lease is over starts nothing": (
        "announce; prepare u#5; u#5: prepared; start u#5 after 10 ⇒ answer u#5 prepared"
    ),
    "only units that are named with their assignment keep their lease": (
        "replicate u; wait 8; grant u#4 v#5; wait 3; tick ⇒ remove u#5, heartbeat u#5 stopping"
    ),
    "shutdown ends only after every worker has": (
        "replicate u; shutdown ⇒ remove u#5; prepare u#9 ⇒ answer u#5 stopping;"
        "u#5: ended ⇒ report u#5 stopped, exit: shut down"
    ),
} | {
    f"an incarnation that an owner of term {rev} replaced stops and ends, announced or not": (
        f"replicate u; superseded by {rev} ⇒ remove u#5;"
        "u#5: ended ⇒ report u#5 stopped, exit: another process has this agent's name"
    )
    for rev in (REV, REV + 1)
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_the_agent_does_and_reports_only_what_the_history_demands(history: str) -> None:
    play(history)


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_it_says_hello_until_it_is_announced_to_and_then_sends_heartbeats(driver: Driver) -> None:
    assert isinstance(driver.sent(driver.do(AgentTick()))[0], Hello)
    assert driver.do(AgentTick()) == []
    driver.now += 1
    assert isinstance(driver.sent(driver.do(AgentTick()))[0], Hello)
    sync = driver.announce()[0]
    assert isinstance(sync, Sync)
    assert (sync.header.owner_rev, sync.header.agent_epoch) == (REV, EPOCH)
    driver.now += 1
    beat = driver.sent(driver.do(AgentTick()))[0]
    assert isinstance(beat, Heartbeat)
    assert beat.sent == driver.now
    assert beat.header.op_seq > sync.header.op_seq


def test_the_owner_says_how_often_heartbeats_come(driver: Driver) -> None:
    """In the handshake first, then with every answer."""
    driver.get(Announce(Header(REV, EPOCH), "o", "inc-1", 0.25, LEASE))
    driver.do(AgentTick())
    assert compute_next_wakeup(driver.state) == driver.now + 0.25
    driver.now += 0.25
    assert isinstance(driver.sent(driver.do(AgentTick()))[0], Heartbeat)
    driver.get(HeartbeatResponse(Header(REV, EPOCH), driver.now, LEASE, 4.0))
    driver.now += 0.25
    driver.do(AgentTick())
    assert compute_next_wakeup(driver.state) == driver.now + 4.0


def test_two_owners_in_one_term_are_not_both_obeyed(driver: Driver) -> None:
    driver.announce()
    assert driver.announce(owner="impostor") == []
    assert driver.state.leader.name == "o"
    assert driver.state.dropped["two owners in one term"] == 1


def test_announcements_for_another_incarnation_are_not_for_this_one(driver: Driver) -> None:
    assert driver.announce(incarnation="inc-0") == []
    assert driver.state.leader.agent_epoch == 0


def test_ended_assignments_are_forgotten_with_the_term_of_their_leader(driver: Driver) -> None:
    driver.announce()
    driver.get(Dispatch(Header(REV, EPOCH, 5), "u", UnitOperation.REMOVE))
    ended = set(driver.state.units.by_name)
    assert ended, "a stop that overtook its prepare"
    driver.announce()
    assert set(driver.state.units.by_name) == ended, "the same leader's earlier prepare may still come"
    driver.announce(rev=REV + 1)
    assert driver.state.units.by_name == {}


def test_messages_to_another_incarnation_are_dropped(driver: Driver) -> None:
    driver.announce()
    assert driver.get(Dispatch(Header(REV, EPOCH - 1, 5), "u", UnitOperation.PREPARE)) == []
    assert driver.state.dropped["other incarnation"] == 1


def test_a_sync_sorts_everything_held(driver: Driver) -> None:
    driver.replicate()
    driver.get(Dispatch(Header(REV, EPOCH, 6), "v", UnitOperation.PREPARE))
    driver.get(Dispatch(Header(REV, EPOCH, 7), "w", UnitOperation.PREPARE))
    driver.do(WorkerEventReceived("w", WorkerEnded(7, error="boom")))
    sync = driver.announce()[0]
    assert isinstance(sync, Sync)
    assert [[s.unit for s in part] for part in (sync.running, sync.adding, sync.removing)] == [
        ["u"],
        ["v"],
        ["w"],
    ]


def test_every_owner_hears_the_version_before_it_gives_units(driver: Driver) -> None:
    for rev in (REV, REV + 1):
        (sync,) = driver.announce(rev=rev)
        assert isinstance(sync, Sync)
        assert sync.version == "0.2.0"


def test_the_lease_counts_from_when_the_heartbeat_was_sent(driver: Driver) -> None:
    sent = driver.now + 1
    play("replicate u; wait 8; grant u#5 after 7", driver)
    assert compute_next_wakeup(driver.state) <= sent + LEASE
    driver.now = sent + LEASE - 0.01
    play("tick; u is replicating", driver)
    driver.now = sent + LEASE
    play("tick ⇒ remove u#5; u is stopping", driver)


def test_late_words_of_an_earlier_worker_change_nothing(driver: Driver) -> None:
    driver.replicate()
    before = driver.state.units.by_name["u"]
    for event in (Prepared(4), WorkerEnded(4), UnitProgressed(4, UnitProgress(1, 1))):
        driver.do(WorkerEventReceived("u", event))
    assert driver.state.units.by_name["u"] == before


def test_progress_goes_up_between_heartbeats(driver: Driver) -> None:
    """At most one checkpoint in 0.2 s, and none without progress."""
    play("replicate u; tick; u#5: at 4/6; tick ⇒ checkpoint u#5 4/6; tick ⇒ nothing", driver)
    play("u#5: at 5/7; tick ⇒ nothing", driver)
    assert compute_next_wakeup(driver.state) == driver.now + 0.2
    play("wait 0.2; tick ⇒ checkpoint u#5 5/7; wait 0.2; tick ⇒ nothing", driver)


def test_a_drain_at_the_machine_itself_is_for_good_one_that_the_owner_knows_of_may_be_undone() -> None:
    driver = Driver()
    driver.do(DrainSelf())
    assert driver.state.liveness is Liveness.STOPPING
    other = Driver()
    other.replicate()
    other.grant(("u", 5), echo=other.now, draining=True)
    assert other.state.liveness is Liveness.ALIVE


@pytest.mark.parametrize(
    "header", [Header(REV - 1, EPOCH), Header(REV, EPOCH - 1), Header(REV + 1, EPOCH + 1)]
)
def test_what_was_said_to_another_incarnation_or_by_an_older_owner_ends_nothing(
    driver: Driver, header: Header
) -> None:
    driver.replicate()
    assert not any(isinstance(e, RemoveWorker | ExitAgent) for e in driver.get(Superseded(header)))


# the shell


class Sent:
    """A client that keeps what it is to send."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.closed = False
        self.when_sent: Callable[[], None] = lambda: None

    def start(self) -> None: ...

    def send(self, message: object) -> bool:
        self.sent.append(message)
        self.when_sent()
        return True

    def close(self) -> None:
        self.closed = True


class Shell:
    """A shell by a clock of its own."""

    def __init__(self) -> None:
        self.now, self.client, self.workers = 100.0, Sent(), Instant()
        self.shell = AgentShell("a", self.client, self.workers, lambda: self.now, patience=30.0)


def test_an_agent_that_is_asked_to_stop_ends_its_thread_and_connection() -> None:
    made, stop = Shell(), threading.Event()
    made.client.when_sent = stop.set
    assert made.shell.run(stop) == 0
    assert isinstance(made.client.sent[0], Hello)
    assert made.client.closed
    assert not made.shell._workers._thread.is_alive()


def test_an_agent_ends_when_no_coordinator_will_serve_it() -> None:
    made = Shell()
    made.client.when_sent = made.shell.end_outdated
    assert made.shell.run(threading.Event()) == 5
    assert made.client.closed


def test_an_agent_that_is_asked_to_stop_ends_as_asked_whatever_it_learns_later() -> None:
    made = Shell()
    made.shell._state.units.by_name["u"] = AgentUnit("u", 5, UnitPhase.STOPPING)
    made.shell._end_when_due(stop=True)
    made.shell.end_outdated()
    made.shell._end_when_due(stop=False)
    assert made.shell._state.ending == "shut down"


def test_an_agent_that_is_asked_to_stop_reports_it_at_once() -> None:
    """The leader can place its units meanwhile; the next heartbeat would be seconds later."""
    made = Shell()
    incarnation = made.shell._state.incarnation
    made.shell.receive(Announce(Header(REV, EPOCH), "o", incarnation, 1.0, LEASE))
    made.shell._run_round()
    made.shell._state.units.by_name["u"] = AgentUnit("u", 5, UnitPhase.STOPPING)
    made.client.sent.clear()
    made.shell._end_when_due(stop=True)
    [beat] = made.client.sent
    assert isinstance(beat, Heartbeat)
    assert beat.liveness is Liveness.STOPPING


def test_workers_have_their_time_to_end() -> None:
    made = Shell()
    made.shell._state.begin_shutdown("shut down")
    for later, closed in ((0.0, False), (29.0, False), (2.0, True)):
        made.now += later
        made.shell._end_when_due(stop=False)
        assert made.shell._workers.closed is closed


def test_many_events_do_not_delay_a_heartbeat_that_is_due() -> None:
    made = Shell()
    for _ in range(3):
        made.shell.drain()
    made.now = compute_next_wakeup(made.shell._state) + 1
    made.shell._run_round()
    assert made.shell._events.qsize() == 2
    assert made.client.sent, "it is sent before the others are handled"


def test_a_worker_s_call_that_hangs_does_not_keep_the_process_alive() -> None:
    assert Shell().shell._workers._thread.daemon
