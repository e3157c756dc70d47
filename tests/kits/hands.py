"""Operations of a pipeline's units over a target in memory, and a Kafka that says what it is told to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

from consumer.process.operations.copy_desk import UnitCopies
from consumer.process.operations.history import HistoryCleaner
from consumer.process.operations.target_checks import TargetProbe
from consumer.process.operations.unit_resources import TargetConnectionPool, UnitTopics
from consumer.process.unit_operations import UnitOperations
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.served_pipeline import UnitInputs


def operations(
    pipeline: PipelineSettings, hand: Callable[[], AbstractContextManager[Any]], cluster: Any
) -> UnitOperations:
    """`hand()`: a free hand. `cluster`: answers `describe_topics` and `fetch_bounds`."""
    made = object.__new__(UnitOperations)
    made._pipeline = pipeline
    made._topics = UnitTopics(cluster, lambda *_: None)
    made._hands = cast(TargetConnectionPool, SimpleNamespace(borrow_connections=hand))
    made._inputs = UnitInputs(pipeline, lambda *_: nullcontext(), {})
    made._looks = TargetProbe(pipeline)
    made._copies = cast(UnitCopies, SimpleNamespace(find_copy_offset=lambda _unit: None))
    made._history = cast(HistoryCleaner, SimpleNamespace(clean=lambda: None))
    made._aborted = set()
    made._logged_offsets = {}
    return made
