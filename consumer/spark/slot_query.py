"""The queries that carry slots: a Structured Streaming query for each, whose task lasts as long as the slot.

The query's source gives one row, so that the slot runs. The row has no data, and Spark knows nothing of the
topics, whose records the slot reads itself. When the task ends, the next micro-batch starts
another one. A slot can so end and begin without the others. A query never continues from its checkpoint:
every start has a new folder.
"""

from __future__ import annotations

import functools
import shutil
import uuid
from pathlib import Path
from typing import Any

from consumer.spark.query import find_cause, find_host
from consumer.spark.slot_task import SlotTask, run_slot


class SlotQuery:
    """A running query that carries one slot.

    `versions`: of the agent (consumer.spark.versions). `folder`: for its checkpoint.
    """

    def __init__(self, session: Any, task: SlotTask, versions: dict[str, str], folder: Path) -> None:
        self._folder = folder / f"slot-{task.number}-{uuid.uuid4().hex}"
        rows = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", "1")
            .option("numPartitions", "1")
            .load()
            .select("value")
        )
        self._query = (
            rows.mapInArrow(functools.partial(run_slot, task.list_fields(), versions), "value long")
            .writeStream.format("noop")
            .queryName(self._folder.name)
            .option("checkpointLocation", self._folder.resolve().as_uri())
            .trigger(processingTime="1 second")
            .start()
        )

    @property
    def active(self) -> bool:
        return bool(self._query.isActive)

    def explain_end(self) -> tuple[str, str]:
        """Return the host of the task, "" if Spark names none, and the error with which the query ended."""
        error = self._query.exception()
        if error is None:
            return "", "the Spark query ended without an error"
        lines = str(error).strip().splitlines()
        return find_host(lines), find_cause(lines)

    def stop(self) -> None:
        """Stop the query. Its slot has been closed, so its task ends by itself."""
        if self._query.isActive:
            self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
