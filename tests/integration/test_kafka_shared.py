"""A topic of a broker passes what of the tests of databases it can mean: the same functions. What is left
out, and why: tests/kits/kafka_shared.py."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from deploy.embedded.services import Kafka
from tests.conformance.suite import suite
from tests.kits.kafka_attempts import clusters
from tests.kits.kafka_shared import LEFT_OUT, SHARED
from tests.stands.kafka_target import KafkaStand

real = clusters()
pytestmark = pytest.mark.timeout(240)
ALL = suite(*(import_module(f"tests.integration.{name}") for name in SHARED))
globals().update({name: each for name, each in ALL.items() if name not in LEFT_OUT})


@pytest.fixture
def target(kafka: Kafka, unique: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaStand]:
    """Epochs count from 1."""
    monkeypatch.setattr("schemas.clock.read_clock_ms", lambda: 0)
    stand = KafkaStand(kafka, unique)
    yield stand
    for session in stand.sessions:
        session.close()
