"""A broker that does not answer is a passing trouble, as the client itself reports it: a wait that gives up
at the same time would be taken for an error of the program."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from consumer.errors import TransientError
from consumer.tables import discovery
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


UNITS: dict[str, Callable[[discovery.KafkaCluster], object]] = {
    "topics": lambda cluster: cluster.describe_topics(["t"]),
    "clean-up policy": lambda cluster: cluster.fetch_cleanup_policy("t"),
    "bounds": lambda cluster: cluster.fetch_bounds(["t"]),
}
TARGETS: dict[str, Callable[[TargetTopics], object]] = {
    "ping": lambda target: target.ping(),
    "identity": lambda target: target.find_topic_identity("t"),
    "creation": lambda target: target.ensure_topic("t", 1, {}),
    "ends": lambda target: target.read_end_offsets("t", [0]),
}


@pytest.mark.parametrize("ask", UNITS)
def test_a_silent_broker_is_a_passing_trouble_of_a_unit(
    silent: str, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    monkeypatch.setattr(discovery, "REQUEST_S", TIMEOUT_S)
    with pytest.raises(TransientError):
        UNITS[ask](discovery.KafkaCluster(silent, {}))


@pytest.mark.parametrize("ask", TARGETS)
def test_a_silent_broker_is_a_passing_trouble_of_a_target(
    silent: str, monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    monkeypatch.setattr(topics, "ADMIN_CALL_TIMEOUT_S", TIMEOUT_S)
    config = KafkaTargetConfig(type="kafka", bootstrap=silent)
    with pytest.raises(TransientError):
        TARGETS[ask](TargetTopics(lambda on_error: make_admin_client(config, on_error), 1))
