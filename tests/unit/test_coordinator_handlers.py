"""Each handler of the owner's chain by itself: what it lets pass, what it says, what it counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from coordinator.core import handlers
from coordinator.core.handlers import CHAIN, Context
from coordinator.core.handlers.entrance import check_leader, check_member, check_term, register_agent
from coordinator.core.handlers.leases import grant_leases, renew_agent_lease
from coordinator.core.handlers.reports import (
    answer_unit,
    collect_statistics,
    keep_within_bounds,
    report_units,
)
from coordinator.core.leader.state import (
    Alarm,
    LeaderConfig,
    LeaderDecision,
    LeaderState,
    Persist,
    SendMessage,
)
from coordinator.core.leader.term_state import TermClaim, TermNumbers
from coordinator.core.leader.unit_sets import UnitMemo
from coordinator.core.members import Member, MemberState
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
    UnitStatus,
    Up,
)
from coordinator.core.records import AgentRecord, CounterRecord
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import ReplicaPhase, Role, SetState
from schemas.units import UnitOperation, UnitPhase, UnitProgress

REV, NOW, EPOCH = 10, 100.0, 7
HEAD = Header(REV, EPOCH, op_seq=5)
SYNCED = Member("a", "a-1", EPOCH, 90.0, state=MemberState.SYNCED, seq=4)
MARK = UnitProgress(50, 60)


def running(unit: str = "u", role: Role = Role.PRIMARY) -> ReplicationSet:
    state = SetState.REPLICATING if role is Role.PRIMARY else SetState.PREPARE
    seen = ReplicaPhase.REPLICATING if role is Role.PRIMARY else ReplicaPhase.PREPARING
    return ReplicationSet(unit, state, (Replica("a", EPOCH, 3, role, seen=seen),))


def state_of(member: Member | None = SYNCED, *sets: ReplicationSet) -> LeaderState:
    state = LeaderState("me", REV, LeaderConfig(), TermClaim(NOW), TermNumbers(20))
    if member is not None:
        state.members.by_name[member.name] = member
    for each in sets:
        state.sets.by_unit[each.unit], state.sets.memos[each.unit] = each, UnitMemo("1", NOW)
        state.sets.by_agent.setdefault("a", {})[each.unit] = None
    return state


def context(message: Up, state: LeaderState | None = None, *, known: bool = True) -> Context:
    state = state or state_of()
    return Context(state, message, NOW, [], state.members.by_name.get(message.agent) if known else None)


def heartbeat(*statuses: UnitStatus, head: Header = HEAD) -> Heartbeat:
    return Heartbeat(head, "a", 40.0, statuses)


def sent(out: list[LeaderDecision]) -> list[type]:
    return [type(effect.message) for effect in out if isinstance(effect, SendMessage)]


def test_the_order_of_the_chain() -> None:
    assert list(CHAIN) == [
        check_leader, register_agent, check_member, check_term, keep_within_bounds, renew_agent_lease,
        collect_statistics, report_units, answer_unit, grant_leases,
    ]  # fmt: skip


def test_a_handler_that_says_no_ends_the_chain() -> None:
    state = state_of(SYNCED, running())
    out: list[LeaderDecision] = []
    handlers.receive_agent_message(state, heartbeat(head=changed(HEAD, owner_rev=REV + 1)), NOW, out)
    assert [type(effect) for effect in out] == [Alarm]
    assert (state.members.by_name["a"], state.history.dropped) == (SYNCED, {"later term claimed": 1})


def test_nobody_asks_for_the_sender_before_it_is_known() -> None:
    with pytest.raises(RuntimeError, match="before check_member"):
        renew_agent_lease(context(heartbeat(), known=False))


@pytest.mark.parametrize(
    ("message", "passes"),
    [
        (heartbeat(), True),
        (heartbeat(head=changed(HEAD, owner_rev=REV - 1)), True),
        (heartbeat(head=changed(HEAD, owner_rev=REV + 1)), False),
        (Rejected(changed(HEAD, owner_rev=0), "a", REV), True),
        (Rejected(changed(HEAD, owner_rev=0), "a", REV + 1), False),
    ],
)
def test_check_leader(message: Up, passes: bool) -> None:
    this = context(message)
    assert check_leader(this) is passes
    assert not this.state.claim.stepped_down, "a word of an agent ends no term"
    assert [type(effect) for effect in this.out] == ([] if passes else [Alarm])
    assert this.state.history.dropped["later term claimed"] == (not passes)


def test_register_stores_a_new_incarnation_before_it_is_told() -> None:
    this = context(Hello(Header(0, 0), "a", "a-2"))
    assert register_agent(this) is False
    (persist,) = this.out
    assert isinstance(persist, Persist)
    assert dict(persist.records) == {"counter": CounterRecord(21), "agent/a": AgentRecord("a", "a-2", 21)}
    assert this.state.members.by_name["a"].durable is False


def test_register_announces_itself_to_who_is_known() -> None:
    this = context(Hello(Header(0, 0), "a", "a-1"))
    assert register_agent(this) is False
    assert sent(this.out) == [Announce]
    under_way = context(Hello(Header(0, 0), "a", "a-1"), state_of(replace(SYNCED, durable=False)))
    assert register_agent(under_way) is False
    assert under_way.out == []
    assert register_agent(context(heartbeat())) is True


@pytest.mark.parametrize(
    ("member", "passes", "notified"),
    [(SYNCED, True, []), (replace(SYNCED, durable=False), False, []), (None, False, [Superseded])],
)
def test_check_member(member: Member | None, passes: bool, notified: list[type]) -> None:
    this = context(heartbeat(), state_of(member), known=False)
    assert check_member(this) is passes
    assert (this.known, sent(this.out)) == (member if passes else None, notified)
    assert this.state.history.dropped["unknown agent"] == (not passes)


@pytest.mark.parametrize(
    ("head", "passes", "notified"),
    [
        (HEAD, True, []),
        (changed(HEAD, owner_rev=REV - 1), False, [Announce]),
        (changed(HEAD, owner_rev=REV - 1, agent_epoch=EPOCH - 1), False, [Superseded]),
        (changed(HEAD, owner_rev=REV - 1, agent_epoch=EPOCH + 1), False, []),
    ],
)
def test_check_term(head: Header, passes: bool, notified: list[type]) -> None:
    this = context(heartbeat(head=head))
    assert check_term(this) is passes
    assert sent(this.out) == notified
    assert check_term(context(Rejected(head, "a", REV))) is False


@pytest.mark.parametrize(
    ("head", "reason", "notified"),
    [
        (changed(HEAD, agent_epoch=EPOCH - 1), "other incarnation", [Superseded]),
        (changed(HEAD, agent_epoch=EPOCH + 1), "other incarnation", []),
        (changed(HEAD, op_seq=4), "late", []),
    ],
)
def test_keep_lease_counts_what_is_stale_and_ends_there(
    head: Header, reason: str, notified: list[type]
) -> None:
    this = context(heartbeat(head=head))
    assert renew_agent_lease(this) is False
    assert (this.state.members.by_name["a"], dict(this.state.history.dropped)) == (SYNCED, {reason: 1})
    assert sent(this.out) == notified


def test_keep_lease_hears_the_agent() -> None:
    this = context(changed(heartbeat(), liveness=Liveness.STOPPING))
    this.state.plan.has_work = False
    assert renew_agent_lease(this) is True
    heard = this.state.members.by_name["a"]
    assert (heard.heard_at, heard.echo, heard.seq, heard.liveness) == (NOW, 40.0, 5, Liveness.STOPPING)
    assert this.member is heard
    assert this.state.plan.has_work, "an agent that leaves is something to plan for"


@pytest.mark.parametrize(
    ("was", "entries"), [(MemberState.EXPIRED, ["agent is back"]), (MemberState.SYNCED, [])]
)
def test_the_return_of_an_expired_agent_is_recorded(was: MemberState, entries: list[str]) -> None:
    this = context(Sync(HEAD, "a", 40.0), state_of(replace(SYNCED, state=was)))
    renew_agent_lease(this)
    assert [what for what, _ in this.state.history.entries] == entries


def test_before_its_sync_an_agent_is_only_alive() -> None:
    registered = replace(SYNCED, state=MemberState.REGISTERED)
    this = context(heartbeat(), state_of(registered))
    assert renew_agent_lease(this) is False
    assert this.state.members.by_name["a"].heard_at == NOW
    assert sent(this.out) == [Announce]
    assert renew_agent_lease(context(Sync(HEAD, "a", 40.0), state_of(registered))) is True


def status(
    state: UnitPhase = UnitPhase.REPLICATING, assignment: int = 3, unit: str = "u", error: str | None = None
) -> UnitStatus:
    return UnitStatus(unit, assignment, state, MARK, 9, error)


@pytest.mark.parametrize(
    ("reported", "current", "taken", "news"),
    [
        (status(), running(), True, False),
        (status(UnitPhase.STOPPING), running(), True, True),
        (status(UnitPhase.STOPPED, error="x"), running(), True, True),
        (status(assignment=2), running(), False, True),
        (status(UnitPhase.PREPARING), running(role=Role.SECONDARY), False, True),
        (status(unit="other"), running(), False, True),
    ],
)
def test_collect_statistics(reported: UnitStatus, current: ReplicationSet, taken: bool, news: bool) -> None:
    for message in (heartbeat(reported), DispatchResponse(HEAD, "a", 1, reported)):
        this = context(message, state_of(SYNCED, current))
        assert collect_statistics(this) is True
        memo = this.state.sets.memos["u"]
        assert (memo.mark, memo.rows_per_s) == ((MARK, 9) if taken else (None, 0))
        assert this.news == ([reported] if news else [])
        assert this.state.sets.by_unit["u"] == current, "statistics change no set"


def test_collect_statistics_between_heartbeats() -> None:
    this = context(
        Checkpoint(HEAD, "a", (("u", 3, MARK), ("u", 2, UnitProgress(99, 99)), ("x", 3, MARK))),
        state_of(SYNCED, running()),
    )
    assert collect_statistics(this) is True
    assert this.state.sets.memos["u"].mark == MARK


def test_report_units_feeds_news_and_what_is_missing() -> None:
    this = context(heartbeat(status(UnitPhase.STOPPING)), state_of(SYNCED, running(), running("gone")))
    this.news = [status(UnitPhase.STOPPING)]
    assert report_units(this) is True
    assert this.state.sets.by_unit["u"].state is SetState.REMOVING
    assert this.state.sets.by_unit["gone"].state is SetState.ABSENT


def test_a_failure_is_remembered() -> None:
    this = context(heartbeat(), state_of(SYNCED, running()))
    this.message = heartbeat(status(UnitPhase.STOPPED, error="disk full"))
    this.news = [status(UnitPhase.STOPPED, error="disk full")]
    report_units(this)
    assert (this.state.sets.memos["u"].failures, this.state.sets.memos["u"].avoid) == (1, "a")


def test_an_answer_never_makes_the_owner_repeat_itself() -> None:
    """Somebody reports an orphan: it is told to stop, but not in answer to having been told so."""
    orphan = status(assignment=99)
    for op, notified in ((UnitOperation.REMOVE, []), (UnitOperation.START, [UnitOperation.REMOVE])):
        this = context(DispatchResponse(HEAD, "a", 1, orphan, op), state_of(SYNCED, running()))
        this.news = [orphan]
        assert answer_unit(this) is True
        reported = [effect.message for effect in this.out if isinstance(effect, SendMessage)]
        assert [message.op for message in reported if isinstance(message, Dispatch)] == notified
    unasked = context(heartbeat(orphan))
    unasked.news = [orphan]
    answer_unit(unasked)
    assert unasked.out == [], "a heartbeat is another handler's"


def test_grant_leases_of_primaries_only() -> None:
    this = context(
        heartbeat(), state_of(replace(SYNCED, echo=40.0), running("p"), running("s", Role.SECONDARY))
    )
    assert grant_leases(this) is True
    (effect,) = this.out
    assert isinstance(effect, SendMessage)
    assert isinstance(effect.message, HeartbeatResponse)
    assert (effect.message.granted, effect.message.echo) == ((("p", 3),), 40.0)
    checkpoint = context(Checkpoint(HEAD, "a", ()))
    grant_leases(checkpoint)
    assert checkpoint.out == []


def test_what_recovers_and_writes_may_go_on() -> None:
    recovering = replace(running(), state=SetState.RECOVERING)
    undetermined = tuple(replace(r, role=Role.UNDETERMINED) for r in recovering.replicas)
    this = context(heartbeat(), state_of(SYNCED, replace(recovering, replicas=undetermined)))
    grant_leases(this)
    (effect,) = this.out
    assert isinstance(effect, SendMessage)
    assert isinstance(effect.message, HeartbeatResponse)
    assert effect.message.granted == (("u", 3),)
