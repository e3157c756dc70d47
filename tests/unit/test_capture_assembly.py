"""Transactions assembled until their end is known: what came to be goes on, what did not is marked, memory is
bounded."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import UndecodableRow
from producer.binlog_format.log_event import BinlogEvent
from producer.errors import StreamStoppedError, TransientSourceError
from producer.sources.binlog.assembly import RereadRequest, TransactionBuffer
from producer.sources.binlog.binlog_log import TransactionStream
from producer.sources.binlog.binlog_source import SpillFile, make_spill_factory
from producer.sources.binlog.event_groups import UNDONE, EventGroup, ReleasedEvents, Spill
from producer.sources.binlog.transactions import CapturedRows, TransactionAssembler
from producer.sources.changes import Boundary
from tests.kits.log import CAPTURED, OTHER, Log
from tests.kits.seekable_log import SeekableLog

LARGE = 3000


def captured(db: str, table: str) -> bool:
    return (db, table) == CAPTURED


@dataclass
class Kept:
    """A spill in memory."""

    events: list[BinlogEvent] = field(default_factory=list)

    def append(self, event: BinlogEvent) -> None:
        self.events.append(event)

    def __iter__(self) -> Iterator[BinlogEvent]:
        return iter(self.events)

    def close(self) -> None:
        self.events.clear()


def read_all(server: SeekableLog, assembly: TransactionBuffer) -> list[BinlogEvent]:
    first = server.events[0]
    stream = TransactionStream(server.connect, first.file, first.start, assembly)
    found = []
    while True:
        found += stream.read_events(0)
        if not stream.heard:
            assert not stream.inside
            return found


def published(events: Iterable[BinlogEvent]) -> list[tuple[int, int]]:
    """(table id, value) of the rows that came to be; every row event of Log.rows has 4-byte values."""
    found = []
    for event in events:
        if event.type in log.DECODABLE_ROW_EVENTS and not event.flags & UNDONE:
            table = int.from_bytes(event.body[:6], "little")
            found += [(table, v) for (_, v) in struct.iter_unpack("<bi", event.body[12:])]
    return found


def folded(events: Iterable[BinlogEvent]) -> list[Boundary]:
    """The ends of transactions that the fold makes of them."""
    fold, found = TransactionAssembler(captured), []
    for event in events:
        output = fold.fold_event(event)
        if isinstance(output, CapturedRows):
            fold.record_position_count(1)
        elif isinstance(output, Boundary):
            found.append(output)
    assert not fold.inside
    return found


def rows(*values: int) -> list[tuple[int, int]]:
    return [(7, value) for value in values]


def assembled(written: Log, limit: int = 1 << 20, spill: Spill | None = None) -> list[BinlogEvent]:
    return read_all(
        SeekableLog(written.events, size=3), TransactionBuffer(captured, limit=limit, spill=lambda: spill)
    )


@pytest.mark.parametrize("limit", [1 << 20, LARGE])
@pytest.mark.parametrize("spilled", [False, True])
def test_a_compressed_transaction_is_assembled_like_any_other(limit: int, spilled: bool) -> None:
    inner, written = Log(), Log()
    inner.query("BEGIN")
    inner.rows(CAPTURED, [1])
    inner.query("SAVEPOINT s")
    inner.rows(CAPTURED, [2])
    inner.query("ROLLBACK TO s")
    for value in range(10, 300):
        inner.rows(CAPTURED, [value])
    inner.xid()
    for _ in range(2):
        written.gtid()
        written.payload(inner)
    server = SeekableLog(written.events, size=3)
    found = read_all(
        server, TransactionBuffer(captured, limit=limit, spill=Kept if spilled else lambda: None)
    )
    assert published(found) == rows(1, *range(10, 300)) * 2
    second = written.events[2].start
    assert [(end.header.pos, end.pos) for end in folded(found)] == [(4, second), (second, written.pos)]
    assert server.on_stream_opened == ([4, 4, second] if limit == LARGE and not spilled else [4])


STYLES = ["mysql", "mariadb", "anonymous", "none"]


def begin(written: Log, style: str) -> None:
    if style == "mariadb":
        written.mariadb_gtid(0)
        return
    if style == "mysql":
        written.gtid()
    if style == "anonymous":
        written.add(log.ANONYMOUS_GTID, bytes(42))
    written.query("BEGIN")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("end", ["XID", "COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("limit", [1 << 20, LARGE])
def test_a_transaction_goes_on_at_its_end_and_only_if_it_came_to_be(style: str, end: str, limit: int) -> None:
    written, assembly = Log(), TransactionBuffer(captured)
    begin(written, style)
    for value in range(40):
        written.rows(CAPTURED, [value])
    for event in written.events:
        assert not assembly.accept_event(event)
        assert assembly.inside
    written.xid() if end == "XID" else written.query(end)
    assert published(assembled(written, limit)) == (rows(*range(40)) if end != "ROLLBACK" else [])


@pytest.mark.parametrize("limit", [1 << 20, LARGE])
@pytest.mark.parametrize("spilled", [False, True])
def test_a_savepoint_undoes_what_stands_behind_it(limit: int, spilled: bool) -> None:
    written = Log()
    written.mariadb_gtid(0)
    written.rows(CAPTURED, [1])
    written.query("SAVEPOINT `s P`")
    written.rows(CAPTURED, [2])
    written.query("SAVEPOINT inner_one")
    written.rows(CAPTURED, [3])
    written.query("ROLLBACK TO SAVEPOINT inner_one")
    written.rows(CAPTURED, [4])
    written.query("ROLLBACK TO `S p`")
    written.rows(CAPTURED, list(range(100, 160)))
    written.query("SAVEPOINT `s P`")
    written.rows(CAPTURED, list(range(200, 600)))
    written.query("ROLLBACK TO `s p`")
    written.rows(CAPTURED, [5])
    written.xid()
    found = assembled(written, limit, Kept() if spilled else None)
    assert published(found) == rows(1, *range(100, 160), 5)


def test_a_savepoint_that_the_log_does_not_know_stands_before_the_first_change() -> None:
    written = Log()
    written.gtid()
    written.query("BEGIN")
    written.rows(CAPTURED, [1])
    written.query("ROLLBACK TO `early`")
    written.rows(CAPTURED, [2])
    written.xid()
    assert published(assembled(written)) == rows(2)


def test_a_large_transaction_is_read_a_second_time_and_nothing_of_it_kept() -> None:
    written = Log()
    for first in (0, 1000, 2000):
        written.gtid()
        written.query("BEGIN")
        for value in range(first, first + (500 if first == 1000 else 3)):
            written.rows(CAPTURED, [value])
        written.xid()
    server, assembly = SeekableLog(written.events), TransactionBuffer(captured, limit=LARGE)
    found = read_all(server, assembly)
    assert [value for _, value in published(found)] == [*range(3), *range(1000, 1500), *range(2000, 2003)]
    starts = [event.start for event in written.events if event.type == log.GTID]
    assert server.on_stream_opened == [starts[0], starts[1]]


@pytest.mark.parametrize("write", [
    lambda w: w.rows(OTHER, list(range(2000))),
    lambda w: (w.rows(CAPTURED, list(range(2000))), w.query("ROLLBACK")),
])  # fmt: skip
def test_what_has_nothing_to_publish_is_not_read_again(write: object) -> None:
    written = Log()
    written.mariadb_gtid(0)
    write(written)  # type: ignore[operator]
    if written.events[-1].type != log.QUERY:
        written.xid()
    server = SeekableLog(written.events, size=1)
    found = read_all(server, TransactionBuffer(captured, limit=LARGE))
    assert server.on_stream_opened == [4]
    assert published(found) == []
    assert {event.type for event in found if event.flags & UNDONE} == {30}, (
        "one row event says of which table"
    )


def test_the_second_reading_has_to_be_the_same_log() -> None:
    written = Log()
    written.gtid()
    written.query("BEGIN")
    written.rows(CAPTURED, list(range(2000)))
    written.xid()
    assembly = TransactionBuffer(captured, limit=LARGE)
    answers = [assembly.accept_event(event) for event in written.events]
    assert answers[-1] == RereadRequest("binlog.000009", 4)
    assert assembly.inside, "or capture would resume behind it"
    with pytest.raises(TransientSourceError, match="has other content than when it was first read"):
        assembly.accept_event(written.events[0]._replace(timestamp=3))


def test_the_second_reading_has_to_end_at_the_same_place() -> None:
    written = Log()
    written.gtid()
    written.query("BEGIN")
    written.rows(CAPTURED, list(range(2000)))
    written.xid()
    assembly = TransactionBuffer(captured, limit=LARGE)
    for event in written.events:
        assembly.accept_event(event)
    for event in written.events[:-1]:
        assert list(assembly.accept_event(event)) == [event]
    with pytest.raises(TransientSourceError, match="has other content than when it was first read"):
        assembly.accept_event(written.events[-1]._replace(end=written.pos + 7))


def test_a_group_cut_off_by_a_crash_of_the_server_came_to_nothing() -> None:
    written = Log()
    written.gtid()
    written.query("BEGIN")
    written.rows(CAPTURED, [1])
    before = written.events
    after = Log(file="binlog.000010")
    after.gtid()
    after.query("BEGIN")
    after.rows(CAPTURED, [2])
    after.xid()
    found = read_all(SeekableLog([*before, *after.events]), TransactionBuffer(captured))
    assert published(found) == rows(2)


def test_a_transaction_inside_another_one_is_refused() -> None:
    written = Log()
    for _ in range(2):
        written.gtid()
        written.query("BEGIN")
    with pytest.raises(StreamStoppedError, match="inside another"):
        assembled(written)


def test_statements_of_a_rolled_back_group_go_on_without_its_rows() -> None:
    for limit in (1 << 20, LARGE):
        written = Log()
        written.mariadb_gtid(0)
        written.query("CREATE TABLE x (i INT)")
        written.rows(CAPTURED, list(range(2000)))
        written.query("CREATE TABLE y (i INT)")
        written.query("ROLLBACK")
        found = assembled(written, limit)
        assert [event.type for event in found if event.type == log.QUERY] == [log.QUERY] * 3
        assert published(found) == []


def test_an_xa_group_that_is_only_prepared_came_to_nothing_yet() -> None:
    for limit in (1 << 20, LARGE):
        for first, values in ((b"\0", []), (b"\1", rows(*range(800)))):
            written = Log()
            written.gtid()
            written.query("XA START X'61',X'',1")
            written.rows(CAPTURED, list(range(800)))
            written.query("XA END X'61',X'',1")
            written.add(log.XA_PREPARE, first + bytes(12) + b"a")
            found = assembled(written, limit)
            assert published(found) == values
            assert found[-1].type == log.XA_PREPARE


steps = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(0, 99)),
        st.tuples(st.just("other"), st.integers(0, 99)),
        st.tuples(st.just("save"), st.sampled_from("abc")),
        st.tuples(st.just("back"), st.sampled_from("abc")),
    ),
    max_size=25,
)


@given(st.lists(st.tuples(steps, st.booleans()), min_size=1, max_size=4), st.sampled_from(STYLES),
       st.sampled_from([1 << 20, 1500, 1]), st.booleans(), st.integers(1, 9))  # fmt: skip
def test_any_history_gives_what_a_database_would_hold(
    transactions: list[tuple[list[tuple[str, int | str]], bool]],
    style: str,
    limit: int,
    spilled: bool,
    size: int,
) -> None:
    written, expected, over = Log(), [], []
    for actions, commits in transactions:
        begin(written, style)
        expected += _play(written, actions) if commits else _play(written, actions)[:0]
        written.xid() if commits else written.query("ROLLBACK")
        over.append(written.pos)
    server = SeekableLog(written.events, size)
    assembly = TransactionBuffer(captured, limit=limit, spill=Kept if spilled else lambda: None)
    events = read_all(server, assembly)
    assert [row for row in published(events) if row[0] == 7] == rows(*expected)
    ends = folded(events)
    assert [(end.file, end.pos) for end in ends] == [("binlog.000009", pos) for pos in over]
    touched = [
        any(action == "rows" for action, _ in actions) for actions, commits in transactions if not commits
    ]
    assert [
        bool(end.undone) for end, (_, commits) in zip(ends, transactions, strict=True) if not commits
    ] == touched


def _play(written: Log, actions: list[tuple[str, int | str]]) -> list[int]:
    """Write the actions into the log as a server does; returns the captured rows that are left."""
    values: list[int] = []
    savepoints: list[tuple[str, int]] = []
    for action, what in actions:
        if action == "rows":
            written.rows(CAPTURED, [int(what)])
            values.append(int(what))
        elif action == "other":
            written.rows(OTHER, [int(what)])
        elif action == "save":
            written.query(f"SAVEPOINT `{what}`")
            savepoints = [s for s in savepoints if s[0] != what] + [(str(what), len(values))]
        elif what in dict(savepoints):
            written.query(f"ROLLBACK TO `{what}`")
            at = [name for name, _ in savepoints].index(str(what))
            savepoints = savepoints[: at + 1]
            del values[savepoints[at][1] :]
    return values


def large() -> Log:
    written = Log()
    written.gtid()
    written.query("BEGIN")
    for value in range(1000):
        written.rows(CAPTURED, [value])
    written.xid()
    return written


def test_a_spill_file_gives_back_what_it_got_and_has_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "spill"
    written, made = large(), []

    def make() -> SpillFile:
        made.append(make_spill_factory(folder)())
        return made[-1]

    server = SeekableLog(written.events)
    found = read_all(server, TransactionBuffer(captured, limit=LARGE, spill=make))
    assert found == written.events
    assert server.on_stream_opened == [4], "it is not read again"
    assert len(made) == 1
    assert list(folder.iterdir()) == []


def test_a_spill_file_is_of_nobody_else(tmp_path: Path) -> None:
    spill = SpillFile(tmp_path)
    assert stat.S_IMODE(os.fstat(spill._file.fileno()).st_mode) == 0o600
    spill.close()


class Full(Kept):
    def append(self, event: BinlogEvent) -> None:
        if len(self.events) > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(event)


def test_without_room_for_a_spill_the_log_is_read_again() -> None:
    def none() -> Spill:
        raise PermissionError

    written = large()
    for spill in (Full, none):
        server = SeekableLog(written.events)
        assert read_all(server, TransactionBuffer(captured, limit=LARGE, spill=spill)) == written.events
        assert server.on_stream_opened == [4, 4]


def test_what_proves_the_log_before_a_large_transaction_is_not_lost_with_the_first_connection() -> None:
    """Without it a start finds GTIDs that a server with semi-synchronous replication does not count yet, and
    refuses."""
    written = Log()
    written.gtid()
    written.query("BEGIN")
    written.rows(CAPTURED, [1])
    written.xid()
    before = written.events[-1]
    written.gtid()
    written.query("BEGIN")
    written.query("SAVEPOINT s")
    for value in range(100):
        written.rows(CAPTURED, [value])
    written.xid()
    server = SeekableLog(written.events, size=1000)
    stream = TransactionStream(server.connect, written.file, 4, TransactionBuffer(captured, limit=LARGE))
    assert list(stream.read_events(0))[-1] == before
    assert server.on_stream_opened == [4, before.end], "the large one is to be read again"
    assert stream.find_evidence(before.file, before.end) == (before,)


def test_the_spill_of_a_group_with_an_event_that_cannot_be_read_is_closed_with_the_group() -> None:
    class ClosedOnce(Kept):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    spill = ClosedOnce()
    broken = BinlogEvent(log.TABLE_MAP, 0, 0, 0, "binlog.000001", 4, 8, b"")
    group = EventGroup(broken, grouped=True, held=[broken])
    with pytest.raises(UndecodableRow):
        group.release_events(ReleasedEvents(captured, lambda: spill))
    group.discard_events()
    assert spill.closed == 1


def test_an_ignorable_event_of_a_later_server_is_passed_over() -> None:
    """Type 28 is MySQL's for what a reader may ignore, and 29 the text of a statement."""
    assembly = TransactionBuffer(captured)
    for kind in (28, 29):
        assert list(assembly.accept_event(BinlogEvent(kind, 1, 1, 0, "binlog.000001", 4, 40, b"x"))) == []


def test_an_event_between_transactions_that_was_not_there_before_means_another_log() -> None:
    assembly = TransactionBuffer(captured)
    assembly._known = iter(())  # type: ignore[assignment]
    with pytest.raises(TransientSourceError, match="another server answers"):
        assembly._handle_ungrouped(BinlogEvent(99, 1, 1, 0, "binlog.000001", 4, 40, b"x"))
