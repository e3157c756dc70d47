"""The writer's promises, against librdkafka's own mock broker; and cutting packets, options and grants."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.checks.binlog_server import check_server_settings
from producer.errors import (
    ConfigError,
    DeliveryError,
    KafkaRefusedError,
    MessageTooLargeError,
    StreamStoppedError,
    TransientSourceError,
)
from producer.kafka import settings as kafka_settings
from producer.kafka import writer as kafka_writer
from producer.kafka.event_limits import EventLimits
from producer.kafka.settings import build_capture_producer_settings, check_capture_kafka_options
from producer.kafka.writer import InterruptedWriteError, KafkaWriter
from producer.sources.binlog import log_stream
from producer.sources.binlog.binlog_dump import PacketSplitter, split_packets
from producer.sources.binlog.large_packets import LargePacket
from producer.sources.binlog.log_stream import SILENCE, LogStream
from producer.sources.grants import list_missing_grants
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from schemas.config.model import KafkaConfig, SourceConfig


class FakeProducer:
    """A client that delivers when it is told to. `taken`: (topic, value) in the order of produce_batch."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.callbacks: list[tuple[str, Any]] = []
        self.purged = False
        self.refuse = False
        self.failing: KafkaError | None = None

    def produce_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> int:
        assert not self.purged, "nothing may be produced after a failure"
        assert partition == 0
        if self.refuse:
            messages[0]["_error"] = "no"
            return len(messages) - 1
        for message in messages:
            self.taken.append((topic, message["value"]))
            self.callbacks.append((topic, message.get("callback")))
        return len(messages)

    def deliver(self, number: int) -> None:
        self.failing = None
        self._due = number

    _due = 0

    def poll(self, _: float) -> None:
        due, self._due = self._due, 0
        for offset in range(due):
            topic, callback = self.callbacks.pop(0)
            if callback is not None:
                callback(self.failing, _Delivered(topic, offset))

    def purge(self, **_: Any) -> None:
        self.purged = True


class _Delivered:
    def __init__(self, topic: str, offset: int) -> None:
        self._topic, self._offset = topic, offset

    def topic(self) -> str:
        return self._topic

    def offset(self) -> int:
        return self._offset


@pytest.fixture
def client() -> FakeProducer:
    return FakeProducer()


def test_a_mark_waits_for_everything_before_it(client: FakeProducer) -> None:
    writer = KafkaWriter(lambda _: client, lambda: False)
    reached: list[str] = []
    writer.send("a", b"k", b"1")
    writer.send_all("b", [(b"k", b"2"), (b"k", b"3")], 4)
    writer.call_when_acknowledged(lambda: reached.append("first"))
    writer.send("a", b"k", b"4")
    writer.call_when_acknowledged(lambda: reached.append("second"))
    client.deliver(2)
    writer.poll_acknowledgements(0)
    assert reached == [], "the last message of topic b is not acknowledged"
    client.deliver(1)
    writer.poll_acknowledgements(0)
    assert reached == ["first"]
    client.deliver(1)
    writer.poll_acknowledgements(0)
    assert reached == ["first", "second"]


def test_of_records_those_fit_that_stand_before_the_first_one_that_is_too_large() -> None:
    small, limit = (b"k", b"v"), kafka_settings.MAX_EVENT_BYTES
    assert kafka_settings.count_fitting_records([]) == (0, 0)
    assert kafka_settings.count_fitting_records([small, (b"k", bytes(limit - 1))]) == (2, limit + 2), (
        "together they may be more"
    )
    assert kafka_settings.count_fitting_records([small, small, (b"k", bytes(limit)), small]) == (2, 4)


def test_no_records_are_no_message(client: FakeProducer) -> None:
    """A rows event with a single row, the last one read so far: its record is held back, and what is left is
    flushed."""
    writer = KafkaWriter(lambda _: client, lambda: False)
    writer.send_all("a", [], 0)
    writer.flush()
    assert client.taken == []
    writer.drain()


def test_the_first_failure_purges_and_nothing_more_is_produced(client: FakeProducer) -> None:
    writer = KafkaWriter(lambda _: client, lambda: False)
    writer.send("a", b"k", b"1")
    writer.flush()
    client.deliver(1)
    client.failing = KafkaError(KafkaError._MSG_TIMED_OUT)
    with pytest.raises(DeliveryError, match="for a"):
        writer.poll_acknowledgements(0)
    assert client.purged
    writer.send("a", b"k", b"2")
    with pytest.raises(DeliveryError):
        writer.flush()


