"""Events from the control log to the coordinator.

Per term they come in this order: Elected, then RecordsCommitted and WriteConfirmed, then Lost. NewLeader
and Heard report the leader of any term. After ControlTopicLost nothing comes any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.control.codec import Candidate
from coordinator.core.records import DurableRecord
from schemas.problems import Problem


@dataclass(frozen=True, slots=True)
class Elected:
    """This candidate leads in term `rev`, with the durable records."""

    rev: int
    records: Mapping[str, DurableRecord]
    at: float | None = None
    """When the write of its claim began (own monotonic seconds): no other coordinator had claimed before
    that. None: not known.
    """


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The newest claim in the topic. `candidate` None: its leader has resigned, and no candidate has
    claimed since.
    """

    rev: int
    candidate: Candidate | None


@dataclass(frozen=True, slots=True)
class Heard:
    """At `at` (own monotonic seconds) a message was read that the leader of term `rev`, the newest, has
    just written.
    """

    rev: int
    at: float


@dataclass(frozen=True, slots=True)
class RecordsCommitted:
    """The records appended in term `rev` under `token` are committed."""

    rev: int
    token: int


@dataclass(frozen=True, slots=True)
class WriteConfirmed:
    """A write of term `rev` that began at `at` (own monotonic seconds) was committed, so no other
    coordinator led before that.
    """

    rev: int
    at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The term has ended: fenced, given up, or after a write with an unknown outcome."""

    rev: int
    why: str


@dataclass(frozen=True, slots=True)
class ControlTopicLost:
    """The control topic was deleted, or began anew: this coordinator cannot go on. It is the last event."""

    problem: Problem


ControlLogEvent = Elected | NewLeader | Heard | RecordsCommitted | WriteConfirmed | Lost | ControlTopicLost
