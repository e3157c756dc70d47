"""The periodic work of capture: what is due and when, and what its watermarks report (producer.loop.ticker,
.watermarks)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from producer.decoders.envelope import SourceContext
from producer.errors import SnapshotFinishedError, TableStoppedError, TransientSourceError
from producer.kafka.settings import RETENTION_MS
from producer.loop.position import Milestone
from producer.loop.ticker import CaptureTicker, WatermarkSender
from producer.sources.changes import Boundary, Evidence, LogMoment, TimedEnd, TransactionHeader
from producer.start.started import StartedCapture
from producer.stops import StoppedTable
from producer.tables import CapturedTables, TableName, TableState
from schemas.problems import Problem
from schemas.wire.codec import decode_event
from schemas.wire.position import DEFINITION_ROW, STOP_ROW
from schemas.wire.records import Watermark
from tests.kits.start import ACCT, RECORD, a_stop, table

FILE = "binlog.000003"
HERE = Boundary(TransactionHeader(FILE, 400, 70, 1, None), FILE, 500)
STOPPED: TableName = ("bank", "stopped")
UNSAID: TableName = ("bank", "unsaid")


class Ticking:
    """Capture's ticker at second `now`, whose log stays at binlog.000003:500; `did`: what it did, in order.

    Kafka acknowledges all at once when `acknowledges`, else when it is waited for.
    """

    def __init__(self, *, only_snapshot: bool = False) -> None:
        self.now, self.did, self.watermarks = 100.0, list[Any](), list[Watermark]()
        self.begun = self.inside = self.holding = self.heard = False
        self.sent, self.point = 7, (FILE, 500)
        self.end: TimedEnd | None = TimedEnd(FILE, 500, 80)
        self.pending: set[str] = set()
        self.acknowledges, self._marked = True, list[Callable[[], None]]()
        self.offsets: dict[str, int] = {}
        did = self.did.append
        self.counts: dict[str, int] = {}
        self.silent = False
        self.ids: dict[str, str] = {}
        self.splits: list[tuple[TableStoppedError, LogMoment]] = []
        self.captured = CapturedTables("rowlock", "b1")
        for name in (ACCT, STOPPED, UNSAID):
            topic = self.captured.get_topic(name)
            self.captured.tables[name] = TableState(name, topic, table(name[1]), (0, 3, 400, DEFINITION_ROW))
        self.captured.stop_table(STOPPED, StoppedTable(a_stop(), position=(0, 3, 300, STOP_ROW)))
        self.captured.stop_table(UNSAID, StoppedTable(a_stop()))
        self.started = StartedCapture(
            RECORD,
            SourceContext(connector="mysql", name="b1", epoch=0, gen=4),
            self.captured,
            {},
            {},
            fresh=False,
        )
        me: Any = self
        position: Any = SimpleNamespace(
            note_proof=lambda: did("proof"), store_milestone=lambda _: did("stored"),
            make_milestone=lambda held: self.make_milestone(70),
            compare_log_end=lambda end: end == TimedEnd(FILE, 500, 80),
        )  # fmt: skip
        ports: Any = SimpleNamespace(
            writer=self, server=lambda: SimpleNamespace(read_timed_end=self.read_timed_end),
            on_watermark=self.watermarks.append,
            clock=SimpleNamespace(seconds=lambda: self.now, now_ms=lambda: 90), topics=self,
        )  # fmt: skip
        stops: Any = SimpleNamespace(
            send_table_stop=lambda name: did(("stop", name)), select_visible_stops=dict,
            stop_tables=self._split, explain_left_out_tables=lambda: {f"{db}.{name}": why for (db, name),
             why in self.started.errors.items()},
        )  # fmt: skip
        copies: Any = SimpleNamespace(poll_requests=lambda: did("requests"), busy=False)
        self.copies = copies
        snapshots: Any = SimpleNamespace(tables=self)
        self.sender = WatermarkSender(self.started, ports, stops=stops)
        self.ticker = CaptureTicker(
            self.started, ports, log=me, position=position, rows=me, snapshots=snapshots, stops=stops,
            watermarks=self.sender, copies=copies, only_snapshot=only_snapshot,
        )  # fmt: skip

    def count_partitions(self) -> dict[str, int]:
        if self.silent:
            raise TransientSourceError("no broker answers")
        return self.counts

    def fetch_topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {name: self.ids[name] for name in names if name in self.ids}

    def _split(self, error: TableStoppedError, at: LogMoment) -> None:
        self.did.append("split")
        self.splits.append((error, at))

    def read_timed_end(self) -> TimedEnd | None:
        self.did.append("looked")
        return self.end

    def make_milestone(self, source_ms: int) -> Milestone:
        return Milestone(HERE, source_ms, Evidence((), None), {}, frozenset(), frozenset(self.pending))

    # --- the writer

    def send(self, topic: str, _key: bytes, value: bytes, _stored: object = None) -> None:
        if topic != "rowlock.b1.watermark":
            self.did.append((topic, decode_event(value).source.position))

    def call_when_acknowledged(self, action: Callable[[], None]) -> None:
        self._marked.append(action)
        if self.acknowledges:
            self.drain()

    def drain(self) -> None:
        self.did.append("acknowledged")
        marked, self._marked = self._marked, []
        for action in marked:
            action()

    def after(self, seconds: float, do: Callable[[], None]) -> list[Any]:
        """Let time pass, and return what is done then."""
        self.now += seconds
        self.did.clear()
        do()
        return list(self.did)


def test_capture_that_waits_says_that_it_is_alive_once_a_second_and_that_it_is_not_idle() -> None:
    ticking = Ticking()
    alive = ["proof", "acknowledged", "stored"]
    beats = [ticking.after(seconds, ticking.ticker.write_heartbeat) for seconds in (0, 0.5, 0.5, 0.5, 1)]
    assert beats == [alive, [], alive, [], alive]
    assert [watermark.idle for watermark in ticking.watermarks] == [False] * 3


def test_the_last_watermark_goes_with_the_position_and_what_proves_its_log() -> None:
    ticking = Ticking()
    final = partial(ticking.ticker.send_final_watermark, "told to stop", restarts=True)
    assert ticking.after(0, final) == ["proof", "stored"]
    (watermark,) = ticking.watermarks
    assert (watermark.ended, watermark.restarts, watermark.idle) == ("told to stop", True, False)


def test_definitions_and_stops_are_sent_again_long_before_retention_takes_them_away() -> None:
    """A table's definition unless it is stopped, and its stop if its topic has one; never within a
    transaction."""
    ticking = Ticking()
    again = [("rowlock.b1.bank.acct", (0, 3, 400, DEFINITION_ROW)), ("stop", STOPPED)]

    def repeated(seconds: float) -> bool:
        did = ticking.after(seconds, ticking.ticker.run_due_work)
        assert [each for each in did if isinstance(each, tuple)] in ([], again)
        return again[0] in did

    period = RETENTION_MS / 1000 / 7
    assert [repeated(each) for each in (0, period - 1, 1, period - 1, 1)] == [False, False, True, False, True]
    ticking.begun = True
    assert not repeated(period)
    ticking.begun = False
    assert repeated(1)


@pytest.mark.parametrize(
    ("end", "refused"),
    [
        (TimedEnd(FILE, 500, 80), None),
        (TimedEnd("binlog.000004", 4, 80), None),
        (TimedEnd(FILE, 499, 80), "it ends at binlog.000003:499"),
        (TimedEnd("binlog.000002", 900, 80), "it ends at binlog.000002:900"),
        (None, "there is none"),
    ],
)
def test_a_log_that_ends_before_what_was_read_of_it_is_another_one(
    end: TimedEnd | None, refused: str | None
) -> None:
    """A server that is reset goes on sending heartbeats from a file that it has deleted: only a query for the
    log's end shows it."""
    ticking = Ticking()
    ticking.end = end
    if refused is None:
        assert "looked" in ticking.after(0, ticking.ticker.run_due_work)
    else:
        with pytest.raises(TransientSourceError) as error:
            ticking.ticker.run_due_work()
        assert str(error.value) == f"the log was read up to binlog.000003:500, and now {refused}"


