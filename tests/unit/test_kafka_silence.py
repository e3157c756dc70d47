"""A broker that does not answer is a passing trouble, as the client itself reports it: a wait that gives up
at the same time would be taken for an error of the program."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from consumer.errors import TransientError
from consumer.tables import discovery
from consumer.tables.discovery import KafkaCluster
from consumer.targets.kafka import topics
from consumer.targets.kafka.clients import make_admin_client
from consumer.targets.kafka.topics import TargetTopics
from schemas.config.model import KafkaTargetConfig

TIMEOUT_S = 0.3


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def open_target(bootstrap: str) -> TargetTopics:
    config = KafkaTargetConfig(type="kafka", bootstrap=bootstrap)
    return TargetTopics(lambda on_error: make_admin_client(config, on_error), 1)


ASKS: dict[str, Callable[[str], object]] = {
    "a unit's topics": lambda at: KafkaCluster(at, {}).describe_topics(["t"]),
    "a unit's clean-up policy": lambda at: KafkaCluster(at, {}).fetch_cleanup_policy("t"),
    "a unit's bounds": lambda at: KafkaCluster(at, {}).fetch_bounds(["t"]),
    "the target": lambda at: open_target(at).ping(),
    "a target's identity": lambda at: open_target(at).find_topic_identity("t"),
    "a target's creation": lambda at: open_target(at).ensure_topic("t", 1, {}),
    "a target's ends": lambda at: open_target(at).read_end_offsets("t", [0]),
}


@pytest.mark.parametrize("ask", ASKS)
def test_a_silent_broker_is_a_passing_trouble(silent: str, monkeypatch: pytest.MonkeyPatch, ask: str) -> None:
    monkeypatch.setattr(discovery, "REQUEST_S", TIMEOUT_S)
    monkeypatch.setattr(topics, "ADMIN_CALL_TIMEOUT_S", TIMEOUT_S)
    with pytest.raises(TransientError):
        ASKS[ask](silent)
