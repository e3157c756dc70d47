"""Settings of a coordinator process: where it listens, and how fast its parts turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.batch import BatchConfig
from coordinator.control.kafka_log import ControlConfig
from coordinator.core.owner.state import OwnerConfig
from coordinator.transport.security import Security


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """`listen`: "host:port" for agents (port 0: any). `rest`: "host:port" under which its REST is reached; told to others only.
    `token`: what agents must bear; "": nothing. `streams`: of agents, and questions, at once at most. `advertise`: host under which others reach `listen`, if it is another.

    Seconds: `tick` between the owner's looks at the time (longer when a look takes long), `catalogue_every`, `view_for`: how
    long a view is good. `fences`: fences at once. `outbox`: messages of one agent that wait for the owner at most. `version`: of rowlock.
    """

    name: str
    listen: str = "127.0.0.1:7701"
    rest: str = ""
    advertise: str | None = None
    security: Security | None = None
    token: str = ""
    streams: int = 2000
    owner: OwnerConfig = field(default_factory=OwnerConfig)
    control: ControlConfig = field(default_factory=ControlConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    tick: float = 0.1
    catalogue_every: float = 1.0
    view_for: float = 1.0
    fences: int = 4
    outbox: int = 10_000
    version: str = ""