def test_a_batch_that_is_not_taken_whole_is_a_failure(client: FakeProducer) -> None:
    writer = KafkaWriter(lambda _: client, lambda: False)
    client.refuse = True
    writer.send("a", b"k", b"1")
    with pytest.raises(DeliveryError, match="refused"):
        writer.flush()
    assert client.purged


def test_what_is_in_flight_is_bounded_and_a_stop_ends_the_wait(
    client: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_writer, "IN_FLIGHT", 1000)
    asked = iter([False, False, True])
    writer = KafkaWriter(lambda _: client, lambda: next(asked))
    writer.send("a", b"k", bytes(2000))
    with pytest.raises(InterruptedWriteError):
        writer.flush()
    client.deliver(1)
    writer.flush()


GAPLESS = (
    "ProduceRequest for a [0] with 50 message(s) failed: Broker: Message size too large (broker 1): unable "
    "to satisfy gap-less guarantee"
)


@pytest.mark.parametrize(
    ("seen", "kind"), [(GAPLESS, MessageTooLargeError), ("the epoch is fenced", DeliveryError)]
)
def test_a_fatal_error_that_the_client_raises_is_a_failed_delivery(
    client: FakeProducer, monkeypatch: pytest.MonkeyPatch, seen: str, kind: type[DeliveryError]
) -> None:
    """It calls no callback of ours: the error would have ended the process."""
    writer = KafkaWriter(lambda _: client, lambda: False)
    writer.send("a", b"k", b"1")
    writer.flush()
    fatal = KafkaError(KafkaError._GAPLESS_GUARANTEE, seen, fatal=True)

    def raise_fatal(_timeout: float) -> None:
        raise KafkaException(fatal)

    monkeypatch.setattr(client, "poll", raise_fatal)
    with pytest.raises(DeliveryError, match=re.escape(seen)) as failed:
        writer.drain()
    assert type(failed.value) is kind
    assert client.purged


class Settings:
    """The limits of topics in Kafka, and which were read."""

    def __init__(self, **limits: int) -> None:
        self.limits, self.read = limits, list[list[str] | None]()

    def __call__(self, topics: Iterable[str] | None) -> dict[str, int]:
        self.read.append(None if topics is None else list(topics))
        return self.limits if topics is None else {name: self.limits[name] for name in topics}


BIG, SMALL = (b"k", bytes(50_000)), (b"k", b"v")


def test_the_limits_of_topics_do_not_matter_until_kafka_refuses_a_batch() -> None:
    settings = Settings(a=10_000)
    limits = EventLimits(settings)
    limits.read_topics()
    assert (settings.read, limits.batch_bytes) == ([], None)
    assert limits.count_fitting("a", [SMALL, BIG]) == (2, 50_003)


def test_after_a_refusal_events_are_compared_with_the_limit_of_their_topic() -> None:
    settings = Settings(a=10_000, b=kafka_settings.TOPIC_MESSAGE_BYTES, c=20_000)
    limits = EventLimits(settings)
    limits.record_refusal()
    limits.read_topics()
    assert limits.batch_bytes == 10_000 - kafka_settings.MESSAGE_OVERHEAD
    assert limits.get_limit("b") == kafka_settings.MAX_EVENT_BYTES
    assert limits.count_fitting("b", [SMALL, BIG]) == (2, 50_003)
    assert limits.count_fitting("a", [SMALL, BIG, SMALL]) == (1, 2)
    assert settings.read == [None, ["a"]], "before an event is refused, the setting is read again"
    assert limits.count_fitting("a", [SMALL]) == (1, 2)
    assert len(settings.read) == 2


def test_a_limit_that_was_raised_counts_at_once() -> None:
    settings = Settings(a=10_000)
    limits = EventLimits(settings)
    limits.record_refusal()
    limits.read_topics()
    settings.limits["a"] = kafka_settings.TOPIC_MESSAGE_BYTES
    assert limits.count_fitting("a", [BIG]) == (1, 50_001)
    assert limits.get_limit("a") == kafka_settings.MAX_EVENT_BYTES
    settings.limits["a"] = 5_000
    limits.read_topics()
    assert limits.get_limit("a") == 5_000 - kafka_settings.MESSAGE_OVERHEAD
    settings.limits["a"] = 10
    limits.read_topics()
    assert (limits.get_limit("a"), limits.batch_bytes) == (1, 1)


def test_batches_are_no_larger_than_the_smallest_limit() -> None:
    kafka = KafkaConfig(bootstrap="x:1", options={"batch.size": "900000"})
    assert build_capture_producer_settings(kafka)["batch.size"] == "900000"
    assert build_capture_producer_settings(kafka, 1000)["batch.size"] == 1000
    Producer({**build_capture_producer_settings(kafka, 1), "log_level": 0})  # librdkafka accepts it


