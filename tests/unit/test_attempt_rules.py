"""Rules of one attempt, each in a short history: when one transaction is enough, what is read, what remains
after a change of definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace as changed

from consumer.attempt.drivers.threads import ThreadDriver, ThreadSignals
from consumer.attempt.effects import Machine, Transact
from consumer.attempt.readers.debezium import DebeziumReader
from consumer.attempt.readers.reader import EnvelopeReader, RecordReader, RowBatch
from consumer.attempt.transactions import AttemptProgress
from consumer.errors import MissingGrantError, RefusedError, TargetConfigError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import LaneProgress
from consumer.tables.router import TableRoute
from schemas.table.model import Column, ColumnType, Kind
from tests.kits import debezium_unit as debezium
from tests.kits.unit_apply import Bench, rows_of, started
from tests.kits.unit_copies import benched, copy_of, stopped_at
from tests.stands.fake_target import FakeSession


class TestOneTransaction:
    """Events become one transaction of all lanes, or go to the lanes."""

    @pytest.fixture
    def opened(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many lanes were opened, each time that some were."""
        found: list[int] = []
        signals = ThreadDriver.make_signals

        def noted(driver: ThreadDriver, lanes: int) -> ThreadSignals:
            found.append(lanes)
            return signals(driver, lanes)

        monkeypatch.setattr(ThreadDriver, "make_signals", noted)
        return found

    def applied(self, bench: Bench, count: int) -> Any:
        """Apply `count` rows more, in slices of two."""
        start = len(bench.topic)
        source = self.source
        bench.write([source.put(source.row(key, f"{key}@x", 1)) for key in range(start, start + count)])
        report = bench.apply(start, slice_size=2)
        assert (report.state, bench.target.rows_of()) == ("ok", rows_of(source))
        return report

    def begun(self, **options: Any) -> Bench:
        bench, self.source = started(**options)
        assert bench.apply().state == "ok"
        bench.target.log.clear()
        return bench

    @pytest.mark.parametrize(
        ("small", "gather", "one"),
        [(6, 100, True), (6, 6, True), (5, 100, False), (6, 5, False), (0, 100, False)],
    )
    def test_as_many_as_a_small_batch_holds_and_a_lane_may_gather(
        self, opened: list[int], small: int, gather: int, one: bool
    ) -> None:
        bench = self.begun(small_batch=small, limits=LaneLimits(max_gather=gather, pause=0.001))
        self.applied(bench, 6)
        assert (bench.target.log == [(0, 1, 2)]) == one
        assert opened == ([] if one else [3])

    def test_also_while_keys_are_held(self, opened: list[int]) -> None:
        """One row that never fits must not take the faster way from its table."""
        bench = self.begun(small_batch=100)
        bench.target.refuse = lambda row: RefusedError("too long") if row[0] == 1 else None
        source = self.source
        bench.write([source.put(source.row(1, None, 1))])
        assert bench.apply(1).held == 1
        opened.clear()
        bench.write([source.put(source.row(1, None, 2))])
        report = bench.apply(2)
        assert (report.state, report.held, opened, bench.target.rows_of()) == ("ok", 1, [], [])
        bench.write([source.put(source.row(1, None, 3)), source.put(source.row(2, None, 1))])
        assert bench.apply(3).held == 1
        assert [row[0] for row in bench.target.rows_of()] == [2]
        assert [entry.offset for entry in bench.target.state.held.values()] == [1, 3]
        bench.target.refuse = lambda _row: None
        bench.write([source.put(source.row(1, None, 4))])
        assert bench.apply(5).state == "ok"
        assert (opened, bench.target.rows_of()) == ([], rows_of(source))
        bench.write([source.put(source.row(1, None, 5))])
        assert bench.apply(6).state == "ok"
        assert (opened, bench.target.rows_of()) == ([], rows_of(source)), "no key is held now"

    def test_none_where_the_lanes_stand_apart(self, opened: list[int]) -> None:
        """What is new for one lane is applied already by another one."""
        bench = self.begun(small_batch=100)
        self.applied(bench, 2)
        state = bench.target.state
        before = state.lanes[1]
        self.applied(bench, 2)
        bench.target.state.lanes[1] = structs.replace(
            bench.target.state.lanes[1], offset=before.offset, position=before.position
        )
        assert opened == []
        bench.take_over()
        assert bench.apply(len(bench.topic) - 1).state == "ok"
        assert (opened, set(bench.offsets())) == ([3], {len(bench.topic) - 1})
        assert bench.target.rows_of() == rows_of(self.source)


