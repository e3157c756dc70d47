"""Steps replication sets and turns their outputs into messages and durable records."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core import replication
from coordinator.core.messages import Dispatch, Header
from coordinator.core.owner import story
from coordinator.core.owner.state import Alarm, Effect, Fence, OwnerState, Persist, Send, UnitMemo, Waiting
from coordinator.core.records import CounterRecord, Record, UnitRecord, key_of
from coordinator.core.replication import Impossible, Input, Instruct, Replica, ReplicationSet
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import CatalogueUnit
from schemas.units import UnitOperation

_SETTLED = frozenset({SetState.ABSENT, SetState.REPLICATING})


def fresh_number(state: OwnerState) -> int:
    """Return a number that was never given before, to a unit or to an agent."""
    state.counter += 1
    return state.counter


def header(state: OwnerState, agent_epoch: int, assignment: int = 0) -> Header:
    state.op_seq += 1
    return Header(state.rev, agent_epoch, assignment, state.op_seq)


def interval(state: OwnerState) -> float:
    """Return the seconds between two heartbeats of an agent: longer with many units, never above a quarter of the lease."""
    config = state.config
    return max(config.interval, min(len(state.sets) / config.statuses_per_s, config.lease / 4))


def persist(
    state: OwnerState,
    records: Iterable[Record],
    now: float,
    out: list[Effect],
    *,
    delete: Iterable[str] = (),
    unit: tuple[str, int] | None = None,
    agent: tuple[str, int] | None = None,
    fence: tuple[str, int] | None = None,
) -> None:
    """Have records stored (with the counter, always) and others deleted; `unit`, `agent` or `fence` waits for it."""
    state.token += 1
    state.waiting[state.token] = Waiting(now, unit, agent, fence)
    stored = [(key_of(r), r) for r in (CounterRecord(state.counter), *records)]
    out.append(Persist(state.token, (*stored, *((key, None) for key in delete))))


def feed(state: OwnerState, unit: str, event: Input, now: float, out: list[Effect]) -> None:
    """Step the unit's set, carry out what it says, keep the indexes. Raises RefusedError as the set does."""
    before = state.sets.get(unit)
    if before is None:
        before = ReplicationSet(unit)  # somebody reports a unit that is not ours: an orphan
    state.cells.update(replication.cells(before, event))
    after, results = replication.step(before, event)
    for result in results:
        match result:
            case Instruct():
                _instruct(state, unit, result, out)
            case replication.PersistReplicas(assignment, replicas):
                record = _record(state, unit, replicas)
                persist(state, [record], now, out, unit=(unit, assignment))
            case Impossible(cell, agent, assignment):
                words = "/".join(part.value for part in cell)
                out.append(
                    Alarm(
                        "impossible report", f"unit {unit}, agent {agent}, assignment {assignment}: {words}"
                    )
                )
    if after != before:
        _changed(state, before, after, now, out)


def _instruct(state: OwnerState, unit: str, what: Instruct, out: list[Effect]) -> None:
    member, memo = state.members.get(what.agent), state.memos.get(unit)
    echo, lease = 0.0, 0.0
    if what.op is UnitOperation.START and member is not None and member.agent_epoch == what.agent_epoch:
        echo, lease = member.echo, state.config.lease
    head = header(state, what.agent_epoch, what.assignment)
    out.append(Send(what.agent, Dispatch(head, unit, what.op, memo.mark if memo else None, echo, lease)))


def _record(state: OwnerState, unit: str, replicas: tuple[Replica, ...]) -> UnitRecord:
    memo = state.memos[unit]
    memo.recorded = tuple((r.agent, r.agent_epoch, r.assignment) for r in replicas)
    return UnitRecord(unit, memo.uid, memo.recorded)


def _changed(
    state: OwnerState, before: ReplicationSet, after: ReplicationSet, now: float, out: list[Effect]
) -> None:
    unit = after.unit
    state.sets[unit] = after
    _index(state, before, after)
    if [(r.assignment, r.role) for r in before.replicas] == [
        (r.assignment, r.role) for r in after.replicas
    ] and (before.state is after.state):
        return
    story.unit_changed(state, before, after, now)
    memo = state.memos.setdefault(unit, UnitMemo())
    memo.since, memo.steps, memo.got_on, state.work = now, 0, now, True
    if after.state is SetState.COMMIT:
        memo.given_up = 0  # it got ready
    if after.state in _SETTLED:
        state.unsettled.pop(unit, None)
    else:
        state.unsettled[unit] = None
    if after.state is SetState.ABSENT:
        fence_unless_wanted(state, unit, now, out)
    elif after.state is SetState.REPLICATING and len(memo.recorded) > len(after.replicas):
        persist(state, [_record(state, unit, after.replicas)], now, out)


def _index(state: OwnerState, before: ReplicationSet, after: ReplicationSet) -> None:
    stay = {r.agent for r in after.replicas}
    for agent in sorted(stay):
        state.by_agent.setdefault(agent, {})[after.unit] = None
    for agent in sorted({r.agent for r in before.replicas} - stay):
        state.by_agent.get(agent, {}).pop(after.unit, None)


def wanted(state: OwnerState, unit: str) -> CatalogueUnit | None:
    """Return the catalogue's unit if it shall run."""
    spec = state.catalogue.get(unit) if state.catalogue is not None else None
    return None if spec is None or unit in state.paused else spec


def fence_unless_wanted(state: OwnerState, unit: str, now: float, out: list[Effect]) -> None:
    """Fence an unwanted unit: nobody takes it over, so nobody else would fence an agent that was only taken for gone."""
    memo = state.memos[unit]
    absent = state.sets[unit].state is SetState.ABSENT
    if state.catalogue is None or wanted(state, unit) is not None or not absent:
        return
    if not memo.recorded:
        forget(state, unit, now, out)
        return
    state.fencing[unit] = now
    if not memo.fence:
        memo.fence, memo.fence_durable = fresh_number(state), False
        persist(state, [], now, out, fence=(unit, memo.fence))
    elif memo.fence_durable:
        out.append(Fence(unit, memo.uid, memo.fence))


def fence_stored(state: OwnerState, unit: str, assignment: int, now: float, out: list[Effect]) -> None:
    """The assignment of a fence is durable: no later owner, whatever its clock says, gives out a lower one."""
    memo = state.memos.get(unit)
    if memo is not None and memo.fence == assignment:
        memo.fence_durable = True
        fence_unless_wanted(state, unit, now, out)


def fenced(state: OwnerState, unit: str, assignment: int, now: float, out: list[Effect]) -> None:
    """Nothing of the unit can write any more: its record can go."""
    memo = state.memos.get(unit)
    if memo is None or memo.fence != assignment:
        return
    state.fencing.pop(unit, None)
    memo.fence = 0
    if wanted(state, unit) is None and state.sets[unit].state is SetState.ABSENT:
        persist(state, [_record(state, unit, ())], now, out)
        forget(state, unit, now, out)


def forget(state: OwnerState, unit: str, now: float, out: list[Effect]) -> None:
    """Drop an absent unit that the catalogue does not have, with its record."""
    if state.catalogue is None or unit in state.catalogue:
        return
    del state.sets[unit]
    state.memos.pop(unit, None)
    state.retrying.pop(unit, None)
    state.fencing.pop(unit, None)
    state.whereabouts.pop(unit, None)
    paused = [f"paused/{unit}"] if unit in state.paused else []
    state.paused.pop(unit, None)
    persist(state, [], now, out, delete=[f"unit/{unit}", *paused])  # a move of it goes with the next plan