def test_too_large_an_event_names_its_row(client: FakeProducer) -> None:
    writer = KafkaWriter(lambda _: client, lambda: False)
    with pytest.raises(KafkaRefusedError, match=r'"id":7.*max\.message\.bytes'):
        writer.send("a", b'{"id":7}', bytes(kafka_settings.MAX_MESSAGE_BYTES))
    assert client.purged


def test_the_settings_are_what_the_guarantees_need() -> None:
    settings = build_capture_producer_settings(
        KafkaConfig(bootstrap="x:1", options={"linger.ms": "1", "sasl.username": "u"})
    )
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True
    assert settings["enable.gapless.guarantee"] is True
    assert settings["message.timeout.ms"] == 0
    assert settings["linger.ms"] == "1"
    assert settings["sasl.username"] == "u"
    Producer({**settings, "sasl.username": "", "log_level": 0})  # librdkafka accepts them


@pytest.mark.parametrize(
    "name", ["acks", "topic.message.timeout.ms", "retries", "max.in.flight", "transactional.id"]
)
def test_guarantees_cannot_be_configured_away(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check_capture_kafka_options({name: "1"})


def _packet(payload: bytes, number: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number % 256]) + payload


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=8), st.data())
def test_packets_are_cut_wherever_the_network_cuts(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(_packet(payload, n) for n, payload in enumerate(payloads))
    found, rest = [], b""
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        packets, rest = split_packets(rest + stream[:size])
        found += packets
        stream = stream[size:]
    assert (found, rest) == (payloads, b"")


def test_packets_of_16_megabytes_are_joined() -> None:
    first, second = bytes(0xFFFFFF), b"end"
    stream = _packet(first, 0) + _packet(second, 1) + _packet(b"x", 2)
    assert split_packets(stream) == ([first + second, b"x"], b"")
    assert split_packets(stream[: 0xFFFFFF + 10])[0] == []
    whole = _packet(first, 0) + _packet(b"", 1)
    assert split_packets(whole) == ([first], b""), "an empty packet ends one of exactly so many bytes"


def test_large_packets_are_cut_without_copying_them_at_each_read() -> None:
    sizes = [5, 3 << 20, 0xFFFFFF + 9, 1, 40 << 20, 7]
    packets = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    stream = b"".join(
        len(part).to_bytes(3, "little") + b"\0" + part
        for packet in packets
        for part in (
            packet[i : i + 0xFFFFFF] for i in range(0, len(packet) + (len(packet) % 0xFFFFFF == 0), 0xFFFFFF)
        )
    )
    cutter, found = PacketSplitter(), []
    for i in range(0, len(stream), 50_000):
        found += cutter.add_data(stream[i : i + 50_000])
    assert [each.read_whole() if isinstance(each, LargePacket) else each for each in found] == packets


class Recording:
    checksum = True
    received_bytes = 0

    def __init__(self, *packets: bytes) -> None:
        self._packets = [list(packets)]

    def read_packets(self, timeout: float) -> list[bytes]:
        del timeout
        return self._packets.pop() if self._packets else []

    def close(self) -> None:
        self.is_closed = True

    is_closed = False


def _event(kind: int, body: bytes, end: int = 0) -> bytes:
    head = struct.pack("<IBIIIH", 1, kind, 1, 19 + len(body) + 4, end, 0)
    return b"\0" + head + body + zlib.crc32(head + body).to_bytes(4, "little")


def test_offsets_go_on_where_the_server_leaves_them_out() -> None:
    stream = LogStream(
        Recording(_event(33, b"x" * 6, end=129), _event(19, b"y"), _event(16, b"z" * 8)),
        "b.1",
        100,
        lambda: 0,
    )
    events = stream.read_events(0)
    assert [(event.start, event.end) for event in events] == [(100, 129), (129, 153), (153, 184)]
    assert stream.point == ("b.1", 184)


def test_a_stream_that_is_closed_ends_its_connection() -> None:
    """The server would keep a dump thread for each that a reread has left."""
    packets = Recording()
    LogStream(packets, "b.1", 4, lambda: 0).close()
    assert packets.is_closed


def test_offsets_of_a_file_beyond_32_bits_go_on() -> None:
    """One large transaction makes such a file. Its end was taken for a place at the file's beginning."""
    begin = (1 << 32) - 40
    stream = LogStream(
        Recording(
            _event(33, b"x" * 6, end=begin + 29), _event(16, b"z" * 8, end=20), _event(16, b"z" * 20, end=63)
        ),
        "b.1",
        begin,
        lambda: 0,
    )
    assert [(event.start - begin, event.end - begin) for event in stream.read_events(0)] == [
        (0, 29),
        (29, 60),
        (60, 103),
    ]


FOUR_GIB = 1 << 32


def large_file() -> list[bytes]:
    """The packets of a dump from the beginning of a file of 4 GiB and 60 bytes; the ROTATE that closes it has
    an offset of its own in the low 32 bits."""
    return [
        b"\0" + rotate(b"b.1", checksum=True),
        _event(16, b"a" * 8, end=1 << 30),
        _event(16, b"a" * 8, end=5 << 29),
        _event(16, b"b" * 8, end=FOUR_GIB - 40),
        _event(33, b"c" * 6, end=FOUR_GIB - 11),
        _event(16, b"d" * 8, end=20),
        _event(4, struct.pack("<Q", 4) + b"b.2", end=54),
        b"\0" + rotate(b"b.2", checksum=True),
        _event(16, b"e" * 8, end=200),
    ]


def open_large_file(monkeypatch: pytest.MonkeyPatch, pos: int) -> tuple[LogStream, list[int], Recording]:
    """Open the log there; return also the offsets at which dumps began, and the last connection."""
    begun, packets = list[int](), Recording(*large_file())

    def dump(_settings: object, *, pos: int, **_: object) -> Recording:
        begun.append(pos)
        return packets

    monkeypatch.setattr(log_stream, "DumpConnection", dump)
    return log_stream.open_stream({}, server_id=1, file="b.1", pos=pos), begun, packets


def test_a_log_is_continued_beyond_the_offset_at_which_a_dump_can_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command that starts a dump has 32 bits for the offset, and packing a larger one failed."""
    stream, begun, _ = open_large_file(monkeypatch, FOUR_GIB + 20)
    assert (begun, stream.point) == ([4], ("b.1", FOUR_GIB + 20))
    events = [event for _ in range(3) for event in stream.read_events(0)]
    assert [(event.file, event.start, event.end) for event in events] == [("b.2", 169, 200)]


def test_the_end_of_a_large_file_is_proven_by_its_real_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, _, _ = open_large_file(monkeypatch, FOUR_GIB - 11)
    for _ in range(8):
        stream.read_events(0)
    assert [(event.start, event.end) for event in stream.find_evidence("b.1", FOUR_GIB + 54)] == [
        (FOUR_GIB + 20, FOUR_GIB + 54)
    ]


def test_an_offset_within_an_event_of_a_large_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StreamStoppedError, match=f"no event begins at {FOUR_GIB + 19}"):
        open_large_file(monkeypatch, FOUR_GIB + 19)
    with pytest.raises(StreamStoppedError, match="no event begins"):
        open_large_file(monkeypatch, FOUR_GIB + 100)


@given(st.integers(4, 1 << 40), st.integers(19, (1 << 31) - 1))
def test_the_nearest_offset_is_the_one_that_was_meant(start: int, size: int) -> None:
    end = start + size
    assert log.widen_offset(end % (1 << 32), end) in (end, 0)
    assert log.widen_offset(end % (1 << 32), start) in (end, 0)


def test_a_damaged_event_stops_the_stream() -> None:
    packet = bytearray(_event(16, b"z" * 8, end=100))
    packet[22] ^= 1
    with pytest.raises(StreamStoppedError, match="checksum"):
        LogStream(Recording(bytes(packet)), "b.1", 4, lambda: 0).read_events(0)


def test_silence_is_noticed() -> None:
    now = iter([0.0, SILENCE - 1, SILENCE + 1])
    stream = LogStream(Recording(), "b.1", 4, lambda: next(now))
    stream._packets._packets.clear()  # type: ignore[attr-defined]
    assert stream.read_events(0) == []
    with pytest.raises(TransientSourceError, match="silent"):
        stream.read_events(0)


def rotate(name: bytes, pos: int = 4, *, checksum: bool = True, flags: int = 0x20) -> bytes:
    """A ROTATE, header and body; an artificial one, as each dump begins with."""
    size = 19 + 8 + len(name) + (4 if checksum else 0)
    event = struct.pack("<IBIIIHQ", 0, log.ROTATE, 1, size, 0, flags, pos) + name
    return event + struct.pack("<I", zlib.crc32(event)) if checksum else event


def test_rotation_with_and_without_checksum() -> None:
    assert log.parse_rotate(rotate(b"binlog.000123", checksum=False)) == ("binlog.000123", 4)
    assert log.parse_rotate(rotate(b"binlog.000123")) == ("binlog.000123", 4)
    assert log.parse_rotate(rotate(b"my.bin log.1", 1 << 40)) == ("my.bin log.1", 1 << 40)
    assert log.parse_rotate(rotate(b"b.1", checksum=False)) == ("b.1", 4)


@pytest.mark.parametrize("name", [b"binlog", b"binlog.", b".000001", b"binlog.00000x", b""])
@pytest.mark.parametrize("checksum", [False, True])
def test_a_rotation_to_no_file_is_damage(name: bytes, checksum: bool) -> None:
    with pytest.raises(DecodeError, match="is damaged"):
        log.parse_rotate(rotate(name, checksum=checksum))
    with pytest.raises(StreamStoppedError, match=r"b\.1:4: a ROTATE names .* is damaged"):
        LogStream(Recording(b"\0" + rotate(name, checksum=checksum)), "b.1", 4, lambda: 0).read_events(0)


def test_a_log_never_goes_on_in_a_file_before_it() -> None:
    """Events of there would have positions below those that their topics hold, and be dropped as
    repetitions."""
    for name, goes_on in ((b"b.000007", True), (b"b.000008", True), (b"b.000006", False), (b"b.7", True)):
        stream = LogStream(Recording(b"\0" + rotate(name)), "b.000007", 4, lambda: 0)
        if goes_on:
            assert stream.read_events(0) == []
            assert stream.point == (name.decode(), 4)
        else:
            with pytest.raises(StreamStoppedError, match=r"continues in b\.000006, which precedes it"):
                stream.read_events(0)


def test_a_checksum_that_looks_like_a_part_of_a_name_is_none() -> None:
    """Of these positions' checksums, some hundred end in a dot and a digit, and a few are digits alone: as
    one name with them, another file."""
    alike = 0
    for pos in range(4, 500_000):
        event = rotate(b"binlog.000005", pos)
        if event[-1:].isdigit() and (event[-2:-1] == b"." or event[-4:].isdigit()):
            alike += 1
            assert log.parse_rotate(event) == ("binlog.000005", pos)
            stream = LogStream(Recording(b"\0" + event), "binlog.000004", 4, lambda: 0)
            stream.read_events(0)
            assert stream.point == ("binlog.000005", pos)
    assert alike > 50


SOURCE = SourceConfig.model_validate(
    {"type": "mysql", "host": "h", "user": "u", "password": "p", "tables": ["bank.*", "!bank.x", "a*.b"]}
)


@pytest.mark.parametrize(
    ("lines", "missing"),
    [
        (["GRANT ALL PRIVILEGES ON *.* TO `u`@`%` WITH GRANT OPTION"], []),
        (
            [
                "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`",
                "GRANT SELECT ON `bank`.* TO `u`@`%`",
            ],
            [],
        ),
        (["GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`"], []),
        (
            ["GRANT SELECT ON `ba\\_nk`.* TO `u`@`%`"],
            ["REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT ON `bank`"],
        ),
        (["GRANT REPLICATION SLAVE, SUPER ON *.* TO `u`@`h`", "GRANT SELECT ON `b%`.* TO `u`@`h`"], []),
        (["GRANT USAGE ON *.* TO `u`@`h`"], ["REPLICATION SLAVE", "REPLICATION CLIENT", "SELECT ON `bank`"]),
    ],
)
def test_grants(lines: list[str], missing: list[str]) -> None:
    found = list_missing_grants(lines, MYSQL_FLAVOUR.rights, SOURCE)
    assert len(found) == len(missing)
    assert all(part in statement for part, (_, statement) in zip(missing, found, strict=True))


def test_each_setting_has_its_remedy() -> None:
    wrong = {
        "log_bin": "OFF", "binlog_format": "MIXED", "binlog_row_image": "NOBLOB", "gtid_mode": "OFF",
        "binlog_row_value_options": "PARTIAL_JSON", "server_id": "0",
    }  # fmt: skip
    found = list(check_server_settings(wrong, SOURCE, "source s"))
    assert len(found) == len(wrong)
    assert all(f.level == "error" and f.remedy for f in found)
    right = {
        "log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "gtid_mode": "ON",
        "binlog_row_value_options": "", "binlog_transaction_compression": "ON", "server_id": "1",
    }  # fmt: skip
    assert list(check_server_settings(right, SOURCE, "source s")) == []
    (advice,) = check_server_settings({**right, "binlog_row_metadata": "MINIMAL"}, SOURCE, "source s")
    assert advice.level == "warning"
    assert "SET GLOBAL binlog_row_metadata = FULL" in advice.remedy
