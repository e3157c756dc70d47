"""Durable records of an owner: in the control topic the last one under each key counts; None deletes."""

from __future__ import annotations

import msgspec

from coordinator.core.progress import PipelineProgress


class CounterRecord(msgspec.Struct, frozen=True):
    """The highest number ever given, as a unit's assignment or an agent's epoch."""

    epoch: int = msgspec.field(name="epoch")


class AgentRecord(msgspec.Struct, frozen=True):
    agent: str = msgspec.field(name="agent")
    incarnation: str = msgspec.field(name="incarnation")
    agent_epoch: int = msgspec.field(name="agent_epoch")
    draining: bool = msgspec.field(name="draining", default=False)


class UnitRecord(msgspec.Struct, frozen=True):
    """Every (agent, agent_epoch, assignment) that can hold the unit; `uid` of the catalogue's unit they were given for."""

    unit: str = msgspec.field(name="unit")
    uid: str = msgspec.field(name="uid")
    holders: tuple[tuple[str, int, int], ...] = msgspec.field(name="holders")


class PausedRecord(msgspec.Struct, frozen=True):
    unit: str = msgspec.field(name="unit")


class MoveRecord(msgspec.Struct, frozen=True):
    """Somebody has asked for this move, and it has not begun."""

    unit: str = msgspec.field(name="unit")
    agent: str = msgspec.field(name="agent")


class PipelineRecord(msgspec.Struct, frozen=True):
    pipeline: str = msgspec.field(name="pipeline")
    progress: PipelineProgress = msgspec.field(name="progress")


class ConfigRecord(msgspec.Struct, frozen=True):
    """The configuration in force. `revision`: number of the reload that it came with. `parts`: (part, its digest, since which number it is as it
    is): a unit of the part whose assignment is lower was placed under what was before."""

    digest: str = msgspec.field(name="digest")
    revision: int = msgspec.field(name="revision")
    parts: tuple[tuple[str, str, int], ...] = msgspec.field(name="parts")


DurableRecord = (
    CounterRecord | AgentRecord | UnitRecord | PausedRecord | MoveRecord | PipelineRecord | ConfigRecord
)


def build_record_key(record: DurableRecord) -> str:
    """Return the key of a record in the control topic's fold."""
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
