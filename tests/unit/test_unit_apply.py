"""One topic in one attempt (consumer.unit), against a target in memory."""

from __future__ import annotations

import random
from collections.abc import Iterable
from unittest.mock import ANY

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumer.definition import InForce
from consumer.errors import CommitUnknownError, RefusedError, TransientError
from consumer.lanes import Limits
from consumer.model import Unit
from consumer.reports import Report
from consumer.router import Route
from consumer.unit import Slice, UnitSpec, apply_topic, initial_layout
from schemas.codec import encode_event
from schemas.event import Event
from schemas.table import Column, ColumnType, Kind, Table
from tests.apply_kit import FakeSource, account_table
from tests.fake_target import ConnectionFaultError, FakeSession, FakeTarget

ROUTES = (Route("bank.*", "public.{table}"),)
FAST = Limits(pause=0.001, max_pause=0.002)


class Bench:
    """A unit, its topic as a list of records, and the target."""

    def __init__(self, *, lanes: int = 3, routes: tuple[Route, ...] = ROUTES, **spec: object) -> None:
        self.target = FakeTarget()
        self.topic: list[bytes] = []
        self.lanes, self.routes, self.more = lanes, routes, {"limits": FAST, **spec}
        self.tables: dict[tuple[str, int], InForce] = {}
        self.epoch = 0
        self.take_over()

    def take_over(self) -> None:
        layout = initial_layout(self.routes, self.lanes).encode()
        self.epoch, _, _ = FakeSession(self.target).take_over(self.unit, "id", layout, self.lanes)

    @property
    def unit(self) -> Unit:
        return Unit("p", "t")

    def write(self, events: Iterable[Event]) -> None:
        self.topic += [encode_event(event) for event in events]

    def apply(self, start: int = 0, *, slice_size: int = 50, topic_id: str = "id") -> Report:
        """Run an attempt over the batch that begins at offset `start`."""
        spec = UnitSpec(
            unit=self.unit,
            source="branch1",
            epoch=self.epoch,
            topic_id=topic_id,
            routes=self.routes,
            lanes=self.lanes,
            **self.more,  # type: ignore[arg-type]
        )
        return apply_topic(
            spec,
            self.target,  # type: ignore[arg-type]
            self.slices(start, len(self.topic), slice_size),
            read_missing=lambda first, upto: self.slices(first, upto, slice_size),
            tables=self.tables,
        )

    def slices(self, start: int, upto: int, size: int) -> list[Slice]:
        records: Slice = list(enumerate(self.topic))[start:upto]
        return [records[at : at + size] for at in range(0, len(records), size)]

    def offsets(self) -> list[int]:
        return [row.offset for _, row in sorted(self.target.state.lanes.items())]


def rows_of(*sources: FakeSource) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for source in sources for row in source.rows.values()), key=str)


