"""The state that the control topic contains, read from its beginning: the leader of the newest term, and
the durable records. Pure.

A message counts only if it belongs to the term of the newest claim before it. A message of another term
comes from a coordinator that no longer led, or from a foreign producer. Kafka fences older producers
already; this is the reader's side of the same rule.

The topic stays bounded: a leader that finds it long writes a snapshot and deletes what is before it
(`is_snapshot_due`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.control.codec import (
    Beat,
    Candidate,
    Changes,
    Claim,
    Message,
    RecordChange,
    Resigned,
    Snapshot,
)
from coordinator.core.records import DurableRecord


@dataclass(slots=True)
class ControlFold:
    """The state after the messages read so far."""

    rev: int = 0
    """The term of the newest claim; 0: none yet."""
    candidate: Candidate | None = None
    """The candidate of that claim."""
    nonce: str = ""
    """The attempt of that claim."""
    resigned: bool = False
    """Whether that leader has given up its term."""
    unreadable: bool = False
    """Whether a newer major version has written. Nothing more is folded until a snapshot that can be read."""
    base: int = 0
    """The offset of the current snapshot."""
    end: int = 0
    size: int = 0
    """Bytes since then."""
    records: dict[str, DurableRecord] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)
    """Messages that did not count, by reason."""

    def fold_message(self, offset: int, message: Message, size: int = 0) -> bool:
        """Apply the message at `offset`, of `size` bytes, and return whether it counts (as a sign of life
        of its leader).
        """
        self.end = offset + 1
        self.size += size
        match message:
            case Claim(candidate, nonce):
                self._set_leader(offset, candidate, nonce)
                return True
            case Snapshot(rev, candidate, nonce) if rev >= self.rev:  # later: its claim is deleted already
                self.records.clear()
                self.base, self.size, self.unreadable = offset, size, False
                self._set_leader(rev, candidate, nonce)
                return True
            case Changes(rev, changes) if rev == self.rev:
                apply_changes(self.records, changes)
                return True
            case Beat(rev) if rev == self.rev:
                return True
            case Resigned(rev) if rev == self.rev:
                self.resigned = True
                return True
        self.ignored["other term"] += 1
        return False

    def _set_leader(self, rev: int, candidate: Candidate, nonce: str) -> None:
        self.rev, self.candidate, self.nonce, self.resigned = rev, candidate, nonce, False

    def record_foreign_message(self, offset: int, *, newer: bool) -> None:
        """Note a message that cannot be decoded."""
        self.end = offset + 1
        self.ignored["newer version" if newer else "foreign"] += 1
        self.unreadable = self.unreadable or newer


def apply_changes(records: dict[str, DurableRecord], changes: Iterable[RecordChange]) -> None:
    """Set or delete durable records."""
    for key, record in changes:
        if record is None:
            records.pop(key, None)
        else:
            records[key] = record


def is_snapshot_due(length: int, size: int, snapshot_size: int, *, most: int, most_bytes: int) -> bool:
    """Return whether to write a snapshot: `length` offsets and `size` bytes were written since the last
    one of `snapshot_size` bytes.

    The bytes may reach four snapshots, so that large states are not written again and again.
    """
    return length >= most or size >= max(most_bytes, 4 * snapshot_size)