def test_behind_a_change_of_the_layout_every_record_is_read_once() -> None:
    """The stored layout ends in the middle of a slice: what stands there is not read again as a duplicate."""
    bench, source = started(lanes=4)
    bench.write([source.put(source.row(key, None, 1)) for key in range(4)])
    assert bench.apply().state == "ok"
    behind = bench.target.state.lanes[0]
    bench.write([source.put(source.row(key, None, 2)) for key in range(4, 8)])
    assert bench.apply(5).state == "ok"
    there = bench.target.state.lanes[0]
    bench.target.state.lanes[0] = structs.replace(there, offset=behind.offset, position=behind.position)
    bench.lanes = 2
    bench.take_over()
    bench.write([source.put(source.row(key, None, 3)) for key in range(8, 12)])
    report = bench.apply(5)
    assert (report.state, report.applied, report.dropped) == ("ok", 8, 0)
    assert (bench.offsets(), bench.target.rows_of()) == ([12, 12], rows_of(source))


@pytest.mark.parametrize(("start", "dropped"), [(0, 4), (2, 2), (4, 0), (6, 0)])
def test_what_every_lane_has_is_passed_over_and_what_the_batch_lacks_is_read(
    start: int, dropped: int
) -> None:
    """A batch begins before the progress, in a slice of it, at it, or behind it."""
    bench, source = started()
    bench.write([source.put(source.row(key, None, 1)) for key in range(4)])
    assert bench.apply().state == "ok"
    bench.write([source.put(source.row(key, None, 2)) for key in range(4)])
    bench.target.nets.clear()
    report = bench.apply(start, slice_size=2)
    assert (report.state, report.applied, report.dropped) == ("ok", 4, dropped)
    assert {row[4] for net in bench.target.nets for row in net.rows} == {2}
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize(("slice_size", "reads"), [(1, 0), (50, 1)])
def test_kafka_is_asked_for_what_was_given_in_front_of_a_jump_to_a_copy(slice_size: int, reads: int) -> None:
    """Where the copy's begin comes next, nothing is."""
    bench, source = benched()
    at = stopped_at(bench, source)
    assert copy_of(source, bench.topic).begin() == at + 1
    bench.write([source.put(source.row(9, None, 1))])
    assert bench.apply(at, slice_size=slice_size).state == "ok"
    assert bench.reads == reads
    assert bench.target.rows_of() == rows_of(source)


def test_who_has_no_time_looks_for_no_begin_where_the_last_known_one_is_what_stops_the_unit() -> None:
    bench, source = benched()
    bench.hint = at = stopped_at(bench, source)
    bench.patient = False
    copy_of(source, bench.topic).all()
    assert bench.apply(at).state == "stopped"


def test_a_definition_that_moves_the_key_makes_no_living_row_gone() -> None:
    """Keys that were noted for a copy under one definition are read otherwise under the next: a window begins
    anew with it."""
    bench, source = benched(routes=(TableRoute("bank.*", "public.{table}", policy="evolve"),))
    bench.write([source.put(source.row(key, None, 1)) for key in range(1, 6)])
    assert bench.apply().state == "ok"
    start = len(bench.topic)
    first = copy_of(source, bench.topic)
    first.begin(), first.emit()
    x = Column(name="x", type=ColumnType(kind=Kind.INT, bits=32))
    source.table = changed(source.table, columns=(x, *source.table.columns))
    source.rows = {key: {"x": 70 + key, **row} for key, row in source.rows.items()}
    copy_of(source, bench.topic, id="copy-2").all()
    report = bench.apply(start)
    assert (report.state, report.displaced) == ("ok", 0)
    table = bench.target.tables["public.acct"]
    found = [dict(zip(table.column_names, row, strict=True)) for row in bench.target.rows_of()]
    assert sorted((row["id"], row["x"]) for row in found) == [(key, 70 + key) for key in range(1, 6)]


