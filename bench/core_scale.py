"""The leader's pure core at 1 thousand to 100 thousand units on 100 agents: memory and time of a tick and of
a round of heartbeats.

Each size in a process of its own, all units running, every unit with new progress in every heartbeat; the
agents' cores are real too, but only the leader's steps are timed. Nothing else is in it: no network, no log.
How figures grow is the point. Memory is that of the leader's core, the records it began with, and the cores
of all agents: what the units add to the process.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import psutil

from bench.heartbeats import agent_name, held, inventory, records
from coordinator.core import agent as agents_core
from coordinator.core.agent_state import HeldUnits, ObeyedLeader
from coordinator.core.leader import steps as core
from coordinator.core.leader.state import LeaderConfig, LeaderState, Received, SendMessage, Tick
from coordinator.core.messages import Down
from schemas.units import UnitProgress, UnitProgressed

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
AGENTS = 100
ROUNDS = 7


def _rss_mib() -> float:
    return psutil.Process().memory_info().rss / 2**20


class World:
    """A leader and its agents; `spent`: seconds in the leader's steps since it was last set to 0."""

    def __init__(self, units: int) -> None:
        base = _rss_mib()
        specs, left = inventory(units), records(units, AGENTS)
        self.agents = {agent_name(n): self._agent(units, n) for n in range(AGENTS)}
        self.spent = 0.0
        began = time.perf_counter()
        self.state, _ = core.begin_leader_term(
            "o", 1, left, LeaderConfig(balance_every=1e9, lease=1e6, leader_lease=1e6), time.monotonic()
        )
        self.begin_ms = (time.perf_counter() - began) * 1000
        self.owner(specs)
        for agent in self.agents.values():
            self._say(agent, agents_core.AgentTick())
        self.owner(Tick())
        gc.collect()
        self.memory_mib = _rss_mib() - base

    @staticmethod
    def _agent(units: int, number: int) -> agents_core.AgentState:
        name = agent_name(number)
        state = agents_core.AgentState(name, f"{name}-i")
        state.leader = ObeyedLeader(agent_epoch=number + 1)
        state.units = HeldUnits(held(units, AGENTS, number))
        return state

    def owner(self, event: Any) -> None:
        """Let the leader take `event`, and the agents the messages that it sends them."""
        began = time.perf_counter()
        self.state, effects = core.step_leader(self.state, event, time.monotonic())
        self.spent += time.perf_counter() - began
        for effect in effects:
            if isinstance(effect, SendMessage) and effect.agent in self.agents:
                self._told(self.agents[effect.agent], effect.message)

    def _told(self, agent: agents_core.AgentState, message: Down) -> None:
        self._say(agent, agents_core.InstructionReceived(message))

    def _say(self, agent: agents_core.AgentState, event: agents_core.AgentEvent) -> None:
        _, effects = agents_core.step_agent(agent, event, time.monotonic())
        for effect in effects:
            if isinstance(effect, agents_core.SendUp):
                self.owner(Received(effect.message))

    def beat(self) -> float:
        """Let every agent send one heartbeat; return the leader's seconds."""
        self.spent = 0.0
        for agent in self.agents.values():
            for unit, one in list(agent.units.by_name.items()):
                now = int(time.time() * 1000)
                progressed = UnitProgressed(one.assignment, UnitProgress(now, now + 5, (0, 3, now, 17)), 100)
                agents_core.step_agent(
                    agent, agents_core.WorkerEventReceived(unit, progressed), time.monotonic()
                )
            agent.times.next_heartbeat = 0.0
            self._say(agent, agents_core.AgentTick())
        return self.spent

    def tick(self) -> float:
        self.spent = 0.0
        self.state.pipelines.next_progress = 0.0
        self.owner(Tick())
        return self.spent


def measure(units: int) -> dict[str, float]:
    """Return ms and MiB for one size, in this process."""
    world = World(units)
    replicating(world.state, units)
    beats, ticks = zip(*[(world.beat() * 1000, world.tick() * 1000) for _ in range(ROUNDS)], strict=True)
    return {
        "units": units, "begin_ms": world.begin_ms, "memory_mib": world.memory_mib,
        "beat_ms": statistics.median(beats), "tick_ms": statistics.median(ticks),
    }  # fmt: skip


def replicating(state: LeaderState, units: int) -> None:
    """Raise unless every unit runs: else something else is measured."""
    found = sum(current.state.name == "REPLICATING" for current in state.sets.by_unit.values())
    if found != units:
        raise RuntimeError(f"{found} of {units} units run")


def run(sizes: tuple[int, ...] = SIZES) -> list[dict[str, float]]:
    """Return the figures of each size."""
    found = []
    for units in sizes:
        command = [sys.executable, "-m", "bench.core_scale", str(units)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found.append(dict(json.loads(done.stdout)))
    return found


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(measure(int(sys.argv[1]))))
        return
    for units in SIZES:
        (figures,) = run((units,))
        print({what: round(value, 2) for what, value in figures.items()}, flush=True)


if __name__ == "__main__":
    main()
