"""A world without faults of its own, and the hands that a script has in it."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.core import agent as agents
from coordinator.core.leader import state as o
from coordinator.core.messages import Dispatch, Down, Up
from coordinator.core.replication import Replica, ReplicationSet
from coordinator.core.replication_table import Cell, ReplicaPhase, Role, SetState
from schemas.units import UnitOperation
from tests.sim.coordination.nodes import AgentNode, LeaderNode, Options
from tests.sim.coordination.target import Worker
from tests.sim.coordination.world import CoordinationSimulation

_S, _R, _N = SetState, Role, ReplicaPhase
UNIT = "apply/p/u3"


class Scripted(CoordinationSimulation):
    """`lost`: which messages to agents (or, `unheard`, from agents) get lost. `unready`: agents on which
    workers do not get ready; `unended`: those on which workers that were stopped do not end; `idle`: those on
    which they write nothing; `slow`: how long Kafka takes, if not as usual; `answer_takes`: how long a
    candidate waits for the answer to its write.
    """

    def __init__(self, seed: int = 0, faults: tuple[str, ...] = ()) -> None:
        self.lost: Callable[[str, Down], bool] = lambda _to, _message: False
        self.unheard: Callable[[str, Up], bool] = lambda _origin, _message: False
        self.unready: set[str] = set()
        self.unended: set[str] = set()
        self.idle: set[str] = set()
        self.slow: float | None = None
        self.answer_takes: dict[str, float] = {}
        self.held: dict[str, list[Callable[[], None]]] = {"ready": [], "end": []}
        super().__init__(Options(seed, faults))

    # what is different from the world as it is

    def _fault(self) -> None:
        """Faults are the script's."""

    def _down(self, origin: LeaderNode, to: str, message: Down) -> None:
        if not self.lost(to, message):
            super()._down(origin, to, message)

    def _up(self, node: AgentNode, message: Up) -> None:
        if not self.unheard(node.name, message):
            super()._up(node, message)

    def _ready(self, node: AgentNode, worker: Worker) -> None:
        if node.name in self.unready:
            self._hold("ready", node, lambda: self._ready(node, worker))
        else:
            super()._ready(node, worker)

    def _end(self, node: AgentNode, worker: Worker, error: str | None) -> None:
        if error is None and node.name in self.unended:
            self._hold("end", node, lambda: self._end(node, worker, error))
        else:
            super()._end(node, worker, error)

    def _apply(self, node: AgentNode, worker: Worker) -> None:
        if node.name not in self.idle:
            super()._apply(node, worker)

    def _answer_takes(self, node: LeaderNode) -> float:
        return self.answer_takes.get(node.name, 0.001)

    def _orphan(self, worker: Worker) -> None:
        """Whether a process outlives its agent is for the script to say."""

    def _kafka(self) -> float:
        return super()._kafka() if self.slow is None else self.slow

    def _hold(self, step: str, node: AgentNode, what: Callable[[], None]) -> None:
        life = node.life
        self.held[step].append(lambda: what() if node.alive and node.life == life else None)

    # the script's hands

    def until(self, what: str, holds: Callable[[], bool], within: float = 10.0) -> None:
        """Let the world go on, event by event, until it holds."""
        end = self.now + within
        while not holds():
            if not self.heap or self.heap[0][0] > end:
                raise AssertionError(f"the script waited {within:.0f} s in vain for: {what}")
            self.run_until(self.heap[0][0])

    def get_ready(self) -> None:
        """From now on workers get ready as usual, and so do those that were held."""
        self.unready.clear()
        self._release("ready")

    def let_end(self) -> None:
        """The same for workers that were stopped."""
        self.unended.clear()
        self._release("end")

    def _release(self, step: str) -> None:
        held, self.held[step] = self.held[step], []
        for what in held:
            what()

    @property
    def owner(self) -> LeaderNode:
        node = self.current()
        assert node is not None, "there is no owner"
        return node

    @property
    def state(self) -> o.LeaderState:
        assert self.owner.state is not None
        return self.owner.state

    def unit(self, name: str = UNIT) -> ReplicationSet:
        return self.state.sets.by_unit[name]

    def replica(self, role: Role, name: str = UNIT) -> Replica | None:
        return next((r for r in self.unit(name).replicas if r.role is role), None)

    def quiet(self) -> bool:
        node = self.current()
        sets = node.state.sets.by_unit.values() if node is not None and node.state is not None else ()
        return len(sets) == len(self.inventory) and all(
            s.state is _S.REPLICATING and len(s.replicas) == 1 for s in sets
        )

    def settle(self, name: str = UNIT) -> tuple[AgentNode, AgentNode]:
        """Wait until every unit replicates; return where `name` does, and another agent."""
        self.until("every unit replicates", self.quiet)
        primary = self.unit(name).primary
        assert primary is not None
        other = min(agent for agent in self.agents if agent != primary.agent)
        return self.agents[primary.agent], self.agents[other]

    def notify(self, command: o.LeaderCommand) -> None:
        self.step_leader(self.owner, command)

    def reach(self, *cells: Cell) -> None:
        """Wait until each cell is reached from now on."""
        names = ["/".join(part.value for part in cell) for cell in cells]
        before = {cell: self.judge.cells[cell] for cell in cells}
        self.until(f"cells {names}", lambda: all(self.judge.cells[c] > before[c] for c in cells))

    def no(self, op: UnitOperation, agent: str) -> Callable[[str, Down], bool]:
        """For `lost`: this instruction about the unit never gets to the agent."""
        return lambda to, m: to == agent and isinstance(m, Dispatch) and m.unit == UNIT and m.op is op

    def worker(self, node: AgentNode, name: str = UNIT) -> Worker:
        return max((w for w in node.workers.values() if w.unit == name), key=lambda w: w.assignment)

    def succeed(self, first: LeaderNode, second: LeaderNode) -> None:
        """The owner dies, and the other candidate follows at once; the agents know."""
        self.end_owner(first)
        first.alive = False
        self.usurp(second)
        for agent in self.agents.values():
            agent.leader, agent.heard = list(self.owners).index(second.name), self.now
        self.until(f"{second.name} leads", lambda: self.current() is second)

    def beat(self, node: AgentNode) -> None:
        """The agent's next heartbeat is sent in a moment."""
        node.state.times.make_heartbeat_due(self.clock(node))
        self.on(node, 0.001, lambda: self.step_agent(node, agents.AgentTick()))

    def shut_down(self, node: AgentNode) -> None:
        self.step_agent(node, agents.Shutdown())

    def finish(self) -> None:
        """All is let go; everything must become well. An idle worker stays so: the target would refuse it."""
        self.idle.clear()
        self.lost, self.unheard, self.slow = (lambda *_: False), (lambda *_: False), None
        self.get_ready()
        self.let_end()
        self.heal()
        if not self.run_until(self.now + self.options.heal_time, self.judge.converged):
            raise AssertionError(f"not well again: {self.judge.why_not()}")
        self.judge.after()

    # where scripts begin

    def preparing(self) -> tuple[AgentNode, AgentNode]:
        """A move under way whose new worker does not get ready."""
        origin, target = self.settle()
        self.unready.add(target.name)
        self.notify(o.Move(UNIT, target.name))
        self.until(
            "the new worker opens", lambda: (UNIT in target.state.units.by_name) and self._opened(target)
        )
        return origin, target

    def _opened(self, target: AgentNode) -> bool:
        secondary = self.replica(_R.SECONDARY)
        return secondary is not None and secondary.seen is _N.PREPARING and secondary.agent == target.name

    def committing(self) -> tuple[AgentNode, AgentNode]:
        """A move under way whose new worker waits for the old one, which does not end."""
        origin, target = self.settle()
        self.unended.add(origin.name)
        self.notify(o.Move(UNIT, target.name))
        self.until("the new worker is ready", lambda: self.unit().state is _S.COMMIT)
        return origin, target

    def given_up(self, *, lost: UnitOperation = UnitOperation.REMOVE) -> tuple[AgentNode, AgentNode]:
        """A move that was given up, whose new worker is still there as far as the owner knows."""
        origin, target = self.settle()
        self.unready.add(target.name)
        self.lost = self.no(lost, target.name)
        self.notify(o.Move(UNIT, target.name))
        self.until(
            "the move is given up",
            lambda: self.unit().state is _S.REPLICATING and self.replica(_R.UNDETERMINED) is not None,
        )
        return origin, target
