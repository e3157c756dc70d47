"""Old entries of the quarantine's history are deleted once an hour, and an error changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from consumer.errors import TransientError
from consumer.process.operations.history import INTERVAL_S, HistoryCleaner
from consumer.process.operations.unit_resources import TargetConnectionPool
from consumer.slots.pipeline import PipelineSettings
from schemas.config.model import PipelineConfig


class Store:
    """A target that finds so many expired entries, in this order."""

    def __init__(self, *found: int | Exception) -> None:
        self.found, self.asked = list(found), list[tuple[str, int]]()

    def delete_expired_entries(self, pipeline: str, older_ms: int) -> int:
        self.asked.append((pipeline, older_ms))
        found = self.found.pop(0) if self.found else 0
        if isinstance(found, Exception):
            raise found
        return found

    def get_connection(self, _lane: int) -> Store:
        return self

    @contextmanager
    def borrow_connections(self) -> Iterator[Store]:
        yield self


def pipeline_config(**options: Any) -> PipelineConfig:
    routes = [{"from": "a.b", "to": "c.d"}]
    return PipelineConfig.model_validate({"sources": ["s"], "target": "t", "routes": routes, **options})


def cleaner(store: Store, times: list[float], *, batches: bool = False, **options: Any) -> HistoryCleaner:
    pipeline = SimpleNamespace(name="p", batches=batches, config=pipeline_config(**options))
    return HistoryCleaner(
        cast(PipelineSettings, pipeline), cast(TargetConnectionPool, store), lambda: times[-1]
    )


def test_entries_are_deleted_until_none_is_left_and_again_after_an_hour() -> None:
    store, times = Store(500, 3, 0, 0), [5.0]
    made = cleaner(store, times)
    with capture_logs() as logged:
        made.clean()
        made.clean()
    assert store.asked == [("p", 30 * 86_400_000)] * 3
    assert [(each["event"], each["deleted"]) for each in logged] == [("old quarantine history deleted", 503)]
    times.append(5.0 + INTERVAL_S)
    with capture_logs() as logged:
        made.clean()
    assert (len(store.asked), logged) == (4, [])


def test_an_error_is_logged_and_tried_again_after_an_hour() -> None:
    store, times = Store(500, TransientError("the server ended the connection"), 1), [0.0]
    made = cleaner(store, times, history="12h")
    with capture_logs() as logged:
        made.clean()
        made.clean()
    assert [(each["log_level"], each["deleted"], each["error"]) for each in logged] == [
        ("warning", 500, "the server ended the connection")
    ]
    times.append(INTERVAL_S)
    made.clean()
    assert store.asked == [("p", 12 * 3_600_000)] * 4


@pytest.mark.parametrize("options", [{"history": "forever"}, {"batches": True}])
def test_nothing_is_deleted(options: dict[str, Any]) -> None:
    store = Store(1)
    cleaner(store, [0.0], **options).clean()
    assert store.asked == []


@pytest.mark.parametrize("wrong", ["0d", "30", "30 d", "d", "-1d", "1w", "", "999999d"])
def test_a_wrong_duration_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="history"):
        pipeline_config(history=wrong)
