"""The versions of rowlock of the running processes, for `status` and `agents list`. Pure.

An agent's capture and apply processes have the agent's version: a process that finds another version
ends (rowlock/processes/child.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

ProcessRow = Mapping[str, Any]

BEFORE = "before 0.1.0"
"""The version of a process that reports none: 0.1.0 is the first that reports it."""
UNKNOWN_VERSION = "?"


class ProcessVersion(msgspec.Struct, frozen=True):
    """A coordinator or an agent and its version. `version` None: not known."""

    kind: str = msgspec.field(name="kind")
    name: str = msgspec.field(name="name")
    version: str | None = msgspec.field(name="version")


def read_leader_version(leader: ProcessRow) -> str:
    """Return the version of the leader that has answered."""
    return str(leader.get("version") or BEFORE)


def read_agent_version(agent: ProcessRow) -> str | None:
    """Return an agent's version by its row of REST; None: the leader does not know it, because it is
    older or has not heard the agent yet.
    """
    version = agent.get("version")
    if version:
        return str(version)
    return BEFORE if version is not None and agent["state"] != "registered" else None


def process_versions(
    leader_name: str, leader: ProcessRow, agents: Iterable[ProcessRow]
) -> tuple[ProcessVersion, ...]:
    """Return the versions of the leader that has answered, and of its agents in the order of their rows."""
    first = ProcessVersion("coordinator", leader_name, read_leader_version(leader))
    others = (ProcessVersion("agent", str(agent["name"]), read_agent_version(agent)) for agent in agents)
    return (first, *others)


def format_version_lines(versions: Iterable[ProcessVersion]) -> list[str]:
    """Return a line for each running version, with its processes."""
    processes: dict[str, list[str]] = {}
    for each in versions:
        processes.setdefault(each.version or UNKNOWN_VERSION, []).append(f"{each.kind} {each.name}")
    return [f"rowlock {version}: {', '.join(names)}" for version, names in sorted(processes.items())]
