"""What came of each table at each target. Pure: facts come in, verdicts come out.

A table is judged by a full comparison of its rows, unless rowlock itself reports that it does not follow it
and what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    EQUAL = "equal"
    HELD = "held with reason"  # all that differs are rows whose events are in the quarantine
    STOPPED = "stopped with remedy"
    LEFT_OUT = "left out with reason"  # it never was captured, and status says why
    DIFFERENT = "different"
    MUTE = "stopped without reason or remedy"
    LATE = "not arrived"  # rowlock says that it is behind, and it does not get on


BAD = frozenset({Verdict.DIFFERENT, Verdict.MUTE, Verdict.LATE})


@dataclass(frozen=True, slots=True)
class Place:
    """A table of a source, and where it goes."""

    pipeline: str
    source: str
    db: str
    table: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found of a place. `state`, `reason`, `remedy`: what status reports; `state` is "" where it
    reports nothing.

    `compared`: whether all rows of both sides were; `differing`: keys of rows that differ, as the quarantine
    writes keys; `problem`: why nothing was compared; `held`: keys in the quarantine.
    """

    state: str = ""
    reason: str = ""
    remedy: str = ""
    compared: bool = False
    rows: int = 0
    differing: Sequence[str] = ()
    problem: str = ""
    held: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    place: Place
    verdict: Verdict
    why: str
    rows: int = 0


def judged(place: Place, facts: Facts) -> Judged:
    if facts.state in ("stopped", "left out"):
        reported = f"{facts.reason}: {facts.remedy}"
        if not (facts.reason and facts.remedy):
            return Judged(place, Verdict.MUTE, reported)
        return Judged(place, Verdict.STOPPED if facts.state == "stopped" else Verdict.LEFT_OUT, reported)
    if facts.compared and not facts.differing:
        return Judged(place, Verdict.EQUAL, "", facts.rows)
    if facts.compared and set(facts.differing) <= set(facts.held):
        return Judged(place, Verdict.HELD, f"{len(facts.differing)} keys held", facts.rows)
    if facts.state in ("behind", "restarting", "unknown", "new"):
        return Judged(place, Verdict.LATE, f"{facts.state}: {facts.reason or facts.problem}", facts.rows)
    return Judged(place, Verdict.DIFFERENT, facts.problem or f"keys {list(facts.differing)[:5]}", facts.rows)
