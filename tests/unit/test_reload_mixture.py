"""Nothing runs under a mixture: an owner, two agents, files that are edited, brought and lost, messages that
are lost, restarts of everybody.

After every step: a worker whose assignment is not below its part's number runs the active version of that
part. Once it is calm: every unit runs, under the active configuration, on agents that have it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

import pytest

from coordinator.core import agent
from coordinator.core.agent import AgentState
from coordinator.core.agent_state import FollowedConfiguration
from coordinator.core.agent_unit import PrepareWorker, RemoveWorker, StartWorker
from coordinator.core.leader import steps
from coordinator.core.leader.configuration import get_active_version, get_config_part
from coordinator.core.leader.state import (
    Confirmed,
    Fence,
    Fenced,
    Inventory,
    LeaderConfig,
    LeaderDecision,
    LeaderEvent,
    Persist,
    Persisted,
    Received,
    Reload,
    ReloadEnded,
    SendMessage,
    Tick,
)
from coordinator.core.messages import ConfigVersion, Down, FileAnswer, Up
from coordinator.core.records import DurableRecord
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import InventoryUnit, UnitKind
from schemas.problems import Problem
from schemas.units import Prepared, UnitProgress, UnitProgressed, WorkerEnded
from tests.kits import invariants

CONFIG = LeaderConfig(
    interval=0.5, lease=4.0, leader_lease=1e9, balance_every=1e9, reload_timeout=6.0, doubt=1e9
)
UNITS = (
    InventoryUnit("capture/s", UnitKind.CAPTURE, "s"),
    *(InventoryUnit(f"apply/{name}/t", UnitKind.APPLY, "s", name, "1") for name in "pq"),
)
PARTS = [get_config_part(unit) for unit in UNITS]
PART = {unit.unit: get_config_part(unit) for unit in UNITS}
File = tuple[int, ...]


def digest(file: File) -> str:
    return ".".join(map(str, file))


def parts(file: File) -> dict[str, str]:
    return dict(zip(PARTS, map(str, file), strict=True))


def inventory(file: File) -> Inventory:
    return Inventory(UNITS, {"p": ("s",), "q": ("s",)}, digest(file), parts(file))


class Machine:
    """An agent's: its file, the process with its workers. `workers`: unit → (assignment, its part's
    version)."""

    def __init__(self, name: str, file: File) -> None:
        self.name, self.file, self.starts = name, file, 0
        self.restart()

    def restart(self) -> None:
        self.starts += 1
        configuration = FollowedConfiguration(ConfigVersion(digest(self.file)))
        self.state = AgentState(self.name, f"{self.name}-{self.starts}", configuration=configuration)
        self.held = self.file
        self.workers: dict[str, tuple[int, str]] = {}
        self.inbox: deque[Down] = deque()
        self.outbox: deque[Up] = deque()

    def do(self, event: agent.AgentEvent, now: float) -> None:
        self.state, effects = agent.step_agent(self.state, event, now)
        for effect in effects:
            match effect:
                case agent.SendUp(message):
                    self.outbox.append(message)
                case agent.ReadFile(asked):
                    self.do(agent.FileRead(FileAnswer(asked, digest(self.file))), now)
                case agent.TakeConfig(expected):
                    taken = digest(self.file) == expected.digest
                    self.held = self.file if taken else self.held
                    self.do(agent.ConfigTaken(expected if taken else None), now)
                case PrepareWorker(unit, assignment):
                    self.workers[unit] = assignment, parts(self.held)[PART[unit]]
                    self.do(agent.WorkerEventReceived(unit, Prepared(assignment)), now)
                case StartWorker(unit, assignment):
                    self.do(
                        agent.WorkerEventReceived(unit, UnitProgressed(assignment, UnitProgress(1, 1))), now
                    )
                case RemoveWorker(unit, assignment):
                    self.workers.pop(unit, None)
                    self.do(agent.WorkerEventReceived(unit, WorkerEnded(assignment)), now)


class ReloadedCluster:
    """`file`: the coordinator's; `held`: what it goes by."""

    def __init__(self, seed: int) -> None:
        self.random, self.now, self.versions = random.Random(seed), 100.0, 0
        self.file: File = (0, 0, 0)
        self.machines = {name: Machine(name, self.file) for name in "ab"}
        self.records: dict[str, DurableRecord] = {}
        self.rev = 10
        self.ended: list[tuple[Problem, ...]] = []
        self.reading: File = self.file
        self.elect()

    # the owner

    def elect(self) -> None:
        """Another coordinator leads, whose file is the same by now, or a process starts: either goes by its
        file."""
        self.rev, self.held = self.rev + 1, self.file
        self.state, out = steps.begin_leader_term("o", self.rev, self.records, CONFIG, self.now)
        for machine in self.machines.values():
            machine.inbox.clear()
            machine.outbox.clear()
        self.carry_out(out)

    def do(self, event: LeaderEvent) -> None:
        self.state, out = steps.step_leader(self.state, event, self.now)
        invariants.check_leader_invariants(self.state)
        self.carry_out(out)

    def carry_out(self, out: list[LeaderDecision]) -> None:
        for effect in out:
            match effect:
                case SendMessage(name, message):
                    self.machines[name].inbox.append(message)
                case Persist(token, records):
                    for key, record in records:
                        self.records.pop(key, None)
                        if record is not None:
                            self.records[key] = record
                    self.do(Persisted(token))
                case Fence(unit, _, assignment):
                    self.do(Fenced(unit, assignment))
                case ReloadEnded(_, _, refused):
                    self.ended.append(refused)
                    self.held = self.held if refused else self.reading

    # what happens

    def step(self) -> None:
        self.random.choices(*zip(*self.choices(), strict=True))[0]()

    def choices(self) -> list[tuple[Callable[[], None], float]]:
        return [
            (self.deliver, 30), (self.tick, 20), (self.edit, 1), (self.bring, 3), (self.reload, 2),
            (self.lose, 1), (self.restart_agent, 0.3), (self.elect, 0.3),
        ]  # fmt: skip

    def any(self) -> Machine:
        return self.random.choice(list(self.machines.values()))

    def deliver(self) -> None:
        machine = self.any()
        if self.random.random() < 0.5 and machine.inbox:
            machine.do(agent.InstructionReceived(machine.inbox.popleft()), self.now)
        elif machine.outbox:
            self.do(Received(machine.outbox.popleft()))

    def tick(self) -> None:
        self.now += 0.1
        self.do(Confirmed(self.now))
        self.do(inventory(self.held))
        self.do(Tick())
        for machine in self.machines.values():
            machine.do(agent.AgentTick(), self.now)

    def edit(self) -> None:
        self.versions += 1
        changed = self.random.randrange(len(self.file))
        self.file = tuple(self.versions if i == changed else each for i, each in enumerate(self.file))

    def bring(self) -> None:
        self.any().file = self.file

    def reload(self) -> None:
        """The leader reads its file; nothing is read while a reload is under way (server.coordinator holds a
        lock)."""
        if self.state.configuration.reloading is not None:
            return
        self.reading = self.file
        new, old = parts(self.file), parts(self.held)
        changed = frozenset(part for part in PARTS if new[part] != old[part])
        self.do(Reload(digest(self.file), new, changed))

    def lose(self) -> None:
        machine = self.any()
        machine.inbox.clear()
        machine.outbox.clear()

    def restart_agent(self) -> None:
        self.any().restart()

    # the judge

    def judge(self) -> None:
        known = self.state.configuration.record
        if known is None:
            return
        now = {part: (seen, since) for part, seen, since in known.parts}
        for machine in self.machines.values():
            for unit, (assignment, runs) in machine.workers.items():
                seen, since = now[PART[unit]]
                assert assignment < since or runs == seen, (machine.name, unit, assignment, runs, now)

    def calm(self) -> None:
        """Everybody has the same file, a reload is asked for until it is in force, and nothing is lost."""
        for machine in self.machines.values():
            machine.file = self.file
        for step in range(600):
            self.tick()
            for machine in self.machines.values():
                while machine.inbox or machine.outbox:
                    if machine.inbox:
                        machine.do(agent.InstructionReceived(machine.inbox.popleft()), self.now)
                    if machine.outbox:
                        self.do(Received(machine.outbox.popleft()))
            if step % 100 == 50 and (
                self.state.configuration.record is None
                or self.state.configuration.record.digest != digest(self.file)
            ):
                self.reload()
            self.judge()


