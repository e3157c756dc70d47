"""Candidates, agents, workers and a bad network under one seed and one clock; nothing here knows real time.

Everything that happens is an entry of one heap, in the order of (time, number). A paused process takes no
step; what is meant for it waits in its queue, while commits that it has already sent land at the target. What
a worker asks of the target or of Kafka may be cut off on the way there or back: then it does not know the
outcome. `judge` looks at everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from coordinator.control import election as elections
from coordinator.core import agent as agents
from coordinator.core.leader import state as o
from coordinator.core.replication_table import Cell, SetState
from tests.sim.coordination.judge import Judge
from tests.sim.coordination.nodes import (
    CANDIDATES,
    CAPTURES,
    JOINERS,
    SERVERS,
    UNITS,
    AgentNode,
    LeaderNode,
    Node,
    Options,
    Violation,
)
from tests.sim.coordination.workers import Workers


class CoordinationSimulation(Workers):
    """Everything together, and the faults that strike it."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.judge = Judge(self)
        self._begin()

    def _begin(self) -> None:
        for node in [*self.owners.values(), *self.agents.values()]:
            node.rate = 1.0 + self.rng.uniform(-0.01, 0.01)
        for candidate in self.owners.values():
            self._start_candidate(candidate)
            self.at(self.rng.uniform(0.0, 0.5), lambda c=candidate: self._candidate(c))  # type: ignore[misc]
        for one in self.agents.values():
            self._start_agent(one)
        self.at(0.5, self._source)
        self.at(1.0, self._replicate)
        self.at(3.0, self._fault)

    # faults

    def _fault(self) -> None:
        if self.healed:
            return
        self.at(self.rng.uniform(0.1, 1.0), self._fault)
        kinds = sorted(self.faults & set(self._faults()))
        if kinds:
            kind = self.rng.choice(kinds)
            self.judge.fault(kind)
            self._faults()[kind]()

    def _faults(self) -> dict[str, Callable[[], None]]:
        return {
            "crash agent": lambda: self.crash_agent(self._some_agent(), self.rng.uniform(0.1, 8.0)),
            "pause agent": lambda: self.pause(self._some_agent(), self.rng.uniform(1.0, 12.0)),
            "stop agent": self._stop_agent,
            "crash owner": self._crash_owner,
            "pause owner": lambda: self.pause(self._some_owner(), self.rng.uniform(1.0, 10.0)),
            "two owners": self._second_owner,
            "cut": self._cut,
            "clock": self._clock,
            "catalogue": self._change_catalogue,
            "commands": self._command,
            "cut server": self._cut_server,
            "target restart": lambda: self._restart_target(lost=False),
            "failover": lambda: self._restart_target(lost=True),
            "broker restart": self._restart_broker,
            "reader lags": self._lag,
            "join": self._join,
            "leave": self._leave,
            "empty metadata": self._unlist,
        }

    def _unlist(self) -> None:
        if self.now > self.unlisted_until + 1.5:  # it is read well in between
            self.unlisted_until = self.now + self.later.uniform(0.1, 1.9)

    def _stop_agent(self) -> None:
        node = self._some_agent()
        self.on(node, 0.0, lambda: self.step_agent(node, agents.Shutdown()))

    def _some_agent(self) -> AgentNode:
        return self.rng.choice(list(self.agents.values()))

    def _some_owner(self) -> LeaderNode:
        return self.owners[self.rng.choice(CANDIDATES)]

    def _crash_owner(self) -> None:
        node = self._some_owner()
        if not node.alive:
            return
        node.producer.dying = node.producer.busy and self.rng.random() < 0.5
        self.end_owner(node)
        node.alive = False
        self.at(self.rng.uniform(0.5, 5.0), lambda: None if node.alive else self._start_candidate(node))

    def _second_owner(self) -> None:
        node = self._some_owner()
        if node.alive and not node.paused and node.election.phase is elections.ElectionPhase.FOLLOWING:
            self.usurp(node)

    def usurp(self, node: LeaderNode) -> None:
        """A candidate claims without waiting for its patience to end."""
        node.election = replace(node.election, phase=elections.ElectionPhase.CLAIMING)
        self.claim(node)

    def pause(self, node: Node, for_: float, asleep: bool = False) -> None:
        """`asleep`: the machine sleeps, and its monotonic clock with it."""
        if not node.paused and node.alive:
            node.paused, life = True, node.life
            node.asleep_since = self.now if asleep else None
            self.at(for_, lambda: self.resume(node) if node.life == life else None)

    def resume(self, node: Node) -> None:
        if node.paused:
            node.paused, node.paused_at = False, self.now
            if node.asleep_since is not None:
                node.offset -= (self.now - node.asleep_since) * node.rate
            waiting, node.queue = node.queue, []
            for what in waiting:
                what()

    def _cut(self) -> None:
        self._part(self._some_agent().name, self.rng.choice(CANDIDATES))

    def _cut_server(self) -> None:
        server = self.rng.choice(SERVERS)
        near: list[Node] = [*self.agents.values(), *(self.owners.values() if server == "kafka" else ())]
        one = self.rng.choice(near).name
        self.happened[f"{server}: cut"] += 1
        self._part(one, server)

    def _part(self, one: str, other: str) -> None:
        """Nothing goes from one to the other, or either way, for some seconds."""
        both = self.rng.random() < 0.5
        pairs = {(one, other), (other, one)} if both else {self.rng.choice([(one, other), (other, one)])}
        self.cuts |= pairs
        self.at(self.rng.uniform(0.5, 9.0), lambda: self.cuts.difference_update(pairs))

    def _restart_target(self, lost: bool) -> None:
        """For a moment the target does not answer; open transactions are lost, and after a failover what the
        standby had not got yet."""
        behind = self.target.restart(lost)
        self.happened["failover that lost commits"] += behind
        self.happened["target restart"] += not lost
        self.down["target"] = self.now + self.rng.uniform(0.1, 3.0)

    def _replicate(self) -> None:
        if "failover" in self.faults and not self.healed:
            self.target.replicate()
            self.at(self.rng.uniform(0.2, 1.0), self._replicate)

    def _restart_broker(self) -> None:
        self.happened["broker restart"] += 1
        self.down["kafka"] = self.now + self.rng.uniform(0.1, 4.0)

    def _lag(self) -> None:
        """The topic answers, but what is new in it comes late."""
        self.happened["reader lags"] += 1
        self._some_owner().lags_until = self.now + self.rng.uniform(1.0, 8.0)

    def _join(self) -> None:
        """A machine that nobody has seen before."""
        names = [name for name in JOINERS if name not in self.agents]
        if names:
            self.happened["join"] += 1
            node = self.agents[names[0]] = AgentNode(names[0], rate=1.0 + self.rng.uniform(-0.01, 0.01))
            self._start_agent(node)

    def _leave(self) -> None:
        """A machine goes for good, politely or not; two stay at least."""
        staying = [node for node in self.agents.values() if not node.left]
        if len(staying) < 3:
            return
        node = self.rng.choice(staying)
        node.left = True
        self.happened["leave"] += 1
        if self.rng.random() < 0.5:
            self.on(node, 0.0, lambda: self.step_agent(node, agents.Shutdown()))
        else:
            self.crash_agent(node, 0.0)

    def _clock(self) -> None:
        """A clock leaps forward; a machine sleeps, and its monotonic clock with it, which lags from then
        on; or the clock of the day is set, forward or back."""
        node: Node = self.rng.choice([self._some_agent(), self._some_owner()])
        kind = self.rng.choice(("leap", "sleep", "set back", "set forward"))
        far = self.rng.uniform(0.1, 6.0)
        if kind == "leap":
            node.offset += far
        elif kind == "sleep":
            if not node.alive or node.paused:
                return
            self.pause(node, far, asleep=True)
        else:
            node.wall += -10 * far if kind == "set back" else 10 * far
        self.happened[f"clock: {kind}"] += 1

    def _change_catalogue(self) -> None:
        unit = self.rng.choice((*UNITS, *CAPTURES))
        if unit in self.inventory:
            del self.inventory[unit]
        if self.rng.random() < 0.6:
            self._create(unit)
        self._tell_catalogue()

    def _create(self, unit: str) -> None:
        """A unit of an old name, with nothing in the target: its row begins at zero, its epoch stays. A
        source stays what it was: its capture goes on where its topic ends."""
        if unit in CAPTURES:
            self.inventory[unit] = self.spec(unit)
            return
        self.uids[unit] += 1
        self.heads[unit] = 0
        row = self.target.row(unit)
        if row.holder is not None:
            self.target.abort(row.holder)
        row.offset = 0
        row.writes.clear()
        self.target.replicate()
        self.inventory[unit] = self.spec(unit)

    def _tell_catalogue(self) -> None:
        for node in self.owners.values():
            self.on(node, self.rng.uniform(0.0, 0.5), lambda n=node: self.give_catalogue(n))  # type: ignore[misc]

    def _command(self) -> None:
        node = self.current()
        if node is None:
            return
        unit, agent = self.rng.choice((*UNITS, *CAPTURES)), self._some_agent().name
        commands: list[o.LeaderCommand] = [
            o.Move(unit, agent), o.Move(unit, agent), o.Drain(agent), o.Rebalance(), o.Pause(unit),
            o.Resume(unit), o.Resign(),
        ]  # fmt: skip
        command = self.rng.choice(commands)
        if "second thoughts" in self.faults and self.later.random() < 0.4:
            command = self.later.choice([o.CancelMove(unit), o.Undrain(agent)])
        self.on(node, 0.0, lambda: self.step_leader(node, command))

    def heal(self) -> None:
        """Stop all faults; processes come back; what was drained or paused by command is wanted again."""
        self.healed = True
        self.cuts.clear()
        self.down.clear()
        for node in [*self.owners.values(), *self.agents.values()]:
            self.resume(node)
        for candidate in self.owners.values():
            candidate.lags_until = 0.0
            if not candidate.alive:
                self._start_candidate(candidate)
        for one in self.agents.values():
            ends = one.state.liveness.value == "stopping" or one.name in self.hostile
            self.crash_agent(one, 0.1) if ends else None
            if not one.alive and not one.left:
                self._start_agent(one)
        for unit in (*UNITS, *CAPTURES):
            if unit not in self.inventory and unit != UNITS[-1]:
                self._create(unit)
        self._tell_catalogue()
        self.at(8.0, self._resume_units)

    def _resume_units(self) -> None:
        node = self.current()
        self.at(3.0, self._resume_units)
        if node is not None and node.state is not None:
            for unit in sorted(set(node.state.sets.paused) & set(node.state.sets.by_unit)):
                self.step_leader(node, o.Resume(unit))
            for name, member in sorted(node.state.members.by_name.items()):
                if member.leaving and self.agents[name].alive:
                    self.crash_agent(self.agents[name], 0.1)


