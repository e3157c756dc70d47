"""The coordinator's server with agents and a control log that a test plays."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.control.codec import Candidate, RecordChange
from coordinator.control.events import Elected, RecordsCommitted, WriteConfirmed
from coordinator.core import agent
from coordinator.core.agent_unit import PrepareWorker, RemoveWorker, StartWorker
from coordinator.core.leader.state import (
    LeaderCommand,
    LeaderConfig,
)
from coordinator.core.messages import (
    Down,
)
from coordinator.core.records import DurableRecord
from coordinator.server.agent_machine import AgentMachine, MailWaiting
from coordinator.server.leader_machine import LeaderMachine
from coordinator.server.operators.api import View
from coordinator.server.requests import (
    CommandRequested,
    InventoryRead,
    PendingAnswer,
    StreamJoined,
    TickDue,
    ViewRequested,
)
from coordinator.transport.events import LeaderInfo
from schemas.units import Prepared, UnitProgress, UnitProgressed, WorkerEnded
from tests.kits.coordination import inventory


@dataclass
class PlayedCoordinator:
    """Everything outside of the owner's machine: a control log that commits at once or later, agents that
    obey."""

    commits: bool = True
    progress_every: float = 1.0
    now: float = 100.0
    leaders: list[LeaderInfo] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    resigned: list[str] = field(default_factory=list)
    fences: list[tuple[int, str, str, int]] = field(default_factory=list)
    records: dict[str, DurableRecord] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)  # keys of pipelines, as often as they were stored
    agents: dict[str, tuple[AgentMachine, agent.AgentState]] = field(default_factory=dict)
    inbox: list[object] = field(default_factory=list)
    ticks: int = 0

    def __post_init__(self) -> None:
        config = LeaderConfig(balance_every=1e9, progress_every=self.progress_every)
        self.machine = LeaderMachine(
            lambda: Candidate("me", "127.0.0.1:1", "127.0.0.1:2"),
            config,
            self,
            clock=lambda: self.now,
            wall=lambda: 1_700_000_000.0,
        )

    # Outside

    def push_messages(self, agent: str, messages: list[Down]) -> int:
        if agent not in self.agents:
            return 0
        for message in messages:
            self._agent(agent, _received(message))
        return len(messages)

    def append_changes(self, rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        self.stored += [key for key, _ in changes if key.startswith("pipeline/")]
        for key, record in changes:
            if record is None:
                self.records.pop(key, None)
            else:
                self.records[key] = record
        self.waiting.append((rev, token))
        if self.commits:
            self.commit()

    def resign_term(self, why: str) -> None:
        self.resigned.append(why)

    def queue_fence(self, rev: int, unit: str, uid: str, assignment: int) -> None:
        self.fences.append((rev, unit, uid, assignment))

    def set_leader(self, leader: LeaderInfo) -> None:
        self.leaders.append(leader)

    def set_term(self, rev: int) -> None:
        self.terms.append(rev)

    def finish_tick(self, took: float) -> None:
        self.ticks += 1

    def get_counters(self) -> dict[str, int]:
        return {"played": 1}

    # the test's side

    def commit(self) -> None:
        while self.waiting:
            rev, token = self.waiting.pop(0)
            self.inbox.append(RecordsCommitted(rev, token))

    def settle(self) -> None:
        for _ in range(10_000):
            if not self.inbox:
                return
            self.machine.handle_message(self.inbox.pop(0))
            self.machine.end_round()
        raise AssertionError("it never settles")

    def report_event(self, *messages: object) -> None:
        self.inbox += messages
        self.settle()

    def elect(self, rev: int = 10) -> PlayedCoordinator:
        self.report_event(Elected(rev, dict(self.records)), InventoryRead(rev, inventory(3)))
        return self

    def join(self, name: str) -> None:
        machine = AgentMachine(name, len(self.agents) + 1, 100)
        self.agents[name] = (machine, agent.AgentState(name, f"{name}-1"))
        self.report_event(StreamJoined(machine))
        self._agent(name, agent.AgentTick())
        self.settle()

    def _agent(self, name: str, event: agent.AgentEvent) -> None:
        machine, state = self.agents[name]
        state, effects = agent.step_agent(state, event, self.now)
        self.agents[name] = (machine, state)
        for effect in effects:
            match effect:
                case agent.SendUp(message):
                    if machine.put_messages([message]):
                        self.inbox.append(MailWaiting(machine))
                case PrepareWorker(unit, assignment):
                    self._agent(name, agent.WorkerEventReceived(unit, Prepared(assignment)))
                case StartWorker(unit, assignment):
                    self._agent(
                        name,
                        agent.WorkerEventReceived(
                            unit, UnitProgressed(assignment, UnitProgress(7, 8, (0, 1, 2, 3)), 10)
                        ),
                    )
                case RemoveWorker(unit, assignment):
                    self._agent(
                        name, agent.WorkerEventReceived(unit, WorkerEnded(assignment, UnitProgress(7, 8)))
                    )

    def fail(self, name: str, unit: str, why: str) -> None:
        assignment = self.agents[name][1].units.by_name[unit].assignment
        self._agent(name, agent.WorkerEventReceived(unit, WorkerEnded(assignment, None, why)))
        self.settle()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            if self.terms and self.terms[-1]:
                self.report_event(WriteConfirmed(self.terms[-1], self.now))
            self.report_event(TickDue())
            for name in self.agents:
                self._agent(name, agent.AgentTick())
            self.settle()

    def command(self, command: LeaderCommand) -> PendingAnswer[None]:
        asked: PendingAnswer[None] = PendingAnswer()
        self.report_event(CommandRequested(command, asked))
        return asked

    def view(self) -> View:
        asked: PendingAnswer[View] = PendingAnswer()
        self.report_event(ViewRequested(asked))
        return asked.wait_for_value(0)

    def states(self) -> dict[str, tuple[str, str | None]]:
        return {row.unit: (row.state, row.agent) for row in self.view().units}


def _received(message: Down) -> agent.AgentEvent:
    return agent.InstructionReceived(message)


def replicating(played: PlayedCoordinator, *names: str) -> PlayedCoordinator:
    for name in names:
        played.join(name)
    played.run(2.0)
    assert {state for state, _ in played.states().values()} == {"replicating"}
    return played
