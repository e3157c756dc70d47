"""The parts of a coordinator that its owner's machine acts on: transport, log, fences, catalogue, time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.control.codec import Change
from coordinator.control.kafka_log import ControlLog
from coordinator.core.messages import Down
from coordinator.server.background import CataloguePoller, FencePool, Ticker
from coordinator.transport.events import LeaderInfo
from coordinator.transport.server import HeartbeatServer


@dataclass(slots=True)
class Parts:
    """Implements `server.terms.term.Outside`. `log`: None until the coordinator's address is known. `owner_counters`: of the machine itself,
    and of what brings it its messages. `configured`: is told the digest of a configuration that is put in force."""

    transport: HeartbeatServer
    ticker: Ticker
    catalogue: CataloguePoller
    fences: FencePool
    owner_counters: Callable[[], dict[str, int]]
    configured: Callable[[str], None]
    log: ControlLog | None = None

    def start(self) -> None:
        for part in (self.ticker, self.catalogue, self.fences):
            part.start()

    def stop_applying(self) -> None:
        """Resign, so that another takes over at once; end streams and threads."""
        self.ticker.close()
        self.catalogue.close()
        if self.log is not None:
            self.log.close()
        self.transport.close()
        self.fences.close()

    # what the owner's machine does

    def push(self, agent: str, messages: list[Down]) -> int:
        return self.transport.push(agent, messages)

    def append(self, rev: int, token: int, changes: tuple[Change, ...]) -> None:
        if self.log is not None:
            self.log.append(rev, token, changes)

    def resign(self, why: str) -> None:
        if self.log is not None:
            self.log.resign(why)

    def fence(self, rev: int, unit: str, uid: str, assignment: int) -> None:
        self.fences.ask(rev, unit, uid, assignment)

    def configure(self, digest: str) -> None:
        self.configured(digest)

    def set_leader(self, leader: LeaderInfo) -> None:
        self.transport.set_leader(leader)

    def leading(self, rev: int) -> None:
        self.catalogue.lead(rev)

    def ticked(self, took: float) -> None:
        self.ticker.done(took)

    def counters(self) -> dict[str, int]:
        """Return what a person looks at when something is slow or lost; names are stable."""
        return {
            **{f"transport.{what}": count for what, count in self.transport.counters().items()},
            **(self.log.counters() if self.log is not None else {}),
            **self.owner_counters(),
            "owner.tick_us": int(self.ticker.last * 1e6),
            "fences.waiting": len(self.fences),
            "fences.failed": self.fences.failed,
            "catalogue.errors": self.catalogue.errors,
        }