def started(**options: object) -> tuple[Bench, FakeSource]:
    bench, source = Bench(**options), FakeSource()  # type: ignore[arg-type]
    bench.write([source.definition()])
    return bench, source


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("lanes", [1, 4])
def test_a_history_ends_as_the_source(short: int, lanes: int) -> None:
    bench, source = started(lanes=lanes, short=short)
    bench.write(source.history(random.Random(3), 300))
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert bench.offsets() == [len(bench.topic) - 1] * lanes


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    lanes=st.integers(1, 5),
    short=st.sampled_from([0, 500]),
    gather=st.sampled_from([1, 3, 5000]),
    cuts=st.lists(st.integers(0, 120), max_size=4),
)
def test_any_batches_and_any_replay_end_as_the_source(
    seed: int, lanes: int, short: int, gather: int, cuts: list[int]
) -> None:
    """Batches that begin before, at or behind the progress: covered is dropped, missing is read from Kafka."""
    bench, source = started(lanes=lanes, short=short, limits=Limits(max_gather=gather, pause=0.001))
    bench.write(source.history(random.Random(seed), 60, keys=6))
    whole = bench.topic
    for cut in [*cuts, len(whole)]:
        bench.topic = whole[: max(cut, 1)]
        assert bench.apply(max(0, cut - 30)).state == "ok"
    bench.topic = whole
    assert bench.apply(len(whole) - 1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert set(bench.offsets()) == {len(whole) - 1}


def test_a_small_batch_is_one_transaction_of_all_lanes() -> None:
    bench, source = started(lanes=3)
    assert bench.apply().state == "ok"
    before = bench.target.commits
    bench.write(source.history(random.Random(1), 40))
    bench.apply(1)
    assert bench.target.commits == before + 1
    assert bench.target.log[-1] == (0, 1, 2)


def test_a_stretch_written_again_changes_nothing_and_is_covered() -> None:
    bench, source = started()
    events = source.history(random.Random(5), 100, keys=8)
    bench.write(events)
    bench.write(events[20:])
    report = bench.apply()
    assert (report.applied, report.dropped) == (101, 80)
    assert bench.target.rows_of() == rows_of(source)
    assert bench.offsets() == [180] * 3


def test_a_zombie_of_an_older_gen_is_dropped() -> None:
    bench, source = started()
    source.gen = 2
    bench.write([source.put(source.row(1, "a@x", 1))])
    zombie = FakeSource(pos=900, gen=1)
    bench.write([zombie.put(zombie.row(1, "old@x", 0))])
    report = bench.apply()
    assert report.dropped == 1
    assert bench.target.rows_of() == rows_of(source)


def test_a_gap_stops_the_unit_after_what_came_before() -> None:
    bench, source = started()
    good = source.put(source.row(1, "a@x", 1))
    source.put(source.row(2, "b@x", 1))  # never written: lost on the way
    bench.write([good, source.put(source.row(3, "c@x", 1))])
    report = bench.apply()
    assert report.state == "stopped"
    assert "gap" in report.message
    assert bench.target.state.unit.stopped == report.message
    assert [row[0] for row in bench.target.rows_of()] == [1]
    assert set(bench.offsets()) == {1}


def test_a_stopped_unit_goes_on_where_it_stopped_once_the_cause_is_gone() -> None:
    bench, source = started()
    lost = source.put(source.row(2, "b@x", 1))
    bench.write([late := source.put(source.row(3, "c@x", 1))])
    assert bench.apply().state == "stopped"
    del bench.topic[-1]
    bench.write([lost, late])
    bench.take_over()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("ddl", ["ALTER TABLE acct ADD x INT", "RENAME TABLE acct TO b"])
def test_a_changed_definition_stops_the_unit_before_it(ddl: str) -> None:
    bench, source = started()
    table = source.table
    wider = Table(
        db=table.db,
        name=table.name,
        columns=(*table.columns, Column(name="x", type=ColumnType(kind=Kind.INT, bits=32))),
        key=table.key,
        unique=table.unique,
    )
    bench.write(
        [
            source.put(source.row(1, None, 1)),
            source.definition(ddl, wider),
            source.put(source.row(2, None, 1)),
        ]
    )
    report = bench.apply()
    assert report.state == "stopped"
    assert ddl in report.message
    assert set(bench.offsets()) == {1}
    bench.take_over()  # a restart meets it again: its position was not written
    assert bench.apply(2).message == report.message


def test_an_equal_definition_changes_nothing() -> None:
    bench, source = started()
    bench.write([source.put(source.row(1, None, 1)), source.definition(), source.put(source.row(2, None, 1))])
    assert bench.apply().state == "ok"
    assert len(bench.target.rows_of()) == 2


def test_rows_before_any_definition_stop_the_unit() -> None:
    bench, source = Bench(), FakeSource()
    bench.write([source.put(source.row(1, None, 1))])
    report = bench.apply()
    assert report.state == "stopped"
    assert "definition" in report.message
    assert set(bench.offsets()) == {-1}


def test_truncate_deletes_only_the_rows_of_this_source() -> None:
    bench, source = started(routes=(Route("bank.*", "public.{table}", (("branch", "{source}"),)),))
    bench.write([source.put(source.row(1, "a@x", 1)), source.truncate(), source.put(source.row(2, "a@x", 2))])
    other = (1, "a@x", "o", "1.00", 1, "2026-01-01 00:00:00.000000", "", "branch2")
    bench.target.state.rows["public.acct"] = {("branch2", 1): other}
    assert bench.apply().state == "ok"
    assert [(row[0], row[-1]) for row in bench.target.rows_of()] == [(1, "branch2"), (2, "branch1")]


def test_another_topic_under_the_same_name_stops_the_unit() -> None:
    bench, source = started()
    bench.write([source.put(source.row(1, None, 1))])
    report = bench.apply(topic_id="another")
    assert report.state == "stopped"
    assert "made again" in report.message


def test_a_fenced_attempt_writes_nothing() -> None:
    bench, source = started()
    assert bench.apply().state == "ok"
    bench.write([source.put(source.row(1, None, 1))])
    FakeSession(bench.target).take_over(bench.unit, "id", "", 3)
    assert bench.apply(1).state == "fenced"
    assert bench.target.rows_of() == []


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("happened", [True, False])
def test_after_a_commit_of_unknown_outcome_the_row_decides(short: int, happened: bool) -> None:
    bench, source = started(lanes=2, short=short)
    assert bench.apply().state == "ok"
    bench.write(source.history(random.Random(2), 30))
    bench.target.unknown_happened = happened
    bench.target.faults = [CommitUnknownError("lost"), CommitUnknownError("lost")]
    assert bench.apply(1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_transient_errors_are_tried_again_and_bounded() -> None:
    bench, source = started()
    assert bench.apply().state == "ok"
    bench.write(source.history(random.Random(2), 30))
    bench.target.faults = [TransientError("deadlock")] * 3
    assert bench.apply(1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)
    bench.write(source.history(random.Random(4), 30))
    bench.target.faults = [TransientError("down")] * 1000
    report = bench.apply(len(bench.topic) - 1)
    assert report.state == "behind"
    bench.target.faults = []
    assert bench.apply(len(bench.topic) - 1).state == "ok"
    assert bench.target.rows_of() == rows_of(source)


def test_a_target_that_is_down_at_the_beginning_leaves_the_unit_behind() -> None:
    bench, _ = started()
    bench.target.faults = [ConnectionFaultError("refused")] * 10
    assert bench.apply().state == "behind"


@pytest.mark.parametrize("short", [0, 500])
def test_a_refused_row_and_later_changes_of_its_key_are_held_and_the_rest_goes_on(short: int) -> None:
    bench, source = started(short=short)
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    poison = {**source.row(7, "p@x", 1), "owner": "poison"}
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(5)])
    bench.write([source.put(poison)])
    bench.write([source.put(source.row(n, f"{n}@x", 3)) for n in range(5)])
    report = bench.apply()
    assert (report.state, report.held) == ("ok", 1)
    assert {(row[0], row[4]) for row in bench.target.rows_of()} == {(n, 3) for n in range(5)}
    assert "too long" in bench.target.state.held[6, 0].error
    bench.write([source.put({**poison, "owner": "fine", "version": 2}), source.put(source.row(8, None, 1))])
    assert bench.apply(len(bench.topic) - 2).state == "ok"
    assert sorted(bench.target.state.held) == [(6, 0), (12, 0)]
    assert "behind offset 6" in bench.target.state.held[12, 0].error
    assert [row[0] for row in bench.target.rows_of()] == [0, 1, 2, 3, 4, 8]


