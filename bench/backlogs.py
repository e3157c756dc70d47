"""Apply alone, Kafka → target: backlogs of a topic, one after the other, in one `rowlock run`.

The first finds a JVM that has just started. The others come while the unit is paused, as after an outage of
the target.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.kit import APPLY_KINDS, Tree, wait
from bench.stage import TOPIC, Bench, capture_all, rowlock_run

RUNS = 5
"""Backlogs of apply: a machine that others use as well makes half of the rate at times."""


def apply(bench: Bench) -> None:
    """Apply alone, Kafka → target, of what capture has put there (now, if it was not measured before)."""
    if not bench.topics.end_connection(TOPIC):
        capture_all(bench)
    for target in bench.targets:
        first, *later = _apply(bench, target)
        rates = sorted(run.rate for run in later)
        cpu = statistics.median(run.cpu_s / run.events for run in later) * 1e6
        bench.figures.add_event(
            f"apply, Kafka → {target}", f"{statistics.median(rates):,.0f} events/s",
            f"median of {len(rates)} backlogs of {bench.events:,} in one `rowlock run`: "
            f"{', '.join(f'{rate:,.0f}' for rate in rates)}; after the first commit; {cpu:.0f} µs of "
            f"processor time an event; goal {'50' if target == 'postgres' else '30'} thousand",
        )  # fmt: skip
        bench.figures.add_event(
            f"apply, Kafka → {target}, the first backlog after a start",
            f"{first.rate:,.0f} events/s",
            f"{first.events:,} events",
        )
        bench.figures.memory(f"apply → {target}", later[-1].peaks)


@dataclass(frozen=True)
class Applied:
    """One backlog applied: events after the first commit, a second; processor seconds of the apply
    processes."""

    events: int
    rate: float
    cpu_s: float
    peaks: dict[str, float]


def _apply(bench: Bench, target: str) -> list[Applied]:
    """Apply what is in the topic, then RUNS further backlogs that come while the unit is paused."""
    name = f"apply_{target}"
    config, begin, end = bench.config(name, target), 1, bench.topics.end_connection(TOPIC)
    unit = f"apply/p/{TOPIC}"
    found: list[Applied] = []
    with (
        rowlock_run(bench, name, config) as ours,
        contextlib.closing(bench.targets[target].connect(name)) as watching,
    ):
        while True:
            found.append(_backlog(ours, watching, begin, end))
            if len(found) > RUNS:
                return found
            _units(config, "pause", unit)
            wait(lambda: _stopped(config, unit), "the pause", pause=0.2)
            begin, end = end, _more(bench)
            _units(config, "resume", unit)


def _backlog(ours: Tree, watching: Any, begin: int, end: int) -> Applied:
    """Measure from the first commit behind the offset `begin` until all before `end` is applied."""
    wait(lambda: _applied(watching) >= begin, "the first commit", pause=0.02)
    applied = _applied(watching)
    started, cpu = time.monotonic(), _apply_cpu(ours)
    wait(lambda: _applied(watching) >= end - 1, "all events", pause=0.05)
    seconds, events = time.monotonic() - started, end - 1 - applied
    return Applied(events, events / seconds, _apply_cpu(ours) - cpu, dict(ours.peaks))


def _apply_cpu(ours: Tree) -> float:
    return sum(seconds for kind, seconds in ours.cpu_by_kind().items() if kind in APPLY_KINDS)


def _stopped(config: Path, unit: str) -> bool:
    return unit not in _units(config, "list", "--state", "replicating", "--output", "json")


def _units(config: Path, *words: str) -> str:
    """Run `rowlock units …` and return what it prints."""
    line = [sys.executable, "-m", "rowlock.cli", "units", *words, "-c", str(config)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def _more(bench: Bench) -> int:
    """Make another backlog at the source; return the topic's end when all of it is captured."""
    end = bench.topics.end_connection(TOPIC) + bench.events
    bench.load(bench.events)
    wait(lambda: bench.topics.end_connection(TOPIC) >= end, "the backlog", pause=0.2)
    return bench.topics.end_connection(TOPIC)


def _applied(connection: Any) -> int:
    """Return the lowest lane's offset of the benchmark's topic; 0 before there is one.

    On one connection for all calls: making one costs a server more than what is measured.
    """
    with contextlib.suppress(Exception), connection.cursor() as cursor:
        where = f"WHERE topic = '{TOPIC}' HAVING MIN(kafka_offset) > 0"
        cursor.execute(f"SELECT MIN(kafka_offset) FROM rowlock_progress {where}")
        found = cursor.fetchone()
        return int(found[0]) if found else 0
    return 0
