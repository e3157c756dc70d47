"""Oracles that look at how things go on: the limits of a plan (I9), orphans (I6), and dispatches without an
answer (I10)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.core import agent as agents
from coordinator.core import records as durable
from coordinator.core.leader import state as o
from coordinator.core.members import MemberState
from coordinator.core.messages import Dispatch, DispatchResponse
from coordinator.core.replication import ReplicationSet
from coordinator.core.replication_table import SetState
from schemas.units import UnitPhase
from tests.kits.invariants import require_invariant

if TYPE_CHECKING:
    from tests.sim.coordination.nodes import AgentNode, LeaderNode
    from tests.sim.coordination.world import CoordinationSimulation

_MOVES = frozenset({SetState.PREPARE, SetState.COMMIT})
#: After the heal a message takes 0.01 s, and what it finds running happens at once.
SOON = 0.5


class LimitsJudge:
    """I9. What an event starts is what has an epoch that no set had before it; only a tick may start
    anything."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}

    def before(self, state: o.LeaderState) -> None:
        self.known = {unit: self._highest(current) for unit, current in state.sets.by_unit.items()}

    @staticmethod
    def _highest(current: ReplicationSet) -> int:
        return current.replicas[-1].assignment if current.replicas else 0

    def after(self, state: o.LeaderState, event: o.LeaderEvent | None) -> None:
        limits = state.config.limits
        added: Counter[str] = Counter()
        moved: Counter[str] = Counter()
        incoming: Counter[str] = Counter()
        for unit, current in state.sets.by_unit.items():
            if not current.replicas:
                continue
            newest = current.replicas[-1]
            started = newest.assignment > self.known.get(unit, 0)
            require_invariant(not started or isinstance(event, o.Tick), f"{unit} is assigned by {event}")
            if len(current.replicas) > 1 and current.state in _MOVES:
                incoming[newest.agent] += 1
                moved[newest.agent] += started
            else:
                added[newest.agent] += started
        require_invariant(added.total() <= limits.burst, f"{added.total()} units added in one plan")
        for agent in state.members.by_name:
            require_invariant(
                added[agent] <= limits.agent_burst, f"{added[agent]} units added to {agent} in one plan"
            )
            fits = not moved[agent] or incoming[agent] <= limits.per_agent
            require_invariant(
                fits, f"{incoming[agent]} moves to {agent} under way, the limit is {limits.per_agent}"
            )
        moving = incoming.total()
        require_invariant(
            moving <= limits.concurrent, f"{moving} moves under way, the limit is {limits.concurrent}"
        )


class BlackHoleJudge:
    """An agent that cannot get a unit ready is not sent one after the other: in a term, what is moved there
    unasked is what it takes to find out, and then one on trial after each pause."""

    def __init__(self, world: CoordinationSimulation) -> None:
        self.world = world
        #: (term, agent) → when it was first sent one, and how many since
        self.sent: dict[tuple[int, str], tuple[float, int]] = {}

    def owner(self, state: o.LeaderState, event: o.LeaderEvent | None, out: list[o.LeaderDecision]) -> None:
        world = self.world
        if (
            not world.black_holes
            or world.healed
            or not isinstance(event, o.Tick)
            or "commands" in world.faults
        ):
            return
        for effect in out:
            for record in _units(effect):
                agent = record.holders[-1][0] if len(record.holders) > 1 else ""
                if agent in world.black_holes:
                    self._moved(state, agent)

    def _moved(self, state: o.LeaderState, agent: str) -> None:
        first, count = self.sent.get((state.rev, agent), (self.world.now, 0))
        self.sent[state.rev, agent] = first, count + 1
        health, limits = state.config.health, state.config.limits
        pauses = int(math.log2(1 + (self.world.now - first) / health.retry_first)) + 1
        pauses += int((self.world.now - first) / health.retry_most)
        most = health.failures + limits.per_agent + pauses + len(self.world.inventory)
        require_invariant(
            count < most, f"{count + 1} units in vain to {agent} in {self.world.now - first:.1f} s"
        )


class CatalogueJudge:
    """What runs and is still there is not stopped because one look at Kafka's topics did not show it."""

    def __init__(self, world: CoordinationSimulation) -> None:
        self.world = world
        #: unit → the epoch that writes
        self.replicating: dict[str, int] = {}
        #: unit → its uid and since when it has been there
        self.there: dict[str, tuple[str, float]] = {}

    def always(self) -> None:
        now = self.world.now
        self.there = {
            unit: self.there[unit] if self.there.get(unit, ("", 0.0))[0] == spec.uid else (spec.uid, now)
            for unit, spec in self.world.inventory.items()
        }

    def before(self, state: o.LeaderState) -> None:
        sets = state.sets.by_unit.items()
        self.replicating = {
            unit: s.primary.assignment for unit, s in sets if s.state is SetState.REPLICATING and s.primary
        }

    def after(self, state: o.LeaderState, event: o.LeaderEvent | None) -> None:
        if not isinstance(event, o.Tick):
            return
        for unit, assignment in self.replicating.items():
            current, there = state.sets.by_unit.get(unit), self.there.get(unit)
            notified = {r.assignment for r in current.leaving} if current is not None else set()
            stopped = current is not None and current.state is SetState.REMOVING and assignment in notified
            if stopped and there is not None and unit not in state.sets.paused:
                uid = state.sets.memos[unit].uid if unit in state.sets.memos else ""
                for_ = self.world.now - there[1]
                require_invariant(
                    uid != there[0] or for_ < 5.0, f"{unit} is removed and has been there for {for_:.1f} s"
                )


