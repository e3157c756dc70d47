"""The record of the position: when capture stores one, and what it may delete at the source
(producer.loop.position)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from producer.decoders.envelope import SourceContext
from producer.errors import SupersededError, TableStoppedError
from producer.loop import position as position_module
from producer.loop.position import CapturePosition, build_first_boundary
from producer.sources.changes import Evidence, PreparedTransaction
from producer.start.positions import PositionStore
from producer.start.started import StartedCapture
from producer.statements.shadows import ShadowTables
from producer.tables import CapturedTables, TableState
from schemas.config.online_ddl import enable_all_tools
from schemas.wire.codec import decode_stored_position
from schemas.wire.position import DEFINITION_ROW
from schemas.wire.records import Anchor, PreparedPlace, StoredPosition
from tests.kits.start import ACCT, POSITIONS, RECORD, Topics, table
from tests.stands.event_writer import TopicWriter


class UsedUp:
    """A log whose rows are deleted once Kafka has them; `did`: what was asked of it, in order."""

    def __init__(self, did: list[str], *, outstanding: bool = False) -> None:
        self.did, self.outstanding, self.unrecorded = did, outstanding, False

    def confirm_recorded(self) -> None: ...
    def learn_published(self, _published: object) -> None: ...
    def keep_evidence(self, _file: str, _pos: int) -> None: ...

    def find_evidence(self) -> Evidence:
        return Evidence((), None)

    def purge_published(self) -> Iterator[TableStoppedError]:
        self.did.append("purge")
        yield from ()


class Recorded:
    """Capture of source `b1`, which has claimed it under gen 4 in a topic of positions, and has
    `bank.acct`."""

    def __init__(self, *, reader: bool = True, outstanding: bool = False) -> None:
        self.topics = Topics()
        self.topics.ensure([POSITIONS], {})
        self.writer = TopicWriter(self.topics.append, holding=True)
        writer: Any = self.writer
        self.captured = CapturedTables("rowlock", "b1")
        self.topic = self.captured.get_topic(ACCT)
        self.captured.tables[ACCT] = TableState(
            ACCT, self.topic, table(), (0, 3, 400, DEFINITION_ROW), definition_offset=0
        )
        context = SourceContext(connector="oracle", name="b1", epoch=0, gen=4)
        started = StartedCapture(RECORD, context, self.captured, {}, {}, fresh=False)
        self.did: list[str] = []
        self.log: Any = UsedUp(self.did, outstanding=outstanding)
        store = PositionStore(POSITIONS)
        store.claim_position(writer, self.topics, RECORD, [])
        ports: Any = SimpleNamespace(
            writer=writer, store=store, reader=self.topics if reader else None,
            clock=SimpleNamespace(now_ms=lambda: 9)
        )  # fmt: skip
        snapshots: Any = SimpleNamespace(tables=SimpleNamespace(done=set(), pending=set()))
        self.position = CapturePosition(
            started, ports, log=self.log, snapshots=snapshots, shadows=ShadowTables(enable_all_tools())
        )

    def sends(self, row: int, *, then: Callable[[int], None] | None = None) -> None:
        """Let a row of the table be sent; the topic's offset is known once it is acknowledged."""

        def acknowledged(offset: int) -> None:
            self.writer.offsets[self.topic.name] = offset
            if then is not None:
                then(offset)

        self.topic.tail.last = (0, 3, 500, row)
        self.writer.send(self.topic.name, b"1", b"row", acknowledged)

    def records(self) -> list[StoredPosition]:
        """Return what Kafka has behind the claim."""
        return [
            decode_stored_position(each.value() or b"") for each in self.topics.topics[POSITIONS].records[1:]
        ]


def test_what_is_stored_is_in_kafka_and_says_how_far_the_topics_are() -> None:
    """A statement changes what the topics mean: the next start must not take a record of before it."""
    capture = Recorded()
    capture.sends(3)
    capture.writer.drain()
    capture.position.record_log_position("binlog.000003", 700)
    capture.position.store_position()
    (record,) = capture.records()
    assert (record.file, record.pos, record.gen) == ("binlog.000003", 700, 4)
    assert record.anchors == {
        "bank.acct": Anchor(definition=0, end=0, highest=(0, 3, 500, 3), settled=(0, 4))
    }


