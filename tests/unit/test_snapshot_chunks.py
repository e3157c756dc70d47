"""The chunk machine against a modelled source: whatever is interleaved, the topic reproduces the source.

The model has the visibility gap (a transaction is delivered by the stream before a SELECT sees it), chunk
reads that take their time, DDL, restarts of capture at any step that re-send the log from an older position,
and a consumer that drops duplicates by position.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.snapshot import chunks
from producer.snapshot.chunk_sender import compute_first_row
from producer.snapshot.chunks import (
    FROM_START,
    ChunkState,
    RowsPassed,
    SnapshotDone,
    SnapshotMachine,
    StreamReached,
    TableChanged,
)
from producer.snapshot.scheduler import _resume_after
from producer.sources.chunk_data import ChunkFailed, ChunkRead, EmitChunk, LogMark, LowWatermark, ReadChunk
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.start.topic_recovery import ChunkMarker, TableTail
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.event import Chunk
from schemas.wire.position import FIRST_SNAPSHOT_ROW, Position

INT = ColumnType(kind=Kind.INT, bits=32)
TABLE = Table(
    db="d", name="t",
    columns=(Column(name="id", type=INT, nullable=False), Column(name="v", type=INT)),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)  # fmt: skip
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass
class Transaction:
    """In the log at `start`; changes: key → None: deleted; `truncate` clears the table."""

    start: int
    end: int
    number: int
    changes: dict[int, int | None]
    truncate: bool = False
    visible: bool = False

    @property
    def mark(self) -> LogMark:
        return LogMark((1, self.start), f"{UUID}:{self.number}")


@dataclass
class Source:
    """A log, and what of it SELECTs see: commits become visible in any order of disjoint keys, later than
    logged."""

    mysql: bool
    rows: dict[int, int]
    log: list[Transaction] = field(default_factory=list)
    end: int = 100

    def commit(self, changes: dict[int, int | None], *, truncate: bool = False) -> None:
        """Log a transaction; those that touch the same rows (or all) must be visible before: row locks."""
        for earlier in self.log:
            if truncate or earlier.truncate or earlier.changes.keys() & changes.keys():
                self.show(earlier)
        self.log.append(Transaction(self.end, self.end + 10, len(self.log) + 1, changes, truncate))
        self.end += 10

    def show(self, transaction: Transaction) -> None:
        """Make it visible; MariaDB (and MySQL by default) commits in the order of the log."""
        if transaction.visible:
            return
        if not self.mysql:
            for earlier in self.log[: transaction.number - 1]:
                earlier.visible = earlier.visible or self._apply(earlier)
        transaction.visible = self._apply(transaction)

    def _apply(self, transaction: Transaction) -> bool:
        if transaction.truncate:
            self.rows.clear()
        for key, value in transaction.changes.items():
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = 10 * transaction.number
        return True

    def low(self) -> LowWatermark:
        if self.mysql:
            gtids = GtidSet()
            for transaction in self.log:
                if transaction.visible:
                    gtids.add(f"{UUID}:{transaction.number}")
            return LowWatermark(None, gtids)
        hidden = [t.start for t in self.log if not t.visible]
        return LowWatermark((1, min(hidden, default=self.end)), None)

    def final(self) -> dict[int, int]:
        for transaction in self.log:
            self.show(transaction)
        return self.rows


@dataclass
class Capture:
    """Capture's side: the stream's place, the machine, the topic. `naive`: LOW := the log's end (the wrong
    rule)."""

    source: Source
    limit: int
    naive: bool = False
    topic: list[tuple[Position, str, Row | Chunk | None]] = field(default_factory=list)
    next_row: int = FIRST_SNAPSHOT_ROW
    stored: int = 0
    at: int = 0
    done: bool = False
    request: ReadChunk | None = None
    answer: ChunkRead | ChunkFailed | None = None

    def __post_init__(self) -> None:
        self.restart()

    @property
    def point(self) -> int:
        return self.source.log[self.at - 1].end if self.at else 100

    def restart(self) -> None:
        """Die and come up at the stored position; what was sent stays in the topic."""
        self.at = self.stored
        self.request = self.answer = None
        self.delivered = GtidSet()
        for transaction in self.source.log[: self.at]:  # visible before the stream began: ChunkReader.prepare
            if self.source.mysql:
                self.source.show(transaction)
        self.machine = SnapshotMachine(self.limit)
        markers = [
            ChunkMarker(what, position, 1, 0) for position, _, what in self.topic if isinstance(what, Chunk)
        ]
        resume = _resume_after(TableTail(markers=markers), TABLE)
        delivered = self.delivered if self.source.mysql else None
        self.state, effects = self.machine.start_snapshot(TABLE, (1, self.point), delivered, resume, 0.0)
        self._carry_out(effects)

    def feed(self, event: chunks.SnapshotEvent) -> None:
        self.state, effects = self.machine.apply_event(self.state, event, 0.0)
        self._carry_out(effects)

    def stream(self) -> None:
        """Deliver the next transaction of the log, or stand idle at its end."""
        if self.at < len(self.source.log):
            transaction = self.source.log[self.at]
            self._deliver(transaction)
            self.at += 1
            self.delivered.add(f"{UUID}:{transaction.number}")
        if self.answer is not None:
            answer, self.answer = self.answer, None
            self.feed(answer)
        self.feed(StreamReached((1, self.point), self.delivered if self.source.mysql else None))

    def _deliver(self, transaction: Transaction) -> None:
        if transaction.truncate:
            self.topic.append(((0, 1, transaction.start, 0), "t", None))
            self.feed(TableChanged(transaction.mark, TABLE))
        for row, (key, value) in enumerate(transaction.changes.items()):
            kind = "u" if value is not None else "d"
            self.topic.append(((0, 1, transaction.start, row), kind, (key, 10 * transaction.number)))
        self.feed(RowsPassed(transaction.mark, [(key,) for key in transaction.changes]))

    def read(self) -> None:
        """The reader's SELECT."""
        request, self.request = self.request, None
        if request is None:
            return
        low = LowWatermark((1, self.source.end), None) if self.naive else self.source.low()
        behind = -1 if request.after is None else int(str(request.after[0]))
        rows = [(k, v) for k, v in sorted(self.source.rows.items()) if k > behind][: request.limit]
        self.answer = ChunkRead(request.request, rows, low, (1, self.source.end))

    def fail(self) -> None:
        if self.request is not None:
            self.answer, self.request = ChunkFailed(self.request.request, "lost"), None

    def store(self) -> None:
        self.stored = self.at

    def _carry_out(self, effects: list[chunks.SnapshotEffect]) -> None:
        for effect in effects:
            match effect:
                case ReadChunk():
                    self.request, self.answer = effect, None
                case EmitChunk():
                    self._emit(effect)
                case SnapshotDone():
                    self.done = True

    def _emit(self, emit: EmitChunk) -> None:
        first = self.next_row
        for row in emit.rows:
            self.topic.append(((0, *emit.at, self.next_row), "r", row))
            self.next_row += 1
        self.topic.append(((0, *emit.at, self.next_row), "m", emit.build_end_marker(first)))
        self.next_row += 1


