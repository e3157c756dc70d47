"""A unit of a topic that Debezium writes goes on where Debezium's blocking snapshot has read the table."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import CopyNeed
from consumer.errors import RefusedError, TransientError
from consumer.process.operations.copy_desk import UnitCopies
from consumer.tables.router import TableRoute
from consumer.units.unit import UnitRef
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.debezium_snapshot import (
    DebeziumSnapshotScan,
    SnapshotPlace,
    encode_snapshot_signal,
    read_snapshot_place,
)
from tests.kits.debezium import Connector, Record
from tests.kits.debezium_snapshots import BAD, SIGNAL, HealBench, now, stopped
from tests.kits.debezium_unit import ROUTES, TABLE, of, row

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium" / "blocking-snapshot-3.5.0.jsonl"
MORE = Column(name="extra", type=ColumnType(kind=Kind.INT, bits=32))


class Killed(BaseException):
    """The process is gone."""


def test_a_stopped_unit_goes_on_where_the_table_was_read_again() -> None:
    bench = stopped()
    assert bench.again().state == "stopped", "nothing was read again yet"
    assert len(bench.list_copies()) == 5
    bench.connector.snapshot(*now())
    bench.connector.update(row(4, "4@x"), row(4, "4@x", 9))
    assert bench.again().state == "ok"
    rows = [each if each["id"] != 4 else row(4, "4@x", 9) for each in now()]
    assert bench.list_copies() == of(*rows), "as the source, and what is gone there is gone"
    assert bench.stored().snapshot is None, "it is done"
    assert bench.target.state.unit.stopped is None


def test_it_ends_where_the_snapshot_ends() -> None:
    """A snapshot of a unit that runs deletes nothing: nothing tells whether it was of the whole table."""
    bench = stopped()
    bench.connector.snapshot(*now())
    assert bench.again().state == "ok"
    bench.connector.snapshot(row(0, "0@x"), row(2, "2@y", 5))
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*(each if each["id"] != 2 else row(2, "2@y", 5) for each in now()))


def test_rows_of_other_sources_stay() -> None:
    bench = stopped(routes=(TableRoute("bank.*", "public.{table}", (("branch", "{source}"),)),))
    rows = bench.target.state.rows["public.acct"]
    theirs = {(1, "b2"): (*row(1, "other").values(), "b2"), (99, "b2"): (*row(99).values(), "b2")}
    rows.update(theirs)  # type: ignore[arg-type]
    bench.connector.snapshot(*now())
    assert bench.again().state == "ok"
    ours = [(*each.values(), "b1") for each in now()]
    assert bench.list_copies() == sorted([*ours, *theirs.values()], key=str)


@pytest.mark.parametrize("transactional", [True, False])
@pytest.mark.parametrize("policy", ["lenient", "evolve"])
def test_a_table_that_was_altered_goes_on_by_its_definition_of_now(transactional: bool, policy: Any) -> None:
    bench = HealBench(routes=(replace(ROUTES[0], policy=policy),))
    bench.target.transactional = transactional
    bench.connector.insert(row(1), row(2))
    bench.connector.table = bench.source = changed(TABLE, columns=(*TABLE.columns, MORE))
    bench.connector.insert({**row(3), "extra": 3})
    assert "a column extra" in bench.apply().message
    bench.connector.snapshot({**row(1), "extra": None}, {**row(3), "extra": 3})
    bench.connector.insert({**row(4), "extra": 4})
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(
        {**row(1), "extra": None}, {**row(3), "extra": 3}, {**row(4), "extra": 4}
    )
    assert bench.stored().table == bench.source


def test_under_stop_a_person_alters_the_target_first() -> None:
    bench = HealBench(routes=(replace(ROUTES[0], policy="stop"),))
    bench.connector.insert(row(1))
    bench.connector.table = bench.source = changed(TABLE, columns=(*TABLE.columns, MORE))
    bench.connector.insert({**row(3), "extra": 3})
    assert bench.apply().state == "stopped"
    bench.connector.snapshot({**row(3), "extra": 3})
    report = bench.again()
    assert report.state == "stopped"
    assert "extra" in report.message
    assert "rowlock copy" not in report.message
    bench.target.state.tables["public.acct"] = changed(bench.source, db="public")
    bench.target.state.rows["public.acct"] = {
        key: (*values, None) for key, values in bench.target.state.rows["public.acct"].items()
    }
    assert bench.again().state == "ok"
    assert bench.list_copies() == of({**row(3), "extra": 3})


def test_a_target_table_that_was_dropped_is_made_again() -> None:
    bench = HealBench()
    bench.target.refuse = lambda values: RefusedError("no") if values[1] == "poison" else None
    bench.connector.insert(row(1), row(8, "poison"))
    assert bench.apply().held == 1
    bench.connector.delete(row(1))
    bench.connector.snapshot(*now())
    del bench.target.state.tables["public.acct"]
    bench.target.state.rows.pop("public.acct")
    bench.tables.clear()
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*now())
    assert not bench.target.state.held, "what was held for a row that is gone at the source"


def test_what_retention_has_deleted_is_read_again() -> None:
    bench = HealBench()
    bench.connector.insert(row(1), row(2))
    assert bench.apply().state == "ok"
    bench.connector.insert(row(3), row(4))
    bench.connector.delete(row(1))
    bench.connector.snapshot(row(2), row(3), row(4))
    bench.beginning = len(bench.topic) - 3
    from consumer.attempt.readers.kafka_reader import build_retention_error

    def expired(start: int, upto: int) -> list[RecordSlice]:
        if start < bench.beginning:
            raise build_retention_error("t", start, bench.beginning)
        return bench.slices(start, upto)

    bench.take_over()
    report = apply_topic(
        replace(bench.spec, patient=True),
        bench.target,
        AttemptInputs(
            bench.slices(0, len(bench.topic)),
            read_missing=expired,
            find_snapshot=bench.find,
            ask_source=bench.request_copy,
        ),
        bench.tables,
    )
    assert report.state == "ok", report
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(row(2), row(3), row(4))


def test_only_who_has_the_time_looks_for_it() -> None:
    bench = stopped()
    bench.connector.snapshot(*now())
    bench.patient = False
    assert bench.again().state == "stopped"
    bench.patient = True
    assert bench.again().state == "ok"


def test_a_source_that_cannot_be_asked_now_is_asked_later() -> None:
    bench = stopped()
    bench.connector.snapshot(*now())
    bench.source = TransientError("away")
    assert bench.again().state == "behind"
    bench.source = TABLE
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*now())


def test_a_row_of_it_that_does_not_fit_stops_the_unit_there_until_the_next_one() -> None:
    bench = stopped()
    bench.connector.snapshot(*now()[:3])
    bench.topic.insert(len(bench.topic) - 1, bench.topic[-2].replace(b'"note":', b'"notes":'))  # type: ignore[union-attr]
    report = bench.again()
    assert (report.state, "no column note" in report.message) == ("stopped", True)
    assert report.copy == CopyNeed(len(bench.topic) - 2, "event")
    bench.connector.snapshot(*now())
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*now())
    assert bench.stored().snapshot is None


def test_held_keys_that_are_gone_are_let_go_and_the_others_are_tried_anew() -> None:
    """Row 4 is the snapshot's last one: when the rest is judged it is not applied yet, and must not count as
    deleted."""
    bench = stopped()
    refuse: set[Any] = {"poison"}
    bench.target.refuse = lambda values: RefusedError("no") if values[1] in refuse else None
    bench.topic[5] = None
    bench.connector.update(row(4, "4@x"), row(4, "poison", 2))
    bench.connector.insert(row(8, "poison"), row(9, "poison"))
    assert bench.again().held == 3
    assert len(bench.target.state.held) == 3
    bench.topic.append(BAD)
    assert bench.again().state == "stopped"
    bench.connector.snapshot(row(0, "0@x"), row(9, "poison"), row(4, "4@z", 4))
    seen: list[bool] = []
    bench.target.at = lambda _: seen.append(
        any(key == (4,) for key in bench.target.state.rows["public.acct"])
    )
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(row(0, "0@x"), row(4, "4@z", 4))
    assert {entry.key for entry in bench.target.state.held.values()} == {"[9]"}
    assert all(seen), "a row that the source has was never away"


@pytest.mark.parametrize("transactional", [True, False])
def test_killed_anywhere_it_ends_the_same(transactional: bool) -> None:
    for moment in range(60):
        bench = stopped()
        bench.target.transactional = transactional
        bench.connector.snapshot(*now())
        bench.connector.insert(row(11))
        if not _killed_at(bench, moment):
            break
        report = bench.again()
        while report.state == "behind":
            report = bench.again()
        assert report.state == "ok", (moment, report)
        assert bench.list_copies() == of(*now(), row(11)), moment
        assert bench.stored().snapshot is None
    assert 8 <= moment < 59


def _killed_at(bench: HealBench, number: int) -> bool:
    moments = 0

    def at(_moment: str) -> None:
        nonlocal moments
        moments += 1
        if moments > number:
            raise Killed

    bench.target.at = at
    try:
        bench.again()
    except Killed:
        return True
    finally:
        bench.target.at = lambda _: None
        bench.target.sessions.clear()
    return False


def test_a_takeover_in_the_middle_of_the_snapshot_ends_it() -> None:
    bench = stopped(lanes=1)
    bench.connector.snapshot(*now())
    end = len(bench.topic)
    for upto in range(end - 5, end + 1):
        bench.take_over()
        lowest = min(lane.offset for lane in bench.target.state.lanes.values())
        assert bench.apply(lowest + 1, upto).state == "ok"
        missing = not any(values[0] == 1 for values in bench.list_copies())
        assert missing == (upto == end), "not before its last row"
    assert bench.list_copies() == of(*now())


def test_what_a_real_connector_wrote() -> None:
    """Recorded: Debezium 3.5.0, MariaDB 11.4. A first snapshot of several tables, an update, a delete, the
    signal for this table alone, an update."""
    records: list[Record] = [None if line == b"null" else line for line in GOLDEN.read_bytes().split(b"\n")]
    scan = DebeziumSnapshotScan(0)
    scan.scan_records(enumerate(records))
    assert scan.found == (7, 9)
    first = DebeziumSnapshotScan(-1)
    first.scan_records(enumerate(records[:7]))
    assert first.found == (0, 3), "of this table, one of several"
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    columns = (Column(name="id", type=MORE.type, nullable=False), Column(name="v", type=MORE.type))
    bench = HealBench(table=Table(db="bank", name="acct", columns=columns, key=key))
    bench.topic[:] = [*records[:4], BAD, *records[4:]]
    assert bench.apply().state == "ok"
    assert bench.list_copies() == [(1, 3), (3, 1), (4, 1)], "row 2 was deleted where nothing could be applied"


class TestWhatIsASnapshot:
    def found(self, topic: Sequence[Record], after: int = 0) -> tuple[int, int] | None:
        scan = DebeziumSnapshotScan(after)
        for offset, raw in list(enumerate(topic))[scan.next :]:
            scan.scan_records([(offset, raw)])
        return scan.found

    @pytest.fixture
    def connector(self) -> Connector:
        connector = Connector(TABLE)
        connector.insert(row(1))
        return connector

    def marks(self, connector: Connector, *marks: Any) -> list[Record]:
        for mark in marks:
            connector._write("r", None, row(1), snapshot=mark)
        return connector.records

    @pytest.mark.parametrize("schemas", [True, False])
    def test_its_rows_follow_each_other_to_the_last(self, schemas: bool) -> None:
        connector = Connector(TABLE, schemas=schemas)
        connector.insert(row(1))
        assert self.found(connector.records) is None
        connector.snapshot(row(1), row(2), row(3))
        assert self.found(connector.records) == (1, 3)
        assert self.found(connector.records, 1) is None, "begins where it cannot be followed"
        connector.insert(row(4))
        connector.snapshot(row(1), row(2))
        assert self.found(connector.records) == (5, 6), "the newest"

    @pytest.mark.parametrize(
        ("marks", "found"),
        [
            (["first", "true", "last"], (1, 3)),
            (["first_in_data_collection", "true", "last_in_data_collection"], (1, 3)),  # of several tables
            (["first", "last_in_data_collection"], (1, 2)),
            (["last"], (1, 1)),  # the table has one row
            (["last_in_data_collection"], (1, 1)),
            (["first"], None),  # one row, of several tables
            (["first", "true", "true"], None),  # interrupted
            (["first", "true", "first", "true", "last"], (3, 5)),  # interrupted, and begun again
            (["true", "true", "last"], None),  # nobody knows where it begins
            (["first", "true", "last", "last"], (1, 3)),  # written twice: it is no table of one row
            (["true", "true"], None),
            (["incremental", "incremental", "last"], (3, 3)),
            (["first", "incremental", "last"], (3, 3)),
            (["FIRST", "LAST"], (1, 2)),
            ([True, "last"], None),
        ],
    )
    def test_by_its_marks(self, connector: Connector, marks: list[Any], found: Any) -> None:
        assert self.found(self.marks(connector, *marks)) == found

    def test_a_change_in_between_ends_it(self, connector: Connector) -> None:
        """A row that was read before the change may stand behind it."""
        self.marks(connector, "first", "true")
        connector.delete(row(9))
        self.marks(connector, "true", "last")
        assert self.found(connector.records) is None

    def test_an_event_of_the_log_that_is_marked_as_one_is_none(self, connector: Connector) -> None:
        """Seen of 3.5.0: it was killed in a blocking snapshot, and goes on with the log."""
        self.marks(connector, "first", "true", "true")
        connector._next()
        connector._write("u", row(7), row(7, version=7), snapshot="true")
        self.marks(connector, "last")
        assert self.found(connector.records) == (5, 5), "and that is the table's only row"

    def test_a_tombstone_says_nothing(self, connector: Connector) -> None:
        self.marks(connector, "first")
        connector.records.append(None)
        self.marks(connector, "last")
        assert self.found(connector.records) == (1, 3)

    def test_a_lone_row_at_the_beginning_of_what_is_there_may_be_the_rest_of_more(
        self, connector: Connector
    ) -> None:
        records = self.marks(connector, "first", "true", "last")
        scan = DebeziumSnapshotScan(0)
        scan.scan_records([(3, records[3])])  # retention has deleted what was before
        assert scan.found is None
        assert self.found(records, 2) is None, "the unit stopped at the row before"

    def test_what_is_none_of_its_rows(self) -> None:
        connector = Connector(TABLE)
        connector.insert(row(1))
        read = {"op": "r", "source": {"snapshot": "last"}}
        for raw in (
            connector.records[0], b"", b"\xff", b"null", b"[]", b'{"op":"r"}', b'{"payload":null}',
            b'{"snapshot":"last"}', json.dumps(read | {"op": "c"}).encode(),
            json.dumps({"op": "c", "after": read, "source": {}}).encode(),
        ):  # fmt: skip
            assert read_snapshot_place(raw or b"") is SnapshotPlace.OTHER, raw
        assert read_snapshot_place(json.dumps(read).encode()) is SnapshotPlace.LAST
        assert read_snapshot_place(json.dumps({"schema": {}, "payload": read}).encode()) is SnapshotPlace.LAST

    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(st.sampled_from(["first", "true", "last", "log", "tombstone"]), max_size=14), st.randoms()
    )
    def test_found_a_little_at_a_time_it_is_the_same(self, marks: list[str], chance: random.Random) -> None:
        log = b'{"op":"c","source":{"snapshot":"false"}}'
        topic: RecordSlice = [
            (at,
            None if mark == "tombstone" else log if mark == "log" else b'{"op":"r","source":{"snapshot":"%s"}}' % mark.encode())  # noqa: E501
            for at, mark in enumerate(marks)
        ]  # fmt: skip
        whole, parts = DebeziumSnapshotScan(0), DebeziumSnapshotScan(0)
        whole.scan_records(topic)
        while parts.next < len(topic):
            parts.scan_records(topic[parts.next : parts.next + chance.randint(1, 4)])
        assert whole.found == parts.found
        if whole.found:
            inside = marks[whole.found[0] : whole.found[1] + 1]
            assert "log" not in inside
            assert [mark for mark in inside if mark in ("first", "last")] in (["first", "last"], ["last"])


def test_names_are_patterns_in_a_signal() -> None:
    assert encode_snapshot_signal("bank", "acct") == SIGNAL
    named = json.loads(encode_snapshot_signal("my-bank", "a$b.c"))
    assert named["data"]["data-collections"] == [r"my-bank.a\$b\.c"]


class TestWaiting:
    """The hand that looks at a unit which waits: it reads what came since it last looked."""

    def test_it_sees_a_snapshot_come(self) -> None:
        bench = stopped()
        asked: list[int] = []

        def rest(topic: str, start: int) -> list[RecordSlice]:
            assert topic == "rowlock.b1.bank.acct"
            asked.append(start)
            return bench.slices(start, len(bench.topic))

        pipeline: Any = SimpleNamespace(debezium={"b1": None})
        desk = UnitCopies(pipeline, lambda *_: None, lambda *_: None, rest)
        unit, need = UnitRef("rowlock.b1.bank.acct", "b1", 1), CopyNeed(5, "event")
        assert desk.check_needed_copy(unit, need, "why").has_begun is False
        end = len(bench.topic)
        bench.connector.snapshot(*now())
        seen = desk.check_needed_copy(unit, need, "why")
        assert (seen.has_begun, seen.waiting_reason, seen.digest) == (True, None, (end, end + 4))
        assert asked == [5, end]
        assert desk.check_needed_copy(unit, CopyNeed(end + 1, "event"), "why").has_begun is False
        assert asked[-1] == end + 1
