"""Versions as numbers, and what the agents of a version of rowlock can apply. Pure."""

from __future__ import annotations

import re

from schemas.units import OldestAgents

REMOVALS_SINCE = (0, 3)
"""The first version that applies the event of removed rows (`p`)."""


def parse_version(version: str) -> tuple[int, int]:
    """Return (4, 1) for "4.1.4"; (0, 0) for a text that is no version, as "" of rowlock before 0.1.0."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def explain_unknown_removals(oldest: OldestAgents | None) -> str:
    """Return why capture may not send the event of removed rows: an agent that does not know it would stop
    the table until it is upgraded. "": it may. `oldest` None: the versions of the agents are not known.
    """
    if oldest is None:
        return "the versions of the agents are not known yet"
    if parse_version(oldest.version) >= REMOVALS_SINCE:
        return ""
    names = ", ".join(oldest.agents)
    who = f"agent {names}" if len(oldest.agents) == 1 else f"agents {names}"
    version = f"version {oldest.version}" if oldest.version else "a version before 0.1.0"
    return f"{who} of {version} cannot apply the removal alone: upgrade every agent"
