"""A Kafka client that believes in what was once is replaced: it would ask in vain for ever."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from consumer.errors import TransientError
from consumer.tables import discovery

MADE: list[Admin] = []


class Admin:
    """An admin client whose answers to list_offsets are errors of this code; 0: none."""

    codes: ClassVar[list[int]] = []
    exists: ClassVar[bool] = True
    offset: ClassVar[int] = 7

    def __init__(self, settings: dict[str, Any], **_: object) -> None:
        self.code = Admin.codes[len(MADE)]
        MADE.append(self)

    def list_offsets(self, asked: dict[Any, Any], request_timeout: float) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = {part: Future() for part in asked}
        for future in futures.values():
            if self.code:
                future.set_exception(KafkaException(KafkaError(self.code)))
            else:
                future.set_result(SimpleNamespace(offset=Admin.offset))
        return futures

    def describe_topics(self, asked: TopicCollection, request_timeout: float) -> dict[str, Future[Any]]:
        futures: dict[str, Future[Any]] = {"t": Future()}
        if Admin.exists:
            futures["t"].set_result(SimpleNamespace(topic_id="id", partitions=[0]))
        else:
            futures["t"].set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return futures


@pytest.fixture(autouse=True)
def _admin(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setattr(discovery, "open_admin", Admin)


def bounds(*codes: int, exists: bool = True) -> dict[str, tuple[int, int]]:
    Admin.codes, Admin.exists = list(codes), exists
    return discovery.KafkaCluster("b:1", {}).fetch_bounds(["t"])


@pytest.mark.parametrize(
    "code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART]
)
def test_a_stale_client_is_replaced_at_once(code: int) -> None:
    assert bounds(code, 0) == {"t": (7, 7)}
    assert len(MADE) == 2


def test_another_error_is_the_brokers() -> None:
    with pytest.raises(TransientError):
        bounds(KafkaError.LEADER_NOT_AVAILABLE, 0)
    assert len(MADE) == 1


def test_a_new_client_that_is_stale_as_well_is_no_endless_loop() -> None:
    with pytest.raises(TransientError, match="FENCED_LEADER_EPOCH"):
        bounds(KafkaError.FENCED_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH)
    assert len(MADE) == 2


def test_a_topic_that_is_gone_has_no_bounds() -> None:
    assert bounds(KafkaError.UNKNOWN_TOPIC_OR_PART, exists=False) == {}
    assert len(MADE) == 1, "and makes no new client each time"


def test_an_offset_that_the_broker_does_not_know_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader answers so while it takes over: as the topic's end it would have stopped the unit, with
    the advice to start over."""
    monkeypatch.setattr(Admin, "offset", -1001)
    with pytest.raises(TransientError, match="does not know the bounds"):
        bounds(0)
