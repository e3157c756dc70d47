"""What the command line reads from topics: a record that is none hides nothing but itself."""

from __future__ import annotations

import contextlib
import json

import pytest

from rowlock.views.kafka import KafkaView
from schemas.config.model import KafkaConfig
from schemas.errors import EnvelopeError
from schemas.findings import split_remedy
from schemas.wire.codec import decode_event, encode_event
from tests.apply_kit import FakeSource

NEWER = json.dumps({"op": "c", "source": {"version": "99.0"}}).encode()


@pytest.mark.parametrize("raw", [b"\x00\xff garbage", b"", b"[]", b'{"hello": 1}', NEWER])
def test_a_record_that_is_no_event_ends_no_look(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    source = FakeSource()
    good = source.put(source.row(1, None, 1))
    values = {0: raw, 1: encode_event(good)}
    monkeypatch.setattr(KafkaView, "_value", lambda _self, _topic, offset: values[offset])
    monkeypatch.setattr(KafkaView, "watermark_end", lambda _self, _source: 1)
    with contextlib.closing(KafkaView(KafkaConfig(bootstrap="127.0.0.1:1"))) as view:
        assert view.event("t", 0) is None
        assert view.watermark("b1") is None
        assert view.event("t", 1) == good


def test_the_remedy_of_a_damaged_record_can_be_carried_out() -> None:
    """Nothing skips a single record."""
    with pytest.raises(EnvelopeError) as refused:
        decode_event(b"garbage")
    seen, remedy = split_remedy(str(refused.value))
    assert "not a rowlock event" in seen
    assert remedy.endswith("start over (docs/how-to/start-over.md)")
