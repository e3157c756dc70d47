"""The queries of slots in Spark: a query that has ended leaves nothing behind, and another one follows."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from consumer.process.spark_slots import RESTART_BACKOFF, SparkSlots
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


def test_a_failed_query_leaves_no_folder_and_is_started_again_after_a_pause(tmp_path: Path) -> None:
    started: list[EndedQuery] = []

    def start_slot(task: Any, versions: dict[str, str], folder: Path) -> EndedQuery:
        started.append(EndedQuery(folder, len(started)))
        return started[-1]

    spark = SimpleNamespace(start_slot=start_slot)
    pool = cast("SlotPool", SimpleNamespace())
    slots = SparkSlots(pool, cast("Any", spark), SparkConfig(master="local[1]"), tmp_path, threading.Event())
    try:
        slots._start_if_ended(1, 0.0)
        slots._start_if_ended(1, 1.0)
        assert len(started) == 1
        assert not started[0].folder.exists()
        slots._start_if_ended(1, 1.0 + RESTART_BACKOFF.longest)
        assert len(started) == 2
    finally:
        slots.close()
