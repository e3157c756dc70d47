"""The parts of a leader's state that last for one term: its claim, the numbers that it gives, the records
that wait to be stored, the active configuration, and a reload under way. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from coordinator.core.records import ConfigRecord

if TYPE_CHECKING:
    from coordinator.core.leader.state import Reload


@dataclass(slots=True)
class TermClaim:
    """The time for which a leader leads, and whether it may still send messages. Times are the leader's
    seconds.
    """

    confirmed_at: float
    """The latest time at which this coordinator certainly was the leader."""
    began: float = 0.0
    """When the term began."""
    floor: int = 0
    """The time of day (ms) when the term began; 0: not known."""
    silent: bool = False
    """Whether the claim has not been confirmed for so long that no messages may be sent."""
    stepped_down: bool = False
    ends_on_violation: bool = True
    """Whether a step that violates an invariant may end the term (`invariants`)."""

    def confirm(self, at: float) -> None:
        """Note that this coordinator was the leader at this time."""
        self.confirmed_at = max(self.confirmed_at, at)

    def update_silence(self, now: float, leader_lease: float) -> bool:
        """Return whether no messages may be sent now."""
        self.silent = now >= self.confirmed_at + leader_lease
        return self.silent

    def step_down(self) -> None:
        """End the term."""
        self.stepped_down = True

    def may_end_for_violation(self, now: float, lease: float) -> bool:
        """Return whether a violated invariant may end the term now: every agent has a lease of it."""
        return self.ends_on_violation and now >= self.began + lease


class PendingRecord(NamedTuple):
    """The decisions that wait for a Persist requested at `asked`."""

    asked: float
    unit: tuple[str, int] | None = None
    """(unit, assignment)."""
    agent: tuple[str, int] | None = None
    """(agent, agent_epoch)."""
    fence: tuple[str, int] | None = None
    """(unit, assignment of the fence)."""


@dataclass(slots=True)
class TermNumbers:
    """The counters of a term."""

    counter: int = 0
    """The highest number given as an assignment or agent epoch."""
    op_seq: int = 0
    """The number of the last message."""
    token: int = 0
    """The number of the last Persist."""
    waiting: dict[int, PendingRecord] = field(default_factory=dict)
    """The decisions that wait for a Persist, by its token."""

    def take_next(self) -> int:
        """Return a number that was never given before, to a unit or to an agent."""
        self.counter += 1
        return self.counter

    def skip_to(self, given: int) -> None:
        """Give only numbers above one that was given before this term."""
        self.counter = max(self.counter, given)

    def take_op_seq(self) -> int:
        self.op_seq += 1
        return self.op_seq

    def begin_persist(self, pending: PendingRecord) -> int:
        """Return the token of a new Persist, for which these decisions wait."""
        self.token += 1
        self.waiting[self.token] = pending
        return self.token

    def end_persist(self, token: int) -> PendingRecord:
        """Return the decisions that waited for a Persist."""
        return self.waiting.pop(token, PendingRecord(float("-inf")))


@dataclass(frozen=True, slots=True)
class Reloading:
    """A reload that waits for agents to report the content of their files."""

    command: Reload
    number: int
    """The number of the question."""
    since: float
    """In the leader's seconds."""


@dataclass(slots=True)
class TermConfiguration:
    """The active configuration, under which units are placed, and a reload under way."""

    record: ConfigRecord | None = None
    """None: not known."""
    since: dict[str, int] = field(default_factory=dict)
    """By part of the configuration: the number of its last change."""
    is_confirmed: bool = False
    """Whether in this term an inventory of the active configuration was read, or a reload activated it."""
    reloading: Reloading | None = None

    def restore(self, record: ConfigRecord) -> None:
        """Begin with the configuration that is stored."""
        self.record = record
        self.since = {part: since for part, _, since in record.parts}

    def is_digest(self, digest: str) -> bool:
        """Return whether this is the digest of the active configuration."""
        return self.record is not None and self.record.digest == digest

    def is_replaced_by_first(self, digest: str) -> bool:
        """Return whether an inventory of this configuration activates it, because it is the first of the
        term.
        """
        return not self.is_confirmed and not self.is_digest(digest)

    def confirm(self) -> None:
        self.is_confirmed = True

    def find_changes(self, parts: Iterable[tuple[str, str]]) -> set[str]:
        """Return the parts that differ from the active configuration; none if it is not known."""
        if self.record is None:
            return set()
        before = {part: was for part, was, _ in self.record.parts}
        return {part for part, digest in parts if before.get(part) != digest}

    def begin_reload(self, reloading: Reloading) -> None:
        self.reloading = reloading

    def end_reload(self) -> None:
        self.reloading = None
