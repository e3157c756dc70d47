"""The error that explains why a cluster does not answer: the client reports it beside the call that failed,
and others after it."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer.errors import ConsumerError
from consumer.targets.kafka.topics import TargetTopics
from schemas.io.kafka_clients import OnError

DENIED = KafkaError(KafkaError._AUTHENTICATION, "SASL says no")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
NO_ANSWER = KafkaError(KafkaError._TRANSPORT, "no answer")


class Client:
    """It tells errors when it is polled, and answers nothing else."""

    def __init__(self, hear: OnError, *notified: KafkaError) -> None:
        self._record_error, self._told = hear, list(notified)

    def poll(self, _: float) -> None:
        while self._told:
            self._record_error(self._told.pop(0))

    def list_topics(self, timeout: float) -> None:
        raise KafkaException(NO_ANSWER)


@pytest.mark.parametrize(
    ("notified", "reported"),
    [
        ([DENIED], "SASL says no"),
        ([DENIED, DOWN], "SASL says no"),
        ([DOWN], "no answer"),
        ([], "no answer"),
    ],
    ids=str,
)
def test_a_cluster_that_does_not_answer_is_told_with_what_its_client_knows(
    notified: list[KafkaError], reported: str
) -> None:
    def opened(hear: OnError) -> Any:
        return Client(hear, *notified)

    with pytest.raises(ConsumerError, match=reported):
        TargetTopics(opened, 1).ping()


def test_a_client_that_answered_with_an_error_is_closed_at_once() -> None:
    """Else its threads and connections stay until the cycle collector runs, and Spark's tasks turn it off."""
    clients: list[weakref.ref[Client]] = []

    def open_client(hear: OnError) -> Any:
        client = Client(hear, DENIED)
        clients.append(weakref.ref(client))
        return client

    topics = TargetTopics(open_client, 1)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            with contextlib.suppress(
                ConsumerError
            ):  # pytest.raises would keep the frames that have the client
                topics.ping()
        assert [each() for each in clients] == [None, None]
    finally:
        gc.enable()