def replayed(capture: Capture) -> dict[int, int]:
    """What a consumer holds that drops every event whose position is not above the highest seen.

    A value is the number of the transaction that wrote it (times 10), so a row that goes back is seen.
    """
    rows: dict[int, int] = {}
    newest: dict[int, int] = {}
    highest: Position = (0, 0, 0, FIRST_SNAPSHOT_ROW - 2)
    for position, kind, what in capture.topic:
        if position <= highest:
            continue
        highest = position
        if kind == "t":
            rows.clear()
        elif isinstance(what, tuple):
            key, value = int(str(what[0])), int(str(what[1]))
            assert value >= newest.get(key, 0), f"row {key} goes back to {value}"
            newest[key] = value
            rows[key] = value
            if kind == "d":
                del rows[key]
    return rows


KEYS = st.integers(0, 5)
STEP = st.one_of(
    st.tuples(
        st.just("commit"), st.dictionaries(KEYS, st.sampled_from([1, 1, None]), min_size=1, max_size=2)
    ),
    st.tuples(st.just("truncate")),
    *(st.tuples(st.just(name)) for name in ("stream", "stream", "read", "read", "fail", "store", "restart")),
    st.tuples(st.just("show"), st.integers(0, 5)),
)


def run(capture: Capture, steps: list[tuple[object, ...]]) -> None:
    source = capture.source
    for name, *arguments in steps:
        match name:
            case "commit":
                source.commit(dict(arguments[0]))  # type: ignore[call-overload]
            case "truncate":
                source.commit({}, truncate=True)
            case "show":
                hidden = [t for t in source.log if not t.visible]
                if hidden:
                    source.show(hidden[int(str(arguments[0])) % len(hidden)])
            case _:
                getattr(capture, str(name))()
    final = source.final()
    for _ in range(200):
        if capture.done and capture.at == len(source.log):
            break
        capture.read()
        capture.stream()
    assert capture.done
    assert replayed(capture) == final


@given(
    mysql=st.booleans(),
    rows=st.dictionaries(KEYS, st.integers(1, 9), max_size=6),
    limit=st.integers(1, 4),
    steps=st.lists(STEP, max_size=40),
)
@settings(max_examples=600, deadline=None)
def test_the_topic_reproduces_the_source(
    mysql: bool, rows: dict[int, int], limit: int, steps: list[tuple[object, ...]]
) -> None:
    run(Capture(Source(mysql, rows), limit), steps)


