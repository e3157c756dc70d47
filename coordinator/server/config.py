"""The settings of a coordinator process: addresses, limits and intervals."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.batch import BatchConfig
from coordinator.control.kafka_log import ControlConfig
from coordinator.core.leader.state import LeaderConfig
from coordinator.transport.security import Security


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The settings of a coordinator process. Times are in seconds."""

    name: str
    listen: str = "127.0.0.1:7701"
    """"host:port" for agents; port 0: a free one."""
    rest: str = ""
    """"host:port" of its REST interface, as it is announced to others."""
    advertise: str | None = None
    """The host name under which agents reach the port of `listen`, if it is another one."""
    security: Security | None = None
    token: str = ""
    """The token that agents must send; "": none."""
    streams: int = 2000
    """The most concurrent streams of agents, and questions."""
    leader: LeaderConfig = field(default_factory=LeaderConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    tick: float = 0.1
    """Interval between two ticks of the leader; longer if a tick takes long."""
    inventory_every: float = 1.0
    """Interval between two reads of the inventory."""
    fences: int = 4
    """The number of concurrent fences."""
    outbox: int = 10_000
    """The most messages of one agent that wait for the leader."""
    version: str = ""
    """The version of rowlock."""