def _units(effect: o.LeaderDecision) -> list[durable.UnitRecord]:
    records = effect.records if isinstance(effect, o.Persist) else ()
    return [record for _, record in records if isinstance(record, durable.UnitRecord)]


@dataclass(frozen=True, slots=True)
class Asked:
    """A dispatch that waits for its answer."""

    at: float
    rev: int
    op_seq: int
    agent_epoch: int


class Watch:
    """What must not last. While there are faults it may; after the heal it is over within a heartbeat."""

    def __init__(self, world: CoordinationSimulation) -> None:
        self.world = world
        self.black_holes = BlackHoleJudge(world)
        #: (agent, unit, epoch) → since when it runs there without the owner's knowing
        self.orphans: dict[tuple[str, str, int], float] = {}
        #: (agent, unit) → the last dispatch; an earlier one is superseded by it
        self.asked: dict[tuple[str, str], Asked] = {}
        self.healed_at = float("inf")

    def always(self) -> None:
        if not self.world.healed:
            return
        self.healed_at = min(self.healed_at, self.world.now)
        node = self.world.current()
        if node is None or node.state is None or node.state.claim.silent or node.state.plan.inventory is None:
            self.orphans.clear()
            return
        self._orphans(node.state)
        self._unanswered(node.state)

    def _obeys(self, state: o.LeaderState, agent: AgentNode) -> bool:
        """Whether the agent is a member that has told this owner what it holds, and talks to it."""
        node = self.world.current()
        if node is None or self.world.leader_of(agent) is not node:
            return False
        member = state.members.by_name.get(agent.name)
        known = member is not None and member.durable and member.state is MemberState.SYNCED
        mine = agent.state.leader.rev == state.rev and known
        return (
            agent.alive
            and mine
            and member is not None
            and member.agent_epoch == agent.state.leader.agent_epoch
        )

    def _orphans(self, state: o.LeaderState) -> None:
        """I6: at an agent's next heartbeat, the leader stops what the agent holds and the leader does not
        know."""
        now, found = self.world.now, {}
        for agent in self.world.agents.values():
            if not self._obeys(state, agent):
                continue
            for unit, held in agent.state.units.by_name.items():
                if held.state in {UnitPhase.ABSENT, UnitPhase.STOPPING} or unit in state.sets.restricted:
                    continue
                current = state.sets.by_unit.get(unit)
                replicas = current.replicas if current is not None else ()
                if not any((r.agent, r.assignment) == (agent.name, held.assignment) for r in replicas):
                    key = (agent.name, unit, held.assignment)
                    found[key] = self.orphans.get(key, now)
        self.orphans = found
        for key, since in found.items():
            require_invariant(
                now - since <= state.config.interval + SOON, f"orphan {key} since {since:.3f} s"
            )

    # dispatches

    def owner(self, node: LeaderNode, event: o.LeaderEvent | None, out: list[o.LeaderDecision]) -> None:
        """Write down what the owner asks, and what it hears in answer."""
        state = node.state
        if state is None or node is not self.world.current():
            return
        self.black_holes.owner(state, event, out)
        if isinstance(event, o.Received) and isinstance(event.message, DispatchResponse):
            message = event.message
            key = (message.agent, message.status.unit)
            asked = self.asked.get(key)
            if asked is not None and (asked.rev, asked.op_seq) == (message.header.owner_rev, message.answers):
                del self.asked[key]
        for effect in out if not state.claim.silent else ():
            if isinstance(effect, o.SendMessage) and isinstance(effect.message, Dispatch):
                head = effect.message.header
                asked = Asked(self.world.now, head.owner_rev, head.op_seq, head.agent_epoch)
                self.asked[effect.agent, effect.message.unit] = asked

    def answered(self, node: AgentNode, message: Dispatch, out: list[agents.AgentEffect]) -> None:
        """I10: an agent answers every dispatch that is for it, at once."""
        head, state = message.header, node.state
        if (head.owner_rev, head.agent_epoch) != (state.leader.rev, state.leader.agent_epoch):
            return
        reported = [e.message for e in out if isinstance(e, agents.SendUp)]
        answers = [m.answers for m in reported if isinstance(m, DispatchResponse)]
        require_invariant(head.op_seq in answers, f"agent {node.name} does not answer {message}")

    def _unanswered(self, state: o.LeaderState) -> None:
        """I10: an answer arrives, unless another leader asks by now, or another incarnation is asked."""
        for (name, unit), asked in list(self.asked.items()):
            agent = self.world.agents[name]
            mine = self._obeys(state, agent) and agent.state.leader.agent_epoch == asked.agent_epoch
            if asked.rev != state.rev or not mine or asked.at < self.healed_at:
                del self.asked[name, unit]
                continue
            late = self.world.now - asked.at
            require_invariant(
                late <= SOON, f"dispatch {asked.op_seq} of {unit} to {name} is unanswered for {late:.3f} s"
            )
