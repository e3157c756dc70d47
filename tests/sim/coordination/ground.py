"""The ground of the modelled world: one heap of what happens, clocks, a bad network, and what all processes
share."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from coordinator.core.schedulers import InventoryUnit, UnitKind
from tests.sim.coordination.capture import CaptureTopic
from tests.sim.coordination.control import ControlTopic
from tests.sim.coordination.judge import Judge
from tests.sim.coordination.nodes import (
    AGENTS,
    CANDIDATES,
    CAPTURES,
    FAULTS,
    FOCUS,
    LATER_FAULTS,
    PATIENCE,
    PIPELINE,
    UNITS,
    AgentNode,
    LeaderNode,
    Node,
    Options,
)
from tests.sim.coordination.target import Target, Worker

T = TypeVar("T")


class Ground:
    """Everything that happens is an entry of one heap, in the order of (time, number)."""

    judge: Judge

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.now = 0.0
        self.number = 0
        self.heap: list[tuple[float, int, Callable[[], object]]] = []
        chosen = [fault for fault in FAULTS if self.rng.random() < 0.5]
        by_seed = FOCUS if options.seed % 4 == 3 else tuple(chosen)
        self.later = random.Random(f"later {options.seed}")
        by_seed += tuple(fault for fault in LATER_FAULTS if self.later.random() < 0.25)
        self.faults = frozenset(by_seed if options.faults is None else options.faults)
        self.healed = False
        self.has_planted_violation = False
        self.unlisted_until = 0.0
        #: agents on which nothing gets ready: every preparation fails there, or (seed) hangs
        #: agents that do their work, and lie besides
        self.hostile = {AGENTS[1]} if "hostile agent" in self.faults else set()
        self.black_holes = {AGENTS[-1]} if "black hole" in self.faults else set()
        self.cuts: set[tuple[str, str]] = set()
        self.down: dict[str, float] = {}
        self.happened: Counter[str] = Counter()
        self.topic = ControlTopic()
        self.target = Target()
        self.captured = {unit: CaptureTopic() for unit in CAPTURES}
        self.heads = dict.fromkeys((*UNITS, *CAPTURES), 0)
        self.uids = dict.fromkeys((*UNITS, *CAPTURES), 1)
        self.inventory = {unit: self.spec(unit) for unit in (*UNITS, *CAPTURES)}
        self.owners = {name: LeaderNode(name) for name in CANDIDATES}
        self.agents = {name: AgentNode(name) for name in AGENTS}
        self.events = 0
        self.storm: Counter[int] = Counter()

    def spec(self, unit: str) -> InventoryUnit:
        if unit in CAPTURES:
            return InventoryUnit(unit, UnitKind.CAPTURE, "s1", None, "1")
        apart = "x" if unit in UNITS[:2] else None
        return InventoryUnit(
            unit, UnitKind.APPLY, "s1" if unit in UNITS[:2] else "s2", PIPELINE, str(self.uids[unit]), apart
        )

    # time

    def at(self, delay: float, what: Callable[[], object]) -> None:
        self.number += 1
        heapq.heappush(self.heap, (self.now + max(0.0, delay), self.number, what))

    def on(self, node: Node, delay: float, what: Callable[[], None]) -> None:
        """Let something happen in this life of a process: later if it is paused then, never if it is dead."""
        life = node.life

        def run() -> None:
            if not node.alive or node.life != life:
                return
            if node.paused:
                node.queue.append(run)
            else:
                what()

        self.at(delay, run)

    def clock(self, node: Node) -> float:
        return 1000.0 + self.now * node.rate + node.offset

    def wall_ms(self, node: Node) -> int:
        return int(1000 * (100.0 + self.now + node.wall))

    def run_until(self, end: float, done: Callable[[], bool] | None = None) -> bool:
        """Run; returns whether `done` became true."""
        checked = self.now
        while self.heap and self.heap[0][0] <= end:
            self.now, _, what = heapq.heappop(self.heap)
            what()
            self.judge.always()
            self.events += 1
            self.storm[int(self.now)] += 1
            if self.storm[int(self.now)] > 3000:
                raise AssertionError(f"a storm: {self.storm[int(self.now)]} events in second {int(self.now)}")
            if done is not None and self.now - checked > 0.5:
                checked = self.now
                if done():
                    return True
        self.now = end
        return done is not None and done()

    def _source(self) -> None:
        if self.healed:
            return
        for unit in self.heads:
            self.heads[unit] += self.rng.randrange(3)
        self.at(0.4, self._source)

    # network

    def latency(self) -> float:
        if self.healed:
            return 0.01
        if "ancient" in self.faults and self.rng.random() < 0.03:
            self.judge.fault("ancient")
            return self.rng.uniform(3.0, 20.0)
        if "delay" in self.faults and self.rng.random() < 0.3:
            self.judge.fault("delay")
            return self.rng.uniform(0.001, 1.5)
        return self.rng.uniform(0.001, 0.05)

    def carry(self, origin: str, target: str, what: Callable[[], None]) -> None:
        """One message: lost, doubled, late, or none of it."""
        lossy = not self.healed
        if (origin, target) in self.cuts:
            return
        if lossy and "drop" in self.faults and self.rng.random() < 0.1:
            self.judge.fault("drop")
            return
        self.at(self.latency(), what)
        if lossy and "double" in self.faults and self.rng.random() < 0.1:
            self.judge.fault("double")
            self.at(self.latency(), what)

    def up(self, server: str) -> bool:
        return self.now >= self.down.get(server, 0.0)

    def ask(
        self,
        worker: Worker,
        server: str,
        delay: float,
        request: Callable[[], T],
        answered: Callable[[T | None], None],
    ) -> None:
        """A worker asks the target or Kafka. None: the outcome is not known, it was carried out, or not, or
        will be."""
        node = self.agents[worker.agent]
        fate = self._fate(node, server)

        def land() -> None:
            there = fate in {"", "answer lost"} and self.up(server)
            result = request() if there else None
            if fate == "late":
                self.at(self.rng.uniform(0.5, 5.0), request)
            if fate == "answer lost" or (server, node.name) in self.cuts:
                self.happened[f"{server}: answer lost"] += there
                result = None
            if not worker.dead:
                wait = 0.001 if result is not None else self.rng.uniform(*PATIENCE)
                self.on(node, wait, lambda: answered(result))

        self.at(delay, land)

    def _fate(self, node: Node, server: str) -> str:
        """What becomes of a request: lost itself, its answer lost, or so late that the answer is not waited
        for."""
        if (node.name, server) in self.cuts:
            fate = self.rng.choice(("request lost", "late"))  # sent again once the way is free
        elif self.healed or "commit lost" not in self.faults or self.rng.random() >= 0.04:
            return ""
        else:
            fate = self.rng.choice(("request lost", "answer lost", "late"))
        if fate != "answer lost":
            self.happened[f"{server}: {fate}"] += 1
        return fate
