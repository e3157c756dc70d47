"""Agents: they hear owners and answer, and start and stop workers as the product's core says."""

from __future__ import annotations

from msgspec.structs import replace

from coordinator.core import agent as agents
from coordinator.core.agent_unit import PrepareWorker, RemoveWorker, StartWorker
from coordinator.core.leader import state as o
from coordinator.core.messages import (
    Checkpoint,
    DispatchResponse,
    Down,
    Heartbeat,
    Rejected,
    UnitStatus,
    Up,
)
from schemas.units import UnitPhase, UnitProgress
from tests.sim.coordination.candidates import Candidates
from tests.sim.coordination.nodes import CANDIDATES, CAPTURES, FAR, AgentNode, LeaderNode
from tests.sim.coordination.target import Worker


class Agents(Candidates):
    """The product's own agent, with what carries out its effects."""

    def _start_agent(self, node: AgentNode) -> None:
        node.life += 1
        node.alive, node.paused = True, False
        node.queue.clear()
        node.workers = {}
        node.state = agents.AgentState(node.name, f"{node.name}-{node.life}")
        self.on(node, self.rng.uniform(0.0, 0.3), lambda: self._tick_agent(node))

    def crash_agent(self, node: AgentNode, back: float) -> None:
        if not node.alive:
            return
        node.alive = False
        for worker in node.workers.values():
            if worker.unit in CAPTURES and worker.live and self.rng.random() < 0.5:
                self.at(self.rng.uniform(0.1, 10.0), lambda w=worker: self._orphan(w))  # type: ignore[misc]
            worker.dead = True
            if worker.transaction is not None and worker.transaction.open and self.rng.random() < 0.7:
                self.target.abort(worker.transaction)  # its connection breaks before the commit was sent
        self.at(back, lambda: None if node.alive or node.left else self._start_agent(node))

    def _tick_agent(self, node: AgentNode) -> None:
        self.step_agent(node, agents.AgentTick())
        if node.name in self.hostile and not self.healed and node.alive and self.later.random() < 0.5:
            self._lie(node)
        if self.now - node.heard > 2.5:
            node.leader, node.heard = (node.leader + 1) % len(CANDIDATES), self.now - 1.5
        wait = (agents.compute_next_wakeup(node.state) - self.clock(node)) / node.rate
        self.on(node, min(0.5, max(0.02, wait)), lambda: self._tick_agent(node))

    def _down(self, origin: LeaderNode, to: str, message: Down) -> None:
        node = self.agents[to]
        self.on(node, 0.0, lambda: self._got(node, origin, message))

    def _got(self, node: AgentNode, origin: LeaderNode, message: Down) -> None:
        before = node.state.leader.rev
        if message.header.owner_rev >= before:
            node.leader, node.heard = CANDIDATES.index(origin.name), self.now
        self.step_agent(node, agents.InstructionReceived(message))

    def step_agent(self, node: AgentNode, event: agents.AgentEvent) -> None:
        if not node.alive:
            return
        rev = node.state.leader.rev
        node.state, out = agents.step_agent(node.state, event, self.clock(node))
        self.judge.agent(node, event, rev, out)
        for effect in out:
            match effect:
                case agents.SendUp(message):
                    self._up(node, message)
                case agents.ExitAgent():
                    self.crash_agent(node, 1.0)
                    return
                case PrepareWorker():
                    self._open(node, effect)
                case StartWorker(unit, assignment):
                    worker = node.workers[unit, assignment]
                    worker.stage = "taking"
                    if unit in CAPTURES:
                        self._claim(node, worker)
                    else:
                        self._take(node, worker, 0)
                case RemoveWorker(unit, assignment):
                    self._stop(node, node.workers[unit, assignment])

    def _lie(self, node: AgentNode) -> None:
        """Lie under its own name, in its turn: assignments that no leader made, marks in the future, a term
        that has not begun."""
        self.happened["lie"] += 1
        state, far = node.state, UnitProgress(FAR, FAR)
        head = state.leader.build_header()
        other = next((u for u in sorted(self.inventory) if u not in state.units.by_name), "no such unit")
        ghost = UnitStatus(other, FAR, UnitPhase.REPLICATING, far, FAR)
        ended = {UnitPhase.STOPPED, UnitPhase.STOPPING}
        held = [
            s if s.state in ended else replace(s, mark=far, rows_per_s=-FAR)
            for s in state.units.list_statuses()
        ]
        lies: list[Up] = [
            Heartbeat(head, node.name, self.clock(node), (*held, ghost), state.liveness),
            Heartbeat(head, node.name, float("nan"), state.units.list_statuses(), state.liveness),
            DispatchResponse(head, node.name, 0, ghost),
            Checkpoint(head, node.name, ((other, FAR, far), *((s.unit, s.assignment, far) for s in held))),
            Rejected(head, node.name, FAR),
        ]
        self._up(node, self.later.choice(lies))

    def leader_of(self, node: AgentNode) -> LeaderNode:
        """The candidate that an agent talks to."""
        return self.owners[CANDIDATES[node.leader]]

    def _up(self, node: AgentNode, message: Up) -> None:
        to = self.leader_of(node)
        self.carry(
            node.name, to.name, lambda: self.on(to, 0.0, lambda: self.step_leader(to, o.Received(message)))
        )

    # of the layers above

    def _open(self, node: AgentNode, effect: PrepareWorker) -> None:
        raise NotImplementedError

    def _claim(self, node: AgentNode, worker: Worker) -> None:
        raise NotImplementedError

    def _take(self, node: AgentNode, worker: Worker, tries: int) -> None:
        raise NotImplementedError

    def _stop(self, node: AgentNode, worker: Worker) -> None:
        raise NotImplementedError

    def _orphan(self, worker: Worker) -> None:
        raise NotImplementedError
