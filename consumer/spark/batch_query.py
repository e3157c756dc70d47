"""A query into a target of whole batches: the driver applies what Spark's micro-batches tell of, at a cadence of its own.

A micro-batch says how far each topic goes; the records themselves the driver reads from Kafka, as they are applied, so that what is in memory
is bounded by what one commit takes and not by what Spark hands over. Everything else is the worker's of a query with tasks: board,
attempt, reports.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import structlog

from consumer.spark.active_units import AttemptLocks
from consumer.spark.pipeline import PipelineSettings, TaskConfig
from consumer.spark.query import TopicRange, start_batches
from consumer.spark.query_handle import DRAIN_S, RunningQuery
from consumer.spark.task import apply_all
from consumer.spark.worker import QueryWorker

log = structlog.get_logger(__name__)


class DriverTask:
    """The function that `foreachBatch` calls, batch after batch, in a thread of the driver."""

    def __init__(self, config: TaskConfig, attempts: AttemptLocks) -> None:
        self._config = config
        self._worker = QueryWorker(config, attempts)
        self._busy = threading.Lock()
        self._closed = False

    def __call__(self, batch: list[TopicRange]) -> None:
        """Apply the units of `batch` that are on the query's board. Trouble of a unit is in its report and ends nothing else."""
        with self._busy:
            if not self._closed:
                read = self._worker.read_records  # nothing, of a unit that is not on the board
                groups = ((topic, read(topic, first, last + 1)) for topic, first, last in batch)
                apply_all(self._worker, self._config, groups)
            if self._closed:
                self._worker.close()

    def stop_applying(self, patience: float) -> None:
        """Apply nothing more. A batch that is under way is waited for, `patience` seconds: Spark's stop does not end it."""
        self._closed = True
        if not self._busy.acquire(timeout=patience):  # it closes what it uses itself
            log.warning("batch in the driver did not end in time", query=self._config.query, seconds=patience)
            return
        self._worker.close()
        self._busy.release()


class BatchQuery(RunningQuery):
    """`attempts`: this process's own. See RunningQuery."""

    def __init__(self, *arguments: Any, attempts: AttemptLocks, **more: Any) -> None:
        self._attempts = attempts
        super().__init__(*arguments, **more)

    def _start_query(
        self,
        spark: Any,
        pipeline: PipelineSettings,
        config: TaskConfig,
        options: Mapping[str, str],
        slots: int,
    ) -> Any:
        self._task = DriverTask(config, self._attempts)
        return start_batches(
            spark,
            name=self.name,
            options=options,
            each=self._task,
            every=pipeline.commit_every,
            slots=slots,
            checkpoints=self._folder / "checkpoint",
        )

    def _finish_query(self) -> None:
        self._task.stop_applying(DRAIN_S)
