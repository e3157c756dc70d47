"""The parts of a coordinator that the leader's state machine uses: transport, log, fences, inventory,
time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.control.codec import RecordChange
from coordinator.control.kafka_log import ControlLog
from coordinator.core.messages import Down
from coordinator.server.background import FencePool, InventoryPoller, Ticker
from coordinator.transport.events import LeaderInfo
from coordinator.transport.server import HeartbeatServer


@dataclass(slots=True)
class CoordinatorParts:
    """The parts of a coordinator."""

    transport: HeartbeatServer
    ticker: Ticker
    inventory: InventoryPoller
    fences: FencePool
    leader_counters: Callable[[], dict[str, int]]
    """Returns the counters of the leader's state machine and of the parts that bring its messages."""
    configured: Callable[[str], None]
    """Receives the digest of each configuration that is activated."""
    log: ControlLog | None = None
    """None until the coordinator's address is known."""

    def start(self) -> None:
        for part in (self.ticker, self.inventory, self.fences):
            part.start()

    def start_log(self, log: ControlLog) -> None:
        """Follow the control topic, and write to it. Raises ControlTopicError."""
        self.log = log
        log.start()

    def close(self) -> None:
        """Resign, so that another coordinator becomes the leader at once, and end streams and threads."""
        self.ticker.close()
        self.inventory.close()
        if self.log is not None:
            self.log.close()
        self.transport.close()
        self.fences.close()

    # effects of the leader's machine: none of them blocks

    def push_messages(self, agent: str, messages: list[Down]) -> int:
        """Send messages to the agent, and return how many were accepted."""
        return self.transport.push_messages(agent, messages)

    def append_changes(self, rev: int, token: int, changes: tuple[RecordChange, ...]) -> None:
        if self.log is not None:
            self.log.append_changes(rev, token, changes)

    def resign_term(self, why: str) -> None:
        if self.log is not None:
            self.log.resign_term(why)

    def queue_fence(self, rev: int, unit: str, uid: str, assignment: int) -> None:
        self.fences.queue_fence(rev, unit, uid, assignment)

    def adopt_config(self, digest: str) -> None:
        """Use the configuration of this digest, which the file was last found to hold, as the active one."""
        self.configured(digest)

    def set_leader(self, leader: LeaderInfo) -> None:
        self.transport.set_leader(leader)

    def set_term(self, rev: int) -> None:
        """Note that a term of this coordinator begins; 0: it has ended."""
        self.inventory.set_term(rev)

    def finish_tick(self, took: float) -> None:
        self.ticker.finish_tick(took)

    def get_counters(self) -> dict[str, int]:
        """Return the counters that explain slowness or losses. Their names are stable."""
        return {
            **{f"transport.{what}": count for what, count in self.transport.get_counters().items()},
            **(self.log.get_counters() if self.log is not None else {}),
            **self.leader_counters(),
            "owner.tick_us": int(self.ticker.last * 1e6),
            "fences.waiting": len(self.fences),
            "fences.failed": self.fences.failed,
            "catalogue.errors": self.inventory.errors,
        }
