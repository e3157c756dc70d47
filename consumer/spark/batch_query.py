"""A query into a whole-batch target: the driver applies the ranges of Spark's micro-batches, at its own
interval.

A micro-batch gives the offsets of each topic. The driver reads the records from Kafka while it applies
them, so memory is bounded by one commit and not by the micro-batch. Active units, attempts and reports
work as in a query with tasks.
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
    """The function that `foreachBatch` calls for each batch, in a thread of the driver."""

    def __init__(self, config: TaskConfig, attempts: AttemptLocks) -> None:
        self._config = config
        self._worker = QueryWorker(config, attempts)
        self._busy = threading.Lock()
        self._closed = False

    def __call__(self, batch: list[TopicRange]) -> None:
        """Apply the active units of `batch`.

        An error of a unit is in its report and does not affect the others.
        """
        with self._busy:
            if not self._closed:
                read = self._worker.read_records  # yields nothing for a unit that is not active
                groups = ((topic, read(topic, first, last + 1)) for topic, first, last in batch)
                apply_all(self._worker, self._config, groups)
            if self._closed:
                self._worker.close()

    def stop_applying(self, patience: float) -> None:
        """Apply nothing more, and wait up to `patience` seconds for the running batch, which Spark's
        stop does not end.
        """
        self._closed = True
        if not self._busy.acquire(timeout=patience):  # the batch then closes what it uses
            log.warning("batch in the driver did not end in time", query=self._config.query, seconds=patience)
            return
        self._worker.close()
        self._busy.release()


class BatchQuery(RunningQuery):
    """A RunningQuery into a whole-batch target. `attempts`: the attempt locks of this process."""

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
