"""Whether a broker that was away answers again, asked of a real one."""

from __future__ import annotations

import pytest

from deploy.embedded.services import Kafka
from schemas.io import kafka_clients

pytestmark = pytest.mark.integration


def test_only_an_answer_of_kafka_s_own_protocol_counts(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that hangs still accepts connections."""
    monkeypatch.setattr(kafka_clients, "_WATCHES", {})
    kafka_clients._find_outage_watch({"bootstrap.servers": "h:1"})
    assert kafka_clients._is_answering("h:1", kafka.bootstrap)
    kafka.process.pause()
    try:
        assert not kafka_clients._is_answering("h:1", kafka.bootstrap)
    finally:
        kafka.process.resume()
