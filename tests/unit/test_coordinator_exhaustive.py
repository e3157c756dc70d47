"""One unit, two agents, one change of owner, at most three messages in flight: every order of events there
is.

The replication set and the agents' unit machine are the real ones; the owner around them is the least that
carries them. Every message can be delivered in any order, lost, or doubled. No process is ever declared dead
while it lives, so no lease and no fence is needed: in no reachable state do two workers write. And no state
is a dead end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace as change
from typing import Generic, NamedTuple, TypeVar

import pytest

from coordinator.core import agent_unit, replication
from coordinator.core.agent_unit import AgentUnit, Instruction, StartWorker
from coordinator.core.replication import (
    AgentLost,
    Assign,
    ImpossibleReport,
    Instruct,
    PersistReplicas,
    Remove,
    Replica,
    ReplicaPersisted,
    ReplicaReport,
    ReplicationSet,
    SetInput,
    SetOutput,
)
from coordinator.core.replication_table import CELLS, Cell, ReplicaAction, ReplicaPhase, SetState
from schemas.units import Prepared, UnitOperation, UnitPhase, WorkerEnded
from tests.kits.invariants import check_set_invariants

T = TypeVar("T")


class Message(NamedTuple):
    """`kind`: announce, sync, report, or an Op's value; `seq` orders what one agent sends."""

    kind: str
    agent: int
    incarnation: int
    rev: int
    assignment: int = 0
    seq: int = 0
    state: str = "absent"


class Agent(NamedTuple):
    held: int = 0
    rev: int = 1
    incarnation: int = 1
    seq: int = 0
    writes: bool = False


class World(NamedTuple):
    """`held` and `current` are numbers of interned values: a world is hashed a million times. `*_left`: how
    often something may still happen. `heard`: per agent the last seq, -1 before its sync."""

    agents: tuple[Agent, Agent] = (Agent(), Agent())
    net: tuple[Message, ...] = ()
    rev: int = 1
    current: int = 0
    record: tuple[Replica, ...] = ()
    pending: tuple[Replica, ...] = ()
    assignment: int = 0
    heard: tuple[int, int] = (0, 0)
    known: tuple[int, int] = (1, 1)
    assigns_left: int = 2
    owners_left: int = 1
    removes_left: int = 0
    crashes_left: int = 0
    doubles_left: int = 1
    failures_left: int = 0


class Pool(Generic[T]):
    """Values by number."""

    def __init__(self, first: T) -> None:
        self.values = [first]
        self.numbers = {first: 0}

    def number(self, value: T) -> int:
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
        return found


NAMES = ("A", "B")


SETS: Pool[ReplicationSet] = Pool(ReplicationSet("u"))
HELD: Pool[AgentUnit] = Pool(AgentUnit("u"))


