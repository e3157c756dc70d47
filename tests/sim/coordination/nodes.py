"""Processes of the modelled world, what they are configured with, and what a run of it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.control import election as elections
from coordinator.control.codec import Candidate
from coordinator.control.fold import ControlFold
from coordinator.core import agent as agents
from coordinator.core import records as durable
from coordinator.core.health import HealthConfig
from coordinator.core.leader import state as o
from coordinator.core.leader.state import LeaderConfig, LeaderState
from coordinator.core.schedulers import MoveLimits
from coordinator.server.leader_round import LeaderRound
from tests.sim.coordination.control import Producer
from tests.sim.coordination.target import Worker

CONFIG = LeaderConfig(
    interval=1.0,
    lease=4.0,
    margin=0.5,
    leader_lease=2.0,
    prepare_timeout=3.0,
    balance_every=8.0,
    retry_first=0.3,
    retry_most=2.0,
    progress_every=2.0,
    doubt=3.0,
    limits=MoveLimits(burst=2, agent_burst=1, concurrent=2, per_agent=1),
    health=HealthConfig(failures=2, retry_first=2.0, retry_most=16.0, trust_after=2.0),
)
ELECTION = elections.ElectionConfig(patience=2.5, pause=2.0, read_back=5.0)
#: Seconds: how long a write to the control topic is tried; longer than `leader_lease`, as in the product.
WRITE_TIMEOUT = 5.0
#: Offsets of the control topic before a snapshot is written.
SNAPSHOT_AFTER = 40
AGENTS = ("a1", "a2", "a3")
JOINERS = ("a4", "a5")
CANDIDATES = ("c1", "c2")
PIPELINE = "p"
UNITS = ("apply/p/u1", "apply/p/u2", "apply/p/u3", "apply/p/u4")
CAPTURES = ("capture/k1",)
SERVERS = ("target", "kafka")
FAULTS = (
    "drop", "double", "delay", "ancient", "crash agent", "pause agent", "crash owner", "pause owner",
    "two owners", "cut", "clock", "stop agent", "worker fails", "slow target", "commit unknown", "catalogue",
    "commands", "stuck worker", "cut server", "commit lost", "deadlock", "target restart", "failover",
    "broker restart", "join", "leave", "hanging commit", "reader lags",
)  # fmt: skip
#: Drawn apart from the others, so that seeds mean what they did before there were these.
LATER_FAULTS = (
    "black hole",
    "empty metadata",
    "second thoughts",
    "late answer",
    "hostile agent",
    "busy machine",
    "long rounds",
)
#: What a hostile agent reports as assignments, marks and terms; also "later than now" in the modelled clock
#: of the day.
FAR = 10**15
MESSAGE_FAULTS = ("drop", "double", "delay", "ancient")
#: What outlives its sender's patience, in seconds: a request whose answer does not come.
PATIENCE = (0.1, 1.5)
#: Every fourth seed: many moves that hang, fail and are given up, for the rarer cells of the table.
FOCUS = ("commands", "drop", "delay", "stuck worker", "stop agent", "slow target", "pause agent")


class Violation(AssertionError):  # noqa: N818  # it is the verdict, not an error of the program
    """An oracle or an invariant does not hold: what a run is for. Anything else that it raises is an error of
    the test."""


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
    """A process. `queue`: what waits while it is paused. `paused_at`: when it was last not running (for the
    lease). `wall`: by how much its clock of the day is wrong. `left`: it is never started again."""

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
class LeaderNode(Node):
    """`fold`: what it has read of the control topic. `records`, `base`, `end`: as its writer knows the topic
    while it leads. `round`: what it has decided and not handed on yet; `rounding`: the end of the round will
    come."""

    state: LeaderState | None = None
    round: LeaderRound = field(default_factory=LeaderRound)
    rounding: bool = False
    fold: ControlFold = field(default_factory=ControlFold)
    election: elections.Election = field(default_factory=lambda: elections.begin_election(0.0, 0.0))
    producer: Producer = field(default_factory=Producer)
    records: dict[str, durable.DurableRecord] = field(default_factory=dict)
    base: int = 0
    end: int = 0
    lags_until: float = 0.0
    given: o.Inventory | None = None
    has_seen_violation: bool = False
    claim_began: float = 0.0

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.name, self.name)


@dataclass(slots=True)
class AgentNode(Node):
    state: agents.AgentState = field(default_factory=lambda: agents.AgentState("", ""))
    leader: int = 0
    heard: float = 0.0
    workers: dict[tuple[str, int], Worker] = field(default_factory=dict)
