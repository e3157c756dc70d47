"""What the command line reads from topics: a record that is none hides nothing but itself."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from rowlock.coordinator.control_view import ControlView, find_living_leader
from rowlock.errors import KafkaUnreachableError
from rowlock.views.kafka import KafkaView, OffsetSpan
from schemas.config.model import KafkaConfig
from schemas.errors import EnvelopeError
from schemas.findings import START_OVER
from schemas.io.kafka_probe import SILENT
from schemas.wire.codec import decode_event, encode_event_value
from schemas.wire.records import Watermark
from tests.kits.apply import FakeSource

NEWER = json.dumps({"op": "c", "source": {"version": "99.0"}}).encode()


@pytest.mark.parametrize("raw", [b"\x00\xff garbage", b"", b"[]", b'{"hello": 1}', NEWER])
def test_a_record_that_is_no_event_ends_no_look(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    source = FakeSource()
    good = source.put(source.row(1, None, 1))
    values = {0: raw, 1: encode_event_value(good)}
    monkeypatch.setattr(KafkaView, "_read_value", lambda _self, _topic, offset: values[offset])
    monkeypatch.setattr(KafkaView, "read_watermark_end", lambda _self, _source: 1)
    with contextlib.closing(KafkaView(KafkaConfig(bootstrap="127.0.0.1:1"))) as view:
        assert view.read_event("t", 0) is None
        assert view.read_watermark("b1") is None
        assert view.has_unreadable_watermark("b1")
        assert view.read_event("t", 1) == good


def test_the_last_watermark_is_read_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = Watermark(source="b1", gen=1, position=(0, 1, 1, 0), file="f", commit_ts_ms=1, ts_ms=1, idle=True)
    values: dict[int, bytes | None] = {0: msgspec.json.encode(mark), 1: None}
    monkeypatch.setattr(KafkaView, "_read_value", lambda _self, _topic, offset: values[offset])
    with contextlib.closing(KafkaView(KafkaConfig(bootstrap="127.0.0.1:1"))) as view:
        for end, expected in ((0, None), (1, (0, mark)), (2, (0, mark))):
            monkeypatch.setattr(KafkaView, "read_watermark_end", lambda _self, _source, end=end: end)
            assert view.read_watermark("b1") == expected
            assert not view.has_unreadable_watermark("b1")
        values[0] = None
        assert view.read_watermark("b1") is None, "capture has begun, and sent no watermark yet"
        assert not view.has_unreadable_watermark("b1")


class Making:
    """A client whose topic has its partition at the `ready`-th question; others of Kafka's errors are as they
    are."""

    def __init__(self, ready: int, code: int = KafkaError._UNKNOWN_PARTITION) -> None:
        self.asked, self._ready, self._code = 0, ready, code

    def get_watermark_offsets(self, _at: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        self.asked += 1
        if self.asked < self._ready:
            raise KafkaException(KafkaError(self._code))
        return 3, 7


def test_a_topic_that_is_being_made_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(KafkaView(KafkaConfig(bootstrap="127.0.0.1:1"))) as view:
        made = Making(3)
        with monkeypatch.context() as patch:
            patch.setitem(vars(view), "_client", made)
            assert view.read_span("t") == OffsetSpan(3, 7)
            assert made.asked == 3
            patch.setitem(vars(view), "_client", Making(2, KafkaError._TRANSPORT))
            with pytest.raises(KafkaUnreachableError):
                view.read_span("t")
            patch.setattr("rowlock.views.kafka.KAFKA_VIEW_TIMEOUT_S", 0.2)
            patch.setitem(vars(view), "_client", Making(10**9))
            with pytest.raises(KafkaUnreachableError, match="partition"):
                view.read_span("t")


def test_offsets_that_a_new_leader_does_not_know_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `status` would show a topic that has lost its records."""
    answers = [(0, -1001), (-1001, 7), (3, 7)]
    client = SimpleNamespace(get_watermark_offsets=lambda _at, timeout: answers.pop(0))
    with (
        contextlib.closing(KafkaView(KafkaConfig(bootstrap="127.0.0.1:1"))) as view,
        monkeypatch.context() as patch,
    ):
        patch.setitem(vars(view), "_client", client)
        assert view.read_span("t") == OffsetSpan(3, 7)
        patch.setattr("rowlock.views.kafka.KAFKA_VIEW_TIMEOUT_S", 0.2)
        patch.setattr(client, "get_watermark_offsets", lambda _at, timeout: (0, -1001))
        with pytest.raises(KafkaUnreachableError, match="not caught up"):
            view.read_span("t")


def test_the_remedy_of_a_damaged_record_can_be_carried_out() -> None:
    """Nothing skips a single record."""
    with pytest.raises(EnvelopeError) as refused:
        decode_event(b"garbage")
    seen, remedy = refused.value.problem.what, refused.value.problem.action
    assert "not a rowlock event" in seen
    assert remedy.endswith(START_OVER)


def test_no_client_of_kafka_is_opened_if_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be silent until a time limit, which is long on a busy machine."""
    for module in ("rowlock.views.kafka", "rowlock.coordinator.control_view"):
        monkeypatch.setattr(f"{module}.find_kafka_problem", lambda *_: SILENT)
        monkeypatch.setattr(f"{module}.open_consumer", lambda *_, **__: pytest.fail("a client was opened"))
    kafka = KafkaConfig(bootstrap="127.0.0.1:1")
    with contextlib.closing(KafkaView(kafka)) as view:
        with pytest.raises(KafkaUnreachableError, match=SILENT):
            view.list_topics()
    with pytest.raises(KafkaUnreachableError, match=SILENT):
        ControlView(kafka).read_topic()
    assert find_living_leader(kafka) is None