class Explorer:
    def __init__(self, start: World, in_flight: int) -> None:
        self.start, self.in_flight = start, in_flight
        self.cells: set[Cell] = set()
        self.steps: dict[tuple[int, SetInput], tuple[int, tuple[SetOutput, ...]]] = {}

    # owner

    def step(self, before: ReplicationSet, event: SetInput) -> tuple[int, tuple[SetOutput, ...]]:
        self.cells.update(replication.list_cells(before, event))
        current, out = replication.step_set(before, event)
        check_set_invariants(current)
        assert not any(isinstance(one, ImpossibleReport) for one in out), f"alarm {out}"
        return SETS.number(current), out

    def feed(self, world: World, event: SetInput) -> World:
        known = self.steps.get((world.current, event))
        if known is None:
            known = self.steps[world.current, event] = self.step(SETS.values[world.current], event)
        world = world._replace(current=known[0])
        for one in known[1]:
            if isinstance(one, Instruct):
                agent = NAMES.index(one.agent)
                world = self.send(
                    world, Message(one.op.value, agent, one.agent_epoch, world.rev, one.assignment)
                )
            elif isinstance(one, PersistReplicas):
                world = world._replace(pending=one.replicas)
        return world

    def moves(self, world: World) -> Iterator[World]:
        yield from self.owner_moves(world)
        for index in range(2):
            yield from self.agent_moves(world, index)
        for at, message in enumerate(world.net):
            rest = world.net[:at] + world.net[at + 1 :]
            if message in world.net[:at]:
                continue
            lost = world._replace(net=rest)
            yield lost
            yield self.deliver(lost, message)
            if world.doubles_left and len(world.net) < self.in_flight:
                yield self.deliver(world._replace(doubles_left=world.doubles_left - 1), message)

    def owner_moves(self, world: World) -> Iterator[World]:
        current = SETS.values[world.current]
        state, assignment = current.state, world.assignment + 1
        if world.assigns_left and not world.pending and state in {SetState.ABSENT, SetState.REPLICATING}:
            for index, name in enumerate(NAMES):
                if world.heard[index] >= 0 and all(r.agent != name for r in current.replicas):
                    event = Assign(name, world.known[index], assignment)
                    yield self.feed(
                        world._replace(assignment=assignment, assigns_left=world.assigns_left - 1), event
                    )
        if world.pending:
            durable = world._replace(record=world.pending, pending=())
            yield self.feed(durable, ReplicaPersisted(world.assignment))
        if world.removes_left and state not in {SetState.ABSENT, SetState.REMOVING, SetState.RECOVERING}:
            yield self.feed(world._replace(removes_left=world.removes_left - 1), Remove())
        if world.owners_left:
            restored = SETS.number(replication.restore_set("u", world.record))
            yield world._replace(
                rev=2,
                current=restored,
                pending=(),
                heard=(-1, -1),
                owners_left=0,
                # the epochs of the record; one that was never durable is assigned again, and no agent has
                # received it
                assignment=max((r.assignment for r in world.record), default=0),
            )
        for index in range(2):
            if world.heard[index] < 0:
                announce = Message("announce", index, world.agents[index].incarnation, world.rev)
                if announce not in world.net:
                    yield self.send(world, announce)

    def hear(self, world: World, message: Message) -> World:
        """An agent's report reaches the owner."""
        index = message.agent
        first = world.heard[index] < 0
        if message.rev != world.rev or message.incarnation < world.known[index]:
            return world
        if message.incarnation > world.known[index]:
            world = world._replace(known=put(world.known, index, message.incarnation))
            world = self.feed(world, AgentLost(NAMES[index], message.incarnation - 1))
            first = True
        if (first and message.kind != "sync") or (not first and message.seq <= world.heard[index]):
            return world
        world = world._replace(heard=put(world.heard, index, message.seq))
        report = ReplicaReport(
            NAMES[index], message.incarnation, message.assignment, UnitPhase(message.state)
        )
        return self.feed(world, report)

    # agents

    def agent_moves(self, world: World, index: int) -> Iterator[World]:
        agent = world.agents[index]
        held = HELD.values[agent.held]
        if held.state is UnitPhase.PREPARING:
            yield self.act(world, index, Prepared(held.assignment))
        if held.state is UnitPhase.STOPPING:
            yield self.act(world, index, WorkerEnded(held.assignment))
        if world.failures_left and held.state in {
            UnitPhase.PREPARING,
            UnitPhase.PREPARED,
            UnitPhase.REPLICATING,
        }:
            failed = world._replace(failures_left=world.failures_left - 1)
            yield self.act(failed, index, WorkerEnded(held.assignment, error="worker died"))
        if not any(m.agent == index and m.kind == "report" for m in world.net):
            yield self.report(world, index, "report")
        if world.crashes_left:
            fresh = Agent(rev=0, incarnation=agent.incarnation + 1)
            crashed = world._replace(
                agents=put(world.agents, index, fresh), crashes_left=world.crashes_left - 1
            )
            yield crashed
        if agent.rev == 0:  # its hello is answered by an announce of whoever is owner
            yield self.send(world, Message("announce", index, agent.incarnation, world.rev))

    def act(self, world: World, index: int, event: agent_unit.UnitEvent) -> World:
        agent = world.agents[index]
        held, effects = agent_unit.step_agent_unit(HELD.values[agent.held], event, 0.0)
        writes = agent.writes or any(isinstance(e, StartWorker) for e in effects)
        if isinstance(event, WorkerEnded):
            writes = False
        return world._replace(
            agents=put(world.agents, index, agent._replace(held=HELD.number(held), writes=writes))
        )

    def report(self, world: World, index: int, kind: str) -> World:
        agent = world.agents[index]
        agent = agent._replace(seq=agent.seq + 1)
        held = HELD.values[agent.held]
        message = Message(
            kind, index, agent.incarnation, agent.rev, held.assignment, agent.seq, held.state.value
        )
        return self.send(world._replace(agents=put(world.agents, index, agent)), message)

    def deliver(self, world: World, message: Message) -> World:
        index = message.agent
        agent = world.agents[index]
        if message.kind in {"report", "sync"}:
            return self.hear(world, message)
        if message.incarnation != agent.incarnation or message.rev < agent.rev:
            return world
        if message.kind == "announce":
            if message.rev > agent.rev:
                held = HELD.number(change(HELD.values[agent.held], closed=0))
                agent = agent._replace(rev=message.rev, held=held)
            return self.report(world._replace(agents=put(world.agents, index, agent)), index, "sync")
        if message.rev > agent.rev:
            return world
        world = self.act(
            world, index, Instruction(UnitOperation(message.kind), message.assignment, None, 1.0)
        )
        return self.report(world, index, "report")

    def send(self, world: World, message: Message) -> World:
        """A full network loses the message."""
        return world._replace(net=(*world.net, message)) if len(world.net) < self.in_flight else world

    # search

    def explore(self, most: int) -> tuple[int, int]:
        """Breadth first; returns (states, states from which no goal can be reached)."""
        numbers = {canonical(self.start): 0}
        queue = deque([canonical(self.start)])
        back: list[list[int]] = [[]]
        goals: list[int] = []
        while queue:
            world = queue.popleft()
            mine = numbers[world]
            safe(world)
            if goal(world):
                goals.append(mine)
            for after in map(canonical, self.moves(world)):
                number = numbers.get(after)
                if number is None:
                    number = numbers[after] = len(numbers)
                    back.append([])
                    queue.append(after)
                    assert number < most, "more states than expected"
                back[number].append(mine)
        return len(numbers), len(numbers) - reachable(back, goals)


