"""Which clients of Kafka there are, and each one's settings, to the letter: what guarantees rest on is not
changed by a tidy hand.

The library's constructors are replaced wherever they are known, so that the table shows the settings that a
client really begins with.
"""

from __future__ import annotations

import ast
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from consumer.targets.kafka.clients import MAX_CLIENT_RECORD_BYTES
from schemas.config.model import KafkaConfig
from schemas.io import kafka_clients

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("producer", "consumer", "coordinator", "rowlock", "schemas")
KINDS = ("Producer", "Consumer", "AdminClient")
KAFKA = KafkaConfig(
    bootstrap="k:1", prefix="pre", options={"security.protocol": "SSL", "linger.ms": "7", "client.id": "mine"}
)
USERS = {"security.protocol": "SSL", "linger.ms": "7", "client.id": "mine", "bootstrap.servers": "k:1"}
OF_NO_PRODUCER = {"security.protocol": "SSL", "client.id": "mine", "bootstrap.servers": "k:1"}
FIRST = {"enable.auto.commit": False, "auto.offset.reset": "error", "fetch.queue.backoff.ms": 10}
LITTLE_AHEAD = {"queued.min.messages": 20_000, "queued.max.messages.kbytes": 16 << 10}
NOTICES_LOSS = {"socket.timeout.ms": 6_000, "socket.connection.setup.timeout.ms": 5_000}
LOUD, QUIET, SILENT = logging.INFO, logging.DEBUG, None

#: Client → kind, settings, the highest level of its own lines, whether errors of no message go elsewhere.
CLIENTS: dict[str, tuple[str, dict[str, Any], int | None, bool]] = {
    "capture writes": (
        "Producer",
        {
            **USERS, "linger.ms": "7", "compression.type": "lz4", "batch.num.messages": 20000,
            "sticky.partitioning.linger.ms": 0, "acks": "all", "enable.idempotence": True,
            "enable.gapless.guarantee": True, "message.timeout.ms": 0, "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": 2147483647, "message.max.bytes": 16842752,
            "client.id": "rowlock-capture", "reconnect.backoff.max.ms": 1000,
        }, LOUD, True,
    ),
    "capture's topics": ("AdminClient", {**OF_NO_PRODUCER, "reconnect.backoff.max.ms": 1000}, LOUD, False),
    "capture reads": (
        "Consumer",
        {
            **OF_NO_PRODUCER, **FIRST, "reconnect.backoff.max.ms": 1000,
            "group.id": "rowlock-capture-reads-by-offset", "enable.auto.offset.store": False,
            "enable.partition.eof": True, "fetch.wait.max.ms": 20, "receive.message.max.bytes": 33619968,
            "fetch.max.bytes": 16842752, "fetch.message.max.bytes": 1048576,
            "queued.max.messages.kbytes": 16384,
        }, LOUD, False,
    ),
    "apply's topics": ("AdminClient", USERS, LOUD, False),
    "apply reads": (
        "Consumer",
        {**USERS, **FIRST, "group.id": "rowlock-apply", "enable.partition.eof": True,
         "fetch.wait.max.ms": 20, **LITTLE_AHEAD, **NOTICES_LOSS},
        LOUD, False,
    ),
    "watermarks": (
        "Consumer",
        {**USERS, **FIRST, "group.id": "rowlock-apply", "enable.partition.eof": True,
         "fetch.wait.max.ms": 500, **LITTLE_AHEAD, **NOTICES_LOSS},
        LOUD, False,
    ),
    "apply follows": (
        "Consumer",
        {**USERS, **FIRST, "group.id": "rowlock-apply",
         "queued.max.messages.kbytes": 16 << 10, "fetch.message.max.bytes": 1 << 20, **NOTICES_LOSS},
        LOUD, False,
    ),
    "the control topic": ("AdminClient", {**USERS, "reconnect.backoff.max.ms": 500}, QUIET, False),
    "a term": (
        "Producer",
        {
            **USERS, "reconnect.backoff.max.ms": 500, "transactional.id": "pre.coordinator",
            "enable.idempotence": True, "acks": "all", "transaction.timeout.ms": 15000,
            "message.timeout.ms": 14000, "socket.timeout.ms": 14000, "linger.ms": 0,
            "compression.type": "lz4", "client.id": "rowlock-coordinator",
        }, QUIET, False,
    ),
    "the control topic's reader": (
        "Consumer",
        {
            **USERS, "reconnect.backoff.max.ms": 500, "group.id": "pre.coordinator-reads-by-offset",
            "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10,
            "enable.auto.offset.store": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
            "fetch.wait.max.ms": 50, "client.id": "rowlock-coordinator",
        }, QUIET, False,
    ),
    "status and verify": (
        "Consumer",
        {
            **USERS, **FIRST, "group.id": "rowlock-view", "fetch.wait.max.ms": 20,
            "allow.auto.create.topics": False, "socket.connection.setup.timeout.ms": 5000,
        }, SILENT, True,
    ),
    "check of retention": ("AdminClient", USERS, SILENT, False),
    "status of the control topic": (
        "Consumer",
        {
            **USERS, "reconnect.backoff.max.ms": 500, "group.id": "pre.coordinator-reads-by-offset",
            "isolation.level": "read_committed", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10,
            "enable.auto.offset.store": False, "auto.offset.reset": "earliest", "enable.partition.eof": True,
            "fetch.wait.max.ms": 50, "client.id": "rowlock-coordinator", "allow.auto.create.topics": False,
        }, QUIET, True,
    ),
    "the demo": (
        "Consumer",
        {**FIRST, "bootstrap.servers": "k:1", "group.id": "rowlock-demo", "log_level": 0}, SILENT, True,
    ),
}  # fmt: skip