@pytest.mark.parametrize(("replace", "displaced"), [(True, 1), (False, 0)])
def test_drift_is_displaced_or_quarantined(replace: bool, displaced: int) -> None:
    bench, source = started(replace=replace)
    bench.apply()
    stranger = (99, "a@x", "stranger", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    bench.target.state.rows["public.acct"] = {(99,): stranger}
    bench.write([source.put(source.row(1, "a@x", 1))])
    with capture_logs() as logs:
        report = bench.apply(1)
    assert (report.state, report.displaced) == ("ok", displaced)
    assert [entry for entry in logs if "displaced" in entry["event"]] == [
        {
            "event": "rows displaced: the target had drifted", "log_level": "warning", "pipeline": "p", "topic": "t",
            "table": "public.acct", "rows": 1, "first_event": "1.0", "do": ANY,
        }
    ][:displaced]  # fmt: skip
    assert len(bench.target.state.displaced) == displaced
    assert [row[0] for row in bench.target.rows_of()] == ([1] if replace else [99])
    assert len(bench.target.state.held) == (0 if replace else 1)


@pytest.mark.parametrize(
    "fault",
    [TransientError("deadlock"), CommitUnknownError("cut"), CommitUnknownError("cut, but it happened")],
)
def test_displaced_rows_count_once_and_only_when_committed(fault: Exception) -> None:
    bench, source = started()
    bench.apply()
    stranger = (99, "a@x", "stranger", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    bench.target.state.rows["public.acct"] = {(99,): stranger}
    bench.target.faults = [fault]  # no transaction before the displacing one gets as far as its commit
    bench.target.unknown_happened = "happened" in str(fault)
    bench.write([source.put(source.row(1, "a@x", 1))])
    with capture_logs() as logs:
        report = bench.apply(1)
    assert bench.target.faults == []
    assert (report.state, report.displaced, len(bench.target.state.displaced)) == ("ok", 1, 1)
    assert len([entry for entry in logs if "displaced" in entry["event"]]) == 1


def test_rows_displaced_before_the_unit_stops_are_reported_with_the_stop() -> None:
    bench, source = started()
    bench.apply()
    stranger = (99, "a@x", "stranger", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    bench.target.state.rows["public.acct"] = {(99,): stranger}
    bench.write([source.put(source.row(1, "a@x", 1))])
    bench.topic.append(b"no event")
    report = bench.apply(1)
    assert (report.state, report.displaced) == ("stopped", 1)


def test_another_number_of_lanes_first_finishes_with_the_stored_layout() -> None:
    bench, source = started(lanes=4)
    bench.apply()
    bench.write(source.history(random.Random(8), 60, keys=10))
    bench.target.faults = [None, None, TransientError("x"), *([TransientError("x")] * 200)]
    bench.more["short"] = 0
    bench.more["limits"] = Limits(max_gather=3, pause=0.001)
    assert bench.apply(1).state == "behind"
    assert len(set(bench.offsets())) > 1, "the lanes must stand apart for this test"
    bench.target.faults = []
    bench.lanes = 2
    bench.take_over()
    bench.write(source.history(random.Random(9), 20, keys=10))
    assert bench.apply(len(bench.topic) - 1).state == "ok"
    assert len(bench.offsets()) == 2
    assert bench.target.rows_of() == rows_of(source)


def test_snapshot_rows_catch_up_over_rows_that_are_there() -> None:
    bench, source = started()
    bench.apply()
    bench.target.state.rows["public.acct"] = {
        (99,): (99, "a@x", "left over", "1.00", 1, "2026-01-01 00:00:00.000000", "")
    }
    bench.write([source.put(source.row(1, "a@x", 1), "r"), source.chunk_end(1)])
    with capture_logs() as logs:
        report = bench.apply(1)
    assert (report.state, report.displaced) == ("ok", 0)
    assert not [entry for entry in logs if "displaced" in entry["event"]]
    assert bench.target.rows_of() == rows_of(source)
    assert bench.target.state.displaced == [], "a declared catch-up displaces nothing worth keeping"


@pytest.mark.parametrize("short", [0, 500])
def test_live_changes_never_share_the_catch_up_of_snapshot_rows(short: int) -> None:
    bench, source = started(lanes=1, short=short)
    bench.apply()
    bench.write([source.put(source.row(1, "a@x", 1), "r"), source.put(source.row(2, "b@x", 1))])
    bench.write([source.put(source.row(3, "c@x", 1), "r")])
    assert bench.apply(1).state == "ok"
    keys = [(net.catch_up, [row[0] for row in net.replaces]) for net in bench.target.nets]
    assert keys == [(True, [1]), (False, [2]), (True, [3])]


def test_an_envelope_of_a_newer_minor_version_is_applied() -> None:
    bench, source = started()
    rows = [encode_event(source.put(source.row(n, f"{n}@x", n))) for n in range(3)]
    bench.topic += [rows[0], rows[1].replace(b'"version":"1.0"', b'"version":"1.7"'), rows[2]]
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"version":"1.0"', b'"version":"2.0"', "2.0"),
        (b'"table":"acct"', b'"table":"other"', "one table a topic"),
        (b'"owner":', b'"owned":', "without a definition event"),
    ],
)
def test_an_event_that_is_not_of_this_table_stops_the_unit_behind_what_came_before(
    old: bytes, new: bytes, why: str
) -> None:
    bench, source = started()
    first = encode_event(source.put(source.row(1, "1@x", 1)))
    before = rows_of(source)
    second = encode_event(source.put(source.row(2, "2@x", 2)))
    bench.topic += [first, second.replace(old, new)]
    report = bench.apply()
    assert (report.state, report.offset) == ("stopped", 1)
    assert "offset 2" in report.message
    assert why in report.message
    assert bench.target.rows_of() == before


def test_a_damaged_record_stops_the_unit_with_its_place() -> None:
    bench, _ = started()
    bench.topic.append(b"{not json")
    report = bench.apply()
    assert report.state == "stopped"
    assert "offset 1" in report.message


def test_a_target_table_without_the_sources_key_stops_the_unit() -> None:
    bench, source = started(routes=ROUTES)
    table = account_table()
    bench.target.tables["public.acct"] = Table(
        db="public", name="acct", columns=table.columns, key=table.unique[0], unique=(table.key,)
    )
    bench.write([source.put(source.row(1, "a@x", 1))])
    report = bench.apply()
    assert report.state == "stopped"
    assert "key" in report.message