def put(pair: tuple[T, T], index: int, value: T) -> tuple[T, T]:
    return (value, pair[1]) if index == 0 else (pair[0], value)


def canonical(world: World) -> World:
    """Number each agent's messages from 1 without holes, and sort the network: equal futures become one
    state."""
    agents, heard = list(world.agents), list(world.heard)
    net = list(world.net)
    if not any(m.seq for m in net):
        agents = [a._replace(seq=0) for a in agents]
        return world._replace(
            agents=(agents[0], agents[1]),
            heard=(min(heard[0], 0), min(heard[1], 0)),
            net=tuple(sorted(net)),
        )
    for index in range(2):
        mine = {m.seq for m in net if m.agent == index and m.seq and m.seq > heard[index]}
        order = {seq: at + 1 for at, seq in enumerate(sorted(mine))}
        net = [
            m._replace(seq=order.get(m.seq, 0)) if m.agent == index and m.kind in {"report", "sync"} else m
            for m in net
        ]
        heard[index] = min(heard[index], 0)
        agents[index] = agents[index]._replace(seq=len(order))
    net = [m for m in net if m.seq or m.kind not in {"report", "sync"}]  # late reports are dropped anyway
    return world._replace(agents=(agents[0], agents[1]), heard=(heard[0], heard[1]), net=tuple(sorted(net)))


def safe(world: World) -> None:
    writers = [NAMES[i] for i in range(2) if world.agents[i].writes]
    assert len(writers) <= 1, f"{writers} write"


def goal(world: World) -> bool:
    """One agent replicates what the set says, or nothing runs anywhere."""
    busy = [held for a in world.agents if (held := HELD.values[a.held]).state is not UnitPhase.ABSENT]
    current = SETS.values[world.current]
    primary = current.primary
    if current.state is SetState.REPLICATING and primary is not None:
        return [(h.assignment, h.state) for h in busy] == [(primary.assignment, UnitPhase.REPLICATING)]
    return current.state is SetState.ABSENT and not busy


def reachable(back: list[list[int]], goals: list[int]) -> int:
    seen, todo = set(goals), list(goals)
    while todo:
        for before in back[todo.pop()]:
            if before not in seen:
                seen.add(before)
                todo.append(before)
    return len(seen)


#: What happens; messages in flight; whether `make test` runs it (the others are marked slow).
RUNS = [
    (World(owners_left=0), 3, True),
    (World(owners_left=0, crashes_left=1, doubles_left=0), 2, False),
    (World(doubles_left=0, assigns_left=1, removes_left=1), 2, False),
    (World(doubles_left=0), 2, True),
    (World(doubles_left=0, failures_left=1), 2, False),
    (World(removes_left=1), 2, False),
    (World(), 3, False),
]


@pytest.mark.parametrize(
    ("start", "in_flight"),
    [
        pytest.param(w, n, marks=[] if quick else [pytest.mark.slow, pytest.mark.timeout(0)])
        for w, n, quick in RUNS
    ],
)
def test_no_two_write_and_no_state_is_a_dead_end(start: World, in_flight: int) -> None:
    explorer = Explorer(start, in_flight)
    states, dead_ends = explorer.explore(5_000_000)
    print(f"{states} states, {len(explorer.cells)} cells")
    assert states > 1_000
    assert dead_ends == 0


def test_the_search_finds_two_writers_when_stopping_counts_as_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """tiflow#6538 put back: the search can fail."""
    for state, role, seen in list(CELLS):
        if seen is ReplicaPhase.STOPPING:
            monkeypatch.setitem(CELLS, (state, role, seen), (ReplicaAction.DROP,))
    with pytest.raises(AssertionError, match="write"):
        Explorer(World(owners_left=0, doubles_left=0), 2).explore(1_000_000)
