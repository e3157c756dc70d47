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


class ExploredState(NamedTuple):
    """`held` and `current` are numbers of interned values: a state is hashed a million times. `*_left`: how
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
    def __init__(self, start: ExploredState, in_flight: int) -> None:
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

    def feed(self, explored: ExploredState, event: SetInput) -> ExploredState:
        known = self.steps.get((explored.current, event))
        if known is None:
            known = self.steps[explored.current, event] = self.step(SETS.values[explored.current], event)
        explored = explored._replace(current=known[0])
        for one in known[1]:
            if isinstance(one, Instruct):
                agent = NAMES.index(one.agent)
                explored = self.send(
                    explored, Message(one.op.value, agent, one.agent_epoch, explored.rev, one.assignment)
                )
            elif isinstance(one, PersistReplicas):
                explored = explored._replace(pending=one.replicas)
        return explored

    def moves(self, explored: ExploredState) -> Iterator[ExploredState]:
        yield from self.owner_moves(explored)
        for index in range(2):
            yield from self.agent_moves(explored, index)
        for at, message in enumerate(explored.net):
            rest = explored.net[:at] + explored.net[at + 1 :]
            if message in explored.net[:at]:
                continue
            lost = explored._replace(net=rest)
            yield lost
            yield self.deliver(lost, message)
            if explored.doubles_left and len(explored.net) < self.in_flight:
                yield self.deliver(explored._replace(doubles_left=explored.doubles_left - 1), message)

    def owner_moves(self, explored: ExploredState) -> Iterator[ExploredState]:
        current = SETS.values[explored.current]
        state, assignment = current.state, explored.assignment + 1
        if (
            explored.assigns_left
            and not explored.pending
            and state in {SetState.ABSENT, SetState.REPLICATING}
        ):
            for index, name in enumerate(NAMES):
                if explored.heard[index] >= 0 and all(r.agent != name for r in current.replicas):
                    event = Assign(name, explored.known[index], assignment)
                    yield self.feed(
                        explored._replace(assignment=assignment, assigns_left=explored.assigns_left - 1),
                        event,
                    )
        if explored.pending:
            durable = explored._replace(record=explored.pending, pending=())
            yield self.feed(durable, ReplicaPersisted(explored.assignment))
        if explored.removes_left and state not in {SetState.ABSENT, SetState.REMOVING, SetState.RECOVERING}:
            yield self.feed(explored._replace(removes_left=explored.removes_left - 1), Remove())
        if explored.owners_left:
            restored = SETS.number(replication.restore_set("u", explored.record))
            yield explored._replace(
                rev=2,
                current=restored,
                pending=(),
                heard=(-1, -1),
                owners_left=0,
                # the epochs of the record; one that was never durable is assigned again, and no agent has
                # received it
                assignment=max((r.assignment for r in explored.record), default=0),
            )
        for index in range(2):
            if explored.heard[index] < 0:
                announce = Message("announce", index, explored.agents[index].incarnation, explored.rev)
                if announce not in explored.net:
                    yield self.send(explored, announce)

    def hear(self, explored: ExploredState, message: Message) -> ExploredState:
        """An agent's report reaches the owner."""
        index = message.agent
        first = explored.heard[index] < 0
        if message.rev != explored.rev or message.incarnation < explored.known[index]:
            return explored
        if message.incarnation > explored.known[index]:
            explored = explored._replace(known=put(explored.known, index, message.incarnation))
            explored = self.feed(explored, AgentLost(NAMES[index], message.incarnation - 1))
            first = True
        if (first and message.kind != "sync") or (not first and message.seq <= explored.heard[index]):
            return explored
        explored = explored._replace(heard=put(explored.heard, index, message.seq))
        report = ReplicaReport(
            NAMES[index], message.incarnation, message.assignment, UnitPhase(message.state)
        )
        return self.feed(explored, report)

    # agents

    def agent_moves(self, explored: ExploredState, index: int) -> Iterator[ExploredState]:
        agent = explored.agents[index]
        held = HELD.values[agent.held]
        if held.state is UnitPhase.PREPARING:
            yield self.act(explored, index, Prepared(held.assignment))
        if held.state is UnitPhase.STOPPING:
            yield self.act(explored, index, WorkerEnded(held.assignment))
        if explored.failures_left and held.state in {
            UnitPhase.PREPARING,
            UnitPhase.PREPARED,
            UnitPhase.REPLICATING,
        }:
            failed = explored._replace(failures_left=explored.failures_left - 1)
            yield self.act(failed, index, WorkerEnded(held.assignment, error="worker died"))
        if not any(m.agent == index and m.kind == "report" for m in explored.net):
            yield self.report(explored, index, "report")
        if explored.crashes_left:
            fresh = Agent(rev=0, incarnation=agent.incarnation + 1)
            crashed = explored._replace(
                agents=put(explored.agents, index, fresh), crashes_left=explored.crashes_left - 1
            )
            yield crashed
        if agent.rev == 0:  # its hello is answered by an announce of whoever is owner
            yield self.send(explored, Message("announce", index, agent.incarnation, explored.rev))

    def act(self, explored: ExploredState, index: int, event: agent_unit.UnitEvent) -> ExploredState:
        agent = explored.agents[index]
        held, effects = agent_unit.step_agent_unit(HELD.values[agent.held], event, 0.0)
        writes = agent.writes or any(isinstance(e, StartWorker) for e in effects)
        if isinstance(event, WorkerEnded):
            writes = False
        return explored._replace(
            agents=put(explored.agents, index, agent._replace(held=HELD.number(held), writes=writes))
        )

    def report(self, explored: ExploredState, index: int, kind: str) -> ExploredState:
        agent = explored.agents[index]
        agent = agent._replace(seq=agent.seq + 1)
        held = HELD.values[agent.held]
        message = Message(
            kind, index, agent.incarnation, agent.rev, held.assignment, agent.seq, held.state.value
        )
        return self.send(explored._replace(agents=put(explored.agents, index, agent)), message)

    def deliver(self, explored: ExploredState, message: Message) -> ExploredState:
        index = message.agent
        agent = explored.agents[index]
        if message.kind in {"report", "sync"}:
            return self.hear(explored, message)
        if message.incarnation != agent.incarnation or message.rev < agent.rev:
            return explored
        if message.kind == "announce":
            if message.rev > agent.rev:
                held = HELD.number(change(HELD.values[agent.held], closed=0))
                agent = agent._replace(rev=message.rev, held=held)
            return self.report(explored._replace(agents=put(explored.agents, index, agent)), index, "sync")
        if message.rev > agent.rev:
            return explored
        explored = self.act(
            explored, index, Instruction(UnitOperation(message.kind), message.assignment, None, 1.0)
        )
        return self.report(explored, index, "report")

    def send(self, explored: ExploredState, message: Message) -> ExploredState:
        """A full network loses the message."""
        return (
            explored._replace(net=(*explored.net, message))
            if len(explored.net) < self.in_flight
            else explored
        )

    # search

    def explore(self, most: int) -> tuple[int, int]:
        """Breadth first; returns (states, states from which no goal can be reached)."""
        numbers = {canonical(self.start): 0}
        queue = deque([canonical(self.start)])
        back: list[list[int]] = [[]]
        goals: list[int] = []
        while queue:
            explored = queue.popleft()
            mine = numbers[explored]
            safe(explored)
            if goal(explored):
                goals.append(mine)
            for after in map(canonical, self.moves(explored)):
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


