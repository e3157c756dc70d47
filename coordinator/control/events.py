"""Events from the control log to the coordinator, in this order per term: Elected, then Persisted and Confirmed, then Lost; and
who else leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.control.codec import Candidate
from coordinator.core.records import DurableRecord


@dataclass(frozen=True, slots=True)
class Elected:
    """This candidate leads in term `rev`, with the records in force. `at`: when the writing of its claim began (own monotonic
    seconds): nobody else had claimed before that. None: not known."""

    rev: int
    records: Mapping[str, DurableRecord]
    at: float | None = None


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The newest claim in the topic. `candidate` None: its owner has resigned and nobody has claimed since."""

    rev: int
    candidate: Candidate | None


@dataclass(frozen=True, slots=True)
class Heard:
    """At `at` (own monotonic seconds) a message was read that the owner of term `rev`, the newest, has just written."""

    rev: int
    at: float


@dataclass(frozen=True, slots=True)
class RecordsCommitted:
    """The records appended in term `rev` under `token` are committed."""

    rev: int
    token: int


@dataclass(frozen=True, slots=True)
class WriteConfirmed:
    """A write of term `rev` that began at `at` (own monotonic seconds) was committed: nobody else led before that."""

    rev: int
    at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The term is over: fenced, given up, or a write whose outcome is not known."""

    rev: int
    why: str


ControlLogEvent = Elected | NewLeader | Heard | RecordsCommitted | WriteConfirmed | Lost
