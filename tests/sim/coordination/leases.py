"""Oracles of leases: the leader waits for the end of each one, has the right to grant it, and grants none to
a replica that is to stop.

They look at what was sent, not at what came of it: the leader also waits for a lease that never arrives.
Deadlines are on the agent's own clock, so pauses, crashes and drift are in them; where clocks leap nothing of
this can be promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.core.leader import state as o
from coordinator.core.messages import Dispatch, HeartbeatResponse
from coordinator.core.replication_table import ReplicaPhase, Role, SetState
from schemas.units import UnitOperation
from tests.kits.invariants import require_invariant

if TYPE_CHECKING:
    from tests.sim.coordination.nodes import AgentNode, LeaderNode
    from tests.sim.coordination.world import CoordinationSimulation

#: Clocks drift by up to a hundredth, each way.
DRIFT = 1.02


class LeaseJudge:
    def __init__(self, world: CoordinationSimulation) -> None:
        self.world = world
        #: (agent, agent_epoch) → the end of the last lease that any owner granted it, on the agent's clock
        self.granted: dict[tuple[str, int], float] = {}
        #: term → when its claim was committed
        self.claimed: dict[int, float] = {}

    def always(self) -> None:
        """After every event of the world: note the time of a new claim."""
        claims = self.world.topic.claims
        if claims and claims[-1][0] not in self.claimed:
            self.claimed[claims[-1][0]] = self.world.now

    def owner(self, node: LeaderNode, out: list[o.LeaderDecision]) -> None:
        """What an owner says in one step."""
        self.always()
        for effect in out:
            if not isinstance(effect, o.SendMessage) or node.state is None:
                continue
            message = effect.message
            if isinstance(message, HeartbeatResponse) and message.granted:
                self._grants(node.state, effect.agent, message)
            elif isinstance(message, Dispatch) and message.op is UnitOperation.START and message.lease:
                self._note(node.state, effect.agent, message)

    def _grants(self, state: o.LeaderState, agent: str, message: HeartbeatResponse) -> None:
        self._note(state, agent, message)
        for unit, assignment in message.granted:
            require_invariant(
                _stays(state, agent, message.header.agent_epoch, unit, assignment),
                f"{agent} is granted a lease for {unit} at {assignment}, which shall stop: "
                f"{state.sets.by_unit.get(unit)}",
            )

    def _note(self, state: o.LeaderState, agent: str, message: HeartbeatResponse | Dispatch) -> None:
        key = (agent, message.header.agent_epoch)
        self.granted[key] = max(self.granted.get(key, 0.0), message.echo + message.lease)
        self._rightful(state)

    def _rightful(self, state: o.LeaderState) -> None:
        """A leader whose term has not been confirmed since another candidate claimed stops granting leases
        within `leader_lease`."""
        later = [at for rev, at in self.claimed.items() if rev > state.rev]
        if later and "clock" not in self.world.faults:
            for_ = self.world.now - min(later)
            most = state.config.leader_lease * DRIFT
            require_invariant(
                for_ <= most, f"term {state.rev} grants a lease {for_:.3f} s after a later claim"
            )

    def missing(self, rev: int, node: AgentNode, agent_epoch: int) -> None:
        """The leader of term `rev` declares a silent agent expired: every lease of it, from any leader, has
        ended. A leader that a later claim has overtaken may declare any agent expired: it can store nothing,
        so it gives nothing away."""
        if "clock" in self.world.faults or rev != self.world.topic.claims[-1][0]:
            return
        left = self.granted.get((node.name, agent_epoch), 0.0) - self.world.clock(node)
        require_invariant(
            left <= 0, f"{node.name} is taken for gone, and a lease of it lasts another {left:.3f} s"
        )


def _stays(state: o.LeaderState, agent: str, agent_epoch: int, unit: str, assignment: int) -> bool:
    """Whether the owner wants that replica to go on as far as it knows. A restricted unit always does."""
    if unit in state.sets.restricted:
        return True
    current = state.sets.by_unit.get(unit)
    for one in current.replicas if current is not None else ():
        if (one.agent, one.agent_epoch, one.assignment) == (
            agent,
            agent_epoch,
            assignment,
        ) and current is not None:
            if current.state is SetState.RECOVERING:
                return one.seen is ReplicaPhase.REPLICATING
            leaves = current.state is SetState.COMMIT and current.secondary is not None
            return one.role is Role.PRIMARY and not leaves
    return False
