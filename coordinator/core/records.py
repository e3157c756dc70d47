"""Durable records of an owner: in the control topic the last one under each key counts; None deletes."""

from __future__ import annotations

import msgspec

from coordinator.core.progress import PipelineProgress


class CounterRecord(msgspec.Struct, frozen=True):
    """The highest number ever given, as a unit's assignment or an agent's epoch."""

    epoch: int


class AgentRecord(msgspec.Struct, frozen=True):
    agent: str
    incarnation: str
    agent_epoch: int
    draining: bool = False


class UnitRecord(msgspec.Struct, frozen=True):
    """Every (agent, agent_epoch, assignment) that can hold the unit; `uid` of the catalogue's unit they were given for."""

    unit: str
    uid: str
    holders: tuple[tuple[str, int, int], ...]


class PausedRecord(msgspec.Struct, frozen=True):
    unit: str


class MoveRecord(msgspec.Struct, frozen=True):
    """Somebody has asked for this move, and it has not begun."""

    unit: str
    agent: str


class PipelineRecord(msgspec.Struct, frozen=True):
    pipeline: str
    progress: PipelineProgress


class ConfigRecord(msgspec.Struct, frozen=True):
    """The configuration in force. `revision`: number of the reload that it came with. `parts`: (part, its digest, since which number it is as it
    is): a unit of the part whose assignment is lower was placed under what was before."""

    digest: str
    revision: int
    parts: tuple[tuple[str, str, int], ...]


Record = CounterRecord | AgentRecord | UnitRecord | PausedRecord | MoveRecord | PipelineRecord | ConfigRecord


def key_of(record: Record) -> str:
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
