"""Known bugs put back one by one, by a switch; the simulation has to find each (the acceptance test of the
simulation).

`python -m tests.sim.coordination.mutations` prints the table of docs/explanation/coordination.md: bug → seeds
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from unittest import mock

from msgspec import structs

from coordinator.core import agent as agents
from coordinator.core import agent_unit, health, members, progress, replication
from coordinator.core.agent_unit import AgentUnit
from coordinator.core.handlers import bounds, entrance, leases, reports
from coordinator.core.leader import agents as leader_members
from coordinator.core.leader import commands as leader_commands
from coordinator.core.leader import inventory, periodic, pipelines, steps
from coordinator.core.leader import sets as leader_feed
from coordinator.core.leader.state import Confirmed, Fence, Persisted
from coordinator.core.members import MessageVerdict
from coordinator.core.messages import Announce, DispatchResponse, HeartbeatResponse, Superseded
from coordinator.core.records import UnitRecord
from coordinator.core.replication import Assign, Instruct, ReplicationSet, SetRefusedError
from coordinator.core.replication_table import (
    CELLS,
    SETTLE,
    Primary,
    ReplicaAction,
    ReplicaPhase,
    Role,
    Secondary,
    SetState,
)
from coordinator.core.schedulers import AgentLoads, InventoryUnit, UnitKind
from coordinator.server.leader_round import LeaderRound
from coordinator.server.operators import view as views
from schemas.units import UnitOperation
from tests.sim.coordination import ground
from tests.sim.coordination.capture import CaptureRules, CaptureTopic
from tests.sim.coordination.control import ControlTopic
from tests.sim.coordination.nodes import FAR, Options, Violation
from tests.sim.coordination.target import Guard, Target
from tests.sim.coordination.world import run

balances = import_module(
    "coordinator.core.schedulers.balance"
)  # its package has the function under this name
Patch = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """`ref`: the bug as the research names it. `faults`: what a run needs for it (None: the seed chooses).
    `scenario`: the script that finds it where seeds seldom would."""

    name: str
    ref: str
    patches: tuple[Patch, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    faults: tuple[str, ...] | None = None
    scenario: str | None = None


def attribute(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


def cells(acts: tuple[ReplicaAction, ...], *where: tuple[SetState, Role, ReplicaPhase]) -> Patch:
    return lambda: mock.patch.dict(CELLS, dict.fromkeys(where, acts))


def _any_incarnation(member: members.Member, agent_epoch: int, *args: Any, **kwargs: Any) -> Any:
    return _hear(member, member.agent_epoch, *args, **kwargs)


_hear = members.judge_message
_report, _assign, _classify = (
    replication._apply_report,
    replication._assign_replica,
    replication._classify_replicas,
)
_prepare, _replica, _advance = (
    agent_unit._prepare_worker,
    reports._find_reporting_replica,
    progress.advance_pipeline,
)
_receive, _wanted, _step = agents._receive_message, leader_feed.find_desired_unit, agent_unit.step_agent_unit
_fence_unless_desired, _instruct, _dispatched = (
    leader_feed.fence_unless_desired,
    leader_feed._send_instruction,
    agents._handle_dispatch,
)
_expire, _begin, _owner_step = members.expire_member, steps.begin_leader_term, steps.step_leader
_pipeline_units, _pipelines = periodic.collect_pipeline_units, views.list_pipeline_rows


def _no_orphans(current: ReplicationSet, event: Any, out: list[Any]) -> ReplicationSet:
    reported = len(out)
    after = _report(current, event, out)
    known = {(r.agent, r.assignment) for r in current.replicas}
    out[reported:] = [
        i for i in out[reported:] if not isinstance(i, Instruct) or (i.agent, i.assignment) in known
    ]
    return after


def _assign_at_once(current: ReplicationSet, event: Assign, out: list[Any]) -> ReplicationSet:
    """Dispatch first, store later."""
    after = _assign(current, event, out)
    out.insert(0, Instruct(UnitOperation.PREPARE, event.agent, event.agent_epoch, event.assignment))
    return replace(after, replicas=(*after.replicas[:-1], replace(after.replicas[-1], durable=True)))


def _blind_classify(current: ReplicationSet) -> ReplicationSet:
    """A new owner forgets what is stopping."""
    return _classify(
        replace(current, replicas=tuple(r for r in current.replicas if r.seen is not ReplicaPhase.STOPPING))
    )


def _only_primaries(*args: Any) -> Any:
    replica = _replica(*args)
    return replica if replica is not None and replica.role is Role.PRIMARY else None


def _keep_old_mark(held: AgentUnit, notified: Any) -> Any:
    after, effects = _prepare(held, notified)
    return (
        replace(after, mark=held.mark) if after.assignment != held.assignment and held.mark else after
    ), effects


def _keep_on_forget(held: AgentUnit, event: Any, now: float) -> Any:
    after, effects = _step(held, event, now)
    return replace(after, mark=after.mark or held.mark), effects


def _skip_missing(before: Any, units: Any, marks: Any) -> Any:
    known = {s: tuple(n for n in names if marks.get(n)) for s, names in units.by_source.items()}
    return _advance(
        before, progress.PipelineUnits(units.pipeline, {s: n for s, n in known.items() if n}), marks
    )


def _wait_for_dropped(state: Any, sources: Any) -> Any:
    """What a pipeline needs is never less than before."""
    after = _pipeline_units(state, sources)
    for pipeline, units in after.items():
        before = state.pipelines.units.get(pipeline, units).by_source
        names = {s: tuple(sorted({*units.by_source.get(s, ()), *before[s]})) for s in before}
        after[pipeline] = progress.PipelineUnits(pipeline, {**units.by_source, **names})
    return after


def _shown_before_stored(state: Any) -> Any:
    """As it was once: what is computed is shown at once, and stored later."""
    known = {
        pipeline: structs.replace(now, waits_for=()) for pipeline, now in state.pipelines.progress.items()
    }
    return _pipelines(replace(state, pipelines=replace(state.pipelines, stored=known)))


def _any_term(state: agents.AgentState, message: Any, now: float, out: list[Any]) -> None:
    if isinstance(message, Announce):
        state.leader.rev = min(state.leader.rev, message.header.owner_rev)
    _receive(state, message, now, out)


def _lease_from_receipt(state: agents.AgentState, message: Any, now: float, out: list[Any]) -> None:
    if isinstance(message, HeartbeatResponse):
        message = structs.replace(message, echo=now)
    _receive(state, message, now, out)


def _no_expiry(held: AgentUnit, _now: float) -> Any:
    return held, ()


def _resurrect(state: Any, unit: str) -> Any:
    return _wanted(state, unit) or (
        InventoryUnit(unit, UnitKind.APPLY, "s1", None, state.sets.memos[unit].uid)
    )


def _late_is_fine(member: Any, agent_epoch: int, seq: int, now: float, **kwargs: Any) -> Any:
    after, verdict = _hear(member, agent_epoch, seq, now, **kwargs)
    synced = member.state is members.MemberState.SYNCED
    return (after, MessageVerdict.APPLY) if verdict is MessageVerdict.LATE and synced else (after, verdict)


def _never_ill(known: health.AgentHealth, *_: Any) -> health.AgentHealth:
    return known


def _whatever_failed(unit: Any, agent: str, loads: AgentLoads) -> bool:
    return loads.has_room(agent)


def _impatient(member: Any, now: float, silence: float) -> Any:
    return _expire(member, now, 0.8 * silence)


def _generous(header: Any, echo: float, lease: float, *rest: Any) -> HeartbeatResponse:
    return HeartbeatResponse(header, echo, 1.2 * lease, *rest)


def _begins_at_once(*args: Any, **kwargs: Any) -> Any:
    state, out = _begin(*args, **kwargs)
    waits = state.config.leader_lease
    state.members.by_name = {
        name: replace(m, heard_at=m.heard_at - waits) for name, m in state.members.by_name.items()
    }
    return state, out


def _confirmed_by_election(*args: Any, **kwargs: Any) -> Any:
    return _begin(*args, **{**kwargs, "claimed_at": None})


def _confirmed_now(state: Any, event: Any, now: float) -> Any:
    if isinstance(event, Confirmed):
        event = Confirmed(now)
    elif isinstance(event, Persisted) and event.token in state.numbers.waiting:
        state.numbers.waiting[event.token] = state.numbers.waiting[event.token]._replace(asked=now)
    return _owner_step(state, event, now)


def _granted_to_all(state: Any, member: Any) -> list[tuple[str, int]]:
    me = (member.name, member.agent_epoch)
    held = [
        (unit, r)
        for unit in state.sets.by_agent.get(member.name, {})
        for r in state.sets.by_unit[unit].replicas
    ]
    return [
        (unit, r.assignment)
        for unit, r in held
        if (r.agent, r.agent_epoch) == me and r.role is not Role.SECONDARY
    ]


def _unstored_move(unit: str, _agent: str) -> Any:
    return UnitRecord(f"no such unit as {unit}", "", ())


def _raise_counter(state: Any, *_: Any, **__: Any) -> None:
    """As it was once, should the control topic have been lost."""
    state.numbers.counter = FAR


def _no_clock(*_: Any) -> None:
    return None


def _step_down_at_a_word(state: Any, agent: str, _now: float, out: list[Any], **_: Any) -> None:
    leader_members.step_down_leader(state, f"agent {agent} obeys a later owner", out)


def _time_is_up(state: Any, memo: Any, now: float) -> bool:
    return bool(now >= memo.since + state.config.prepare_timeout)


def _credulous(*_: Any) -> dict[str, int]:
    return {}


def _no_limit(_self: AgentLoads, _agent: str) -> bool:
    return True


def _told_without_tombstone(held: AgentUnit, assignment: int) -> Any:
    return (held, ()) if held.assignment > assignment else agent_unit._halt_worker(held)


def _remove_whatever(held: AgentUnit, assignment: int) -> Any:
    return agent_unit._halt_worker(replace(held, closed=max(held.closed, assignment)))


def _weak(**weak: bool) -> Patch:
    @contextmanager
    def patch() -> Any:
        with mock.patch.object(ground, "Target", side_effect=lambda: Target(Guard(**weak))):
            yield

    return patch


def _unfenced_topic() -> AbstractContextManager[Any]:
    return mock.patch.object(ground, "ControlTopic", side_effect=lambda: ControlTopic(fencing=False))


def _promote_beside_leaving() -> AbstractContextManager[Any]:
    key = (SetState.COMMIT, Primary.NONE, Secondary.READY, True)
    alone = SETTLE[SetState.COMMIT, Primary.NONE, Secondary.READY, False]
    start = (SetState.COMMIT, Primary.READY, Secondary.NONE, True)
    return mock.patch.dict(
        SETTLE, {key: alone, start: SETTLE[SetState.COMMIT, Primary.READY, Secondary.NONE, False]}
    )


def _late_claims() -> AbstractContextManager[Any]:
    late = CaptureRules(refuse_late=False)
    return mock.patch.object(ground, "CaptureTopic", side_effect=lambda: CaptureTopic(late))


def _deaf_to_strangers(state: agents.AgentState, message: Any, now: float, out: list[Any]) -> None:
    if not (isinstance(message, Superseded) and message.header.owner_rev > state.leader.rev):
        _receive(state, message, now, out)


def _plan_with(**more: int) -> Patch:
    """A limit is forgotten."""
    plan = periodic.plan_tasks
    return attribute(
        periodic, "plan_tasks", lambda seen, requested, limits: plan(seen, requested, replace(limits, **more))
    )


def _forget_at_once(state: Any, unit: str, now: float, out: list[Any]) -> None:
    """An unwanted unit is taken for fenced as soon as nothing of it is known to run."""
    reported: list[Any] = []
    _fence_unless_desired(state, unit, now, reported)
    out += [effect for effect in reported if not isinstance(effect, Fence)]
    memo = state.sets.memos.get(unit)
    if memo is not None and memo.fence:
        leader_feed.confirm_fenced(state, unit, memo.fence, now, out)


def _fence_at_once(state: Any, unit: str, now: float, out: list[Any]) -> None:
    """As it was once: the target is fenced under an epoch that nothing durable knows of."""
    reported: list[Any] = []
    _fence_unless_desired(state, unit, now, reported)
    memo = state.sets.memos.get(unit)
    if memo is None or not memo.fence or memo.fence_durable:
        out += reported
        return
    memo.fence_durable = True
    out.append(Fence(unit, memo.uid, memo.fence))


def _orphans_now_and_then(state: Any, unit: str, what: Instruct, out: list[Any]) -> None:
    current = state.sets.by_unit.get(unit)
    known = current is not None and any(r.assignment == what.assignment for r in current.replicas)
    if (
        known
        or what.op in {UnitOperation.PREPARE, UnitOperation.START, UnitOperation.FORGET}
        or state.numbers.op_seq % 8 == 0
    ):
        _instruct(state, unit, what, out)


def _silent_unless_changed(state: agents.AgentState, message: Any, now: float, out: list[Any]) -> None:
    """Only what an instruction has changed is answered."""
    before = state.units.by_name.get(message.unit)
    _dispatched(state, message, now, out)
    if state.units.by_name.get(message.unit) == before and before is not None:
        out[:] = [
            e for e in out if not (isinstance(e, agents.SendUp) and isinstance(e.message, DispatchResponse))
        ]


_durable = LeaderRound.confirm_durable


def _last_durable(self: LeaderRound, token: int) -> tuple[int, ...]:
    """Of a round's decisions only the last hears that it is stored."""
    return _durable(self, token)[-1:]


