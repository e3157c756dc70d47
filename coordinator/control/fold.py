"""The state that the control topic, read from its beginning, amounts to: each term's leader, and the records in force. Pure.

Only what the newest claim before it allows counts: a message of another term comes from somebody who no longer led, or
from a foreign producer. Kafka fences older producers already; this is the reader's side of the same rule.

The topic stays bounded: an owner that finds it long writes a snapshot and deletes what is before it (`due`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from coordinator.control.codec import (
    Beat,
    Candidate,
    Changes,
    Claim,
    Message,
    Resigned,
    Snapshot,
)
from coordinator.core.records import DurableRecord


@dataclass(slots=True)
class ControlFold:
    """`rev`: the newest claim (0: none yet), by `candidate` in its attempt `nonce`. `base`: offset of the snapshot in force.

    `resigned`: that owner has given its term up. `unreadable`: a newer major version has written; nothing is folded from there
    on until a snapshot that can be read. `ignored`: by reason.
    """

    rev: int = 0
    candidate: Candidate | None = None
    nonce: str = ""
    resigned: bool = False
    unreadable: bool = False
    base: int = 0
    end: int = 0
    size: int = 0
    records: dict[str, DurableRecord] = field(default_factory=dict)
    ignored: Counter[str] = field(default_factory=Counter)


def fold_message(fold: ControlFold, offset: int, message: Message, size: int = 0) -> bool:
    """Take in the message at `offset`, of `size` bytes; returns whether it counts (a sign that its owner leads)."""
    fold.end = offset + 1
    fold.size += size
    match message:
        case Claim(candidate, nonce):
            _set_leader(fold, offset, candidate, nonce)
            return True
        case Snapshot(rev, candidate, nonce) if rev >= fold.rev:  # later: its claim is deleted already
            fold.records.clear()
            fold.base, fold.size, fold.unreadable = offset, size, False
            _set_leader(fold, rev, candidate, nonce)
            return True
        case Changes(rev, changes) if rev == fold.rev:
            for key, record in changes:
                if record is None:
                    fold.records.pop(key, None)
                else:
                    fold.records[key] = record
            return True
        case Beat(rev) if rev == fold.rev:
            return True
        case Resigned(rev) if rev == fold.rev:
            fold.resigned = True
            return True
    fold.ignored["other term"] += 1
    return False


def _set_leader(fold: ControlFold, rev: int, candidate: Candidate, nonce: str) -> None:
    fold.rev, fold.candidate, fold.nonce, fold.resigned = rev, candidate, nonce, False


def record_foreign_message(fold: ControlFold, offset: int, *, newer: bool) -> None:
    """Take note of a message that cannot be decoded."""
    fold.end = offset + 1
    fold.ignored["newer version" if newer else "foreign"] += 1
    fold.unreadable = fold.unreadable or newer


def is_snapshot_due(length: int, size: int, snapshot_size: int, *, most: int, most_bytes: int) -> bool:
    """Tell whether a snapshot is worth it: `length` offsets and `size` bytes since the last one, which had `snapshot_size`.

    The bytes may be four snapshots, so that large states are not written over and over.
    """
    return length >= most or size >= max(most_bytes, 4 * snapshot_size)
