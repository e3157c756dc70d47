"""The agent's core: whom it obeys, its leases, and that it says Stopped only when nothing can write any more."""

from __future__ import annotations

import pytest

from coordinator.core.agent import (
    AgentTick,
    DrainSelf,
    ExitAgent,
    Shutdown,
    WorkerEventReceived,
    compute_next_wakeup,
)
from coordinator.core.agent_unit import PrepareWorker, RemoveWorker, StartWorker
from coordinator.core.messages import (
    Announce,
    Checkpoint,
    Dispatch,
    DispatchResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Liveness,
    Rejected,
    Superseded,
    Sync,
)
from schemas.units import Prepared, UnitOperation, UnitPhase, UnitProgress, UnitProgressed, WorkerEnded
from tests.kits.agent_core import EPOCH, LEASE, REV, Driver


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


def test_an_older_owner_is_rejected_and_told_why(driver: Driver) -> None:
    driver.announce()
    for out in (
        driver.announce(rev=REV - 1),
        driver.sent(driver.dispatch(UnitOperation.PREPARE, rev=REV - 1)),
    ):
        assert isinstance(out[0], Rejected)
        assert out[0].known_rev == REV
    assert driver.held() is UnitPhase.ABSENT


def test_a_later_owner_is_obeyed_only_once_it_has_announced_itself(driver: Driver) -> None:
    driver.announce()
    assert driver.dispatch(UnitOperation.PREPARE, rev=REV + 1) == []
    assert isinstance(driver.announce(rev=REV + 1, owner="p")[0], Sync)
    assert driver.state.leader.rev == REV + 1
    assert driver.dispatch(UnitOperation.PREPARE, rev=REV + 1)


def test_two_owners_in_one_term_are_not_both_obeyed(driver: Driver) -> None:
    driver.announce()
    assert driver.announce(owner="impostor") == []
    assert driver.state.leader.name == "o"
    assert driver.state.dropped["two owners in one term"] == 1


def test_announcements_for_another_incarnation_are_not_for_this_one(driver: Driver) -> None:
    assert driver.announce(incarnation="inc-0") == []
    assert driver.state.leader.agent_epoch == 0


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


def test_the_life_of_a_unit_and_what_its_worker_is_told(driver: Driver) -> None:
    driver.announce()
    assert driver.dispatch(UnitOperation.PREPARE)[0] == PrepareWorker("u", 5, None)
    assert not any(isinstance(e, PrepareWorker) for e in driver.dispatch(UnitOperation.PREPARE))
    assert not any(isinstance(e, StartWorker) for e in driver.dispatch(UnitOperation.START))
    changed = driver.sent(driver.do(WorkerEventReceived("u", Prepared(5))))[0]
    assert isinstance(changed, DispatchResponse)
    assert (changed.answers, changed.status.state) == (0, UnitPhase.PREPARED)
    assert driver.dispatch(UnitOperation.START)[0] == StartWorker("u", 5, None)
    stop = driver.dispatch(UnitOperation.REMOVE)
    assert stop[0] == RemoveWorker("u", 5)
    assert driver.sent(stop)[0].status.state is UnitPhase.STOPPING  # type: ignore[union-attr]
    driver.dispatch(UnitOperation.REMOVE)
    assert driver.held() is UnitPhase.STOPPING
    driver.do(WorkerEventReceived("u", WorkerEnded(5, UnitProgress(9, 9))))
    assert driver.state.units.by_name["u"].status.mark == UnitProgress(9, 9)
    driver.now += 5
    beat = driver.sent(driver.do(AgentTick()))[0]
    assert isinstance(beat, Heartbeat)
    assert [s.state for s in beat.statuses] == [UnitPhase.STOPPED]
    driver.dispatch(UnitOperation.REMOVE)  # a stop that was sent twice does not lose the final report
    assert driver.held() is UnitPhase.STOPPED
    driver.dispatch(UnitOperation.FORGET)
    assert driver.state.units.list_statuses() == ()


def test_a_closed_epoch_is_never_taken_up_again(driver: Driver) -> None:
    driver.announce()
    driver.dispatch(UnitOperation.REMOVE, assignment=5)  # it overtook its own prepare
    driver.dispatch(UnitOperation.PREPARE, assignment=5)
    assert driver.held() is UnitPhase.ABSENT
    driver.dispatch(UnitOperation.PREPARE, assignment=6)
    assert driver.held() is UnitPhase.PREPARING
    driver.dispatch(UnitOperation.REMOVE, assignment=5)  # late: of an earlier assignment (B3)
    assert driver.held() is UnitPhase.PREPARING


def test_a_higher_epoch_waits_until_the_lower_one_has_ended(driver: Driver) -> None:
    driver.replicate()
    assert driver.dispatch(UnitOperation.PREPARE, assignment=9)[0] == RemoveWorker("u", 5)
    driver.dispatch(UnitOperation.PREPARE, assignment=9)
    assert driver.held() is UnitPhase.STOPPING
    driver.do(WorkerEventReceived("u", WorkerEnded(5)))
    assert driver.dispatch(UnitOperation.PREPARE, assignment=9)[0] == PrepareWorker("u", 9, None)


