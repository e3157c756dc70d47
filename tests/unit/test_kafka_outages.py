"""What is logged while a Kafka broker is away: the client's first line, one a minute, and one at the end."""

from __future__ import annotations

import logging
import socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from schemas.io import kafka_clients
from schemas.io.kafka_outages import REPEAT_S, BrokerOutages, OutageNote, OutageWatch
from schemas.io.logs import make_librdkafka_logger
from tests.kits.waiting import until

REFUSED = "Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"


def line(text: str = REFUSED, broker: str = "h1:9092/1", facility: str = "FAIL") -> str:
    """Return a line as the client writes it."""
    return f"{facility} [rdkafka#producer-1] [thrd:{broker}]: {broker}: {text}"


def test_one_line_is_logged_and_the_rest_counts() -> None:
    outages = BrokerOutages()
    assert outages.record_line(line("Disconnected (after 60000ms in state UP)"), 0.0)
    logged = [outages.record_line(line(), n / 19) for n in range(19 * 30)]
    assert not any(logged)
    assert outages.list_brokers() == ["h1:9092"]


@pytest.mark.parametrize(
    "text",
    [
        REFUSED,
        "Connect to ipv6#[::1]:9092 failed: Network is unreachable (after 0ms in state CONNECT)",
        "Failed to resolve 'h1:9092': Name or service not known (after 3ms in state CONNECT)",
        "Connection setup timed out in state CONNECT (after 30026ms in state CONNECT)",
        "Disconnected: verify that security.protocol is correctly configured (after 0ms in state UP)",
        "Receive failed: Connection reset by peer (after 4ms in state UP)",
        "Send failed: Broken pipe (after 1ms in state UP)",
        "Timed out ApiVersionRequest in flight (after 10009ms, timeout #0)",
        "Timed out 1 in-flight, 0 retry-queued, 0 out-queue, 0 partially-sent requests",
        "1 request(s) timed out: disconnect (average rtt 0.523ms) (after 61120ms in state UP)",
    ],
)
@pytest.mark.parametrize("broker", ["h1:9092/1", "h1:9092/bootstrap", "[::1]:9092/2", "h-1.example:9092"])
def test_lines_about_a_broker_out_of_reach_are_one_outage(text: str, broker: str) -> None:
    outages = BrokerOutages()
    assert [outages.record_line(line(text, broker), now) for now in (0.0, 1.0)] == [True, False]
    assert outages.list_brokers() == [broker.partition("/")[0]]


@pytest.mark.parametrize(
    "text",
    [
        "SASL authentication error: Authentication failed (after 3ms in state AUTH_REQ)",
        "SSL handshake failed: certificate verify failed: broker certificate could not be verified",
        "ApiVersionRequest failed: Local: Required feature not supported by broker",
        "Topic t partition count changed from 1 to 3",
        "Fatal error: Broker: Producer attempted to produce with an old epoch",
    ],
)
def test_every_other_line_is_logged_each_time(text: str) -> None:
    outages = BrokerOutages()
    outages.record_line(line(), 0.0)
    assert all(outages.record_line(line(text), float(n)) for n in range(3))


def test_each_broker_has_an_outage_of_its_own() -> None:
    outages = BrokerOutages()
    lines = line(), line(broker="h2:9092/2"), line(broker="h2:9092/2")
    assert [outages.record_line(each, 0.0) for each in lines] == [True, True, False]
    assert outages.record_answer("h2:9092", 3.0, answers=True) == OutageNote("h2:9092", 3.0, "")
    assert outages.list_brokers() == ["h1:9092"]


def test_a_line_about_all_brokers_is_logged_unless_one_is_known_to_be_away() -> None:
    outages, text = BrokerOutages(), "ERROR [rdkafka#consumer-1] [thrd:main]: 1/1 brokers are down"
    assert outages.record_line(text, 0.0)
    outages.record_line(line(), 0.0)
    assert not outages.record_line(text, 0.0)