@pytest.mark.parametrize(("behind", "inside"), [(True, False), (False, True)])
def test_the_source_is_not_asked_for_its_logs_end_while_there_is_something_to_read(
    behind: bool, inside: bool
) -> None:
    ticking = Ticking()
    ticking.heard, ticking.inside = behind, inside
    assert "looked" not in ticking.after(0, ticking.ticker.run_due_work)
    assert [watermark.idle for watermark in ticking.watermarks] == [False]


@pytest.mark.parametrize(("pos", "idle"), [(500, True), (501, False)])
def test_a_source_is_idle_once_its_logs_end_is_reached(pos: int, idle: bool) -> None:
    """That nothing arrives does not show it."""
    ticking = Ticking()
    ticking.end = TimedEnd(FILE, pos, 80)
    ticking.ticker.run_due_work()
    assert [watermark.idle for watermark in ticking.watermarks] == [idle]


def test_what_is_asked_of_capture_is_looked_for_once_a_second() -> None:
    ticking = Ticking()
    polls = [
        ticking.after(seconds, ticking.ticker.run_due_work).count("requests") for seconds in (0, 0.5, 0.5)
    ]
    assert polls == [1, 0, 1]


@pytest.mark.parametrize(
    ("only", "pending", "busy", "ends"),
    [
        (True, False, False, True),
        (True, True, False, False),
        (True, False, True, False),
        (False, False, False, False),
    ],
)
def test_capture_of_a_snapshot_alone_ends_once_all_of_it_is_in_kafka(
    only: bool, pending: bool, busy: bool, ends: bool
) -> None:
    """Copies are part of it."""
    ticking = Ticking(only_snapshot=only)
    ticking.pending = {"bank.acct"} if pending else set()
    ticking.copies.busy, ticking.acknowledges = busy, False
    if ends:
        with pytest.raises(SnapshotFinishedError):
            ticking.ticker.run_due_work()
        assert ticking.did[-2:] == ["acknowledged", "stored"]
    else:
        ticking.ticker.run_due_work()
        assert "acknowledged" not in ticking.did


