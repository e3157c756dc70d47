"""The coordinator's shell without Kafka and gRPC: outboxes, the owner's machine over a term, views, helpers
that may block."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.batch import BatchConfig, BatchSystem, KeepMachine, ReleaseMachine
from coordinator.control.codec import Candidate, RecordChange
from coordinator.control.events import Elected, Heard, Lost, NewLeader, RecordsCommitted, WriteConfirmed
from coordinator.core import agent, replication
from coordinator.core.leader import commands, steps
from coordinator.core.leader.state import (
    Drain,
    Inventory,
    LeaderCommand,
    LeaderConfig,
    LeaderState,
    Move,
    Pause,
    Rebalance,
    Resign,
)
from coordinator.core.messages import (
    Checkpoint,
    DispatchResponse,
    Down,
    Header,
    Heartbeat,
    Hello,
    Rejected,
    Sync,
    UnitStatus,
    Up,
)
from coordinator.core.records import UnitRecord
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState
from coordinator.server.agent_inbox import LONGEST_ERROR, AgentInbox
from coordinator.server.agent_machine import AgentMachine, MailWaiting
from coordinator.server.background import FencePool, InventoryPoller, Ticker
from coordinator.server.batch_handler import ROUND, BatchHandler
from coordinator.server.config import ServerConfig
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import CommandRefusedError, NoAnswerError, NotLeaderError
from coordinator.server.requests import (
    CommandRequested,
    FenceDone,
    InventoryRead,
    PendingAnswer,
    StreamJoined,
    StreamLeft,
    TickDue,
)
from coordinator.transport.events import LeaderInfo, MessagesArrived, StreamClosed, StreamOpened
from schemas.config.model import KafkaConfig
from schemas.problems import Problem, decode_problem, encode_problem
from schemas.units import UnitPhase, UnitProgress, UnitProgressed
from tests.kits.coordination import inventory, until
from tests.kits.coordinator_server import PlayedCoordinator, replicating

HEAD = Header(1, 5)


def beat(number: int, *statuses: UnitStatus) -> Heartbeat:
    return Heartbeat(Header(1, 5, 0, number), "a", float(number), statuses)


def answer(number: int, error: str | None = None) -> DispatchResponse:
    status = UnitStatus(f"u{number}", 9, UnitPhase.STOPPED if error else UnitPhase.PREPARED, error=error)
    return DispatchResponse(Header(1, 5, 9, number), "a", number, status)


# outbox


def test_only_the_last_whole_state_waits() -> None:
    box = AgentInbox(10)
    messages: list[Up] = [beat(1), answer(2), Checkpoint(Header(1, 5, 0, 3), "a", ()), beat(4), answer(5)]
    for message in messages:
        box.put_message(message)
    assert box.take_messages() == ([answer(2), beat(4), answer(5)], {})
    assert box.counts["coalesced"] == 2
    assert box.take_messages() == ([], {})


def test_a_sync_is_never_dropped_for_a_heartbeat() -> None:
    box = AgentInbox(10)
    sync = Sync(Header(1, 5, 0, 2), "a", 2.0)
    for message in (beat(1), sync, beat(3)):
        box.put_message(message)
    assert box.take_messages()[0] == [sync, beat(3)]


def test_another_incarnation_s_state_is_kept() -> None:
    box = AgentInbox(10)
    other = Heartbeat(Header(1, 6, 0, 1), "a", 1.0)
    for message in (beat(1), other):
        box.put_message(message)
    assert box.take_messages()[0] == [beat(1), other]


def test_a_full_outbox_counts_what_it_drops_and_takes_a_whole_state_all_the_same() -> None:
    box = AgentInbox(2)
    for number in range(5):
        box.put_message(answer(number))
    box.put_message(beat(9))
    assert box.take_messages()[0] == [answer(0), answer(1), beat(9)]
    assert box.counts["dropped: full"] == 3


@given(st.lists(st.integers(0, 2), max_size=30))
def test_order_is_kept_and_the_last_heartbeat_is_there(kinds: list[int]) -> None:
    box = AgentInbox(1000)
    made = [
        (beat(n), answer(n), Checkpoint(Header(1, 5, 0, n), "a", ()))[kind] for n, kind in enumerate(kinds)
    ]
    for message in made:
        box.put_message(message)
    taken = [message.header.op_seq for message in box.take_messages()[0]]
    assert taken == sorted(taken)
    beats = [n for n, kind in enumerate(kinds) if kind == 0]
    assert not beats or beats[-1] in taken
    assert {n for n, kind in enumerate(kinds) if kind == 1} <= set(taken)


def test_errors_are_noted_whatever_becomes_of_the_message() -> None:
    box = AgentInbox(10)
    box.put_message(answer(1, error="disk full"))
    box.put_message(beat(2, UnitStatus("u2", 9, UnitPhase.STOPPED, error="gone")))
    box.put_message(beat(3))
    assert box.take_messages()[1] == {"u1": "disk full", "u2": "gone"}


def test_a_long_error_keeps_its_remedy() -> None:
    box = AgentInbox(10)
    box.put_message(answer(1, error=encode_problem(Problem("x" * 10_000, "make room"))))
    error = box.take_messages()[1]["u1"]
    assert len(error) == LONGEST_ERROR
    assert decode_problem(error).remedy == "make room"


# machines


class Notices:
    def __init__(self) -> None:
        self.taken: list[Up] = []
        self.notices = 0

    def is_stopped(self) -> bool:
        return False

    def handle_message(self, message: object) -> None:
        assert isinstance(message, MailWaiting)
        self.notices += 1
        self.taken += message.machine.take_messages()[0]

    def has_decided(self) -> bool:
        return False

    def end_round(self) -> None:
        raise AssertionError("it has decided nothing")


def test_whatever_agents_say_reaches_the_owner_once_and_in_order() -> None:
    notices = Notices()
    system: BatchSystem[AgentMachine, Up] = BatchSystem(
        notices, lambda _: BatchHandler(system.router.send_control), BatchConfig(pollers=2)
    )
    with system:
        for stream in range(5):
            system.router.register_machine(stream, AgentMachine(f"a{stream}", stream, 10_000))
        for number in range(200):
            for stream in range(5):
                system.router.send(stream, answer(number))
        until(lambda: len(notices.taken) == 1000)
    assert notices.notices <= 1000
    assert sorted(m.header.op_seq for m in notices.taken) == sorted(list(range(200)) * 5)


def test_what_an_agent_says_to_a_full_mailbox_or_to_none_is_counted() -> None:
    """By coordinator and agent; what was taken before that reaches the owner, and what comes after it as
    well."""

    def refuse(unit: str, uid: str, assignment: int) -> None:
        raise AssertionError("nothing is to be fenced")

    config = ServerConfig("c", "127.0.0.1:0", batch=BatchConfig(capacity=2))
    kafka = KafkaConfig(bootstrap="127.0.0.1:1")
    coordinator = Coordinator(config, kafka, lambda: inventory(0), refuse)
    try:
        coordinator._agents.on_transport_event(StreamOpened("a", 1))
        for number in range(3):
            coordinator._agents.on_transport_event(MessagesArrived("a", 1, answer(number)))
        coordinator._agents.on_transport_event(MessagesArrived("b", 2, answer(9)))
        counters = coordinator._parts.get_counters()
        assert (counters["agents.mailbox full"], counters["agents.no mailbox"]) == (1, 1)
        machine = coordinator._agents._machines[1]
        coordinator._system.start()
        until(lambda: machine.get_counters().get("DispatchResponse") == 2, what="the two that were taken")
        coordinator._agents.on_transport_event(MessagesArrived("a", 1, beat(4)))
        until(lambda: machine.get_counters().get("Heartbeat") == 1, what="the next heartbeat")
        assert machine.get_counters()["mailbox full"] == 1
        coordinator._agents.on_transport_event(StreamClosed("a", 1, "the agent ended it"))
        assert coordinator._parts.get_counters()["agents.mailbox full"] == 1
    finally:
        coordinator.close()


# the owner's machine


UNIT = "apply/p/t00000"


def test_a_violated_invariant_ends_one_term_and_the_next_restricts_its_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = replicating(PlayedCoordinator().elect(), "a")
    lease = LeaderConfig().lease
    played.run(lease)
    real = replication.step_set

    def step(current: ReplicationSet, event: Any) -> Any:
        after, out = real(current, event)
        return (replace(after, state=SetState.ABSENT) if after.unit == UNIT else after), out

    monkeypatch.setattr(replication, "step_set", step)
    stored = played.records[f"unit/{UNIT}"]
    played.fail("a", UNIT, "it failed")
    played.run(2.0)
    assert played.machine.term is None
    assert played.resigned == [f"invariant violated: {UNIT}"]
    assert played.records[f"unit/{UNIT}"] == stored, "nothing of the step was stored"
    played.elect(20).run(lease + 2.0)
    assert len(played.resigned) == 1
    assert [one.partition(":")[0] for one in played.machine.list_restrictions()] == [f"unit {UNIT}"]
    rows = {row.unit: row.health for row in played.view().units}
    assert rows == {row: "stopped" if row == UNIT else "running" for row in rows}
    played.report_event(Lost(20, "another leads"))
    assert played.machine.list_restrictions() == ()
    monkeypatch.undo()
    played.elect(30).run(lease + 2.0)
    assert {state for state, _ in played.states().values()} == {"replicating"}
    monkeypatch.setattr(replication, "step_set", step)
    played.fail("a", UNIT, "it failed")
    played.run(2.0)
    assert len(played.resigned) == 1, "the term before it had a restricted unit"
    monkeypatch.undo()
    for rev in (40, 50):
        played.report_event(Lost(rev - 10, "another leads"))
        played.elect(rev).run(lease + 2.0)
    monkeypatch.setattr(replication, "step_set", step)
    played.fail("a", UNIT, "it failed")
    played.run(2.0)
    assert len(played.resigned) == 2, "a term without one lay between"


def test_units_get_agents_and_the_view_shows_it() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    view = played.view()
    assert view.leading
    assert view.leader is not None
    assert (view.leader.rev, view.leader.name, view.leader.rest) == (10, "me", "127.0.0.1:2")
    row = view.units[0]
    assert (row.unit, row.kind, row.source, row.pipeline, row.agent) == (UNIT, "apply", "s", "p", "a1")
    assert (row.checkpoint_ts, row.resolved_ts, row.position, row.rows_per_s) == (7, 8, "0:1:2:3", 10)
    assert row.epoch > 1_700_000_000_000, "epochs start at the wall clock"
    assert [(a.name, a.state, a.units, a.rows_per_s, a.connected) for a in view.agents] == [
        ("a1", "synced", 3, 30, True)
    ]
    assert view.agents[0].counters["Heartbeat"] >= 1
    assert [(p.pipeline, p.checkpoint_ts, p.cut_ts, p.by_source) for p in view.pipelines] == [
        ("p", 7, 7, {"s": 7})
    ]
    assert view.counters["played"] == 1
    assert played.ticks > 0


def test_who_does_not_lead_says_who_does() -> None:
    played = PlayedCoordinator()
    played.report_event(NewLeader(4, Candidate("other", "h:1", "h:2")))
    played.machine.leadership.record_sign_of_life(Heard(4, played.now))
    assert played.leaders == [LeaderInfo(4, "h:1", "h:2", mine=False)]
    view = played.view()
    assert not view.leading
    assert view.leader is not None
    assert (view.leader.name, view.leader.rest, view.leader.am_i) == ("other", "h:2", False)
    assert view.units == ()
    with pytest.raises(NotLeaderError, match="ask h:2"):
        played.command(Rebalance()).wait_for_value(0)
    played.report_event(NewLeader(4, None))
    assert played.leaders[-1] == LeaderInfo(4)
    with pytest.raises(NotLeaderError, match="no coordinator leads"):
        played.command(Rebalance()).wait_for_value(0)


def test_a_leader_that_nobody_has_heard_from_is_not_named() -> None:
    """A claim that is read from the topic's past shows who led once; a dead leader is silent for longer than
    a lease."""
    played = PlayedCoordinator()
    played.report_event(NewLeader(4, Candidate("other", "h:1", "h:2")))
    assert played.machine.leadership.find_leader(played.now) is None
    with pytest.raises(NotLeaderError, match="no coordinator leads"):
        played.command(Rebalance()).wait_for_value(0)
    played.machine.leadership.record_sign_of_life(Heard(3, played.now))
    assert played.machine.leadership.find_leader(played.now) is None, "an earlier owner's last message"
    played.machine.leadership.record_sign_of_life(Heard(4, played.now))
    named = played.machine.leadership.find_leader(played.now + 4.9)
    assert named is not None
    assert named.name == "other"
    assert played.machine.leadership.find_leader(played.now + 5.0) is None


def test_an_owner_that_is_not_confirmed_does_not_name_itself() -> None:
    """Cut off from Kafka, it cannot know that another leads by now."""
    played = replicating(PlayedCoordinator().elect(), "a1")
    reported = played.machine.leadership.find_leader(played.now)
    assert reported is not None
    assert reported.am_i
    assert played.machine.leadership.find_leader(played.now + 5.0) is None
    played.machine.leadership.record_confirmation(WriteConfirmed(10, played.now + 3.0))
    assert played.machine.leadership.find_leader(played.now + 5.0) is not None


def test_a_lost_term_leaves_nothing_behind() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.report_event(Lost(10, "fenced"))
    assert played.leaders[-1] == LeaderInfo(10)
    assert played.terms == [10, 0]
    assert played.view().units == ()
    played.report_event(
        MailWaiting(played.agents["a1"][0]), RecordsCommitted(10, 1), FenceDone(10, UNIT, 3), TickDue()
    )  # too late
    assert played.view().leader is None
    played.elect(20)
    played.run(3.0)
    assert {state for state, _ in played.states().values()} == {"replicating"}
    assert played.resigned == []


def test_the_leader_that_took_over_is_remembered() -> None:
    played = PlayedCoordinator().elect()
    played.report_event(NewLeader(20, Candidate("other", "h:1", "h:2")), Lost(10, "another has claimed"))
    assert played.leaders[-1] == LeaderInfo(20, "h:1", "h:2")
    assert played.machine.leadership.leader is not None
    assert played.machine.leadership.leader.name == "other"


def test_what_was_for_an_earlier_term_is_not_for_this_one() -> None:
    played = PlayedCoordinator(commits=False).elect()
    played.join("a1")
    played.report_event(Lost(10, "fenced"), Elected(20, {}))
    played.join("a2")
    old = [token for rev, token in played.waiting if rev == 10]
    assert set(old) & {token for rev, token in played.waiting if rev == 20}, (
        "each term counts from the beginning"
    )
    played.report_event(*[RecordsCommitted(10, token) for token in old])
    assert played.agents["a2"][1].leader.agent_epoch == 0, "announced to before it was durable in this term"
    played.report_event(InventoryRead(10, inventory(3)))
    assert played.states() == {}


def test_units_written_by_agents_survive_a_change_of_owner_untouched() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    assignments = {row.unit: row.epoch for row in played.view().units}
    played.report_event(Lost(10, "x"))
    played.elect(20)
    played.run(3.0)
    assert {row.unit: row.epoch for row in played.view().units} == assignments


def test_a_command_is_answered_when_it_is_durable() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.commits = False
    asked = played.command(Pause(UNIT))
    assert not asked.filled
    with pytest.raises(NoAnswerError):
        asked.wait_for_value(0)
    played.commit()
    played.settle()
    asked.wait_for_value(0)
    assert played.view().units[0].paused
    played.commits = True
    played.commit()
    played.run(2.0)
    assert played.states()[UNIT] == ("absent", None)
    assert [unit for _, unit, _, _ in played.fences][:1] == [UNIT]


def test_a_command_that_waits_when_the_term_ends_fails() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.commits = False
    asked = played.command(Pause(UNIT))
    played.report_event(Lost(10, "fenced"))
    with pytest.raises(NotLeaderError):
        asked.wait_for_value(0)


def test_a_move_is_accepted_at_once_and_carried_out() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1", "a2")
    at = played.states()[UNIT][1]
    to = "a2" if at == "a1" else "a1"
    played.command(Move(UNIT, to)).wait_for_value(0)
    played.run(2.0)
    assert played.states()[UNIT] == ("replicating", to)


@pytest.mark.parametrize(
    "command", [Move("nothing", "a1"), Drain("nobody"), Pause("nothing"), Move(UNIT, "a1")]
)
def test_what_cannot_be_done_is_refused_with_the_reason(command: LeaderCommand) -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    with pytest.raises(CommandRefusedError, match=r"there is no|already|unknown"):
        played.command(command).wait_for_value(0)


def test_resigning_is_answered_and_ends_the_term() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.command(Resign()).wait_for_value(0)
    assert played.resigned == ["asked to resign"]
    assert played.terms[-1] == 0
    assert not played.leaders[-1].mine
    played.report_event(Lost(10, "asked to resign"))  # the log's own word for it
    assert played.resigned == ["asked to resign"]


def test_a_command_whose_step_ends_the_term_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.run(LeaderConfig().lease)

    def break_set(state: LeaderState, unit: str, *_: object) -> None:
        current = state.sets.by_unit[unit]
        state.sets.replace_set(current, replace(current, state=SetState.ABSENT))

    monkeypatch.setattr(commands, "forget_move", break_set)
    asked = played.command(Pause(UNIT))
    assert played.resigned == [f"invariant violated: {UNIT}"]
    assert f"paused/{UNIT}" not in played.records
    with pytest.raises(NotLeaderError):
        asked.wait_for_value(0)


def test_an_owner_that_is_not_confirmed_takes_no_commands() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.now += 60
    with pytest.raises(NotLeaderError):
        played.command(Rebalance()).wait_for_value(0)  # the first message after a pause
    with pytest.raises(NotLeaderError):
        played.command(Pause(UNIT)).wait_for_value(0)


def test_an_agent_that_says_it_obeys_a_later_owner_ends_no_term() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    machine = played.agents["a1"][0]
    assert machine.put_messages([Rejected(Header(10, 1, 0, 999), "a1", 77)])
    played.report_event(MailWaiting(machine))
    assert played.terms[-1] != 0
    assert not played.resigned
    assert played.machine.counts["alarm.later term claimed"] == 1


def test_an_error_in_the_core_ends_the_term_and_not_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    asked: PendingAnswer[None] = PendingAnswer()

    def broken(*_: object) -> Any:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(steps, "step_leader", broken)
        played.report_event(CommandRequested(Rebalance(), asked))
    with pytest.raises(NotLeaderError):
        asked.wait_for_value(0)
    assert played.resigned == ["internal error"]
    assert played.view().counters["owner.failures"] == 1
    played.elect(20)
    played.run(3.0)
    assert {state for state, _ in played.states().values()} == {"replicating"}


def test_a_unit_s_error_is_shown_until_it_replicates_again() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.fail("a1", UNIT, "disk full")
    row = played.view().units[0]
    assert (row.state, row.error, row.failures) == ("absent", "disk full", 1)
    played.run(5.0)
    row = played.view().units[0]
    assert (row.state, row.error, row.failures) == ("replicating", None, 1)
    played.run(LeaderConfig().stable_after)
    assert played.view().units[0].failures == 0


def test_a_fence_that_is_done_lets_the_record_go() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.report_event(InventoryRead(10, inventory(2)))
    played.run(1.0)
    rev, unit, uid, assignment = played.fences[0]
    assert (rev, unit, uid) == (10, "apply/p/t00002", "1")
    assert isinstance(played.records[f"unit/{unit}"], UnitRecord)
    played.report_event(FenceDone(9, unit, assignment))  # another term's
    assert f"unit/{unit}" in played.records
    played.report_event(FenceDone(10, unit, assignment))
    played.run(0.2)
    assert f"unit/{unit}" not in played.records


def test_an_older_stream_s_end_is_not_the_newer_one_s() -> None:
    played = replicating(PlayedCoordinator().elect(), "a1")
    old = played.agents["a1"][0]
    new = AgentMachine("a1", 99, 100)
    played.report_event(StreamJoined(new), StreamLeft(old, "replaced"))
    assert played.view().agents[0].connected
    played.report_event(StreamLeft(new, "stream ended"))
    assert not played.view().agents[0].connected


def test_hellos_of_strangers_while_not_leading_are_counted() -> None:
    played = PlayedCoordinator()
    machine = AgentMachine("x", 1, 10)
    machine.put_messages([Hello(HEAD, "x", "x-1")])
    played.report_event(MailWaiting(machine))
    assert played.view().counters["owner.not leading"] == 1


# helpers that may block


def test_a_tick_waits_for_the_last_one_to_be_done() -> None:
    ticks: list[float] = []
    ticker = Ticker(0.001, lambda: ticks.append(time.monotonic()))
    ticker.start()
    until(lambda: ticks)
    time.sleep(0.05)  # nothing may happen in it
    assert len(ticks) == 1
    ticker.finish_tick(0.0)
    until(lambda: len(ticks) == 2)
    ticker.close()


def test_each_term_gets_a_fresh_catalogue_and_then_the_same_object_until_it_changes() -> None:
    """It is given again each time: a doubted one has to be read for some time before it is believed."""
    given_ones: list[tuple[int, Inventory]] = []
    times = [0]

    def give(rev: int, found: Inventory) -> None:
        times[0] += 1
        if not given_ones or given_ones[-1][1] is not found:
            given_ones.append((rev, found))

    now = [inventory(1)]

    def ask() -> Inventory:
        return Inventory(now[0].units, now[0].sources)

    poller = InventoryPoller(ask, give, 0.005)
    poller.start()
    poller.set_term(5)
    until(lambda: times[0] > 5)
    assert given_ones == [(5, inventory(1))]
    now[0] = inventory(2)
    until(lambda: len(given_ones) == 2)
    poller.set_term(0)
    poller.set_term(9)
    until(lambda: len(given_ones) == 3)
    poller.close()
    assert given_ones == [(5, inventory(1)), (5, inventory(2)), (9, inventory(2))]


def test_a_catalogue_that_fails_is_asked_again_and_the_last_one_kept() -> None:
    given_ones: list[int] = []
    answers = [RuntimeError("no database"), inventory(1), RuntimeError("again"), inventory(1), inventory(2)]

    def ask() -> Inventory:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Exception):
            raise found
        return found

    poller = InventoryPoller(ask, lambda _, found: given_ones.append(len(found.units)), 0.001)
    poller.start()
    poller.set_term(1)
    until(lambda: given_ones[:1] == [1] and 2 in given_ones)
    poller.close()
    assert poller.errors == 2


def test_fences_are_done_beside_each_other_and_not_twice_at_once() -> None:
    started: list[str] = []
    go = threading.Event()
    done: list[tuple[int, str, int]] = []

    def fence(unit: str, uid: str, assignment: int) -> None:
        started.append(unit)
        go.wait(10)
        if unit == "bad":
            raise OSError("no target")

    pool = FencePool(fence, lambda rev, unit, assignment: done.append((rev, unit, assignment)), 2)
    pool.start()
    for unit in ("good", "good", "bad", "good"):
        pool.queue_fence(3, unit, "1", 8)
    until(lambda: len(started) == 2)
    assert sorted(started) == ["bad", "good"]
    go.set()
    until(lambda: len(pool) == 0)
    assert done == [(3, "good", 8)]
    assert pool.failed == 1
    pool.queue_fence(3, "good", "1", 8)
    until(lambda: len(done) == 2)
    pool.close()
    assert not any(thread.is_alive() for thread in pool._threads)


def test_a_pool_waits_for_the_end_of_fences_under_way() -> None:
    joined: list[float] = []
    pool = FencePool(lambda *_: None, lambda *_: None, 0)
    pool._threads = [SimpleNamespace(ident=each, join=joined.append) for each in (7, None)]  # type: ignore[misc]
    pool.close()
    assert joined == [1], "the second one was never started"


def test_a_leader_is_notified_once_of_messages_that_wait() -> None:
    machine = AgentMachine("a", 1, 10)
    assert [machine.put_messages([answer(number)]) for number in range(3)] == [True, False, False]
    machine.take_messages()
    assert machine.put_messages([answer(3)])


@pytest.mark.parametrize(("count", "keeps"), [(0, False), (ROUND - 1, False), (ROUND, True)])
def test_a_mailbox_with_more_than_a_round_s_messages_is_read_on(count: int, keeps: bool) -> None:
    mailbox: Any = SimpleNamespace(drain_messages=lambda most: [answer(1)] * min(count, most), full_count=0)
    result = BatchHandler(lambda _: None).handle_normal(AgentMachine("a", 1, 10), mailbox)
    assert isinstance(result, KeepMachine if keeps else ReleaseMachine)


def test_a_coordinator_is_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ServerConfig("c", "127.0.0.1:0")
    coordinator = Coordinator(
        config, KafkaConfig(bootstrap="127.0.0.1:1"), lambda: inventory(0), lambda *_: None
    )
    closed: list[str] = []
    for part in ("_parts", "_system"):
        close = getattr(coordinator, part).close
        monkeypatch.setattr(
            coordinator,
            part,
            SimpleNamespace(close=lambda part=part, close=close: closed.append(part) or close()),
        )
    for _ in range(2):
        coordinator.close()
        assert closed == ["_parts", "_system"]


def test_a_backlog_does_not_make_an_owner_fall_silent() -> None:
    """What confirms the term would come in turn behind thousands of messages; it counts at once."""
    played = PlayedCoordinator().elect()
    played.join("a")
    played.run(2)
    played.now += 20
    played.report_event(WriteConfirmed(10, played.now - 19.9))
    with pytest.raises(NotLeaderError):
        played.command(Rebalance()).wait_for_value(0)
    played.machine.leadership.record_confirmation(WriteConfirmed(10, played.now - 0.1))
    assert played.command(Rebalance()).wait_for_value(0) is None


def test_an_owner_that_may_have_been_replaced_shows_nothing() -> None:
    """It may know less than what the later one has shown."""
    played = replicating(PlayedCoordinator().elect(), "a1")
    played.now += LeaderConfig().leader_lease - 0.5
    assert played.view().pipelines
    played.now += 1.0
    assert not played.view().leading
    assert played.view().pipelines == ()
    played.machine.leadership.record_confirmation(WriteConfirmed(10, played.now))
    assert played.view().pipelines


def checkpoints(played: PlayedCoordinator) -> list[int | None]:
    return [row.checkpoint_ts for row in played.view().pipelines]


def progressed(played: PlayedCoordinator, ts: int) -> None:
    for unit, held in played.agents["a1"][1].units.by_name.items():
        played._agent(
            "a1", agent.WorkerEventReceived(unit, UnitProgressed(held.assignment, UnitProgress(ts, ts), 10))
        )
    played.run(2.0)


def test_a_pipeline_is_shown_as_far_as_it_is_stored() -> None:
    """What is stored no later owner goes back behind; what is not, nobody has seen."""
    played = replicating(PlayedCoordinator().elect(), "a1")
    stored = dict(played.records)
    played.commits = False
    progressed(played, 20)
    assert played.view().units[0].checkpoint_ts == 20
    assert checkpoints(played) == [7]
    played.commit()
    played.settle()
    assert checkpoints(played) == [20]
    played.records = stored  # as if this commit had not landed before the next claim
    played.report_event(Lost(10, "another has claimed"))
    played.elect(20)
    assert checkpoints(played) == [7]


def test_progress_is_stored_as_soon_as_it_may_be_and_not_more_often() -> None:
    played = replicating(PlayedCoordinator(progress_every=10.0).elect(), "a1")
    assert played.stored == ["pipeline/p"]
    played.run(20.0)
    assert played.stored == ["pipeline/p"], "nothing has moved"
    progressed(played, 20)
    assert checkpoints(played) == [20], "the last record is long ago"
    for ts in range(21, 31):
        progressed(played, ts)
    assert 3 <= len(played.stored) <= 4, "in 20 s"
    played.run(10.0)
    played.commits = False
    progressed(played, 40)
    played.run(10.0)
    kept = len(played.stored)
    progressed(played, 50)
    played.run(10.0)
    assert len(played.stored) == kept, "one store at a time"


def test_a_confirmation_of_another_term_says_nothing() -> None:
    played = PlayedCoordinator().elect()
    played.now += 20
    played.machine.leadership.record_confirmation(WriteConfirmed(9, played.now))
    with pytest.raises(NotLeaderError):
        played.command(Rebalance()).wait_for_value(0)


# rounds


def test_what_a_term_decided_and_did_not_hand_on_is_never_written() -> None:
    played = PlayedCoordinator().elect()
    played.join("a")
    played.run(1.0)
    played.machine.handle_message(CommandRequested(Pause("apply/p/t00000"), asked := PendingAnswer()))
    assert played.machine.has_decided()
    played.machine.handle_message(Lost(10, "a test"))
    assert not played.machine.has_decided()
    played.machine.end_round()
    assert "paused/apply/p/t00000" not in played.records
    with pytest.raises(NotLeaderError):
        asked.wait_for_value(0)
    played.elect(20)
    assert "paused/apply/p/t00000" not in played.records


def test_records_are_handed_on_before_the_messages_of_their_round() -> None:
    played = PlayedCoordinator().elect()
    played.join("a")
    played.run(1.0)
    order: list[str] = []
    append, push = played.append_changes, played.push_messages

    def appended(rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        order.append("records")
        append(rev, token, changes)

    def pushed(agent: str, messages: list[Down]) -> int:
        order.append("messages")
        return push(agent, messages)

    played.append_changes, played.push_messages = appended, pushed  # type: ignore[method-assign]
    machine, _ = played.agents["a"]
    machine.put_messages([beat(900)])
    played.machine.handle_message(MailWaiting(machine))
    played.machine.handle_message(CommandRequested(Pause("apply/p/t00000"), PendingAnswer()))
    assert order == []
    played.machine.end_round()
    assert order == ["records", "messages"]


def test_an_error_at_the_end_of_a_round_ends_the_term() -> None:
    played = PlayedCoordinator().elect()
    played.join("a")
    played.run(1.0)

    def fails(*_: object) -> None:
        raise OSError("a test")

    played.append_changes = fails  # type: ignore[assignment, method-assign]
    played.machine.handle_message(CommandRequested(Pause("apply/p/t00000"), asked := PendingAnswer()))
    played.machine.end_round()
    assert played.resigned == ["internal error"]
    with pytest.raises(NotLeaderError):
        asked.wait_for_value(0)
    played.machine.end_round()
    assert played.machine.counts["owner.failures"] == 1


def test_an_owner_that_must_be_silent_says_nothing_that_it_had_decided_before() -> None:
    played = PlayedCoordinator().elect()
    played.join("a")
    played.run(1.0)
    machine, _ = played.agents["a"]
    machine.put_messages([beat(900)])
    played.machine.handle_message(MailWaiting(machine))
    assert played.machine.has_decided()
    reported: list[Down] = []
    played.push_messages = lambda agent, messages: len(reported.extend(messages) or messages)  # type: ignore[assignment, func-returns-value, method-assign]
    played.now += 10.0
    played.machine.handle_message(TickDue())
    played.machine.end_round()
    assert reported == []
