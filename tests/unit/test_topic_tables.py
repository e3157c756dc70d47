"""Readers learn the table of a topic from capture's position records alone
(docs/adr/0034-topic-names-are-assigned.md)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from msgspec import structs

from schemas.errors import EnvelopeError
from schemas.wire.codec import encode_stored_position
from schemas.wire.records import StoredPosition
from schemas.wire.topic_names import as_stored
from schemas.wire.topic_tables import POSITION_READ_TIMEOUT_S, REREAD_BACKOFF, TopicTables
from tests.kits.topic import IDENTITY

RECORD = StoredPosition(
    source="b1", gen=1, epoch=0, file="binlog.000001", pos=4, ts_ms=1, identity=IDENTITY
)  # fmt: skip
NAMES = {("bank", "acct"): "p.b1.bank.acct", ("bank", "acct.old"): "p.b1.bank.acct_old"}


class Positions:
    """The position topic of source b1, and the consumers that read it. `silent`: nothing of it arrives."""

    def __init__(self) -> None:
        self.values: list[tuple[bytes, bytes | None]] | None = None
        self.first = 0
        self.silent = False
        self.opened = self.closed = 0
        self.now = 0.0
        self._offset = 0

    def store(self, names: dict[tuple[str, str], str] | None, gen: int = 1, **more: Any) -> None:
        record = structs.replace(RECORD, gen=gen, topics=None if names is None else as_stored(names), **more)
        self.put(str(gen).encode(), encode_stored_position(record))

    def put(self, key: bytes, value: bytes | None) -> None:
        self.values = [*(self.values or []), (key, value)]

    def open(self) -> Positions:
        self.opened += 1
        return self

    def list_topics(self, topic: str, timeout: float) -> Any:
        assert topic == "p.b1.position", topic
        assert timeout > 0
        return SimpleNamespace(topics={} if self.values is None else {topic: SimpleNamespace(error=None)})

    def get_watermark_offsets(self, _at: TopicPartition, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        return self.first, self.first + len(self.values or [])

    def assign(self, at: list[TopicPartition]) -> None:
        self._offset = at[0].offset

    def consume(self, most: int, timeout: float) -> list[Any]:
        self.now += timeout
        if self.silent:
            return []
        begin = self._offset - self.first
        found = (self.values or [])[begin : begin + most]
        offsets = range(self._offset, self._offset + len(found))
        self._offset += len(found)
        return [message(offset, *each) for offset, each in zip(offsets, found, strict=True)]

    def close(self) -> None:
        self.closed += 1


def message(offset: int, key: bytes, value: bytes | None) -> Any:
    return SimpleNamespace(error=lambda: None, offset=lambda: offset, key=lambda: key, value=lambda: value)


@pytest.fixture
def positions() -> Positions:
    return Positions()


@pytest.fixture
def tables(positions: Positions) -> TopicTables:
    return TopicTables("p", positions.open, lambda: positions.now)


def test_a_topic_has_the_table_that_capture_stored(positions: Positions, tables: TopicTables) -> None:
    positions.store(NAMES)
    assert tables.find_tables(["b1"], ["p.b1.bank.acct_old"]) == {"p.b1.bank.acct_old": ("bank", "acct.old")}
    assert tables.find_tables(["b1"], [*NAMES.values(), "p.b1.position"]) == {
        topic: table for table, topic in NAMES.items()
    }
    assert (positions.opened, positions.closed) == (1, 1), "known names are not read again"


def test_the_highest_generation_counts_whatever_comes_later(
    positions: Positions, tables: TopicTables
) -> None:
    positions.store(NAMES, gen=10)
    positions.store({("bank", "other"): "p.b1.bank.acct"}, gen=9)
    assert tables.find_tables(["b1"], ["p.b1.bank.acct"]) == {"p.b1.bank.acct": ("bank", "acct")}


def test_a_new_topic_is_looked_for_at_once_and_a_strange_one_now_and_then(
    positions: Positions, tables: TopicTables
) -> None:
    positions.store({("bank", "acct"): "p.b1.bank.acct"})
    strange = "p.b1.bank.strange"
    assert strange not in tables.find_tables(["b1"], ["p.b1.bank.acct", strange])
    for _ in range(3):
        tables.find_tables(["b1"], [strange])
    assert positions.opened == 1
    positions.store(NAMES)
    assert tables.find_tables(["b1"], ["p.b1.bank.acct_old"]) == {"p.b1.bank.acct_old": ("bank", "acct.old")}
    positions.now += REREAD_BACKOFF.longest
    positions.store({("bank", "strange"): strange}, gen=2)
    assert tables.find_tables(["b1"], [strange]) == {strange: ("bank", "strange")}
    assert positions.opened == positions.closed == 3


def test_a_first_start_that_creates_topics_before_it_stores_their_names_is_noticed_at_once(
    positions: Positions, tables: TopicTables
) -> None:
    positions.values = []
    assert tables.find_tables(["b1"], ["p.b1.bank.acct"]) == {}
    positions.store(NAMES)
    positions.now += REREAD_BACKOFF.first
    assert tables.find_tables(["b1"], ["p.b1.bank.acct"]) == {"p.b1.bank.acct": ("bank", "acct")}


def test_records_are_read_ever_less_often_for_strange_topics(
    positions: Positions, tables: TopicTables
) -> None:
    positions.store(NAMES)
    for _ in range(600):
        tables.find_tables(["b1"], ["p.b1.bank.strange"])
        positions.now += 0.1
    assert 8 < positions.opened < 16
    tables.find_tables(["b1"], ["p.b1.bank.strange", "p.b1.bank.stranger"])
    opened = positions.opened
    positions.now += REREAD_BACKOFF.first
    tables.find_tables(["b1"], ["p.b1.bank.strange", "p.b1.bank.stranger"])
    assert positions.opened == opened + 1, "a new topic begins anew"


def test_topics_of_another_source_are_left_out(positions: Positions, tables: TopicTables) -> None:
    positions.store(NAMES)
    assert tables.find_tables(["b1"], ["p.b10.bank.acct", "other.b1.bank.acct"]) == {}
    assert positions.opened == 0


def test_capture_that_has_not_begun_has_no_tables(positions: Positions, tables: TopicTables) -> None:
    assert tables.find_tables(["b1"], ["p.b1.bank.acct"]) == {}
    positions.now += REREAD_BACKOFF.longest
    positions.store(NAMES)
    assert tables.find_tables(["b1"], ["p.b1.bank.acct"]) == {"p.b1.bank.acct": ("bank", "acct")}


def test_records_that_were_deleted_or_made_again_are_forgotten(
    positions: Positions, tables: TopicTables
) -> None:
    positions.store(NAMES, gen=7)
    positions.store(NAMES, gen=7)
    tables.find_tables(["b1"], ["p.b1.bank.acct"])
    positions.put(b"7", None)
    positions.store({("bank", "new"): "p.b1.bank.new"}, gen=3)
    assert tables.find_tables(["b1"], ["p.b1.bank.new"]) == {"p.b1.bank.new": ("bank", "new")}
    positions.values = None
    positions.store({("bank", "later"): "p.b1.bank.later"}, gen=1)
    assert tables.find_tables(["b1"], ["p.b1.bank.later", "p.b1.bank.acct"]) == {
        "p.b1.bank.later": ("bank", "later")
    }


def test_a_record_without_names_is_of_a_version_that_computed_them(
    positions: Positions, tables: TopicTables
) -> None:
    positions.store(None, snapshot_done=("bank.acct", "a.b"))
    topics = ["p.b1.bank.acct", "p.b1.a.b", "p.b1.bank.unknown"]
    assert tables.find_tables(["b1"], topics) == {"p.b1.bank.acct": ("bank", "acct"), "p.b1.a.b": ("a", "b")}


def test_what_cannot_be_read_is_an_error_and_no_table(positions: Positions, tables: TopicTables) -> None:
    positions.put(b"1", b'{"needs":99,"record":{}}')
    with pytest.raises(EnvelopeError, match="newer version"):
        tables.find_tables(["b1"], ["p.b1.bank.acct"])
    assert positions.closed == positions.opened


def test_a_topic_that_gives_nothing_is_an_error_in_time(positions: Positions, tables: TopicTables) -> None:
    positions.store(NAMES)
    positions.silent = True
    with pytest.raises(KafkaException) as error:
        tables.find_tables(["b1"], ["p.b1.bank.acct"])
    assert error.value.args[0].code() == KafkaError._TIMED_OUT
    assert POSITION_READ_TIMEOUT_S <= positions.now <= POSITION_READ_TIMEOUT_S + 1
    assert positions.closed == positions.opened