def test_a_watermark_says_how_far_kafka_has_the_source_and_what_is_wrong() -> None:
    """Its time is the source's, never that of capture's clock."""
    ticking = Ticking()
    ticking.offsets[ticking.captured.get_topic(ACCT).name] = 12
    ticking.pending = {"bank.b", "bank.a"}
    ticking.sender.send_watermark(ticking.make_milestone(80), idle=True, events=7)
    ticking.pending = set()
    ticking.started.errors |= {("bank", "x"): Problem("no key"), ("bank", "y"): Problem("a view")}
    ticking.sender.send_watermark(ticking.make_milestone(70), idle=False, events=8)
    first, second = (msgspec.structs.replace(each, stops={}) for each in ticking.watermarks)
    expected = Watermark(
        source="b1", gen=4, position=(0, 3, 500, -1), file=FILE, commit_ts_ms=80, ts_ms=90,
        idle=True, snapshot_pending=("bank.a", "bank.b"), topics={"rowlock.b1.bank.acct": 12}, events=7,
    )  # fmt: skip
    assert first == expected
    assert second == msgspec.structs.replace(
        expected, commit_ts_ms=70, idle=False, snapshot_pending=(), topics={}, events=8,
        error="bank.x: no key; bank.y: a view", left_out={"bank.x": "no key", "bank.y": "a view"},
    )  # fmt: skip


def test_a_topic_that_gets_partitions_stops_its_table_alone() -> None:
    ticking = Ticking()
    ticking.captured.known = {ACCT, STOPPED, UNSAID}
    ticking.captured.usable = {ticking.captured.assign_topic_name(ACCT)}
    ticking.counts = {
        ticking.captured.assign_topic_name(ACCT): 2,
        ticking.captured.assign_topic_name(STOPPED): 3,
    }
    assert "split" not in ticking.after(29, ticking.ticker.run_due_work)
    ticking.inside = True
    assert "split" not in ticking.after(2, ticking.ticker.run_due_work), "a stop stands between transactions"
    ticking.inside = False
    did = ticking.after(1, ticking.ticker.run_due_work)
    assert did.count("split") == 1
    ((stop, moment),) = ticking.splits
    assert (stop.cause, stop.tables) == ("topic", frozenset([ACCT]))
    assert "has 2 partitions" in stop.reason
    assert (moment.file, moment.pos) == (ticking.point[0], ticking.point[1] - 1)
    assert not ticking.captured.usable


@pytest.mark.parametrize("how", ["created again", "deleted", "hidden", "the same"])
def test_capture_restarts_once_a_topic_is_another_one(how: str) -> None:
    """The next start stops the table and creates the topic. Who may not describe a topic does not miss it."""
    ticking = Ticking()
    ticking.captured.known = {ACCT}
    topic, other = map(ticking.captured.assign_topic_name, (ACCT, STOPPED))
    ticking.captured.topic_ids = {topic: "one", other: "other"}
    ticking.counts = {topic: 1, other: 1}
    ticking.ids = {topic: "one", other: "other"}
    ticking.after(31, ticking.ticker.run_due_work)
    if how == "created again":
        ticking.ids[topic] = "two"
    elif how == "deleted":
        del ticking.counts[topic], ticking.ids[topic]
    elif how == "hidden":
        del ticking.ids[topic]
    ticking.inside = True
    ticking.after(31, ticking.ticker.run_due_work)
    ticking.inside = False
    if how in ("hidden", "the same"):
        ticking.after(31, ticking.ticker.run_due_work)
    else:
        ticking.now += 31
        with pytest.raises(TransientSourceError, match=f"topic {topic} was deleted or created again"):
            ticking.ticker.run_due_work()
    assert not ticking.splits


def test_a_topic_of_a_new_table_is_compared_from_its_first_check_on() -> None:
    ticking = Ticking()
    ticking.captured.known = {ACCT}
    topic = ticking.captured.assign_topic_name(ACCT)
    ticking.counts, ticking.ids = {topic: 1}, {topic: "one"}
    ticking.captured.names.note_created([topic])
    ticking.after(31, ticking.ticker.run_due_work)
    assert ticking.captured.topic_ids == {topic: "one"}


def test_kafka_that_does_not_list_its_topics_is_asked_again() -> None:
    ticking = Ticking()
    ticking.captured.known = {ACCT}
    ticking.counts = {ticking.captured.assign_topic_name(ACCT): 2}
    ticking.silent = True
    ticking.after(31, ticking.ticker.run_due_work)
    assert not ticking.splits
    ticking.silent = False
    ticking.after(31, ticking.ticker.run_due_work)
    assert len(ticking.splits) == 1
