"""Deletes entries that left the quarantine long ago (`history` of the pipeline)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import cast

import structlog

from consumer.process.operations.unit_resources import TargetConnectionPool
from consumer.slots.pipeline import PipelineSettings
from consumer.targets.progress import SqlProgressStore

INTERVAL_S = 3600.0
"""Interval in seconds between two deletions of a pipeline's expired entries."""

log = structlog.get_logger(__name__)


class HistoryCleaner:
    """Deletes the expired entries of one pipeline's history, once an hour.

    Each process that applies units of the pipeline does it; the second finds nothing to delete.
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        connections: TargetConnectionPool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._connections, self._clock = pipeline.name, connections, clock
        self._keep_ms = None if pipeline.batches else pipeline.config.history_ms
        self._due = 0.0

    def clean(self) -> None:
        """Delete what has expired, if an hour has passed. An error is logged, and tried again after an hour:
        no row depends on it.
        """
        if self._keep_ms is None or self._clock() < self._due:
            return
        self._due = self._clock() + INTERVAL_S
        deleted = 0
        try:
            with self._connections.borrow_connections() as sessions:
                store = cast(SqlProgressStore, sessions.get_connection(0))
                while some := store.delete_expired_entries(self._name, self._keep_ms):
                    deleted += some
        except Exception as error:  # noqa: BLE001  # logged, and tried again
            log.warning(
                "old quarantine history not deleted",
                pipeline=self._name,
                deleted=deleted,
                error=str(error)[:300],
            )
        else:
            if deleted:
                log.info("old quarantine history deleted", pipeline=self._name, deleted=deleted)
