"""The leader's processor time a heartbeat and a unit taken over, without threads, clock or network: only what
the rounds themselves cost.

The leader's machine and the agents' sessions on the batch system, one poller driven by hand; agents of the
real core answer between the rounds, and a log in memory commits what it was given. Half of the agents fall
silent (docs/adr/0018).

python -m bench.leader_cost [--units 2000] [--agents 20] [--times 5]
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import structlog

from bench.heartbeats import Simulated, agent_name, held, inventory, records
from coordinator.batch import BatchSystem
from coordinator.control.codec import Candidate, RecordChange, encode_batches
from coordinator.control.events import Elected, RecordsCommitted, WriteConfirmed
from coordinator.core import agent as core
from coordinator.core.agent_state import HeldUnits, ObeyedLeader
from coordinator.core.leader.state import LeaderConfig
from coordinator.core.messages import Up
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.batch_handler import BatchHandler
from coordinator.server.leader_machine import LeaderMachine
from coordinator.server.requests import InventoryRead, StreamJoined, TickDue

STEP_S, BEAT_S, STEADY_S = 0.1, 0.5, 20.0


@dataclass
class Clocked(Simulated):
    """An agent with the bench's clock."""

    clock: list[float] = field(default_factory=list)

    def step(self, event: core.AgentEvent) -> None:
        self.todo.append(event)
        while self.todo:
            self.state, effects = core.step_agent(self.state, self.todo.pop(0), self.clock[0])
            for effect in effects:
                self._carry_out(effect)


class Stage:
    """`server.leader_machine.Outside`, and everything else; one thread."""

    def __init__(self, units: int, agents: int) -> None:
        self.clock = [time.monotonic()]
        config = LeaderConfig(interval=BEAT_S, lease=3.0, balance_every=1e9)
        me = Candidate("bench", "127.0.0.1:1")
        self.machine = LeaderMachine(lambda: me, config, self, clock=lambda: self.clock[0])
        self.system: BatchSystem[AgentMachine, Up] = BatchSystem(
            self.machine, lambda _: BatchHandler(self.system.router.send_control)
        )
        self.poller = self.system.make_poller(0)
        self.inbox: list[tuple[str, Any]] = []
        self.pending: list[int] = []
        self.counts: Counter[str] = Counter()
        self.cpu = 0.0
        self.agents = {agent_name(n): self._agent(n, units, agents) for n in range(agents)}
        self.lost = {unit for n in range(agents // 2) for unit in held(units, agents, n)}
        self.dead: set[str] = set()
        self.notify(Elected(1, records(units, agents)), InventoryRead(1, inventory(units)))

    def _agent(self, number: int, units: int, agents: int) -> Clocked:
        name = agent_name(number)
        agent = Clocked(name, core.AgentState(name, f"{name}-i"), clock=self.clock)
        agent.state.leader = ObeyedLeader(agent_epoch=number + 1)
        agent.state.units = HeldUnits(held(units, agents, number))
        machine = AgentMachine(name, number, 10_000)
        self.system.router.register_machine(number, machine)
        self.notify(StreamJoined(machine))

        def send(message: Up) -> bool:
            self.counts["heard"] += 1
            self.system.router.send(number, message)
            return True

        agent.send = send
        return agent

    def notify(self, *messages: object) -> None:
        for message in messages:
            self.system.router.send_control(message)

    # Outside

    def push_messages(self, agent: str, messages: Any) -> int:
        some = messages if isinstance(messages, list) else [messages]
        self.inbox += [(agent, message) for message in some]
        self.counts["pushes"] += 1
        self.counts["said"] += len(some)
        return len(some)

    def append_changes(self, rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        self.pending.append(token)
        self.counts["appends"] += 1
        self.counts["records"] += len(changes)
        self.counts["record bytes"] += sum(map(len, encode_batches(rev, changes)))

    def resign_term(self, why: str) -> None:
        raise RuntimeError(f"resigned: {why}")

    def queue_fence(self, rev: int, unit: str, uid: str, assignment: int) -> None: ...

    def set_leader(self, leader: Any) -> None: ...

    def set_term(self, rev: int) -> None: ...

    def finish_tick(self, took: float) -> None: ...

    def get_counters(self) -> dict[str, int]:
        return {}

    # time

    def step(self) -> None:
        """A tick, heartbeats that are due, and everything that comes of them."""
        self.clock[0] += STEP_S
        self.notify(WriteConfirmed(1, self.clock[0]), TickDue())
        for name, agent in self.agents.items():
            if name not in self.dead and self.clock[0] >= agent.state.times.next_heartbeat:
                agent.step(core.AgentTick())
        while self._busy() or self.pending or self.inbox:
            self._rounds()
            tokens, self.pending = self.pending, []
            self.counts["transactions"] += bool(tokens)
            self.notify(*(RecordsCommitted(1, token) for token in tokens))
            reported, self.inbox = self.inbox, []
            for name, message in reported:
                if name not in self.dead:
                    self.agents[name].step(core.InstructionReceived(message))

    def _busy(self) -> bool:
        return bool(len(self.system.ready) or self.poller._batch or self.poller._control)

    def _rounds(self) -> None:
        began = time.thread_time()
        while self._busy():
            self.poller.run_round()
            self.counts["rounds"] += 1
        self.cpu += time.thread_time() - began

    def settled(self) -> bool:
        term = self.machine.term
        assert term is not None
        state = term.state
        return all(
            one.state.value == "replicating"
            and one.primary is not None
            and one.primary.agent not in self.dead
            for one in state.sets.by_unit.values()
        )

    def until_settled(self) -> None:
        for _ in range(1000):
            self.step()
            if self.settled():
                return
        raise TimeoutError("the bench does not get on")

    def reset(self) -> None:
        self.counts.clear()
        self.cpu = 0.0


def run(units: int, agents: int) -> dict[str, Any]:
    """Return the figures of one measurement."""
    stage = Stage(units, agents)
    stage.step()
    stage.until_settled()
    stage.reset()
    for _ in range(round(STEADY_S / STEP_S)):
        stage.step()
    steady = {
        "us_per_heartbeat": round(1e6 * stage.cpu / stage.counts["heard"], 1),
        "rounds_per_heartbeat": round(stage.counts["rounds"] / stage.counts["heard"], 1),
    }
    stage.dead = {agent_name(n) for n in range(agents // 2)}
    while not stage.counts["records"] or stage.settled():
        stage.reset()
        stage.step()
    stage.until_settled()
    return steady | {"us_per_unit": round(1e6 * stage.cpu / len(stage.lost), 1), **stage.counts}


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parser = argparse.ArgumentParser(prog="python -m bench.leader_cost", description=__doc__)
    parser.add_argument("--units", type=int, default=2000)
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    for _ in range(options.times):
        print(json.dumps(run(options.units, options.agents)), flush=True)


if __name__ == "__main__":
    main()
