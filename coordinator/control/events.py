"""What the control log tells the coordinator, in this order per term: Elected, then Persisted and Confirmed, then Lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.control.codec import Candidate
from coordinator.core.owner_state import Record


@dataclass(frozen=True, slots=True)
class Elected:
    """This candidate leads in term `rev`, with the records in force."""

    rev: int
    records: Mapping[str, Record]


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The newest claim in the topic. `candidate` None: its owner has resigned and nobody has claimed since."""

    rev: int
    candidate: Candidate | None


@dataclass(frozen=True, slots=True)
class Persisted:
    """The records appended in term `rev` under `token` are committed."""

    rev: int
    token: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A write of term `rev` that began at `at` (own monotonic seconds) was committed: nobody else led before that."""

    rev: int
    at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The term is over: fenced, given up, or a write whose outcome is not known."""

    rev: int
    why: str


LogEvent = Elected | NewLeader | Persisted | Confirmed | Lost
