"""Durable records of an owner: in the control topic the last one under each key counts; None deletes."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.progress import PipelineProgress


@dataclass(frozen=True, slots=True)
class CounterRecord:
    """The highest number ever given, as a unit's assignment or an agent's epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class AgentRecord:
    agent: str
    incarnation: str
    agent_epoch: int
    draining: bool = False


@dataclass(frozen=True, slots=True)
class UnitRecord:
    """Every (agent, agent_epoch, assignment) that can hold the unit; `uid` of the catalogue's unit they were given for."""

    unit: str
    uid: str
    holders: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class PausedRecord:
    unit: str


@dataclass(frozen=True, slots=True)
class MoveRecord:
    """Somebody has asked for this move, and it has not begun."""

    unit: str
    agent: str


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    pipeline: str
    progress: PipelineProgress


@dataclass(frozen=True, slots=True)
class ConfigRecord:
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
