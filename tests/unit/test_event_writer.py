"""The suite of capture's writer: the product's on a client in memory, and the tests' own."""

from __future__ import annotations

import random

import pytest

from producer.kafka.writer import KafkaWriter
from producer.ports import EventWriter
from tests.conformance import event_writer
from tests.conformance.event_writer import Writing
from tests.conformance.suite import suite
from tests.sim.kafka import Broker, Client
from tests.stands.event_writer import TopicWriter

globals().update(suite(event_writer))


@pytest.fixture(params=["product", "stand", "stand that holds"])
def writing(request: pytest.FixtureRequest) -> Writing:
    broker = Broker()
    broker.ensure("ab", {})
    if request.param == "product":
        client = Client(broker, random.Random(7), lambda: 0.0, lambda: None)
        writer: EventWriter = KafkaWriter(lambda _on_error: client, lambda: False)
    else:
        writer = TopicWriter(broker.append, holding=request.param == "stand that holds")
    return Writing(
        writer, lambda topic: [(each.key(), each.value()) for each in broker.topics[topic].records]
    )
