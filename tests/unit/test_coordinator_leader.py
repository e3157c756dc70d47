"""The owner's core: registration, one agent at a time, recovery, fencing, commands, silence when
unconfirmed."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.leader import steps
from coordinator.core.leader.state import (
    Alarm,
    Confirmed,
    Drain,
    Fence,
    Inventory,
    LeaderConfig,
    Move,
    Pause,
    Persist,
    Persisted,
    Rebalance,
    Received,
    Refused,
    Resign,
    Resume,
    SendMessage,
    StepDown,
    Tick,
)
from coordinator.core.messages import (
    Announce,
    Checkpoint,
    Dispatch,
    DispatchResponse,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Rejected,
    Superseded,
    Sync,
    UnitStatus,
)
from coordinator.core.progress import PipelineProgress
from coordinator.core.records import AgentRecord, CounterRecord, DurableRecord, UnitRecord, build_record_key
from coordinator.core.replication_table import SetState
from coordinator.server.operators.view import build_leader_view, list_pipeline_rows
from schemas.units import UnitOperation, UnitPhase, UnitProgress
from tests.kits.leader_core import CONFIG, Cluster, spec
from tests.kits.leader_history import play

HISTORIES = {
    "a restarted agent loses what its earlier incarnation had": (
        "a joins; +u; tick; u on a; a restarts ⇒ nothing; a syncs ⇒ nothing;tick ⇒ a prepare u from 5/9"
    ),
    "a preparation that hangs is given up and tried elsewhere": (
        f"a b join; +u; tick ⇒ a prepare u; a: preparing u; wait {CONFIG.prepare_timeout + 1};"
        "b beats; a: preparing u;"
        "tick ⇒ a remove u, alarm preparation given up; a: stopped u; wait 2; tick ⇒ b prepare u"
    ),
    "a move whose preparation hangs leaves the unit where it is": (
        "a b join; +u; tick; u on a; move u b; tick ⇒ b prepare u from 5/9; b: preparing u;"
        f" wait {CONFIG.prepare_timeout + 1}; a: replicating u; b: preparing u;"
        "tick ⇒ b remove u, alarm preparation given up"
    ),
    "an agent that stops is given nothing": "a b join; a stopping; +u; tick ⇒ b prepare u",
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_history(history: str) -> None:
    play(history)


def test_an_agent_is_registered_before_it_is_announced_to() -> None:
    cluster = Cluster()
    cluster.up(Hello, "a", assignment=0, rev=0, incarnation="a-1")
    persist = next(e for e in cluster.effects if isinstance(e, Persist))
    assert [record for _, record in persist.records] == [CounterRecord(1), AgentRecord("a", "a-1", 1)]
    assert isinstance(cluster.sent[-1][1], Announce)
    assert cluster.effects.index(persist) < len(cluster.effects) - 1
    assert not cluster.state.members.by_name["a"].accepts
    cluster.up(Sync, "a", sent=1.0)
    assert cluster.state.members.by_name["a"].accepts


def test_an_agent_that_is_given_units_has_reported_its_version() -> None:
    cluster = Cluster()
    cluster.up(Hello, "a", assignment=0, rev=0, incarnation="a-1")
    cluster.up(Sync, "a", sent=1.0, version="0.2.0")
    assert (cluster.state.members.by_name["a"].accepts, cluster.state.members.by_name["a"].version) == (
        True,
        "0.2.0",
    )
    cluster.beat("a")
    assert cluster.state.members.by_name["a"].version == "0.2.0", "a heartbeat does not repeat it"
    cluster.up(Hello, "a", assignment=0, rev=0, incarnation="a-2")
    cluster.up(Sync, "a", sent=2.0)
    assert cluster.state.members.by_name["a"].version == "", "an older one has taken its place"


def test_a_new_owner_does_not_know_a_version_that_it_has_not_heard() -> None:
    first = Cluster()
    first.up(Hello, "a", assignment=0, rev=0, incarnation="a-1")
    first.up(Sync, "a", sent=1.0, version="0.2.0")
    second = Cluster(rev=11, records=first.records)
    assert (second.state.members.by_name["a"].accepts, second.state.members.by_name["a"].version) == (
        False,
        "",
    )


def test_only_the_beginning_of_a_long_version_is_kept() -> None:
    cluster = Cluster()
    cluster.up(Hello, "a", assignment=0, rev=0, incarnation="a-1")
    cluster.up(Sync, "a", sent=1.0, version="v" * 100_000)
    assert cluster.state.members.by_name["a"].version == "v" * 64


def test_nothing_is_added_or_removed_before_the_catalogue_is_known() -> None:
    record = UnitRecord("u", "1", (("a", 1, 2),))
    cluster = Cluster(records={"unit/u": record, "agent/a": AgentRecord("a", "a-1", 1)})
    cluster.up(Sync, "a", assignment=1, sent=1.0, running=(UnitStatus("u", 2, UnitPhase.REPLICATING),))
    cluster.do(Tick())
    assert cluster.dispatched() == []
    assert cluster.state.sets.by_unit["u"].state is SetState.REPLICATING


def test_a_unit_goes_through_prepare_and_start_with_a_durable_epoch() -> None:
    cluster = play("a joins; +u; tick ⇒ a prepare u")
    assert cluster.records["unit/u"] == UnitRecord("u", "1", (("a", 1, 2),))
    play("a: prepared u ⇒ a start u", cluster)
    start = [m for _, m in cluster.sent if isinstance(m, Dispatch)][-1]
    assert (start.op, start.lease, start.echo) == (UnitOperation.START, CONFIG.lease, cluster.now)
    play("a: replicating u ⇒ nothing", cluster)
    granted = [m for _, m in cluster.sent if isinstance(m, HeartbeatResponse)][-1]
    assert (granted.granted, granted.echo) == ((("u", 2),), cluster.now)


def test_an_unreachable_agent_keeps_nobody_else_waiting() -> None:
    """The record names a and b; b answers, a does not: what only b can hold goes on, and new units are
    placed."""
    records: dict[str, DurableRecord] = {
        "agent/a": AgentRecord("a", "a-1", 1),
        "agent/b": AgentRecord("b", "b-1", 2),
        "unit/ua": UnitRecord("ua", "1", (("a", 1, 3),)),
        "unit/ub": UnitRecord("ub", "1", (("b", 2, 4),)),
    }
    config = LeaderConfig(leader_lease=5.0, balance_every=1e9)
    cluster = Cluster(records=records, config=config)
    cluster.do(Inventory((spec("ua"), spec("ub"), spec("new"))))
    cluster.up(Sync, "b", assignment=2, sent=1.0)
    cluster.do(Tick())
    assert cluster.dispatched() == [("b", "new", "prepare"), ("b", "ub", "prepare")]
    assert cluster.state.sets.by_unit["ua"].state is SetState.RECOVERING
    cluster.now += 5.0 + config.silence
    cluster.do(Confirmed(cluster.now))
    cluster.beat("b")
    cluster.do(Tick())
    cluster.do(Tick())
    assert ("b", "ua", "prepare") in cluster.dispatched()
    assert min(r.assignment for r in cluster.state.sets.by_unit["ua"].replicas) > 4


def test_a_move_keeps_the_old_agent_until_the_new_one_is_ready() -> None:
    cluster = play(
        "a joins; +u; tick; u on a; b joins; move u b; tick ⇒ b prepare u from 5/9;"
        "b: prepared u ⇒ a remove u;"
        "a: stopping u ⇒ nothing; a: stopped u 8/9 ⇒ a forget u, b start u from 8/9;"
        "b: replicating u ⇒ nothing"
    )
    record = cluster.records["unit/u"]
    assert isinstance(record, UnitRecord)
    assert [holder[0] for holder in record.holders] == ["b"]


def test_an_agent_of_a_later_owner_is_not_listened_to_and_ends_no_term() -> None:
    """Anybody could say so. Where it is true, the next write to the control topic fails."""
    for message in (Rejected(Header(10, 1), "a", 11), Heartbeat(Header(11, 1), "a", 1.0)):
        cluster = Cluster()
        cluster.join("a")
        assert [e.what for e in cluster.do(Received(message)) if isinstance(e, Alarm)] == [
            "later term claimed"
        ]
        assert not cluster.do(Received(message)), "alarmed now and then, counted always"
        assert cluster.state.history.dropped["later term claimed"] == 2
        assert not cluster.state.claim.stepped_down


def test_agents_of_an_earlier_term_are_announced_to_and_not_believed() -> None:
    cluster = Cluster(records={"agent/a": AgentRecord("a", "a-1", 1)})
    cluster.up(Heartbeat, "a", rev=9, sent=1.0)
    assert isinstance(cluster.sent[-1][1], Announce)
    assert not cluster.state.members.by_name["a"].accepts
    cluster.up(Heartbeat, "a", sent=1.0)
    assert isinstance(cluster.sent[-1][1], Announce), "its state counts only from its Sync on"


def test_an_incarnation_that_was_replaced_is_told_to_end() -> None:
    cluster = play("a joins")
    cluster.up(Hello, "a", assignment=0, rev=0, incarnation="a-2")
    cluster.up(Heartbeat, "a", assignment=1, sent=1.0)
    assert isinstance(cluster.sent[-1][1], Superseded)
    cluster.up(Heartbeat, "never-seen", assignment=1, sent=1.0)
    assert isinstance(cluster.sent[-1][1], Superseded)


def test_late_messages_are_dropped_and_counted() -> None:
    cluster = play("a joins")
    cluster.seqs["a"] = 0
    cluster.beat("a")
    assert cluster.state.history.dropped["late"] == 1


def test_a_unit_that_nobody_knows_is_told_to_stop() -> None:
    cluster = play("a joins")
    cluster.beat("a", UnitStatus("ghost", 77, UnitPhase.REPLICATING))
    assert cluster.dispatched() == [("a", "ghost", "remove")]
    assert "ghost" not in cluster.state.sets.by_unit
    assert cluster.state.numbers.counter == 1, (
        "what was never given raises nothing; the clock of the day does (docs/adr/0005)"
    )
    assert cluster.state.history.dropped["epoch refused"] == 1


def test_an_unconfirmed_owner_says_nothing_and_speaks_again_once_confirmed() -> None:
    cluster = Cluster(config=LeaderConfig(leader_lease=5.0))
    cluster.join("a")
    cluster.now += 100
    assert not any(isinstance(e, SendMessage) for e in cluster.beat("a"))
    cluster.do(Confirmed(cluster.now))
    assert any(isinstance(e, SendMessage) for e in cluster.beat("a"))


def test_a_dropped_unit_is_stopped_fenced_at_the_target_and_then_forgotten() -> None:
    cluster = play("a joins; +u; tick; u on a; -u; tick ⇒ a remove u; a: stopped u ⇒ a forget u, fence u")
    first = next(e for e in cluster.effects if isinstance(e, Fence))
    assert first.assignment > 2
    assert "unit/u" in cluster.records
    play("wait 100; tick ⇒ fence u", cluster)
    assert [e for e in cluster.effects if isinstance(e, Fence)] == [first, first], "asked again"
    play("fenced u", cluster)
    assert "unit/u" not in cluster.records
    assert "u" not in cluster.state.sets.by_unit
    later = steps.begin_leader_term("p", 11, cluster.records, CONFIG, 0.0)[0]
    assert later.numbers.counter >= first.assignment


def test_a_time_that_is_not_known_is_shown_as_unknown() -> None:
    """A unit that has applied nothing reports 0, which is no time."""
    cluster = play("pipeline p; a joins; +u; tick; u on a")
    cluster.state.sets.memos["u"].mark = UnitProgress(0, 0, None)
    cluster.state.pipelines.stored["p"] = PipelineProgress(0, 0, {"s": 0, "s2": 7})
    view = build_leader_view(cluster.state, None, 0.0, errors={}, streams={}, counters={})
    assert [(row.checkpoint_ts, row.resolved_ts) for row in view.units] == [(None, None)]
    (pipeline,) = view.pipelines
    assert (pipeline.checkpoint_ts, pipeline.resolved_ts, pipeline.by_source) == (None, None, {"s2": 7})


def test_a_unit_created_again_under_its_name_starts_without_the_old_progress() -> None:
    cluster = play("pipeline p; a joins; +u; tick; u on a")
    cluster.now += CONFIG.interval
    cluster.do(Tick())
    assert cluster.state.pipelines.progress["p"].checkpoint_ts == 5
    cluster.do(Inventory((spec("u", "2"),), {"p": ("s",)}))
    cluster.now += CONFIG.interval
    cluster.do(Tick())
    assert cluster.state.pipelines.progress["p"].waits_for == ("u",)
    cluster.holds("a", "u", UnitPhase.STOPPED, UnitProgress(8, 9))
    cluster.do(Tick())
    prepare = [m for _, m in cluster.sent if isinstance(m, Dispatch) and m.op is UnitOperation.PREPARE][-1]
    assert prepare.mark is None
    assert prepare.header.assignment > 2
    assert cluster.state.pipelines.progress["p"].checkpoint_ts == 5


def test_a_pipeline_that_is_no_longer_configured_is_forgotten_with_its_record() -> None:
    cluster = play("a joins")
    both = {"p": ("s",), "q": ("s",)}
    cluster.do(Inventory((spec("u"),), both))
    cluster.do(Tick())
    cluster.replicate("u", "a")
    cluster.now += CONFIG.interval
    cluster.do(Tick())
    assert "pipeline/p" in cluster.records
    later = Cluster(11, cluster.records)
    assert "pipeline/p" in later.records, "nothing is deleted before the configuration is known"
    later.do(Inventory((), {"q": ("s",)}))
    assert "pipeline/p" not in later.records
    later.do(Inventory((spec("v", "2"),), both))
    later.do(Tick())
    (p,) = [row for row in list_pipeline_rows(later.state) if row.pipeline == "p"]
    assert (p.checkpoint_ts, p.waits_for) == (None, ("v",)), "of the same name, and begins anew"


def test_what_was_under_way_of_a_pipeline_that_is_dropped_does_not_come_back() -> None:
    cluster = play("pipeline p; a joins; +u; tick; u on a")
    cluster.now += CONFIG.interval
    cluster.state, out = steps.step_leader(cluster.state, Tick(), cluster.now)
    (asked,) = [e for e in out if isinstance(e, Persist)]
    assert "pipeline/p" in dict(asked.records)
    cluster.do(Inventory((), {}))
    cluster.do(Inventory((spec("v", "2"),), {"p": ("s",)}))
    cluster.do(Persisted(asked.token))
    cluster.do(Tick())
    assert [row.checkpoint_ts for row in list_pipeline_rows(cluster.state)] == [None]


def test_checkpoints_between_heartbeats_count_only_at_the_epoch_that_writes() -> None:
    cluster = play("pipeline p; a joins; +u; tick; u on a")
    cluster.up(Checkpoint, "a", marks=(("u", 1, UnitProgress(99, 99)), ("u", 2, UnitProgress(7, 9))))
    cluster.now += CONFIG.interval
    cluster.do(Tick())
    assert cluster.state.pipelines.progress["p"].checkpoint_ts == 7


def test_paused_units_are_stopped_and_resumed_ones_started() -> None:
    cluster = play(
        "a joins; +u; tick; u on a; pause u; tick ⇒ a remove u; a: stopped u ⇒ a forget u, fence u; tick"
    )
    assert cluster.state.sets.by_unit["u"].state is SetState.ABSENT
    assert "paused/u" in cluster.records
    play("resume u; tick ⇒ a prepare u from 5/9", cluster)
    assert "paused/u" not in cluster.records


def test_a_target_is_fenced_under_an_epoch_that_is_durable() -> None:
    """A later owner whose clock lags would assign lower epochs for ever, and the target would refuse them
    all."""
    cluster = play("a joins; +u; tick; u on a")
    cluster.do(Pause("u"))
    cluster.do(Tick())
    cluster.storing = False
    out = cluster.holds("a", "u", UnitPhase.STOPPED)
    persist = next(e for e in out if isinstance(e, Persist))
    cluster.now += 6 * CONFIG.interval
    cluster.do(Tick())
    assert not any(isinstance(e, Fence) for e in cluster.effects)
    (fence,) = [e for e in cluster.do(Persisted(persist.token)) if isinstance(e, Fence)]
    assert dict(persist.records)["counter"] == CounterRecord(fence.assignment)


def test_only_the_latest_fence_of_a_unit_is_requested() -> None:
    """The number of an earlier one is durable when another is under way."""
    cluster = play("a joins; +u; tick; u on a")
    cluster.storing = False
    cluster.do(Pause("u"))
    cluster.do(Tick())
    cluster.holds("a", "u", UnitPhase.STOPPED)
    first = cluster.state.sets.memos["u"].fence
    for command in (Resume("u"), Tick(), Pause("u"), Tick()):
        cluster.do(command)
    second = cluster.state.sets.memos["u"].fence
    assert second > first > 0
    stored: dict[int, int] = {}
    for effect in cluster.effects:
        record = dict(effect.records).get("counter") if isinstance(effect, Persist) else None
        if isinstance(effect, Persist) and isinstance(record, CounterRecord):
            stored.setdefault(record.epoch, effect.token)
    assert not any(isinstance(e, Fence) for e in cluster.do(Persisted(stored[first])))
    fences = [e for e in cluster.do(Persisted(stored[second])) if isinstance(e, Fence)]
    assert [fence.assignment for fence in fences] == [second]


def test_an_answer_does_not_make_the_owner_say_the_same_again() -> None:
    """Found by the simulation: while an older replica stops, prepare and its answer went back and forth in a
    storm."""
    cluster = play("a joins; +u; tick")
    cluster.dispatched()
    older = UnitStatus("u", 1, UnitPhase.STOPPING)
    cluster.up(DispatchResponse, "a", answers=1, status=older, op=UnitOperation.PREPARE)
    assert ("a", "u", "prepare") not in cluster.dispatched()
    cluster.beat("a", older)
    assert ("a", "u", "prepare") in cluster.dispatched()


def test_a_failing_unit_waits_longer_each_time() -> None:
    cluster = play("a joins; +u")
    waits = []
    for _ in range(4):
        cluster.do(Tick())
        assignment = cluster.state.sets.by_unit["u"].replicas[0].assignment
        cluster.beat("a", UnitStatus("u", assignment, UnitPhase.STOPPED, error="poison"))
        waits.append(cluster.state.sets.memos["u"].due_at - cluster.now)
        cluster.now = cluster.state.sets.memos["u"].due_at
        cluster.beat("a")
    assert waits == [1.0, 2.0, 4.0, 8.0]


def test_a_drained_agent_gives_its_units_away_and_a_new_owner_still_knows() -> None:
    cluster = play(
        "a joins; +u +v; tick ⇒ a prepare u, a prepare v; a: prepared u, prepared v;"
        "a: replicating u, replicating v;"
        "b joins; drain a; tick ⇒ b prepare u, b prepare v"
    )
    later = steps.begin_leader_term("p", 11, cluster.records, CONFIG, 0.0)[0]
    assert later.members.by_name["a"].draining
    play("a: replicating u, replicating v", cluster)
    answer = cluster.sent[-1][1]
    assert isinstance(answer, HeartbeatResponse)
    assert answer.draining


@pytest.mark.parametrize(
    "command", [Move("x", "a"), Move("u", "x"), Drain("x"), Drain("a"), Pause("x"), Resume("x")]
)
def test_commands_that_cannot_be_are_refused_with_the_reason(command: Any) -> None:
    cluster = play("a joins; +u")
    refused = [e for e in cluster.do(command) if isinstance(e, Refused)]
    assert refused
    assert refused[0].problem.what


def test_rebalance_and_resign() -> None:
    cluster = Cluster()
    cluster.do(Rebalance())
    assert cluster.state.plan.rebalance
    assert any(isinstance(e, StepDown) for e in cluster.do(Resign()))


def test_agents_long_gone_are_forgotten() -> None:
    cluster = play(f"a joins; wait {CONFIG.silence}; tick; wait {CONFIG.retire_after}; tick")
    assert "a" not in cluster.state.members.by_name
    assert "agent/a" not in cluster.records


def test_records_have_distinct_keys() -> None:
    assert build_record_key(AgentRecord("x", "", 1)) != build_record_key(UnitRecord("x", "", ()))