@pytest.mark.parametrize("start", range(0, 80, 20))
def test_nothing_runs_under_a_mixture(start: int) -> None:
    for seed in range(start, start + 20):
        cluster = ReloadedCluster(seed)
        for _ in range(800):
            cluster.step()
            cluster.judge()
        cluster.calm()
        known = cluster.state.configuration.record
        assert known is not None
        assert known.digest == digest(cluster.file), seed
        assert {current.state for current in cluster.state.sets.by_unit.values()} == {SetState.REPLICATING}, (
            seed
        )
        runs = {
            unit: worker for machine in cluster.machines.values() for unit, worker in machine.workers.items()
        }
        assert {unit: seen for unit, (_, seen) in runs.items()} == {
            unit: parts(cluster.file)[part] for unit, part in PART.items()
        }, seed
        assert {
            m.state.configuration and m.state.configuration.version for m in cluster.machines.values()
        } == {get_active_version(cluster.state)}, seed


def test_the_model_meets_what_it_is_about() -> None:
    """Reloads that are in force, and refused ones, by files and by silence."""
    ended: list[tuple[Problem, ...]] = []
    for seed in range(20):
        cluster = ReloadedCluster(seed)
        for _ in range(800):
            cluster.step()
        ended += cluster.ended
    assert ended.count(()) > 20
    assert any("another configuration" in problem.what for problems in ended for problem in problems)
