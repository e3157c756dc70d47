"""The active configuration of a term, and a reload under way. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator.core.records import ConfigRecord

if TYPE_CHECKING:
    from coordinator.core.leader.state import Reload


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