def test_each_minute_one_line_names_the_last_reason() -> None:
    outages = BrokerOutages()
    outages.record_line(line(), 0.0)
    outages.record_line(line("Failed to resolve 'h1:9092': Name or service not known"), 1.0)
    notes = [outages.record_answer("h1:9092", float(2 * n), answers=False) for n in range(1, 91)]
    assert [note for note in notes if note is not None] == [
        OutageNote("h1:9092", away, "Failed to resolve 'h1:9092': Name or service not known")
        for away in (REPEAT_S, 2 * REPEAT_S, 3 * REPEAT_S)
    ]


@pytest.mark.parametrize("later", ["another line", "no answer", "nothing"])
def test_the_end_of_an_outage_is_logged_once(later: str) -> None:
    """A connection that the broker has only closed, because it was idle, is opened again at once."""
    outages = BrokerOutages()
    outages.record_line(line("Disconnected (after 600000ms in state UP)"), 0.0)
    if later == "another line":
        outages.record_line(line(), 1.0)
    if later == "no answer":
        assert outages.record_answer("h1:9092", 2.0, answers=False) is None
    note = outages.record_answer("h1:9092", 4.0, answers=True)
    assert note == (None if later == "nothing" else OutageNote("h1:9092", 4.0, ""))
    assert outages.list_brokers() == []
    assert outages.record_line(line(), 5.0), "the next outage has its first line"


def test_a_watch_asks_until_the_broker_answers() -> None:
    answers = iter([False, False, True, True])
    watch = OutageWatch(lambda _: next(answers), pause_s=0.01)
    logger = make_librdkafka_logger(is_logged=watch.record_line)
    with capture_logs() as logs:
        for _ in range(5):
            logger.log(logging.ERROR, "%s", line())
        until(lambda: [each for each in logs if each["event"] == "kafka broker answers again"], "the end", 30)
        assert [each["event"] for each in logs] == [line(), "kafka broker answers again"]
        until(lambda: watch._thread is None, "the end of the watch", 30)
        logger.log(logging.ERROR, "%s", line())
    assert [each["event"] for each in logs][2:] == [line()]


def test_a_broker_that_cannot_be_asked_has_its_lines_logged() -> None:
    """Otherwise the watch would end, and nothing would be logged about this broker ever after."""

    def fail(_: str) -> bool:
        raise RuntimeError("no thread left")

    watch = OutageWatch(fail, pause_s=0.01)
    logger = make_librdkafka_logger(is_logged=watch.record_line)
    with capture_logs() as logs:
        for _ in range(2):
            logger.log(logging.ERROR, "%s", line())
            until(lambda: watch._thread is None, "the end of the watch", 30)
    assert [each["event"] for each in logs] == [line(), "kafka broker cannot be asked"] * 2


def test_a_client_of_a_broker_that_is_away_logs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "_WATCHES", {})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = f"127.0.0.1:{taken.getsockname()[1]}"
    settings = {
        "bootstrap.servers": broker,
        "group.id": "g",
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
    }
    with capture_logs() as logs:
        consumers = [kafka_clients.open_consumer(settings, on_error=lambda _: None) for _ in range(3)]
        for _ in range(10):
            for consumer in consumers:
                consumer.poll(0.1)
        for consumer in consumers:
            consumer.close()
    seen = [str(each["event"]) for each in logs]
    assert len(seen) == 1, seen
    assert "Connection refused" in seen[0]


def test_clients_of_one_kafka_share_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_clients, "_WATCHES", {})
    first: Any = kafka_clients._find_outage_watch({"bootstrap.servers": "h1:1", "group.id": "a"})
    assert kafka_clients._find_outage_watch({"bootstrap.servers": "h1:1", "sasl.password": "p"}) is first
    assert kafka_clients._find_outage_watch({"bootstrap.servers": "h2:1"}) is not first
    assert kafka_clients._CONNECTIONS["h1:1"] == {"sasl.password": "p"}, "that of the newest client"