def test_open_xa_transactions_are_stored_and_the_next_run_begins_with_them() -> None:
    capture = Recorded()
    place = PreparedPlace(file="binlog.000002", pos=4, end=99, ts_ms=7, altered=(ACCT,))
    prepared = {"a": PreparedTransaction((ACCT,), place), "old": PreparedTransaction((ACCT,), None)}
    milestone = capture.position.make_milestone(held=False)
    capture.position.store_milestone(
        milestone._replace(boundary=milestone.boundary._replace(prepared=prepared))
    )
    capture.writer.drain()
    (record,) = capture.records()
    assert record.prepared == {"a": (ACCT,), "old": (ACCT,)}, "earlier versions read it"
    assert record.prepared_at == {"a": place}
    started: Any = SimpleNamespace(record=record)
    assert build_first_boundary(started).prepared == prepared


@pytest.mark.parametrize("outstanding", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_the_anchors_stay_while_a_row_is_held_or_rows_at_the_source_are_not_deleted(
    held: bool, outstanding: bool
) -> None:
    """The next start looks for the rows after the anchors: it would publish again, or lose, those that it
    does not find there."""
    capture = Recorded(outstanding=outstanding)
    capture.sends(3)
    capture.writer.drain()
    anchors = capture.position.make_milestone(held=held).anchors
    assert (anchors == {}) == (held or outstanding)
    assert capture.captured.build_anchors(capture.writer.offsets, (0, 9, 9)) != {}


def test_a_chunk_that_is_acknowledged_is_stored_though_the_log_stands_still() -> None:
    """The first marker of a table, too, wherever it stands in its topic."""
    capture = Recorded()
    position, milestone = capture.position, capture.position.make_milestone(held=False)
    for marker in (None, None, 1, 1, 2):
        anchors = {"bank.acct": Anchor(definition=0, end=3, marker=marker)}
        position.store_milestone(milestone._replace(anchors=anchors))
    capture.writer.drain()
    assert [record.anchors["bank.acct"].marker for record in capture.records()] == [None, 1, 2]


def test_rows_are_deleted_at_the_source_once_kafka_has_them() -> None:
    capture = Recorded(outstanding=True)
    capture.sends(3, then=lambda _: capture.did.append("acknowledged"))
    assert list(capture.position.purge_sent_rows()) == []
    assert capture.did == ["acknowledged", "purge"]


def test_rows_are_not_deleted_at_the_source_when_another_process_captures_it_by_then() -> None:
    """Readers may drop what this one has sent; the other one reads the rows again."""
    capture = Recorded(outstanding=True)
    capture.sends(3)

    def claimed() -> None:
        capture.topics.append(POSITIONS, b"5", msgspec.json.encode(RECORD))

    capture.writer.meanwhile = claimed  # while ours waits for Kafka
    with pytest.raises(
        SupersededError,
        match=r"another process has begun to capture source b1: .* does not delete at the source",
    ):
        list(capture.position.purge_sent_rows())
    assert capture.did == []


def test_rows_are_not_deleted_where_nothing_can_tell_whether_another_process_captures_the_source() -> None:
    capture = Recorded(reader=False, outstanding=True)
    with pytest.raises(ValueError, match="needs a reader of topics"):
        list(capture.position.purge_sent_rows())
    assert capture.did == []


def test_names_of_topics_are_stored_before_anything_is_sent_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, or a restart, must not give the name to another table."""
    capture = Recorded()
    names: list[Any] = [RECORD.topics]
    monkeypatch.setattr(position_module, "as_stored", lambda _: names[-1])
    capture.position.store_names()
    assert capture.records() == [], "nothing is new"
    names.append({"bank.new": "rowlock.b1.bank.new"})
    for _ in range(2):
        capture.position.store_names()
    [record] = capture.records()
    assert record.topics == names[-1]
