"""The waits of the demo, each with a longest time. They are shown, and explained in one sentence if
nothing moves any more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rowlock.demo.view import DemoFigures
from rowlock.errors import CommandError
from rowlock.inspect.observed.source_status import LEFT_OUT, NOT_RUNNING_TEXT
from rowlock.inspect.status import Status
from schemas.patience import AdaptiveTimeout, measure_pressure

STALL_TIMEOUT_S = 180.0
"""Seconds without progress after which a wait is given up, on an idle machine."""


@dataclass(slots=True)
class Milestones:
    """The milestones that `rowlock run` has logged so far."""

    spark: bool = False
    slots: int = 0
    taken: int = 0
    error: str = ""
    """Its last error."""

    def take_line(self, line: str) -> None:
        fields = _parse_fields(line)
        if fields is None:
            self._record_output(line)
            return
        match fields.get("event"):
            case "Spark started":
                self.spark = True
            case "slot opened":
                self.slots += 1
            case "unit taken over":
                self.taken += 1
        if fields.get("level") in ("error", "critical"):
            self.error = ": ".join(
                str(fields[name]) for name in ("event", "reason", "error") if fields.get(name)
            )

    def _record_output(self, line: str) -> None:
        """Note a line that is not JSON: an error of `check`, or else the last message."""
        kind, _, text = line.strip().partition(": ")
        if kind != "rowlock" or text.startswith("warning: "):
            return
        if text.startswith("error: ") or not self.error:
            self.error = text.removeprefix("error: ")


def _parse_fields(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class LogFollower:
    """Reads a log as it grows, whole lines only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.milestones = Milestones()

    def read_new_lines(self) -> Milestones:
        with self._path.open("rb") as log:
            log.seek(self._at)
            *lines, _ = log.read().split(b"\n")
        for line in lines:
            self._at += len(line) + 1
            self.milestones.take_line(line.decode(errors="replace"))
        return self.milestones


def describe_next_step(
    status: Status | None, figures: DemoFigures | None, log: Milestones, tables: int
) -> str:
    """Return what has to happen next. `tables`: the expected number of tables. Pure."""
    if status is None or figures is None:
        return "Kafka to answer"
    trouble = [f"{each.name} ({each.reason})" for each in status.sources if each.state == "restarting"]
    if trouble:
        return "capture to go on at " + ", ".join(trouble)
    new = [source.name for source in status.sources if source.state in ("new", "stopped")]
    if new:
        return f"capture to start at {', '.join(new)}"
    pending = sorted({name for source in status.sources for name in source.snapshot_pending})
    if pending or len(figures.captured) < tables:
        return f"capture to read the existing rows of {', '.join(pending) or 'all tables'}"
    if figures.count_applied() == 0 and log.taken == 0:
        return "the tables to be taken over by the apply process"
    if figures.backlog:
        return f"{figures.backlog:,} events to be applied"
    return "the figures to be complete"


def explain_problem(status: Status) -> str | None:
    """Return the problem that a person would have to solve, in one sentence; None: there is none. Pure."""
    ends = [
        f"{source.name} is not captured: {source.reason}"
        for source in status.sources
        if source.state == "stopped" and source.reason not in (None, NOT_RUNNING_TEXT, LEFT_OUT)
    ]
    ends += [f"{unit.topic} has stopped: {unit.stopped}" for unit in status.units if unit.stopped]
    more = f" (and {len(ends) - 1} more)" if len(ends) > 1 else ""
    return f"{ends[0]}{more}" if ends else None


class DemoWait:
    """Waits as long as there is progress: each observed change renews its patience."""

    def __init__(
        self, what: str, patience: AdaptiveTimeout | None = None, busy: Callable[[], float] = measure_pressure
    ) -> None:
        """`what`: the beginning of the error message."""
        self._what, self._busy = what, busy
        self._patience = patience or AdaptiveTimeout(STALL_TIMEOUT_S)
        self._seen: object = None

    @property
    def waited(self) -> float:
        return self._patience.waited

    def check_movement(
        self, status: Status | None, figures: DemoFigures | None, log: Milestones, tables: int
    ) -> str:
        """Return what the demo waits for. Raises CommandError, in one sentence, if nothing has changed
        for too long.
        """
        waiting = describe_next_step(status, figures, log, tables)
        seen = (
            waiting,
            _extract_movement(status),
            figures and (figures.captured, figures.applied),
            (log.spark, log.slots, log.taken),
        )
        if seen != self._seen:
            self._seen = seen
            self._patience.renew()
        if self._patience.is_over():
            busy = self._busy()
            load = f", with {busy:.0f} times as much work as the processors can do" if busy >= 2 else ""
            error = f"; its last error: {log.error}" if log.error else ""
            raise CommandError(
                f"{self._what}: it waited for {waiting}, and there was no progress for "
                f"{self._patience.waited:.0f} s{load}{error}"
            )
        return waiting


def _extract_movement(status: Status | None) -> object:
    if status is None:
        return None
    return (
        [(each.state, each.position, each.snapshot_pending, each.events) for each in status.sources],
        [(each.topic, each.state, each.offset) for each in status.units],
    )
