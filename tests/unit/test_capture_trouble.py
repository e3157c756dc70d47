"""What a capture process reports before it begins again at its last position."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from producer import capture
from producer.errors import DeliveryError, MessageTooLargeError, TransientSourceError


def test_an_event_that_kafka_has_not_taken_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [
        DeliveryError("fenced"),
        TransientSourceError("no database answers"),
        MessageTooLargeError("too large", "allow more"),
    ]
    stop, troubles = Event(), list[tuple[str, bool]]()

    class FailingRunner:
        def __init__(self, *_: object, **__: object) -> None: ...

        @contextmanager
        def run_capture(self, *, new_snapshot: bool) -> Iterator[None]:
            raise errors.pop(0)
            yield

    def note(why: str, /, *, delivery_failed: bool) -> None:
        troubles.append((why, delivery_failed))
        if not errors:
            stop.set()

    limits = SimpleNamespace(record_refusal=lambda: None)
    monkeypatch.setattr(capture, "CaptureRunner", FailingRunner)
    monkeypatch.setattr(capture, "load_source_database", lambda *_: None)
    monkeypatch.setattr(capture, "SourceTopics", lambda _: SimpleNamespace(read_source_limits=print))
    monkeypatch.setattr(capture, "EventLimits", lambda _: limits)
    monkeypatch.setattr(capture.random, "uniform", lambda *_: 0.0)
    config: Any = SimpleNamespace(kafka=None)
    capture.run_capture(config, "b1", stop, on_trouble=note)
    assert [failed for _, failed in troubles] == [True, False, True]
    assert "no database answers" in troubles[1][0]