#: With semi-synchronous replication a change can be logged and delivered before a SELECT sees it.
GAP: list[tuple[object, ...]] = [("commit", {1: 1}), ("stream",), ("read",), ("show", 0), ("stream",)]


@pytest.mark.parametrize("mysql", [False, True])
def test_a_row_delivered_before_it_is_visible_is_not_emitted_stale(mysql: bool) -> None:
    run(Capture(Source(mysql, {1: 1}), limit=3), GAP)


def test_the_log_end_as_low_emits_a_stale_row() -> None:
    with pytest.raises(AssertionError):
        run(Capture(Source(False, {1: 1}), limit=3, naive=True), GAP)


#: Short histories, each of which one rule alone saves: (rows at the beginning, rows a chunk, steps).
HISTORIES: dict[str, tuple[dict[int, int], int, list[tuple[object, ...]]]] = {
    "a later chunk whose LOW is behind where the stream stood when it was planned": (
        {1: 1, 2: 1}, 1, [("read",), ("commit", {2: 1}), ("stream",), ("read",), ("stream",), ("show", 0)],
    ),
    "a row that changes while its chunk is being read": (
        {1: 1}, 3, [("commit", {1: 1}), ("read",), ("stream",), ("show", 0)],
    ),
    "a row that changes while its chunk waits for HIGH": (
        {1: 1}, 3, [("commit", {3: 1}), ("show", 0), ("commit", {1: 1}), ("read",), ("stream",), ("stream",)],
    ),
    "a row that goes while its chunk waits for HIGH": (
        {1: 1, 2: 1}, 3, [("commit", {3: 1}), ("show", 0), ("commit", {1: None}), ("read",), ("stream",),
         ("stream",)],
    ),
    "rows that a TRUNCATE removes while their chunk is being read": (
        {1: 1}, 3, [("read",), ("truncate",), ("stream",), ("show", 0)],
    ),
    "a TRUNCATE that the stream has delivered and the SELECT does not see": (
        {1: 1}, 3, [("truncate",), ("stream",), ("read",), ("stream",), ("show", 0)],
    ),
    "rows before a TRUNCATE that waits behind them": (
        {1: 1}, 3, [("commit", {2: 1}), ("truncate",), ("read",), ("stream",), ("stream",), ("read",),
         ("stream",)],
    ),
    "the last row of a chunk changes": (
        {1: 1, 2: 1, 3: 1}, 2, [("commit", {2: 1}), ("read",), ("stream",), ("read",), ("stream",)],
    ),
    "a chunk as large as the limit that is not the last": ({1: 1, 2: 1}, 1, [("read",), ("stream",)]),
    "an answer to a request that is no longer asked": (
        {1: 1}, 3, [("read",), ("truncate",), ("commit", {1: 1}), ("stream",), ("stream",), ("read",),
         ("stream",)],
    ),
    "a chunk that is emitted, and capture dies before it stores where it stands": (
        {1: 1, 2: 1}, 1, [("commit", {1: 1}), ("store",), ("read",), ("stream",), ("restart",), ("read",),
         ("stream",)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mysql", [False, True], ids=["mariadb", "mysql"])
@pytest.mark.parametrize("name", HISTORIES)
def test_a_history(name: str, mysql: bool) -> None:
    rows, limit, steps = HISTORIES[name]
    run(Capture(Source(mysql, dict(rows)), limit), steps)


def test_a_chunk_waits_for_high() -> None:
    """Else, after a restart, its position would be below what the topic already holds, and it would be
    dropped as a duplicate."""
    steps: list[tuple[object, ...]] = [
        ("commit", {1: 1}),
        ("commit", {2: 1}),
        ("stream",),
        ("stream",),
        ("restart",),
    ]
    run(Capture(Source(False, {1: 1, 2: 1, 3: 1}), limit=9), steps)


def test_a_chunk_whose_low_is_behind_the_stream_is_read_again_later() -> None:
    machine = SnapshotMachine(10)
    state, [read] = machine.start_snapshot(TABLE, (1, 500), None, FROM_START, 7.0)
    assert isinstance(read, ReadChunk)
    assert read.not_before == 7.0
    state, [again] = machine.apply_event(
        state, ChunkRead(read.request, [(1, 1)], LowWatermark((1, 400), None), (1, 500)), 8.0
    )
    assert isinstance(again, ReadChunk)
    assert again.request != read.request
    assert again.not_before > 8.0
    assert machine.apply_event(
        state, ChunkRead(read.request, [], LowWatermark((1, 900), None), (1, 900)), 8.0
    ) == (state, [])


@given(st.integers(1, 2**21), st.integers(1, 2**21), st.integers(0, 2**20))
def test_snapshot_rows_of_a_later_run_stand_above_those_of_an_earlier_one(
    gen: int, more: int, rows: int
) -> None:
    """Generations 2^20 apart got the same numbers: on an idle source the snapshot then waited for ever."""
    last = compute_first_row(gen, None) + rows
    assert compute_first_row(gen + more, (0, 3, 4711, last)) > last
    assert compute_first_row(gen + more, (0, 3, 4711, last)) < 0
    assert compute_first_row(gen, (0, 3, 4711, 7)) == compute_first_row(gen, None), (
        "rows of the log at the same place have to pass first"
    )


def test_chunks_are_numbered_one_by_one_and_each_goes_on_where_the_last_one_ended() -> None:
    """By that a restart finds the last of a chain: with a gap it would read the whole table again."""
    machine, at = SnapshotMachine(1), 100
    state, effects = machine.start_snapshot(TABLE, (1, at), None, FROM_START, 0.0)
    found = []
    for row in (1, 2, 3):
        [read] = [each for each in effects if isinstance(each, ReadChunk)]
        state, _ = machine.apply_event(
            state, ChunkRead(read.request, [(row, 1)], LowWatermark((1, at), None), (1, at)), 0.0
        )
        state, effects = machine.apply_event(state, StreamReached((1, at)), 0.0)
        found += [(each.number, each.after, each.upto) for each in effects if isinstance(each, EmitChunk)]
    assert found == [(1, None, (1,)), (2, (1,), (2,)), (3, (2,), (3,))]


def planned() -> tuple[SnapshotMachine, ChunkState, ReadChunk]:
    """Return a machine of chunks of 10 rows whose stream stands at 500 of the log, and what it asks for."""
    machine = SnapshotMachine(10)
    state, [read] = machine.start_snapshot(TABLE, (1, 500), None, FROM_START, 7.0)
    assert isinstance(read, ReadChunk)
    return machine, state, read


def chunk(request: int, low: int = 500, high: int = 500) -> ChunkRead:
    return ChunkRead(request, [(1, 1)], LowWatermark((1, low), None), (1, high))


def test_a_chunk_that_does_not_see_a_statement_yet_is_read_again_a_little_later() -> None:
    """At once the server would be asked again and again: it shows the statement when it has done it."""
    machine, state, _ = planned()
    state, [read] = machine.apply_event(state, TableChanged(LogMark((1, 510), None), TABLE), 8.0)
    assert isinstance(read, ReadChunk)
    assert read.not_before == 8.0, "nothing is wrong yet"
    state, [again] = machine.apply_event(state, chunk(read.request, low=505), 9.0)
    assert isinstance(again, ReadChunk)
    assert (again.request != read.request, again.not_before > 9.0) == (True, True)
    state, effects = machine.apply_event(state, chunk(again.request, low=515, high=515), 10.0)
    assert effects == []
    _, [emit, _done] = machine.apply_event(state, StreamReached((1, 515)), 10.0)
    assert isinstance(emit, EmitChunk)


def test_a_chunk_whose_reading_failed_is_read_again_later_and_once() -> None:
    machine, state, read = planned()
    state, [again] = machine.apply_event(state, ChunkFailed(read.request, "lost"), 8.0)
    assert isinstance(again, ReadChunk)
    assert (again.request != read.request, again.not_before > 8.0) == (True, True)
    state, effects = machine.apply_event(state, ChunkFailed(read.request, "lost"), 9.0)
    assert effects == [], "that was said of another request"
    state, effects = machine.apply_event(state, chunk(again.request, high=600), 9.0)
    assert effects == []
    _, effects = machine.apply_event(state, ChunkFailed(again.request, "lost"), 9.0)
    assert effects == [], "it was read, and waits for HIGH"


@pytest.mark.parametrize("resumed", [True, False], ids=["at its start", "in this run"])
def test_a_table_that_is_done_is_not_read_again(resumed: bool) -> None:
    machine = SnapshotMachine(10)
    resume = FROM_START._replace(done=resumed)
    state, effects = machine.start_snapshot(TABLE, (1, 500), None, resume, 0.0)
    if isinstance(effects[0], ReadChunk):
        state, _ = machine.apply_event(state, chunk(effects[0].request), 0.0)
        state, effects = machine.apply_event(state, StreamReached((1, 500)), 0.0)
    assert isinstance(effects[-1], SnapshotDone)
    mark = LogMark((1, 510), None)
    for event in (
        TableChanged(mark, TABLE),
        RowsPassed(mark, [(1,)]),
        ChunkFailed(1, "late"),
        StreamReached((1, 520)),
    ):
        state, effects = machine.apply_event(state, event, 1.0)
        assert effects == []