class TestWhatTheTargetSaysOfItsTable:
    """An error that the target's table causes is told in the words of `check`."""

    def met(self, error: Exception) -> str:
        bench, source = started()
        assert bench.apply().state == "ok"
        table = bench.target.tables["public.acct"]
        bench.target.tables["public.acct"] = changed(table, columns=table.columns[:-1])
        bench.target.refuse = lambda _row: error
        bench.write([source.put(source.row(1, None, 1))])
        report = bench.apply(1)
        assert (report.state, report.message) == ("stopped", bench.target.state.unit.stopped)
        return report.message

    def test_a_column_that_is_not_there_any_more(self) -> None:
        reported = self.met(TargetConfigError("error 1054"))
        assert "note" in reported
        assert "1054" not in reported

    def test_a_right_that_is_missing_is_told_as_it_is(self) -> None:
        assert self.met(MissingGrantError("no INSERT", "GRANT INSERT")) == "no INSERT\n\nGRANT INSERT"

    def test_a_table_that_fits_or_cannot_be_looked_at_leaves_the_servers_words(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench, source = started()
        assert bench.apply().state == "ok"
        bench.target.refuse = lambda _row: TargetConfigError("error 1054")
        bench.write([source.put(source.row(1, None, 1))])
        assert bench.apply(1).message == "error 1054"
        bench.take_over()

        def unreadable(*_: object) -> None:
            raise RefusedError("no right to look")

        monkeypatch.setattr(FakeSession, "read_table_facts", unreadable)
        assert bench.apply(1).message == "error 1054"


@pytest.mark.parametrize("kind", [EnvelopeReader, DebeziumReader])
def test_a_slice_without_records_takes_nothing(kind: type[RecordReader]) -> None:
    """As where Kafka has a hole at the offset at which a layout ends."""
    reader = kind("t")
    reader.begin_reading([LaneProgress(0, 1, 1, "id", 7, (0, 1, 50, 0), 0, "", 9)], None)
    assert list(reader.read_slice([])) == [RowBatch([], (7, (0, 1, 50, 0), 0, 9))]


def test_no_commit_of_a_debezium_topic_names_a_capture_of_rowlocks() -> None:
    """A unit whose progress names one is refused: rowlock would have captured the source itself before."""
    bench = debezium.Bench(lanes=1)
    bench.spec = replace(bench.spec, small_batch=0, limits=LaneLimits(max_gather=1, pause=0.001))
    gens: list[int] = []
    bench.target.at = lambda _moment: gens.extend(lane.gen for lane in bench.target.state.lanes.values())
    bench.connector.insert(debezium.row(1), debezium.row(2))
    bench.connector.truncate()
    assert bench.apply().state == "ok"
    assert set(gens) == {0}
    bench.take_over()
    bench.connector.insert(debezium.row(3))
    assert (bench.apply(3).state, bench.list_copies()) == ("ok", debezium.of(debezium.row(3)))


class TestOverWhichConnection:
    """What is of all lanes goes over the first one's: a unit has no other one for certain."""

    ROWS = tuple(LaneProgress(n, 1, 1, "id", 7, (0, 1, 50, 0), 1, "") for n in (1, 0, 2))

    def asked(self, machine: Machine[Any]) -> Transact:
        effect = next(machine)
        assert isinstance(effect, Transact)
        return effect

    @pytest.mark.parametrize("act", ["commit_guarded", "commit_once", "replace_lanes"])
    def test_what_guards_all_lanes(self, act: str) -> None:
        asked = self.asked(getattr(AttemptProgress(self.ROWS), act)([]))
        assert (asked.number, [guard.lane for guard in asked.guards]) == (0, [0, 1, 2])

    @pytest.mark.parametrize("lanes", [[1], [2, 1], [0, 1, 2]])
    def test_what_moves_lanes_goes_over_the_first_of_them(self, lanes: list[int]) -> None:
        progress, mark = AttemptProgress(self.ROWS), (9, (0, 1, 60, 0), 1, 5)
        machine = progress.move_lanes(lanes, mark)
        asked = self.asked(machine)
        assert (asked.number, [guard.lane for guard in asked.guards]) == (lanes[0], lanes)
        with pytest.raises(StopIteration):
            machine.send(None)
        assert [row.offset for row in progress.rows] == [9 if n in lanes else 7 for n in range(3)]