def run(options: Options) -> CoordinationSimulation:
    """Run one seed: faults, then heal, then until everything is as it shall be. Raises Violation with how to
    replay it."""
    world = CoordinationSimulation(options)
    try:
        world.run_until(options.fault_time)
        world.heal()
        if not world.run_until(world.now + options.heal_time, world.judge.converged):
            raise AssertionError(f"not well {options.heal_time:.0f} s after healing: {world.judge.why_not()}")
        world.judge.after()
    except AssertionError as error:
        replay = f"python -m tests.sim.coordination.replay {options.seed}"
        raise Violation(
            f"seed {options.seed} at {world.now:.3f} s, faults {sorted(world.faults)}: {error}\n  → {replay}"
        ) from error
    return world


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is counted over many seeds. `dropped`: events of a capture worker that readers dropped by their
    gen; `refused`: starts of capture workers that a later assignment had overtaken; `struck`: (fault, state
    of a unit when it struck); `happened`: faults by name."""

    cells: Counter[Cell]
    events: int
    dropped: int
    refused: int
    struck: Counter[tuple[str, SetState]]
    happened: Counter[str] = field(default_factory=Counter)


def run_seed(seed: int) -> Outcome:
    """Run one seed, with the faults that it chooses."""
    return outcome_of(run(Options(seed)))


def outcome_of(world: CoordinationSimulation) -> Outcome:
    topics = world.captured.values()
    dropped, refused = sum(t.dropped for t in topics), sum(t.refused for t in topics)
    return Outcome(world.judge.cells, world.events, dropped, refused, world.judge.struck, world.happened)
