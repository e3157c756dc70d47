"""The snapshots of several tables at once: which are under way, whose answers are taken, and what becomes of
one whose table changes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from producer.copies.book import CopyBook
from producer.decoders.envelope import SourceContext, TopicTail
from producer.errors import TableStoppedError
from producer.ports import Clock
from producer.snapshot import scheduler
from producer.snapshot.chunks import FROM_START
from producer.snapshot.scheduler import MAX_CONCURRENT_SNAPSHOTS, SnapshotScheduler
from producer.sources.chunk_data import ChunkRead, ChunkRefused, LogMark, LowWatermark
from producer.start.started import StartedCapture
from producer.tables import BegunCopy, CapturedTables, TableState, TopicState, format_table_name
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.copies import CopyMark, CopyState
from schemas.wire.event import EventEnvelope
from schemas.wire.position import Position
from schemas.wire.records import Identity, StoredPosition
from tests.stands.chunk_queue import ScriptedChunks
from tests.stands.event_writer import TopicWriter

FILE, START = "binlog.000003", 100
BEGUN: Position = (0, 3, 90, -7)
IDENTITY = Identity(server_uuid=None, server_id=1, version="11", gtid_set=None)


def table(name: str, *key: str) -> Table:
    number = ColumnType(kind=Kind.INT, bits=32)
    columns = tuple(Column(name=each, type=number, nullable=False) for each in ("id", "nr"))
    parts = tuple(IndexPart(column=each) for each in key or ("id",))
    return Table(db="d", name=name, columns=columns, key=UniqueIndex(name="PRIMARY", parts=parts))


class Run:
    """A run of capture on MariaDB over the tables `names` of schema d; `copies`: those of which a copy runs
    that was asked for."""

    def __init__(self, *names: str, copies: tuple[str, ...] = (), expected: bool = True) -> None:
        self.readers: list[ScriptedChunks] = []
        self.states: dict[str, TableState] = {}
        asked = {}
        for each in names:
            topic = TopicState(f"p.s.d.{each}", TopicTail())
            state = self.states[each] = TableState(("d", each), topic, table(each), BEGUN)
            if each in copies:
                state.begun = BegunCopy(CopyMark(id=each), BEGUN, 0)
                asked[f"d.{each}"] = CopyState(
                    id=each, db="d", table=each, by="operator", phase="running", requested_ms=1, begin=BEGUN,
                    offset=0,
                )  # fmt: skip
        captured = CapturedTables("p", "s", tables={state.name: state for state in self.states.values()})
        self.book = CopyBook(asked)
        record = StoredPosition(source="s", gen=1, epoch=0, file=FILE, pos=START, identity=IDENTITY, ts_ms=1)
        context = SourceContext(connector="mariadb", name="s", epoch=0, gen=1)
        started = StartedCapture(record, context, captured, {}, {}, fresh=True, copies=self.book)
        self.writer = TopicWriter()
        writer: Any = self.writer
        self.snapshots = SnapshotScheduler(
            started, writer, self._open, Clock(lambda: 1.0, lambda: 1000), 10, enabled=expected,
            delivered=None,
        )  # fmt: skip

    def _open(self, _began: object) -> ScriptedChunks:
        self.readers.append(ScriptedChunks())
        return self.readers[-1]

    def advance(self, pos: int = START) -> None:
        self.snapshots.advance_snapshots(FILE, pos)

    def reader(self, name: str) -> ScriptedChunks:
        """Return who was asked last for rows of a table."""
        return next(
            each for each in reversed(self.readers) if each.asked and each.asked[-1].table.name == name
        )

    def answer(self, name: str, *rows: Row, high: int = START) -> None:
        """The oldest request to the reader of a table is answered with `rows`, which are all, of all that was
        before `START`."""
        low = LowWatermark((3, START), None)
        self.reader(name).answer(lambda request: ChunkRead(request, rows, low, (3, high)))

    def changed(self, name: str, now: Table | None = None, pos: int = START) -> None:
        """A statement made `now` of a table (None: the same), and may have moved its rows."""
        state = self.states[name]
        state.table = now or state.table
        self.snapshots.handle_table_change(state, LogMark((3, pos), None))

    def events(self, name: str) -> list[EventEnvelope]:
        return self.writer.events(f"p.s.d.{name}")

    @property
    def asked(self) -> list[str]:
        """The tables whose chunks were asked for, in the order of the readers."""
        return [request.table.name for reader in self.readers for request in reader.asked]

    def whereabouts(self, name: str) -> list[str]:
        """Return in which of the lists a table stands."""
        tables, key = self.snapshots.tables, ("d", name)
        found = {
            "waiting": key in tables.waiting,
            "jobs": key in tables.jobs,
            "unbegun": key in tables.unbegun,
        }
        return [title for title, there in found.items() if there]


def test_a_few_tables_are_read_at_once_each_by_a_reader_of_its_own_and_the_next_one_follows_the_first_that_ends() -> (  # noqa: E501
    None
):
    names = [f"t{n}" for n in range(MAX_CONCURRENT_SNAPSHOTS + 2)]
    run = Run(*names)
    run.advance()
    assert run.asked == names[:MAX_CONCURRENT_SNAPSHOTS]
    assert len(run.readers) == MAX_CONCURRENT_SNAPSHOTS
    run.answer("t1", (1, 1))
    run.advance()
    assert [each.op for each in run.events("t1")] == ["r", "m"]
    assert (len(run.readers), run.readers[1].asked[-1].table.name) == (
        MAX_CONCURRENT_SNAPSHOTS,
        names[MAX_CONCURRENT_SNAPSHOTS],
    )
    assert run.snapshots.tables.done == {"d.t1"}
    assert run.snapshots.tables.pending == {format_table_name(("d", name)) for name in names if name != "t1"}


@pytest.mark.parametrize(("after", "event"), [(None, "snapshot began"), ((1,), "snapshot continued")])
def test_the_first_chunk_is_logged_as_begin_and_a_later_one_as_continuation(
    monkeypatch: pytest.MonkeyPatch, after: tuple[int] | None, event: str
) -> None:
    monkeypatch.setattr(scheduler, "resume_point", lambda *_: FROM_START._replace(after=after))
    with capture_logs() as found:
        Run("t").advance()
    assert [each["event"] for each in found] == [event]


def test_only_the_process_that_completes_a_snapshot_logs_that() -> None:
    run = Run("t", "u", copies=("t",))
    # A copy that was given up is at its end when it is taken up.
    run.book.states.all["d.t"] = replace(run.book.states.all["d.t"], phase="cancelled")
    with capture_logs() as found:
        run.advance()
        assert (run.snapshots.tables.done, run.asked) == ({"d.t"}, ["u"])
        assert not [each for each in found if each["event"] == "snapshot completed"]
        run.answer("u", (1, 1))
        run.advance()
    assert [each["table"] for each in found if each["event"] == "snapshot completed"] == ["d.u"]


def test_capture_goes_on_at_once_only_while_answers_come() -> None:
    """Else it waits for the log meanwhile: it would turn round and round, and nothing be read any sooner."""
    run = Run("t", "u")
    assert not run.snapshots.ready
    run.advance()
    assert not run.snapshots.ready
    run.answer("t", (1, 1), high=START + 50)
    run.advance()
    assert run.snapshots.ready
    run.advance()
    assert not run.snapshots.ready
    run.answer("u")
    run.advance(START + 50)
    assert not run.snapshots.tables.active
    assert not run.snapshots.ready, "there is nothing to go on with"


def test_a_copy_that_begins_takes_the_place_of_what_was_read_before() -> None:
    run = Run("t")
    run.advance()
    run.answer("t", (1, 1), high=START + 50)
    run.advance()
    run.states["t"].begun = BegunCopy(CopyMark(id="r1"), BEGUN, 0)
    run.snapshots.add_copy(run.states["t"])
    assert run.whereabouts("t") == ["waiting"]
    run.advance(START + 50)
    assert run.events("t") == [], "the marker would say that it is of the copy"
    assert run.asked == ["t", "t"]


@pytest.mark.parametrize("moment", ["it waits", "it is read", "its copy has to begin"])
@pytest.mark.parametrize("how", ["forgotten", "a statement stops it"])
def test_of_a_table_that_is_stopped_nothing_goes_on(moment: str, how: str) -> None:
    run = Run("t")
    if moment != "it waits":
        run.advance()
        run.answer("t", (1, 1))
    if moment == "its copy has to begin":
        run.changed("t", table("t", "nr"))
        assert run.whereabouts("t") == ["unbegun"]
    assert run.snapshots.tables.goes_on(("d", "t"))
    if how == "forgotten":
        run.snapshots.tables.forget_table(("d", "t"))
    else:
        run.states["t"].ignored = "dropped"
        run.changed("t")
    assert run.whereabouts("t") == []
    assert not run.snapshots.tables.goes_on(("d", "t"))
    run.advance()
    assert run.events("t") == []
    assert run.snapshots.tables.pending == set()


def test_an_answer_for_a_table_that_is_read_anew_is_nobodys() -> None:
    """Its reader may have been given to another table meanwhile."""
    run = Run("t", "u")
    run.advance()
    run.snapshots.tables.forget_table(("d", "t"))
    run.snapshots.add_table(run.states["t"])
    first = run.readers[0]
    run.advance()
    assert [each.table.name for each in first.asked] == ["t", "t"]
    run.answer("t", (1, 1))
    run.advance()
    assert run.events("t") == []
    assert not run.snapshots.ready
    run.answer("t", (1, 2))
    run.advance()
    assert [each.after for each in run.events("t") if each.op == "r"] == [{"id": 1, "nr": 2}]


def test_what_stops_a_table_while_it_is_read_is_raised_and_the_readers_next_answer_is_the_next_tables() -> (
    None
):
    run = Run("t", "u")
    run.advance()
    error = TableStoppedError(frozenset([("d", "t")]), "value", "a row of d.t", "correct it")
    reader = run.reader("t")
    reader.answer(lambda _: error)
    with pytest.raises(TableStoppedError, match="a row of d"):
        run.advance()
    run.snapshots.tables.forget_table(("d", "t"))
    run.states["v"] = state = TableState(("d", "v"), TopicState("p.s.d.v", TopicTail()), table("v"), BEGUN)
    run.snapshots.add_table(state)
    run.advance()
    assert run.reader("v") is reader
    run.answer("v", (1, 1))
    run.advance()
    assert [each.op for each in run.events("v")] == ["r", "m"]


@pytest.mark.parametrize("copied", [False, True], ids=["its first snapshot", "a copy that was asked for"])
def test_a_statement_that_leaves_the_definition_has_the_chunk_read_again(copied: bool) -> None:
    run = Run("t", copies=("t",) if copied else ())
    run.advance()
    run.changed("t")
    assert run.asked == ["t", "t"]
    assert (run.whereabouts("t"), run.book.altered) == (["jobs"], [])


def test_a_copy_of_a_table_that_is_altered_begins_anew() -> None:
    run = Run("t", copies=("t",))
    run.advance()
    run.answer("t", (1, 1))
    columns = (*table("t").columns, Column(name="more", type=ColumnType(kind=Kind.INT, bits=32)))
    run.changed("t", replace(table("t"), columns=columns))
    assert (run.whereabouts("t"), run.book.altered) == ([], ["d.t"])
    run.book.settle_changes(1000)
    state = run.book.states.all["d.t"]
    assert (state.phase, state.restarts) == ("waiting", 1)
    run.advance()
    assert run.events("t") == [], "what was read is of the definition before"


@pytest.mark.parametrize("reads", [True, False])
def test_a_key_sweep_of_a_table_that_is_altered_begins_anew_though_its_key_is_the_same(reads: bool) -> None:
    """The events before its next marker have the former definition."""
    run = Run("t", copies=("t",))
    state = run.states["t"]
    state.begun = BegunCopy(CopyMark(id="t", keys=True), BEGUN, 0)
    run.book.states.put_state(replace(run.book.states.all["d.t"], keys=True, by="capture"))
    if reads:
        run.advance()
        run.answer("t", (1,))
        run.changed("t")
        assert (run.whereabouts("t"), run.book.altered) == (["jobs"], []), "the definition is the same"
    columns = (*table("t").columns, Column(name="more", type=ColumnType(kind=Kind.INT, bits=32)))
    state.defined_at = (0, 3, START, 1)
    run.changed("t", replace(table("t"), columns=columns))
    assert (run.whereabouts("t"), run.book.altered) == ([], ["d.t"])
    run.book.settle_changes(1000)
    assert run.book.states.all["d.t"].phase == "waiting"
    run.advance()
    assert run.events("t") == []


@pytest.mark.parametrize("expected", [True, False])
def test_a_table_is_taken_up_by_a_statement_once(expected: bool) -> None:
    """A table that is new to capture is; not one whose rows are in its topic, nor one whose copy is to
    begin."""
    run = Run("t", expected=expected)
    if expected:
        run.advance()
        run.changed("t", table("t", "nr"))
        run.changed("t")
        assert run.whereabouts("t") == ["unbegun"]
        run.states["t"].begun = BegunCopy(CopyMark(id="snapshot"), BEGUN, 0)
        run.snapshots.add_copy(run.states["t"])
        run.advance()
        run.answer("t", (1, 1))  # what was read of it by its key of before
        run.answer("t", (1, 1))
        run.advance()
    assert run.whereabouts("t") == []
    run.changed("t")
    assert run.whereabouts("t") == []
    run.states["u"] = TableState(("d", "u"), TopicState("p.s.d.u", TopicTail()), table("u"), BEGUN)
    run.changed("u")
    assert run.whereabouts("u") == (["waiting"] if expected else [])


def test_the_condition_that_a_source_does_not_take_is_told_and_the_copy_is_not_read_on() -> None:
    run = Run("t", copies=("t",))
    run.advance()
    run.reader("t").answer(lambda request: ChunkRefused(request, "Unknown column"))
    run.advance()
    assert run.snapshots.refused == [(("d", "t"), "Unknown column")]
    assert run.whereabouts("t") == []
    run.advance()
    assert run.asked == ["t"]


def test_the_end_closes_every_reader() -> None:
    run = Run("t", "u")
    run.advance()
    run.snapshots.close()
    assert [each.closed for each in run.readers] == [True, True]