S, R, N = SetState, Role, ReplicaPhase
#: Modules that know `fence_unless_desired`.
_FENCING = (leader_feed, inventory, leader_commands, periodic)
MUTATIONS = (
    Mutation("agent epoch is not compared", "B1, PR#6113",
     (attribute(members, "judge_message", _any_incarnation),),
      faults=("ancient", "crash agent", "delay", "double")),
    Mutation("a worker's failure is swallowed", "B2", options={"swallow": True}),
    Mutation(
        "a stopping primary is cleared",
        "B3",
        (cells((ReplicaAction.DROP,), (S.PREPARE, R.PRIMARY, N.STOPPING), (S.COMMIT, R.PRIMARY, N.STOPPING)),
         ),
    ),
    Mutation("a late remove stops a later assignment", "B3, no generation",
     (attribute(agent_unit, "_remove_worker", _remove_whatever),),
      faults=("ancient", "delay", "double", "commands", "worker fails", "second thoughts")),
    Mutation("orphans are ignored", "B4", (attribute(replication, "_apply_report", _no_orphans),)),
    Mutation("orphans are told now and then", "B4",
     (attribute(leader_feed, "_send_instruction", _orphans_now_and_then),)),
    Mutation("the last replica's crash leaves the set", "B5, #6477",
     (cells((ReplicaAction.KEEP,), (S.REMOVING, R.UNDETERMINED, N.LOST)),)),
    Mutation("a primary's crash is only logged", "B6",
     (cells((ReplicaAction.KEEP,), (S.REPLICATING, R.PRIMARY, N.LOST)),)),
    Mutation("the limit on moves is not kept", "B7", (attribute(AgentLoads, "has_room", _no_limit),),
     faults=("commands", "crash agent")),
    Mutation("a plan adds more than a burst", "B7", (_plan_with(burst=9),)),
    Mutation("a plan gives one agent more than its share", "B7", (_plan_with(agent_burst=9),)),
    Mutation("the moves to one agent are not limited", "B7", (_plan_with(per_agent=9),),
     faults=("commands", "stop agent")),
    Mutation("an agent that cannot prepare attracts moves", "found here",
     (attribute(health, "record_agent_failure", _never_ill),
      attribute(balances, "_may_go", _whatever_failed)), {"fault_time": 60.0}, ("black hole",)),
    Mutation("a new owner forgets what is stopping", "tiflow#6538",
     (attribute(replication, "_classify_replicas", _blind_classify),),
      faults=("commands", "slow target", "crash owner", "two owners")),
    Mutation("start beside one that is stopping", "tiflow#6538", (_promote_beside_leaving,)),
    Mutation("stopped before the sink is closed", "tiflow#9618", options={"early_stop": True}),
    Mutation("a final mark is refused as stale", "ticdc#6283",
     (attribute(reports, "_find_reporting_replica", _only_primaries),)),
    Mutation("a unit's old mark is kept", "tiflow#4464",
     (attribute(agent_unit, "_prepare_worker", _keep_old_mark),
      attribute(agent_unit, "step_agent_unit", _keep_on_forget))),
    Mutation(
        "a dropped unit is added again", "ticdc#4874",
        (attribute(leader_feed, "find_desired_unit", _resurrect),
         attribute(periodic, "find_desired_unit", _resurrect)),
    ),
    Mutation(
        "a removed unit is not fenced", "found here",
        tuple(attribute(m, "fence_unless_desired", _forget_at_once) for m in _FENCING),
        faults=("catalogue", "pause agent", "commands"),
    ),
    Mutation("the minimum skips a missing unit", "tiflow PR#5761",
     (attribute(pipelines, "advance_pipeline", _skip_missing),)),
    Mutation("the minimum waits for a dropped unit", "ticdc#5710",
     (attribute(periodic, "collect_pipeline_units", _wait_for_dropped),), faults=("catalogue",)),
    Mutation("progress is shown before it is stored", "found here",
     (attribute(views, "list_pipeline_rows", _shown_before_stored),)),
    Mutation("dispatched before it is durable", "ticdc PR#5434",
     (attribute(replication, "_assign_replica", _assign_at_once),),
      faults=("two owners", "crash owner", "clock", "commands", "commit unknown", "hanging commit")),
    Mutation("of a round only the last decision is told", "ADR 18",
     (attribute(LeaderRound, "confirm_durable", _last_durable),),
      faults=("long rounds", "commands", "crash agent", "catalogue")),
    Mutation("a removed epoch can be prepared again", "ticdc#5083",
     (attribute(agent_unit, "_remove_worker", _told_without_tombstone),),
      faults=("ancient", "delay", "double", "stuck worker", "commands", "drop")),
    Mutation("an older owner is obeyed", "ticdc#4827", (attribute(agents, "_receive_message", _any_term),),
     faults=("ancient", "delay", "double", "two owners", "crash owner", "crash agent")),
    Mutation("an older owner can still store", "KIP-618", (_unfenced_topic,),
     faults=("hanging commit", "crash owner", "two owners", "pause owner", "commands", "reader lags")),
    Mutation("an agent answers only what changes something", "§5 I10",
     (attribute(agents, "_handle_dispatch", _silent_unless_changed),)),
    Mutation("late reports are applied", "no op_seq", (attribute(members, "judge_message", _late_is_fine),)),
    Mutation("the lease counts from receipt", "GreptimeDB",
     (attribute(agents, "_receive_message", _lease_from_receipt),), faults=("delay", "cut", "ancient")),
    Mutation("the lease is never over", "ticdc#5202", (attribute(agent_unit, "_expire_lease", _no_expiry),)),
    Mutation("an agent is gone after 80 % of its lease", "found here",
     (attribute(members, "expire_member", _impatient),), faults=("crash agent", "pause agent")),
    Mutation("leases are 120 % of what the owner waits", "found here",
     (attribute(leases, "HeartbeatResponse", _generous),), faults=("crash agent", "pause agent")),
    Mutation("a new owner does not wait for the old one's leases", "found here",
     (attribute(steps, "begin_leader_term", _begins_at_once),),
      scenario="an_agent_dies_with_a_lease_of_an_owner_that_is_no_longer_one"),
    Mutation("a move that was accepted dies with its owner", "found here",
     (attribute(leader_commands, "MoveRecord", _unstored_move),),
      scenario="a_move_waits_for_another_and_the_owner_dies"),
    Mutation("a claim counts as confirmed from the answer", "found here",
     (attribute(steps, "step_leader", _confirmed_now),), faults=("late answer", "two owners", "reader lags")),
    Mutation("a term counts as confirmed from the claim's answer", "found here",
     (attribute(steps, "begin_leader_term", _confirmed_by_election),),
      scenario="a_candidate_hears_late_that_it_has_claimed"),
    Mutation("leases are renewed for what is told to stop", "found here",
     (attribute(leases, "_list_granted", _granted_to_all),)),
    Mutation("an empty list of topics is believed", "found here",
     (attribute(inventory, "find_suspicious_shrink", _credulous),), faults=("empty metadata",)),
    Mutation("an agent's word raises the epochs", "found here",
     (attribute(reports, "refuse_claim", _raise_counter),), faults=("hostile agent",)),
    Mutation("marks later than now are believed", "found here",
     (attribute(bounds, "compute_latest_ts", _no_clock),), faults=("hostile agent",)),
    Mutation("an agent's word ends a term", "found here",
     (attribute(entrance, "refuse_claim", _step_down_at_a_word),), faults=("hostile agent",)),
    Mutation("a slow preparation is given up and begun anew", "found here",
     (attribute(periodic, "has_prepare_timed_out", _time_is_up),), faults=("busy machine",)),
    Mutation("who is replaced waits for an announcement", "found here",
     (attribute(agents, "_receive_message", _deaf_to_strangers),)),
    Mutation("a late start claims a topic", "found here", (_late_claims,),
     faults=("crash agent", "slow target", "commands")),
    Mutation("the fence is read without a lock", "§7 (A)", (_weak(locked=False),)),
    Mutation("no fence at all", "ticdc#6045", (_weak(checked=False),)),
)  # fmt: skip
#: Two of 20,000 seeds find it; a scenario does at once.
FENCE_AT_ONCE = Mutation(
    "a fence's epoch is not durable", "found here",
    tuple(attribute(m, "fence_unless_desired", _fence_at_once) for m in _FENCING),
)  # fmt: skip
BY_NAME = {mutation.name: mutation for mutation in MUTATIONS}


def find(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Return how many seeds it took to find the bug, and by what; None if they did not.

    Found is what an oracle, an invariant or a core refuses; any other error is one of the mutation, and is
    raised.
    """
    for tried, seed in enumerate(seeds, 1):
        with ExitStack() as stack:
            for patch in mutation.patches:
                stack.enter_context(patch())
            try:
                _run(mutation, seed)
            except Violation as error:
                return tried, str(error).partition(": ")[2].partition("\n")[0]
            except SetRefusedError as error:
                return tried, f"refused: {error}"
    return None


def _run(mutation: Mutation, seed: int) -> None:
    if mutation.scenario is None:
        run(Options(seed, mutation.faults, **mutation.options))
    else:
        from tests.sim.coordination.scenarios import SCENARIOS, play

        play(next(one for one in SCENARIOS if one.name == mutation.scenario), seed)


def main(most: int) -> None:
    for mutation in MUTATIONS:
        found = find(
            mutation, range(most)
        )  # B8 is not here: no record can hold two that prepare (its unit test is)
        count, what = found if found is not None else ("not found", "")
        print(f"| {mutation.name} | {mutation.ref} | {count} | {what[:110]} |", flush=True)


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
