"""Candidates, agents, workers and a bad network under one seed and one clock; nothing here knows real time.

Everything that happens is an entry of one heap, in the order of (time, number). A paused process takes no step; what is
meant for it waits in its queue, while commits that it has already sent land at the target. What a worker asks of the
target or of Kafka may be cut off on the way there or back: then it does not know the outcome. `judge` looks at everything.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from coordinator.control import election as elections
from coordinator.control import fold as folds
from coordinator.control.codec import Beat, Candidate, Changes, Claim, Message, Resigned, Snapshot
from coordinator.core import agent as agents
from coordinator.core import owner as owners
from coordinator.core import owner_state as o
from coordinator.core.agent_unit import Ended, OpenWorker, Progressed, Ready, StartWorker, StopWorker
from coordinator.core.messages import Down, Mark, Up
from coordinator.core.owner_state import OwnerConfig, OwnerState
from coordinator.core.replication_table import Cell, SetState
from coordinator.core.schedulers import Kind, Limits, UnitSpec
from tests.sim.coordination.capture import CaptureTopic
from tests.sim.coordination.control import ControlTopic, Open, Producer, Wrote
from tests.sim.coordination.judge import Judge
from tests.sim.coordination.target import Target, Transaction, Worker

CONFIG = OwnerConfig(
    interval=1.0,
    lease=4.0,
    margin=0.5,
    owner_lease=2.0,
    prepare_timeout=3.0,
    balance_every=8.0,
    retry_first=0.3,
    retry_most=2.0,
    progress_every=2.0,
    limits=Limits(burst=2, agent_burst=1, concurrent=2, per_agent=1),
)
ELECTION = elections.ElectionConfig(patience=2.5, pause=2.0, read_back=5.0)
#: Seconds: how long a write to the control topic is tried; longer than `owner_lease`, as in the product.
WRITE_TIMEOUT = 5.0
#: Offsets of the control topic before a snapshot is written.
SNAPSHOT_AFTER = 40
AGENTS = ("a1", "a2", "a3")
JOINERS = ("a4", "a5")
CANDIDATES = ("c1", "c2")
UNITS = ("u1", "u2", "u3", "u4")
CAPTURES = ("k1",)
PIPELINE = "p"
SERVERS = ("target", "kafka")
FAULTS = (
    "drop", "double", "delay", "ancient", "crash agent", "pause agent", "crash owner", "pause owner", "two owners",
    "cut", "clock", "stop agent", "worker fails", "slow target", "commit unknown", "catalogue", "commands", "stuck worker",
    "cut server", "commit lost", "deadlock", "target restart", "failover", "broker restart", "join", "leave",
    "hanging commit", "reader lags",
)  # fmt: skip
MESSAGE_FAULTS = ("drop", "double", "delay", "ancient")
#: What outlives its sender's patience, in seconds: a request whose answer does not come.
PATIENCE = (0.1, 1.5)
#: Every fourth seed: many moves that hang, fail and are given up, for the rarer cells of the table.
FOCUS = ("commands", "drop", "delay", "stuck worker", "stop agent", "slow target", "pause agent")


class Violation(AssertionError):  # noqa: N818  # it is the verdict, not an error of the program
    """An oracle or an invariant does not hold: what a run is for. Anything else that it raises is an error of the test."""


@dataclass(slots=True)
class Options:
    """What a run is: `faults` None lets the seed choose half of them."""

    seed: int
    faults: tuple[str, ...] | None = None
    fault_time: float = 20.0
    heal_time: float = 60.0
    early_stop: bool = False  # mutation: a worker says that it ended before its commit has landed
    believing: bool = False  # mutation: a worker takes a commit for done whose outcome it does not know
    swallow: bool = False  # mutation: nobody is told that a worker failed


@dataclass(slots=True)
class Node:
    """A process. `queue`: what waits while it is paused. `paused_at`: when it was last not running (for the lease).
    `wall`: by how much its clock of the day is wrong. `left`: it is never started again."""

    name: str
    alive: bool = True
    paused: bool = False
    paused_at: float = float("-inf")
    asleep_since: float | None = None
    life: int = 0
    offset: float = 0.0
    rate: float = 1.0
    wall: float = 0.0
    left: bool = False
    queue: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True)
class OwnerNode(Node):
    """`fold`: what it has read of the control topic. `records`, `base`, `end`: as its writer knows the topic while it leads."""

    state: OwnerState | None = None
    fold: folds.Fold = field(default_factory=folds.Fold)
    election: elections.Election = field(default_factory=lambda: elections.begin(0.0, 0.0))
    producer: Producer = field(default_factory=Producer)
    records: dict[str, o.Record] = field(default_factory=dict)
    base: int = 0
    end: int = 0
    lags_until: float = 0.0

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.name, self.name)


@dataclass(slots=True)
class AgentNode(Node):
    state: agents.AgentState = field(default_factory=lambda: agents.AgentState("", ""))
    leader: int = 0
    heard: float = 0.0
    workers: dict[tuple[str, int], Worker] = field(default_factory=dict)


T = TypeVar("T")


class World:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self.now = 0.0
        self.number = 0
        self.heap: list[tuple[float, int, Callable[[], object]]] = []
        chosen = [fault for fault in FAULTS if self.rng.random() < 0.5]
        by_seed = FOCUS if options.seed % 4 == 3 else tuple(chosen)
        self.faults = frozenset(by_seed if options.faults is None else options.faults)
        self.healed = False
        self.cuts: set[tuple[str, str]] = set()
        self.down: dict[str, float] = {}
        self.happened: Counter[str] = Counter()
        self.topic = ControlTopic()
        self.target = Target()
        self.captured = {unit: CaptureTopic() for unit in CAPTURES}
        self.heads = dict.fromkeys((*UNITS, *CAPTURES), 0)
        self.uids = dict.fromkeys((*UNITS, *CAPTURES), 1)
        self.catalogue = {unit: self.spec(unit) for unit in (*UNITS, *CAPTURES)}
        self.owners = {name: OwnerNode(name) for name in CANDIDATES}
        self.agents = {name: AgentNode(name) for name in AGENTS}
        self.judge = Judge(self)
        self.events = 0
        self.storm: Counter[int] = Counter()
        self._begin()

    def spec(self, unit: str) -> UnitSpec:
        if unit in CAPTURES:
            return UnitSpec(unit, Kind.CAPTURE, "s1", None, "1")
        apart = "x" if unit in UNITS[:2] else None
        return UnitSpec(
            unit, Kind.APPLY, "s1" if unit in UNITS[:2] else "s2", PIPELINE, str(self.uids[unit]), apart
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
        """A worker asks the target or Kafka. None: the outcome is not known, it was carried out, or not, or will be."""
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
        """What becomes of a request: lost itself, its answer lost, or so late that the answer is not waited for."""
        if (node.name, server) in self.cuts:
            fate = self.rng.choice(("request lost", "late"))  # sent again once the way is free
        elif self.healed or "commit lost" not in self.faults or self.rng.random() >= 0.04:
            return ""
        else:
            fate = self.rng.choice(("request lost", "answer lost", "late"))
        if fate != "answer lost":
            self.happened[f"{server}: {fate}"] += 1
        return fate

    # candidates and owners

    def _start_candidate(self, node: OwnerNode) -> None:
        """A process that has read nothing yet."""
        node.alive, node.paused = True, False
        node.fold, node.producer = folds.Fold(), Producer(broken=True)
        node.election = elections.begin(self.clock(node), self.rng.uniform(0.0, 0.5))

    def _candidate(self, node: OwnerNode) -> None:
        self.at(0.5, lambda: self._candidate(node))
        if node.alive and not node.paused:
            self._read(node)
            self.step_owner(node, o.Tick())

    def _read(self, node: OwnerNode) -> None:
        """Fold what is new in the control topic, and tell the election."""
        if not self._reaches_kafka(node):
            self.vote(node, elections.Unreachable())
            return
        self.happened["control: open for too long"] += self.topic.expire(self.now)
        self.happened["control: cut before a reader"] += 0 < node.fold.end < self.topic.start
        new = self.topic.read(node.fold.end) if self.now >= node.lags_until else []
        counted = [folds.apply(node.fold, offset, message) for offset, message in new]
        if counted:
            vacant = node.fold.rev == 0 or node.fold.resigned
            self.vote(
                node,
                elections.Observed(node.fold.rev, vacant, not node.fold.unreadable, any(counted)),
            )
        self.vote(node, elections.Reachable())

    def _reaches_kafka(self, node: Node) -> bool:
        return self.up("kafka") and not {(node.name, "kafka"), ("kafka", node.name)} & self.cuts

    def vote(self, node: OwnerNode, event: elections.ElectionEvent) -> None:
        node.election, effects = elections.step(node.election, event, self.clock(node), ELECTION)
        for effect in effects:
            match effect:
                case elections.StartClaim():
                    self.claim(node)
                case elections.Elect(rev):
                    self._lead(node, rev)
                case elections.Lose():
                    self.end_owner(node)
                case elections.GiveUp(rev):
                    self.happened["control: resigned"] += 1
                    self._write(node, (Resigned(rev),), lambda _: None)
                case elections.Discard():
                    self.on(node, 0.1, lambda: self._discard(node))

    def _discard(self, node: OwnerNode) -> None:
        node.producer.broken = True
        self.vote(node, elections.Discarded(self.rng.uniform(0.0, 0.5)))

    def claim(self, node: OwnerNode) -> None:
        """A new producer and its first transaction; the claim at offset 0 is made twice, as that is no term."""
        node.producer = Producer()
        message = Claim(node.candidate, f"{node.name}-{node.life}")

        def claimed(rev: int) -> None:
            if rev == 0:
                self._write(node, (message,), claimed)
                return
            self.vote(node, elections.Claimed(rev))
            self._read(node)

        self._write(node, (message,), claimed)

    def _lead(self, node: OwnerNode, rev: int) -> None:
        fold = node.fold
        node.records, node.base, node.end = dict(fold.records), fold.base, fold.end
        if fold.base > 0:
            self._trim(fold.base)
        now, floor = self.clock(node), self.wall_ms(node)
        node.state, out = owners.begin(node.name, rev, dict(fold.records), CONFIG, now, floor=floor)
        self._owner_effects(node, out)
        self.judge.owner(node, None, out)
        self.on(node, self.rng.uniform(0.0, 0.5), lambda: self.give_catalogue(node))
        self.on(node, 0.5, lambda: self._beat(node))

    def give_catalogue(self, node: OwnerNode) -> None:
        read = {spec.source for spec in self.catalogue.values() if spec.kind is Kind.APPLY}
        sources = {PIPELINE: tuple(sorted(read))}
        self.step_owner(node, o.Catalogue(tuple(self.catalogue.values()), sources))

    def _beat(self, node: OwnerNode) -> None:
        if node.state is not None:
            began = self.clock(node)
            self._commit(node, (), lambda: self.step_owner(node, o.Confirmed(began)))
            self.on(node, 0.7, lambda: self._beat(node))

    def _commit(
        self, node: OwnerNode, records: tuple[tuple[str, o.Record | None], ...], then: Callable[[], None]
    ) -> None:
        """Records of this term, or a beat; and a snapshot behind them where the topic has become long."""
        if node.state is None:
            return
        rev = node.state.rev

        def wrote(offset: int) -> None:
            if node.state is None or node.state.rev != rev:
                return
            for key, record in records:
                if record is None:
                    node.records.pop(key, None)
                else:
                    node.records[key] = record
            node.end = offset + 2
            if folds.due(node.end - node.base, 0, 0, most=SNAPSHOT_AFTER, most_bytes=1):
                self._shorten(node, rev)
            then()

        self._write(node, (Changes(rev, records) if records else Beat(rev),), wrote)

    def _shorten(self, node: OwnerNode, rev: int) -> None:
        """Before anything else that waits: the snapshot is of what is written by now."""
        marker = Snapshot(rev, node.candidate, f"{node.name}-{node.life}")
        node.base = node.end

        def wrote(offset: int) -> None:
            self.happened["control: snapshot"] += 1
            node.base = offset
            self._trim(offset)

        node.producer.jobs.insert(0, ((marker, Changes(rev, tuple(sorted(node.records.items())))), wrote))

    def _trim(self, before: int) -> None:
        """The deletion is asked for and not awaited; it comes when it comes."""
        self.at(self.rng.uniform(0.01, 3.0), lambda: self.topic.trim(before))

    def _write(self, node: OwnerNode, messages: tuple[Message, ...], wrote: Wrote) -> None:
        node.producer.jobs.append((messages, wrote))
        self._send(node, node.producer)

    def _send(self, node: OwnerNode, producer: Producer) -> None:
        """The next transaction: from here on it lands even if its writer is paused or dead by then."""
        if producer.busy or producer.broken or not producer.jobs:
            return
        producer.busy, began = True, self.now
        messages, wrote = producer.jobs.pop(0)

        def land() -> None:
            if not self._reaches_kafka(node) and self.now - began < WRITE_TIMEOUT:
                self.at(0.2, land)
                return
            offset = self._land(node, producer, messages)
            self.on(node, 0.001, lambda: done(offset))

        def done(offset: int | None) -> None:
            if producer is not node.producer:
                return  # of an earlier life, or an earlier claim
            producer.busy = False
            if offset is None:
                self.vote(node, elections.Failed("fenced, or nobody knows"))
                return
            wrote(offset)
            self._send(node, producer)

        self.at(self.rng.uniform(0.003, 0.05), land)

    def _land(self, node: OwnerNode, producer: Producer, messages: tuple[Message, ...]) -> int | None:
        """A transaction is at the broker; returns its offset where its writer is told. Otherwise it never uses it again."""
        fate = self._fate_of_commit(node, producer)
        offset = None
        if fate != "unreachable" and isinstance(messages[0], Claim) and not producer.number:
            self.topic.begin(producer)
        if fate in {"", "unknown"}:
            offset = self.topic.write(producer, node.name, messages)
            self._durable(messages if offset is not None else ())
        elif fate == "hangs":
            hanging = self.topic.hang(producer, node.name, messages, self.now)
            if hanging is not None and self.rng.random() < 0.5:
                self.at(self.rng.uniform(0.3, 5.0), lambda: self._end_late(hanging))
        self.happened[f"control: {fate}"] += bool(fate)
        producer.broken = fate != "" or offset is None
        return None if producer.broken else offset

    def _fate_of_commit(self, node: OwnerNode, producer: Producer) -> str:
        if not self._reaches_kafka(node):
            return "unreachable"
        if producer.dying:
            return "hangs"
        if self.healed:
            return ""
        if "commit unknown" in self.faults and self.rng.random() < 0.01:
            return "unknown"
        return "hangs" if "hanging commit" in self.faults and self.rng.random() < 0.04 else ""

    def _end_late(self, hanging: Open) -> None:
        """What was asked for before the process gave up or died arrives after all; a later producer has fenced it, or not."""
        landed = self.topic.commit(hanging)
        self._durable(hanging.messages if landed else ())
        self.happened["control: ended late"] += landed
        self.happened["control: fenced while open"] += not landed

    def _durable(self, messages: tuple[Message, ...]) -> None:
        for message in messages[:1]:
            self.judge.committed(message.changes if isinstance(message, Changes) else ())

    def step_owner(self, node: OwnerNode, event: o.Event) -> None:
        if node.state is None:
            return
        self.judge.before_owner(node, event)
        node.state, out = owners.step(node.state, event, self.clock(node))
        self.judge.owner(node, event, out)
        self._owner_effects(node, out)

    def _owner_effects(self, node: OwnerNode, out: list[o.Effect]) -> None:
        for effect in out:
            match effect:
                case o.Send(to, message):
                    self.carry(node.name, to, lambda to=to, m=message: self._down(node, to, m))  # type: ignore[misc]
                case o.Persist(token, records):
                    self._commit(node, records, lambda t=token: self.step_owner(node, o.Persisted(t)))  # type: ignore[misc]
                case o.Fence(unit, _, epoch):
                    self.at(self.rng.uniform(0.01, 0.3), lambda u=unit, e=epoch: self._fence(node, u, e))  # type: ignore[misc]
                case o.StepDown(why):
                    self.vote(node, elections.ResignAsked(why))
                    return
                case o.Alarm(what, about):
                    self.judge.alarm(what, about)
                case _:
                    pass

    def _fence(self, node: OwnerNode, unit: str, epoch: int) -> None:
        """A captured topic needs none: the next capture's gen does it (rowlock/fences.py)."""
        if unit not in CAPTURES:
            if not self.up("target"):
                self.on(node, 0.5, lambda: self._fence(node, unit, epoch))
                return
            self.target.fence(unit, epoch)
        self.on(node, 0.01, lambda: self.step_owner(node, o.Fenced(unit, epoch)))

    def end_owner(self, node: OwnerNode) -> None:
        node.state = None
        node.life += 1
        node.queue.clear()
        node.producer.jobs.clear()
        node.producer.busy = False

    def current(self) -> OwnerNode | None:
        """The rightful owner, if it is there."""
        if not self.topic.claims:
            return None
        rev, name = self.topic.claims[-1]
        node = self.owners[name]
        return node if node.alive and node.state is not None and node.state.rev == rev else None

    # agents

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
        self.step_agent(node, agents.Tick())
        if self.now - node.heard > 2.5:
            node.leader, node.heard = (node.leader + 1) % len(CANDIDATES), self.now - 1.5
        wait = (agents.next_wakeup(node.state) - self.clock(node)) / node.rate
        self.on(node, min(0.5, max(0.02, wait)), lambda: self._tick_agent(node))

    def _down(self, origin: OwnerNode, to: str, message: Down) -> None:
        node = self.agents[to]
        self.on(node, 0.0, lambda: self._got(node, origin, message))

    def _got(self, node: AgentNode, origin: OwnerNode, message: Down) -> None:
        before = node.state.owner_rev
        if message.header.owner_rev >= before:
            node.leader, node.heard = CANDIDATES.index(origin.name), self.now
        self.step_agent(node, agents.Received(message))

    def step_agent(self, node: AgentNode, event: agents.AgentEvent) -> None:
        if not node.alive:
            return
        rev = node.state.owner_rev
        node.state, out = agents.step(node.state, event, self.clock(node))
        self.judge.agent(node, event, rev, out)
        for effect in out:
            match effect:
                case agents.Send(message):
                    self._up(node, message)
                case agents.Ends():
                    self.crash_agent(node, 1.0)
                    return
                case OpenWorker():
                    self._open(node, effect)
                case StartWorker(unit, epoch):
                    worker = node.workers[unit, epoch]
                    worker.stage = "taking"
                    if unit in CAPTURES:
                        self._claim(node, worker)
                    else:
                        self._take(node, worker, 0)
                case StopWorker(unit, epoch):
                    self._stop(node, node.workers[unit, epoch])

    def leader_of(self, node: AgentNode) -> OwnerNode:
        """The candidate that an agent talks to."""
        return self.owners[CANDIDATES[node.leader]]

    def _up(self, node: AgentNode, message: Up) -> None:
        to = self.leader_of(node)
        self.carry(
            node.name, to.name, lambda: self.on(to, 0.0, lambda: self.step_owner(to, o.Received(message)))
        )

    # workers

    def _open(self, node: AgentNode, effect: OpenWorker) -> None:
        state = node.state
        worker = Worker(node.name, state.agent_epoch, state.incarnation, effect.unit, effect.epoch)
        node.workers[effect.unit, effect.epoch] = worker
        if "stuck worker" in self.faults and not self.healed and self.rng.random() < 0.3:
            return
        fails = "worker fails" in self.faults and not self.healed and self.rng.random() < 0.15
        then = (lambda: self._end(node, worker, "failed")) if fails else (lambda: self._ready(node, worker))
        self.on(node, self.rng.uniform(0.05, 0.5), then)

    def _ready(self, node: AgentNode, worker: Worker) -> None:
        if worker.stage == "opening":
            worker.stage = "ready"
            if "worker fails" in self.faults and not self.healed and self.rng.random() < 0.1:
                self.on(node, self.rng.uniform(0.01, 1.0), lambda: self._end(node, worker, "failed"))
            self.step_agent(node, agents.Worker(worker.unit, Ready(worker.epoch)))

    def _take(self, node: AgentNode, worker: Worker, tries: int) -> None:
        """Take over the progress row; a locked one is waited for, then its holder is killed."""
        if worker.stage != "taking" or worker.stopping:
            return
        worker.take = take = worker.take + 1
        self.ask(
            worker,
            "target",
            self.rng.uniform(0.01, 0.2),
            lambda: self.target.take_over(worker, take, kill=tries >= 5),
            lambda answer: self._took(node, worker, answer, tries),
        )

    def _took(self, node: AgentNode, worker: Worker, answer: tuple[str, int] | None, tries: int) -> None:
        if worker.stage != "taking" or worker.stopping:
            return
        if answer is None:
            self._retake(node, worker, tries)
        elif answer[0] == "busy":
            self.on(node, 0.2, lambda: self._take(node, worker, tries + 1))
        elif answer[0] == "fenced":
            self._end(node, worker, "fenced")
        else:
            worker.stage, worker.offset, worker.unknown = "writing", answer[1], 0
            worker.connection = self.target.connections
            self._apply(node, worker)

    def _retake(self, node: AgentNode, worker: Worker, tries: int = 0) -> None:
        """Nobody knows what the target did: a new connection, and the row says it. Given up after some tries."""
        worker.unknown += 1
        if worker.unknown > 5:
            self._end(node, worker, "failed")
            return
        worker.stage = "taking"
        self.on(node, self.rng.uniform(0.1, 0.5), lambda: self._take(node, worker, tries))

    def _claim(self, node: AgentNode, worker: Worker) -> None:
        """A capture worker's start: claim a gen, define under it, go on from what the topic holds before that."""
        topic = self.captured[worker.unit]

        def claimed(gen: int | None) -> None:
            if worker.stage != "taking" or worker.stopping:
                return
            if not gen:
                self._end(node, worker, "failed" if gen is None else "fenced")
                return
            worker.gen = gen
            self.ask(worker, "kafka", self._kafka(), lambda: topic.define(gen), defined)

        def defined(offset: int | None) -> None:
            if worker.stage != "taking" or worker.stopping:
                return
            if offset is None:
                self._end(node, worker, "failed")
                return
            worker.stage, worker.offset = "writing", offset
            self._capture(node, worker)

        self.ask(worker, "kafka", self._kafka(), lambda: topic.claim(worker.epoch) or 0, claimed)

    def _capture(self, node: AgentNode, worker: Worker) -> None:
        """Send what is new in the log. Once sent it arrives, unless the process dies before."""
        if worker.stage != "writing" or worker.stopping:
            return
        if "worker fails" in self.faults and not self.healed and self.rng.random() < 0.01:
            self._end(node, worker, "failed")
            return
        worker.transaction = sent = Transaction(worker, worker.offset, self.heads[worker.unit])
        self.ask(
            worker,
            "kafka",
            self._kafka(),
            lambda: self._arrived(worker, sent),
            lambda taken: self._produced(node, worker, sent, taken),
        )

    def _orphan(self, worker: Worker) -> None:
        """A capture process of its own that was paused when its agent died: it does one more thing before it sees that."""
        topic, sent = self.captured[worker.unit], worker.transaction
        if worker.gen == 0:
            worker.gen = topic.claim(worker.epoch) or 0
            if worker.gen:
                topic.define(worker.gen)
        elif worker.stage == "writing" and (sent is None or not sent.open):
            topic.append(worker.epoch, worker.gen, worker.offset, self.heads[worker.unit])

    def _kafka(self) -> float:
        """How long a request to Kafka takes."""
        slow = "slow target" in self.faults and not self.healed and self.rng.random() < 0.3
        return self.rng.uniform(0.5, 6.0) if slow else self.rng.uniform(0.005, 0.2)

    def _arrived(self, worker: Worker, sent: Transaction) -> bool:
        if sent.open:
            self.captured[worker.unit].append(worker.epoch, worker.gen, sent.start, sent.end)
            self.judge.captured(worker)
        return sent.open

    def _produced(self, node: AgentNode, worker: Worker, sent: Transaction, taken: bool | None) -> None:
        worker.transaction = None
        if worker.stage == "ended":
            return  # it failed meanwhile
        if worker.stopping:
            self._end(node, worker, None)
        elif not taken:
            self._end(node, worker, "failed")
        else:
            self._went_on(node, worker, sent)

    def _apply(self, node: AgentNode, worker: Worker) -> None:
        if worker.stage != "writing" or worker.stopping:
            return
        if "worker fails" in self.faults and not self.healed and self.rng.random() < 0.01:
            self._end(node, worker, "failed")
            return
        reached = self.up("target") and not {(node.name, "target"), ("target", node.name)} & self.cuts
        broken = worker.connection != self.target.connections and not self.options.believing
        if not reached or broken:
            self._retake(node, worker)
            return
        transaction = self.target.begin(worker, max(worker.offset, self.heads[worker.unit]))
        if transaction is None:
            self._end(node, worker, "fenced")
            return
        worker.transaction = transaction
        slow = "slow target" in self.faults and not self.healed and self.rng.random() < 0.1
        work = self.rng.uniform(1.0, 4.0) if slow else self.rng.uniform(0.01, 0.15)
        self.on(node, work, lambda: self._send_commit(node, worker, transaction))

    def _send_commit(self, node: AgentNode, worker: Worker, transaction: Transaction) -> None:
        self.ask(
            worker,
            "target",
            self.rng.uniform(0.001, 0.05 if self.healed else 0.3),
            lambda: self._landed(transaction),
            lambda answer: self._answered(node, worker, transaction, answer),
        )

    def _landed(self, transaction: Transaction) -> str:
        """The commit, or the statement before it, is at the target: committed, aborted (by a kill), or deadlock."""
        unlucky = "deadlock" in self.faults and not self.healed and self.rng.random() < 0.04
        if unlucky and transaction.open:
            self.happened["deadlock"] += 1
            self.target.abort(transaction)
            return "deadlock"
        if not self.target.commit(transaction):
            return "aborted"
        self.judge.wrote(transaction)
        return "committed"

    def _answered(
        self, node: AgentNode, worker: Worker, transaction: Transaction, answer: str | None
    ) -> None:
        worker.transaction = None
        if worker.stage == "ended":
            return  # it failed meanwhile
        if worker.stopping:
            self._end(node, worker, None)
        elif answer == "committed":
            self._went_on(node, worker, transaction)
        elif answer == "deadlock":
            self.on(node, self.rng.uniform(0.05, 0.3), lambda: self._apply(node, worker))
        else:
            self.happened["outcome unknown to a live worker"] += answer is None
            if self.options.believing:
                worker.offset = transaction.end
                self._apply(node, worker)
            else:
                self._retake(node, worker)

    def _went_on(self, node: AgentNode, worker: Worker, done: Transaction) -> None:
        worker.offset = done.end
        mark = self._mark(worker)
        self.step_agent(node, agents.Worker(worker.unit, Progressed(worker.epoch, mark, 10)))
        again = self._capture if worker.unit in CAPTURES else self._apply
        self.on(node, self.rng.uniform(0.2, 0.5), lambda: again(node, worker))

    def _mark(self, worker: Worker) -> Mark:
        return Mark(worker.offset, self.heads[worker.unit])

    def _stop(self, node: AgentNode, worker: Worker) -> None:
        worker.stopping = True
        if worker.transaction is None:
            self.on(node, self.rng.uniform(0.01, 0.2), lambda: self._end(node, worker, None))
        elif self.options.early_stop:
            self._say_ended(node, worker, None)

    def _end(self, node: AgentNode, worker: Worker, error: str | None) -> None:
        if worker.stage == "ended":
            return
        mark = self._mark(worker) if worker.stage == "writing" else None
        worker.stage = "ended"
        if error is None or not self.options.swallow:
            self._say_ended(node, worker, error, mark)

    def _say_ended(
        self, node: AgentNode, worker: Worker, error: str | None, mark: Mark | None = None
    ) -> None:
        self.step_agent(node, agents.Worker(worker.unit, Ended(worker.epoch, mark, error)))

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
        }

    def _stop_agent(self) -> None:
        node = self._some_agent()
        self.on(node, 0.0, lambda: self.step_agent(node, agents.Shutdown()))

    def _some_agent(self) -> AgentNode:
        return self.rng.choice(list(self.agents.values()))

    def _some_owner(self) -> OwnerNode:
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
        if node.alive and not node.paused and node.election.phase is elections.Phase.FOLLOWING:
            self.usurp(node)

    def usurp(self, node: OwnerNode) -> None:
        """A candidate claims without waiting for its patience to end."""
        node.election = replace(node.election, phase=elections.Phase.CLAIMING)
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
        """For a moment nobody answers; what was open is gone, and after a failover what the standby had not got yet."""
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
        """A clock leaps forward; a machine sleeps, and its monotonic clock with it: it is behind from then on; or the clock of
        the day is set, forward or back."""
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
        if unit in self.catalogue:
            del self.catalogue[unit]
        if self.rng.random() < 0.6:
            self._create(unit)
        self._tell_catalogue()

    def _create(self, unit: str) -> None:
        """A unit of an old name, with nothing in the target: its row begins at zero, its epoch stays. A source stays what
        it was: its capture goes on where its topic ends."""
        if unit in CAPTURES:
            self.catalogue[unit] = self.spec(unit)
            return
        self.uids[unit] += 1
        self.heads[unit] = 0
        row = self.target.row(unit)
        if row.holder is not None:
            self.target.abort(row.holder)
        row.offset = 0
        row.writes.clear()
        self.target.replicate()
        self.catalogue[unit] = self.spec(unit)

    def _tell_catalogue(self) -> None:
        for node in self.owners.values():
            self.on(node, self.rng.uniform(0.0, 0.5), lambda n=node: self.give_catalogue(n))  # type: ignore[misc]

    def _command(self) -> None:
        node = self.current()
        if node is None:
            return
        unit, agent = self.rng.choice((*UNITS, *CAPTURES)), self._some_agent().name
        commands: list[o.Command] = [
            o.Move(unit, agent), o.Move(unit, agent), o.Drain(agent), o.Rebalance(), o.Pause(unit), o.Resume(unit), o.Resign(),
        ]  # fmt: skip
        command = self.rng.choice(commands)
        self.on(node, 0.0, lambda: self.step_owner(node, command))

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
            self.crash_agent(one, 0.1) if one.state.liveness.value == "stopping" else None
            if not one.alive and not one.left:
                self._start_agent(one)
        for unit in (*UNITS, *CAPTURES):
            if unit not in self.catalogue and unit != UNITS[-1]:
                self._create(unit)
        self._tell_catalogue()
        self.at(8.0, self._resume_units)

    def _resume_units(self) -> None:
        node = self.current()
        self.at(3.0, self._resume_units)
        if node is not None and node.state is not None:
            for unit in sorted(set(node.state.paused) & set(node.state.sets)):
                self.step_owner(node, o.Resume(unit))
            for name, member in sorted(node.state.members.items()):
                if member.leaving and self.agents[name].alive:
                    self.crash_agent(self.agents[name], 0.1)


def run(options: Options) -> World:
    """Run one seed: faults, then heal, then until everything is as it shall be. Raises Violation with how to replay it."""
    world = World(options)
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
    """What is counted over many seeds. `dropped`: events of a capture worker that readers dropped by their gen; `refused`:
    starts of capture workers that a later assignment had overtaken; `struck`: (fault, state of a unit when it struck);
    `happened`: faults by name."""

    cells: Counter[Cell]
    events: int
    dropped: int
    refused: int
    struck: Counter[tuple[str, SetState]]
    happened: Counter[str] = field(default_factory=Counter)


def run_seed(seed: int) -> Outcome:
    """Run one seed, with the faults that it chooses."""
    return outcome_of(run(Options(seed)))


def outcome_of(world: World) -> Outcome:
    topics = world.captured.values()
    dropped, refused = sum(t.dropped for t in topics), sum(t.refused for t in topics)
    return Outcome(world.judge.cells, world.events, dropped, refused, world.judge.struck, world.happened)
