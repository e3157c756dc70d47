"""One started query: the topics that it reads, its active units, and how it is stopped.

Each query has its own file of active units, so that two queries of a pipeline can run side by side while
units move from one to the other. Whatever the timing, the fencing tokens in the target distinguish their
attempts.
"""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog

from consumer.spark.active_units import write_active_units
from consumer.spark.pipeline import PipelineSettings, TaskConfig
from consumer.spark.query import MAX_OFFSETS_PER_TRIGGER, build_kafka_options, find_cause, start_query
from consumer.spark.task import run_task

log = structlog.get_logger(__name__)

DRAIN_S = 30.0
"""Longest wait in seconds for the batch in flight when the query is stopped."""


class RunningQuery:
    """A running query with tasks.

    `starting`: topic → first offset (-1: the end). `config.units`: the units of all its topics.
    `epochs`: the units to apply from the first batch on, with their fencing tokens.
    """

    def __init__(
        self,
        spark: Any,
        pipeline: PipelineSettings,
        config: TaskConfig,
        starting: Mapping[str, int],
        *,
        epochs: Mapping[str, int],
        slots: int,
        per_trigger: int = MAX_OFFSETS_PER_TRIGGER,
    ) -> None:
        self.name = config.query
        self.topics = frozenset(starting)
        self._folder = pipeline.state_dir.resolve() / "queries" / self.name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._board = self._folder / "board"
        self._epochs = dict(epochs)
        write_active_units(self._board, epochs)
        options = build_kafka_options(
            pipeline.bootstrap, starting, pipeline.kafka_options, {}, per_trigger=per_trigger
        )
        self._query = self._start_query(
            spark, pipeline, replace(config, board=str(self._board)), options, slots
        )

    def _start_query(
        self,
        spark: Any,
        pipeline: PipelineSettings,
        config: TaskConfig,
        options: Mapping[str, str],
        slots: int,
    ) -> Any:
        return start_query(
            spark,
            name=self.name,
            options=options,
            task=functools.partial(run_task, config),
            slots=slots,
            checkpoints=self._folder / "checkpoint",
        )

    def post_active_units(self, epochs: Mapping[str, int]) -> None:
        """Apply exactly these units (topic → fencing token) from now on."""
        if epochs != self._epochs:
            self._epochs = dict(epochs)
            write_active_units(self._board, epochs)

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    def explain_end(self) -> str:
        """Return the error with which the query ended."""
        error = self._query.exception()
        if error is None:
            return find_cause(["the Spark query ended without an error"])
        return find_cause(str(error).strip().splitlines())

    def read_progress(self) -> tuple[int, dict[str, int], bool]:
        """Return (last finished batch or -1, next offsets after it, whether no batch is running)."""
        idle = not self._query.status["isTriggerActive"]
        return (*_get_finished_offsets(self._query), idle)

    def stop(self) -> None:
        """Let the batch in flight end, then stop the query. Tasks begin no further topic once no unit is
        active.

        Spark's stop alone would cancel the running task in the middle of its transactions.
        """
        self.post_active_units({})
        try:
            if self._query.isActive:
                self._wait_for_batch()
                self._query.stop()
        except Exception as error:  # noqa: BLE001  # py4j raises the query's error; it has ended either way
            log.warning(
                "Spark query failed while stopping",
                query=self.name,
                error=find_cause(str(error).splitlines()),
            )
        self._finish_query()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _finish_query(self) -> None:
        """Release what the stopped query holds. For subclasses."""

    def _wait_for_batch(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        before = _get_last_batch(self._query)
        while time.monotonic() < deadline and self._query.isActive:
            if not self._query.status["isTriggerActive"] or _get_last_batch(self._query) != before:
                return
            time.sleep(0.02)
        log.warning("batch did not end in time", query=self.name, seconds=DRAIN_S)


def _get_last_batch(query: Any) -> int:
    """Return the last finished batch, -1 before the first.

    Reads the JVM's object: PySpark's `lastProgress` copies all of it, with over a hundred calls, several
    times a second.
    """
    progress = query._jsq.lastProgress()
    return -1 if progress is None else int(progress.batchId())


def _get_finished_offsets(query: Any) -> tuple[int, dict[str, int]]:
    """Return the last finished batch (-1 before the first) and topic → next offset after it."""
    progress = query._jsq.lastProgress()
    if progress is None:
        return -1, {}
    return int(progress.batchId()), end_offsets([source.endOffset() for source in progress.sources()])


def end_offsets(ends: Iterable[str | None]) -> dict[str, int]:
    """Return topic → next offset, of the Kafka sources' end offsets (JSON: topic → partition → offset)."""
    found: dict[str, int] = {}
    for text in ends:
        found |= {topic: parts["0"] for topic, parts in (json.loads(text) if text else {}).items()}
    return found
