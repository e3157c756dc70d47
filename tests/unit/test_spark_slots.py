"""The queries of slots in Spark: a query that has ended leaves no folder, and another one follows."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.process.spark_slots import RESTART_BACKOFF, SparkSlots
from consumer.reporting.protocol import LineWriter
from consumer.slots.pool import SlotPool
from schemas.config.spark import SparkConfig


class EndedQuery:
    """A query that ends at once with an error. Like Spark's, it has a folder until it is stopped."""

    active = False

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder / f"slot-{number}"
        self.folder.mkdir()

    def explain_end(self) -> tuple[str, str]:
        return "host-b", "the task failed"

    def stop(self) -> None:
        self.folder.rmdir()


def make_slots(start_slot: Callable[..., Any], folder: Path) -> tuple[SparkSlots, io.StringIO]:
    """Return the slots of `local[1]` without Spark, and what the process writes on stdout."""
    out = io.StringIO()
    spark: Any = SimpleNamespace(start_slot=start_slot, count_cores=lambda: 1)
    config = SparkConfig(master="local[1]")
    slots = SparkSlots(SlotPool(), spark, config, folder, threading.Event(), lines=LineWriter(out))
    return slots, out


def test_failures_of_a_host_are_reported_while_its_slot_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_slot(task: Any, versions: dict[str, str], folder: Path) -> EndedQuery:
        return EndedQuery(folder, task.number)

    slots, out = make_slots(start_slot, tmp_path)
    clock, moments = [0.0], iter((1.0, 40.0, None))

    def wait(_seconds: float) -> None:
        """Let time pass to the next moment; after the last one the process ends."""
        if (moment := next(moments)) is None:
            slots._stop.set()
        else:
            clock[0] = moment

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(slots._stop, "wait", wait)
    try:
        slots.run()
    finally:
        monkeypatch.undo()
        slots.close()
    (line,) = out.getvalue().splitlines()
    assert json.loads(line) == {
        "kind": "slots", "open": 0, "configured": 1, "short_s": 40, "cores": 1,
        "failures": {"host-b": "the task failed"},
    }  # fmt: skip


def test_an_error_of_the_start_is_a_failure_without_a_host(tmp_path: Path) -> None:
    def start_slot(*_: object) -> Any:
        raise RuntimeError("SparkException: no room")

    slots, out = make_slots(start_slot, tmp_path)
    slots._start_if_ended(1, 0.0)
    for now in (0.0, 30.0):
        slots._slot_lines.write_changes(0, now)
    slots.close()
    assert json.loads(out.getvalue())["failures"] == {"": "SparkException: no room"}


def test_a_failed_query_leaves_no_folder_and_is_started_again_after_a_pause(tmp_path: Path) -> None:
    started: list[EndedQuery] = []

    def start_slot(task: Any, versions: dict[str, str], folder: Path) -> EndedQuery:
        started.append(EndedQuery(folder, len(started)))
        return started[-1]

    slots, _ = make_slots(start_slot, tmp_path)
    try:
        slots._start_if_ended(1, 0.0)
        slots._start_if_ended(1, 1.0)
        assert len(started) == 1
        assert not started[0].folder.exists()
        slots._start_if_ended(1, 1.0 + RESTART_BACKOFF.longest)
        assert len(started) == 2
    finally:
        slots.close()