def canonical(explored: ExploredState) -> ExploredState:
    """Number each agent's messages from 1 without holes, and sort the network: equal futures become one
    state."""
    agents, heard = list(explored.agents), list(explored.heard)
    net = list(explored.net)
    if not any(m.seq for m in net):
        agents = [a._replace(seq=0) for a in agents]
        return explored._replace(
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
    return explored._replace(
        agents=(agents[0], agents[1]), heard=(heard[0], heard[1]), net=tuple(sorted(net))
    )


def safe(explored: ExploredState) -> None:
    writers = [NAMES[i] for i in range(2) if explored.agents[i].writes]
    assert len(writers) <= 1, f"{writers} write"


def goal(explored: ExploredState) -> bool:
    """One agent replicates what the set says, or nothing runs anywhere."""
    busy = [held for a in explored.agents if (held := HELD.values[a.held]).state is not UnitPhase.ABSENT]
    current = SETS.values[explored.current]
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
    (ExploredState(owners_left=0), 3, True),
    (ExploredState(owners_left=0, crashes_left=1, doubles_left=0), 2, False),
    (ExploredState(doubles_left=0, assigns_left=1, removes_left=1), 2, False),
    (ExploredState(doubles_left=0), 2, True),
    (ExploredState(doubles_left=0, failures_left=1), 2, False),
    (ExploredState(removes_left=1), 2, False),
    (ExploredState(), 3, False),
]


@pytest.mark.parametrize(
    ("start", "in_flight"),
    [
        pytest.param(w, n, marks=[] if quick else [pytest.mark.slow, pytest.mark.timeout(0)])
        for w, n, quick in RUNS
    ],
)
def test_no_two_write_and_no_state_is_a_dead_end(start: ExploredState, in_flight: int) -> None:
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
        Explorer(ExploredState(owners_left=0, doubles_left=0), 2).explore(1_000_000)