class MadeError(BaseException):
    """Ends whatever makes a client, past all that it catches."""


class Made:
    """Stands in the constructors' place, and keeps what the last one was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: tuple[str, dict[str, Any], Any] | None = None
        for package in PACKAGES:
            for path in (ROOT / package).rglob("*.py"):
                if any(kind in path.read_text() for kind in KINDS):
                    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name, module in list(sys.modules.items()):
            for kind in KINDS if name.partition(".")[0] in PACKAGES else ():
                if hasattr(module, kind):
                    monkeypatch.setattr(module, kind, self._in_place_of(kind))
        for kind in ("Producer", "Consumer"):  # what the product opens in their place
            monkeypatch.setattr(kafka_clients, f"_Shared{kind}", self._in_place_of(kind))

    def _in_place_of(self, kind: str) -> Callable[..., None]:
        def make(settings: dict[str, Any], **more: Any) -> None:
            logger = more.pop("logger", None)
            self.seen = kind, {**settings, **more}, logger
            raise MadeError

        return make

    def by(self, work: Callable[[], object]) -> tuple[str, dict[str, Any], int | None, bool]:
        with pytest.raises(MadeError):
            work()
        assert self.seen is not None
        kind, settings, logger = self.seen
        level = logger.handlers[0]._most if isinstance(logger, logging.Logger) else None
        notified = settings.pop("error_cb", None) is not None
        return kind, settings, level, notified


def makers() -> dict[str, Callable[[], object]]:
    from consumer.attempt.readers import kafka_reader
    from consumer.reporting.source_times import SourceTimes
    from consumer.slots import topic_follower
    from consumer.tables.discovery import KafkaCluster
    from coordinator.control.reader import ControlReader
    from coordinator.control.topic import ControlTopic
    from coordinator.control.transactions import TermProducer
    from producer.kafka.settings import build_capture_producer_settings
    from producer.kafka.topic_reader import TopicReader
    from producer.kafka.topics import SourceTopics
    from producer.kafka.writer import make_client_factory
    from rowlock.coordinator.control_view import ControlView
    from rowlock.demo.rows import RowCounter
    from rowlock.views import kafka as views
    from rowlock.views.topic_settings import TopicSettings

    reader: Any = ControlReader(KAFKA, 1.0, None, lambda _: None)  # type: ignore[arg-type]
    options = kafka_reader.build_reader_settings(KAFKA.bootstrap, KAFKA.options)
    return {
        "capture writes": lambda: make_client_factory(build_capture_producer_settings(KAFKA))(lambda _: None),
        "capture's topics": lambda: SourceTopics(KAFKA),
        "capture reads": lambda: TopicReader(KAFKA),
        "apply's topics": lambda: KafkaCluster(KAFKA.bootstrap, KAFKA.options),
        "apply reads": lambda: list(kafka_reader.read_range(options, "t", 0, 1)),
        "apply follows": lambda: topic_follower.open_consumer(
            topic_follower.build_follower_settings(KAFKA.bootstrap, KAFKA.options)
        ),
        "watermarks": SourceTimes(KAFKA, [])._run_thread,
        "the control topic": lambda: ControlTopic(KAFKA),
        "a term": lambda: TermProducer(KAFKA, 1.0),
        "the control topic's reader": reader._follow_topic,
        "status and verify": lambda: views.KafkaView(KAFKA).list_topics(),
        "check of retention": lambda: TopicSettings(KAFKA).read_retention([]),
        "status of the control topic": lambda: ControlView(KAFKA).read_topic(),
        "the demo": lambda: RowCounter(KAFKA.bootstrap),
    }


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_begins_with_these_settings(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rowlock.views.kafka.scale_timeout", lambda seconds: seconds)
    for module in ("rowlock.views.kafka", "rowlock.coordinator.control_view"):
        monkeypatch.setattr(f"{module}.find_kafka_problem", lambda *_: None)
    assert Made(monkeypatch).by(makers()[client]) == CLIENTS[client]


def test_the_library_is_asked_for_a_client_in_one_module_only() -> None:
    """`deploy` knows nothing of ours: it makes one client that asks whether its own broker is up. The demo's
    tries are those of a person beside rowlock."""
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        if (node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")) in KINDS
    }
    assert found == {"schemas/io/kafka_clients.py", "rowlock/demo/tries.py"}


def test_the_largest_record_is_the_largest_that_a_client_can_be_configured_for() -> None:
    def build(size: int) -> Producer:
        return Producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": size})

    build(MAX_CLIENT_RECORD_BYTES)
    with pytest.raises(KafkaException):
        build(MAX_CLIENT_RECORD_BYTES + 1)
