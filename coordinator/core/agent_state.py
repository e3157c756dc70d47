"""The parts of an agent's state: when it sends, the leader that it obeys, the units that it holds, and the
configuration that it follows. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordinator.core import agent_unit
from coordinator.core.agent_unit import AgentUnit, UnitEffect, UnitEvent
from coordinator.core.messages import Announce, ConfigVersion, FileAnswer, Header, UnitStatus
from schemas.units import UnitPhase, UnitProgress

TAKE_AGAIN = 5.0
"""Seconds between two attempts to load the active configuration, if the agent's file did not hold it."""


@dataclass(slots=True)
class HeartbeatTimes:
    """The times of an agent's next messages, in seconds of its monotonic clock."""

    interval: float = 1.0
    """Seconds between two heartbeats, given by the leader."""
    next_heartbeat: float = float("-inf")
    next_checkpoint: float = float("-inf")

    def set_interval(self, interval: float) -> None:
        self.interval = interval

    def make_heartbeat_due(self, now: float) -> None:
        """Send the next heartbeat now."""
        self.next_heartbeat = min(self.next_heartbeat, now)

    def begin_heartbeat(self, now: float) -> bool:
        """Return whether a heartbeat is due, and begin the time until the next one."""
        if now < self.next_heartbeat:
            return False
        self.next_heartbeat = now + self.interval
        return True

    def begin_checkpoint(self, now: float, units: int) -> bool:
        """Return whether an agent with so many units may send a checkpoint, and begin the time until the
        next one.
        """
        if now < self.next_checkpoint:
            return False
        self.next_checkpoint = now + compute_checkpoint_interval(units)
        return True


def compute_checkpoint_interval(units: int) -> float:
    """Return the seconds between two checkpoints of an agent with so many units: about a hundred units'
    progress a second.

    With many units their progress is only sent with the heartbeats: the leader computes pipeline
    progress no more often than that.
    """
    return max(0.2, units / 100)


@dataclass(slots=True)
class ObeyedLeader:
    """The leader that an agent obeys. It is the one with the highest term that has announced itself."""

    name: str = ""
    rev: int = 0
    """The leader's term: the offset of its claim in the control topic; 0 before the first announcement."""
    agent_epoch: int = 0
    """The number of this incarnation of the agent, given by the leader; 0 before the first announcement."""
    seq: int = 0
    """The number of the last message sent in this incarnation."""

    @property
    def is_known(self) -> bool:
        """True once a leader has announced itself."""
        return self.agent_epoch > 0

    def build_header(self, assignment: int = 0) -> Header:
        """Return the header of the next message."""
        self.seq += 1
        return Header(self.rev, self.agent_epoch, assignment, self.seq)

    def is_contradicted(self, message: Announce) -> bool:
        """Return whether another leader announces itself for the term of this one."""
        return message.header.owner_rev == self.rev and message.owner != self.name

    def adopt_announcement(self, message: Announce) -> bool:
        """Obey the leader that announces itself, and return whether its term is a later one."""
        is_later = message.header.owner_rev > self.rev
        self.name, self.rev = message.owner, message.header.owner_rev
        self.agent_epoch = message.header.agent_epoch
        return is_later


@dataclass(slots=True)
class HeldUnits:
    """The units that an agent holds, and those with progress to report."""

    by_name: dict[str, AgentUnit] = field(default_factory=dict)
    moved: dict[str, None] = field(default_factory=dict)
    """Units with progress that has not been sent yet."""

    def find_unit(self, unit: str) -> AgentUnit:
        """Return the unit; one that is not held is absent."""
        return self.by_name.get(unit) or AgentUnit(unit)

    def step_unit(self, unit: str, event: UnitEvent, now: float) -> tuple[AgentUnit, tuple[UnitEffect, ...]]:
        """Step the unit, and return it with what has to be done."""
        before = self.find_unit(unit)
        held, effects = agent_unit.step_agent_unit(before, event, now)
        self.by_name[unit] = held
        return held, effects

    def note_progress(self, unit: str) -> None:
        """Report the unit's progress with the next message."""
        self.moved[unit] = None

    def forget_absent(self) -> None:
        """Forget the assignments that earlier leaders have ended."""
        self.by_name = {
            unit: held for unit, held in self.by_name.items() if held.state is not UnitPhase.ABSENT
        }

    def list_statuses(self) -> tuple[UnitStatus, ...]:
        """Return the status of every unit that is held, ordered by unit name."""
        return tuple(h.status for _, h in sorted(self.by_name.items()) if h.state is not UnitPhase.ABSENT)

    def list_writing(self) -> Iterator[AgentUnit]:
        """Yield the units that may write, each as long as its lease lasts."""
        return (held for held in self.by_name.values() if held.state is UnitPhase.REPLICATING)

    def has_running(self) -> bool:
        """Return whether a unit has a worker that has not ended."""
        ended = {UnitPhase.ABSENT, UnitPhase.STOPPED}
        return any(held.state not in ended for held in self.by_name.values())

    def take_statuses(self) -> tuple[UnitStatus, ...]:
        """Return the status of every unit, which contains all progress."""
        self.moved.clear()
        return self.list_statuses()

    def take_progress(self) -> tuple[tuple[str, int, UnitProgress], ...]:
        """Return (unit, assignment, progress) of the units with progress that has not been sent yet."""
        held = [self.by_name[unit] for unit in sorted(self.moved) if unit in self.by_name]
        self.moved.clear()
        return tuple((h.unit, h.assignment, h.mark) for h in held if h.mark is not None)


@dataclass(frozen=True, slots=True)
class ConfigAttempt:
    """An attempt to load the active configuration from the agent's file."""

    version: ConfigVersion
    retry_at: float
    """Time of the next attempt, in seconds of the agent's monotonic clock."""


@dataclass(slots=True)
class FollowedConfiguration:
    """The configuration of an agent that takes part in reloads."""

    version: ConfigVersion
    """The configuration under which newly given units run."""
    attempt: ConfigAttempt | None = None
    """The last attempt to load another one; None: it has the active configuration."""
    asked: int = 0
    """The number of the leader's last question about the agent's file."""
    file: FileAnswer | None = None
    """The last answer to a question about the agent's file."""

    def begin_attempt(self, active: ConfigVersion | None, now: float) -> bool:
        """Return whether to load the active configuration now. None: the leader does not know it."""
        if active is None or active == self.version:
            self.attempt = None
            return False
        if self.attempt is not None and self.attempt.version == active and now < self.attempt.retry_at:
            return False
        self.attempt = ConfigAttempt(active, now + TAKE_AGAIN)
        return True

    def begin_answer(self, asked: int) -> bool:
        """Return whether the leader asks a new question about the file."""
        is_new = asked > self.asked
        self.asked = max(asked, self.asked)
        return is_new

    def answer(self, file: FileAnswer) -> None:
        """Report the content of the file with each heartbeat."""
        self.file = file

    def adopt(self, version: ConfigVersion) -> None:
        """Run newly given units under this configuration."""
        self.version = version
