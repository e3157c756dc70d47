"""Durable records of a leader. In the control topic the last record of each key counts; None deletes it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from coordinator.core.progress import PipelineProgress


class CounterRecord(msgspec.Struct, frozen=True):
    """The highest number given so far, as a unit's assignment or an agent's epoch."""

    epoch: int = msgspec.field(name="epoch")


class AgentRecord(msgspec.Struct, frozen=True):
    agent: str = msgspec.field(name="agent")
    incarnation: str = msgspec.field(name="incarnation")
    agent_epoch: int = msgspec.field(name="agent_epoch")
    draining: bool = msgspec.field(name="draining", default=False)


class UnitRecord(msgspec.Struct, frozen=True):
    """The replicas of a unit."""

    unit: str = msgspec.field(name="unit")
    uid: str = msgspec.field(name="uid")
    """The uid of the unit in the inventory for which they were placed."""
    holders: tuple[tuple[str, int, int], ...] = msgspec.field(name="holders")
    """Every (agent, agent_epoch, assignment) that can hold the unit."""


class PausedRecord(msgspec.Struct, frozen=True):
    unit: str = msgspec.field(name="unit")


class MoveRecord(msgspec.Struct, frozen=True):
    """A requested move that has not begun."""

    unit: str = msgspec.field(name="unit")
    agent: str = msgspec.field(name="agent")


class PipelineRecord(msgspec.Struct, frozen=True):
    pipeline: str = msgspec.field(name="pipeline")
    progress: PipelineProgress = msgspec.field(name="progress")


class ConfigRecord(msgspec.Struct, frozen=True):
    """The active configuration."""

    digest: str = msgspec.field(name="digest")
    revision: int = msgspec.field(name="revision")
    """The number of the reload that activated it."""
    parts: tuple[tuple[str, str, int], ...] = msgspec.field(name="parts")
    """(part, its digest, number of its last change). A unit of the part with a lower assignment was
    placed under an earlier configuration.
    """


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record that cannot be decoded. It is kept, and a snapshot holds its bytes again."""

    key: str
    data: bytes
    why: str


StoredRecord = (
    CounterRecord | AgentRecord | UnitRecord | PausedRecord | MoveRecord | PipelineRecord | ConfigRecord
)
DurableRecord = StoredRecord | UnreadableRecord


def build_record_key(record: DurableRecord) -> str:
    """Return the key of a record in the control topic."""
    match record:
        case CounterRecord():
            return "counter"
        case AgentRecord(agent):
            return f"agent/{agent}"
        case UnitRecord(unit):
            return f"unit/{unit}"
        case PausedRecord(unit):
            return f"paused/{unit}"
        case MoveRecord(unit):
            return f"move/{unit}"
        case PipelineRecord(pipeline):
            return f"pipeline/{pipeline}"
        case ConfigRecord():
            return "configuration"
        case UnreadableRecord(key):
            return key