def test_the_lease_counts_from_when_the_heartbeat_was_sent(driver: Driver) -> None:
    driver.replicate()
    sent = driver.now
    driver.now += 8
    driver.grant(("u", 5), echo=sent + 1)  # the answer took seven seconds
    assert compute_next_wakeup(driver.state) <= sent + 1 + LEASE
    driver.now = sent + 1 + LEASE - 0.01
    driver.do(AgentTick())
    assert driver.held() is UnitPhase.REPLICATING
    driver.now = sent + 1 + LEASE
    assert RemoveWorker("u", 5) in driver.do(AgentTick())
    assert driver.held() is UnitPhase.STOPPING


def test_a_lease_that_is_over_when_it_arrives_stops_and_starts_nothing(driver: Driver) -> None:
    driver.replicate()
    driver.now += LEASE + 5
    assert RemoveWorker("u", 5) in driver.grant(("u", 5), echo=driver.now - LEASE)
    late = Driver()
    late.announce()
    late.dispatch(UnitOperation.PREPARE)
    late.do(WorkerEventReceived("u", Prepared(5)))
    assert not any(
        isinstance(e, StartWorker) for e in late.dispatch(UnitOperation.START, echo=late.now - LEASE)
    )


def test_only_units_that_are_named_at_their_epoch_keep_their_lease(driver: Driver) -> None:
    driver.replicate()
    driver.now += 8
    driver.grant(("u", 4), ("v", 5), echo=driver.now)
    driver.now += 3
    assert RemoveWorker("u", 5) in driver.do(AgentTick())


def test_late_words_of_an_earlier_worker_change_nothing(driver: Driver) -> None:
    driver.replicate()
    before = driver.state.units.by_name["u"]
    for event in (Prepared(4), WorkerEnded(4), UnitProgressed(4, UnitProgress(1, 1))):
        driver.do(WorkerEventReceived("u", event))
    assert driver.state.units.by_name["u"] == before


def test_progress_goes_up_between_heartbeats(driver: Driver) -> None:
    driver.replicate()
    driver.do(AgentTick())
    driver.do(WorkerEventReceived("u", UnitProgressed(5, UnitProgress(4, 6), 100)))
    marks = driver.sent(driver.do(AgentTick()))
    assert isinstance(marks[0], Checkpoint)
    assert marks[0].marks == (("u", 5, UnitProgress(4, 6)),)
    assert driver.do(AgentTick()) == []
    driver.do(WorkerEventReceived("u", UnitProgressed(5, UnitProgress(5, 7), 100)))
    assert driver.do(AgentTick()) == [], "at most one checkpoint in 0.2 s"
    assert compute_next_wakeup(driver.state) == driver.now + 0.2
    driver.now += 0.2
    (again,) = driver.sent(driver.do(AgentTick()))
    assert isinstance(again, Checkpoint)
    driver.now += 0.2
    assert driver.do(AgentTick()) == [], "its progress has been sent"


def test_a_drain_at_the_machine_itself_is_for_good_one_that_the_owner_knows_of_may_be_undone() -> None:
    driver = Driver()
    driver.do(DrainSelf())
    assert driver.state.liveness is Liveness.STOPPING
    other = Driver()
    other.replicate()
    other.grant(("u", 5), echo=other.now, draining=True)
    assert other.state.liveness is Liveness.ALIVE


def test_shutdown_ends_only_after_every_worker_has(driver: Driver) -> None:
    driver.replicate()
    assert driver.do(Shutdown()) == [RemoveWorker("u", 5)]
    assert not any(isinstance(e, PrepareWorker) for e in driver.dispatch(UnitOperation.PREPARE, assignment=9))
    assert ExitAgent("shut down") in driver.do(WorkerEventReceived("u", WorkerEnded(5)))


@pytest.mark.parametrize("rev", [REV, REV + 1])
def test_an_incarnation_whose_name_was_taken_stops_and_ends(driver: Driver, rev: int) -> None:
    """Also by the word of a later owner that has not announced itself: it never will, to one that it takes for replaced."""
    driver.replicate()
    out = driver.get(Superseded(Header(rev, EPOCH)))
    assert out == [RemoveWorker("u", 5)]
    assert any(isinstance(e, ExitAgent) for e in driver.do(WorkerEventReceived("u", WorkerEnded(5))))


@pytest.mark.parametrize(
    "header", [Header(REV - 1, EPOCH), Header(REV, EPOCH - 1), Header(REV + 1, EPOCH + 1)]
)
def test_what_was_said_to_another_incarnation_or_by_an_older_owner_ends_nothing(
    driver: Driver, header: Header
) -> None:
    driver.replicate()
    assert not any(isinstance(e, RemoveWorker | ExitAgent) for e in driver.get(Superseded(header)))
