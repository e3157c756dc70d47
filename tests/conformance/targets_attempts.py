"""Attempts (consumer.attempt) against each real target, without Spark: the batches are lists."""

from __future__ import annotations

import gc
import json
import random
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace as altered
from structlog.testing import capture_logs

from consumer.ordering.fold import make_key_fold
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import AgedEntry
from consumer.ordering.reasons import find_trial_offset, is_queued, is_waiting
from consumer.slots.connections import ConnectionCache
from consumer.tables.router import build_target_table
from consumer.targets.session import SqlSession
from rowlock.inspect.quarantine import EntrySelection, resolve_quarantine
from rowlock.inspect.status import StatusReader
from schemas.table.model import Column, ColumnType, Kind
from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource, account_table
from tests.kits.attempts import Real, RealUnit, TopicLists, UnplacedUnits, config_of, route_of, rows_of
from tests.kits.copy import CopyOf
from tests.kits.targets import Target


@pytest.mark.parametrize(("short", "gather"), [(500, 5000), (0, 5000), (0, 7)])
def test_histories_and_replays_end_as_the_source(real: Real, short: int, gather: int) -> None:
    source = FakeSource()
    unit = RealUnit(
        real, source, route_of(real), small_batch=short, limits=LaneLimits(max_gather=gather, pause=0.01)
    )
    rng = random.Random(gather + short)
    for start in (0, 1, 150, 200):
        unit.write(source.history(rng, 250, keys=30))
        unit.take_over()
        report = unit.apply(start)
        assert (report.state, report.held) == ("ok", 0), report
        assert unit.rows() == rows_of(source)
    assert real.displaced() == 0, "in correct operation no row of another key is ever met"


@pytest.mark.parametrize("short", [500, 0])
def test_an_attempt_leaves_no_cycles_of_references(real: Real, short: int) -> None:
    """Slots collect garbage once a minute only, and rows wait for it: for a second, when each of hundreds of
    attempts a second leaves cycles.
    """
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real), small_batch=short)
    rng = random.Random(short)
    unit.write(source.history(rng, 50, keys=30))
    assert unit.apply().state == "ok"
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            before = len(unit.topic)
            unit.write(source.history(rng, 50, keys=30))
            assert unit.apply(before).state == "ok"
        left = gc.collect()
    finally:
        gc.enable()
    assert not left, f"{left} objects of five attempts are in cycles"


def test_a_stretch_read_again_after_the_lanes_came_apart(real: Real) -> None:
    """Another lane count, with lanes that stand apart because one of them was refused its commits."""
    source = FakeSource()
    unit = RealUnit(
        real, source, route_of(real), small_batch=0, limits=LaneLimits(max_gather=5, tries=1, pause=0.01)
    )
    assert unit.apply().state == "ok"
    events = source.history(random.Random(11), 120, keys=12)
    unit.write(events)
    broken = _Broken(real.cache, lane=_busiest(real, events), after=2)
    real.cache = broken  # type: ignore[assignment]
    assert unit.apply(1).state == "behind"
    real.cache = broken.inner
    unit.spec["limits"] = LaneLimits(max_gather=5)  # the servers' own deadlocks are tried again
    unit.lanes = 3
    unit.take_over()
    unit.write(source.history(random.Random(12), 50, keys=12))
    assert unit.apply(len(unit.topic) - 1).state == "ok"
    assert unit.rows() == rows_of(source)
    assert len(real.session.read_progress(unit.unit)[0]) == 3


def _busiest(real: Real, events: Iterable[EventEnvelope]) -> int:
    """Return the lane of four that gets most: which one depends on the database's name."""
    lane_of = Layout(lanes=4).make_lane_hash(f"{real.schema}.acct")
    images = [event.before or event.after or {} for event in events]
    ((lane, count),) = Counter(lane_of(b"%d" % int(str(row["id"]))) for row in images).most_common(1)
    assert count >= 30  # at least six transactions of five events
    return lane


class _Broken:
    """Sessions of which one lane's connection is killed after a few transactions."""

    def __init__(self, inner: ConnectionCache, lane: int, after: int) -> None:
        self.inner, self.lane, self.left = inner, lane, after

    def get_connection(self, number: int) -> SqlSession:
        if number == self.lane:
            self.left -= 1
            if self.left < 0:
                from consumer.errors import TransientError

                raise TransientError("cut off")
        return self.inner.get_connection(number)

    def drop_if_broken(self, number: int) -> None:
        self.inner.drop_if_broken(number)

    def drop_connection(self, number: int) -> None:
        self.inner.drop_connection(number)

    def close(self) -> None:
        self.inner.close()


def test_a_value_the_target_cannot_hold_is_held_until_the_key_has_one_that_fits(real: Real) -> None:
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real))
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    good = [source.put(source.row(n, f"{n}@x", 1)) for n in range(20)]
    poison = {**source.row(50, "50@x", 1), "owner": "x" * 30}
    unit.write([*good, source.put(poison)])
    report = unit.apply(1)
    assert (report.state, report.held) == ("ok", 1)
    longer = [source.put({**poison, "owner": "x" * size}) for size in (31, 32)]
    unit.write([*longer, source.put(source.row(3, "3@x-", 2))])
    assert unit.apply(len(unit.topic) - 3).held == 1, "of those that queue only the last is kept"
    held = real.session.read_quarantine(unit.unit)
    assert [(entry.offset, entry.part) for entry in held] == [(21, 0), (23, 0)]
    assert not any(map(is_queued, held)), "the target was asked for the last row too"
    ages = [entry.age_ms for entry in held if isinstance(entry, AgedEntry)]
    assert all(0 <= each < 3_600_000 for each in ages)
    assert len(ages) == len(held) or not isinstance(real.session, SqlSession)
    assert unit.rows() == [row for row in rows_of(source) if row[0] != 50]
    unit.write([source.put({**poison, "owner": "short"}), source.put(source.row(4, "50@x-", 2))])
    assert unit.apply(len(unit.topic) - 2).state == "ok"
    assert unit.rows() == rows_of(source)
    assert real.session.read_quarantine(unit.unit) == []


@pytest.mark.parametrize("lanes", [1, 4])
def test_old_key_goes_when_the_target_refuses_the_new_row(real: Real, lanes: int) -> None:
    """A key move that the target refuses, then a value that fits: no number of lanes leaves the old row."""
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real), lanes=lanes, small_batch=0, limits=LaneLimits(max_gather=1))
    unit.write([source.put(source.row(key, f"{key}@x", 1)) for key in range(1, 9)])
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    moves = [
        source.move(key, {**source.row(key + 20, f"{key}@x", 1), "owner": "x" * 30}) for key in range(1, 9)
    ]
    unit.write(moves)
    assert unit.apply(9).held == 8
    assert unit.rows() == []
    _, _, held = real.session.begin_attempt(unit.unit, unit.epoch)
    assert [(each.offset, each.part, each.key) for each in held] == [
        (8 + n, 1, f"[{n + 20}]") for n in range(1, 9)
    ]
    unit.write([source.delete(key) for key in (21, 22)])
    unit.write([source.move(23, {**source.rows[23], "id": 40, "owner": "short"})])
    assert unit.apply(17).held == 0
    _, _, held = real.session.begin_attempt(unit.unit, unit.epoch)
    assert [each.key for each in held] == [f"[{key}]" for key in range(24, 29)]
    assert [row[0] for row in unit.rows()] == [40]
    settled = {(offset, why) for _, offset, why in real.closed()}
    assert settled == {
        (offset, "a later snapshot row or delete of the same key made this entry obsolete")
        for offset in (9, 10, 11)
    }


@pytest.mark.parametrize("lanes", [1, 4])
def test_refused_key_moves_free_their_values_and_come_with_their_next_rows(real: Real, lanes: int) -> None:
    """The old rows are deleted at once, so nothing is displaced where others take their unique values; a
    retry writes the last image, where no next row comes."""
    source = FakeSource(name="north")
    unit = RealUnit(real, source, route_of(real), lanes=lanes, limits=LaneLimits(max_gather=3, pause=0.01))
    unit.write([source.put(source.row(key, f"{key}@x", 1)) for key in range(1, 9)])
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    unit.write(source.move(key, {**source.row(key + 20, None, 2), "owner": "x" * 30}) for key in range(1, 9))
    unit.write(source.put(source.row(key + 40, f"{key}@x", 3)) for key in range(1, 9))
    report = unit.apply(9)
    assert (report.state, report.held, report.displaced) == ("ok", 8, 0)
    unit.write(source.put({**source.row(key + 20, None, 4), "owner": "fits"}) for key in range(2, 9))
    report = unit.apply(25)
    assert (report.state, report.held, report.displaced) == ("ok", 7, 0)
    assert [row[0] for row in unit.rows()] == [*range(22, 29), *range(41, 49)]
    entries = [(each.offset, each.part, each.key) for each in real.session.read_quarantine(unit.unit)]
    assert entries == [(9, 1, "[21]")], "its key has no next row"
    first, last = 10, 25  # the first move of a key that recovers, and the first update after the moves
    assert {(offset, why) for _, offset, why in real.closed()} == {
        (offset, f"the target accepted the key's row of offset {last + n}")
        for n in range(7)
        for offset in (first + n, last + n)
    }
    real.narrow("acct", "owner", 40)
    assert resolve_quarantine(config_of(real), "retry", EntrySelection()).complete
    assert (unit.rows(), real.displaced()) == (rows_of(source), 0)
    assert real.session.read_quarantine(unit.unit) == []


def test_a_truncate_ends_what_the_quarantine_holds_of_its_own_source(real: Real) -> None:
    route = route_of(real, branch="{source}")
    units = [RealUnit(real, FakeSource(name=name), route) for name in ("north", "south")]
    for unit in units:
        assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    for unit in units:
        poison = {**unit.source.row(50, "50@x", 1), "owner": "x" * 30}
        unit.write([unit.source.put(poison), unit.source.put(unit.source.row(1, None, 1))])
        assert unit.apply(1).held == 1
    north, south = units
    north.write([north.source.truncate(), north.source.put(north.source.row(50, "50@x", 2))])
    assert north.apply(len(north.topic) - 2).held == 0
    held = [real.session.begin_attempt(unit.unit, unit.epoch)[2] for unit in units]
    assert [len(entries) for entries in held] == [0, 1], "the other source's entry stays"
    del south.source.rows[50]
    assert north.rows() == sorted(rows_of(north.source, "north") + rows_of(south.source, "south"), key=str)
    assert real.closed() == [(north.unit.topic, 1, "the source's table was emptied at offset 3")]


def test_two_sources_in_one_table_do_not_touch_each_other(real: Real) -> None:
    route = route_of(real, branch="{source}")
    units = []
    for name in ("north", "south"):
        source = FakeSource(name=name)
        unit = RealUnit(real, source, route)
        unit.write(source.history(random.Random(4), 150, keys=20))
        assert unit.apply().state == "ok"
        units.append(unit)
    north, south = units
    both = sorted(rows_of(north.source, "north") + rows_of(south.source, "south"), key=str)
    assert north.rows() == both
    north.write([north.source.truncate(), north.source.put(north.source.row(1, "1@x", 9))])
    assert north.apply(len(north.topic) - 2).state == "ok"
    assert north.rows() == sorted(rows_of(north.source, "north") + rows_of(south.source, "south"), key=str)


def test_drift_is_displaced_whole(real: Real) -> None:
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real))
    assert unit.apply().state == "ok"
    real.execute(
        "INSERT INTO acct (id, email, owner, balance, version, opened) "
        "VALUES (99, 'a@x', 'stranger', 1, 1, '2026-01-01 00:00:00')"
    )
    unit.write([source.put(source.row(1, "a@x", 1))])
    with capture_logs() as logs:
        report = unit.apply(1)
    assert (report.state, report.displaced) == ("ok", 1)
    assert unit.rows() == rows_of(source)
    assert real.displaced() == 1
    [alarm] = [entry for entry in logs if "displaced" in entry["event"]]
    assert alarm["log_level"] == "warning"
    assert (alarm["topic"], alarm["table"], alarm["rows"]) == (unit.unit.topic, f"{real.schema}.acct", 1)
    assert alarm["first_event"] == "1.0"


def test_a_copy_marks_the_rows_that_had_made_room_before_it_began(real: Real) -> None:
    """What makes room while the copy runs stays: nobody knows whether its own row had come already."""
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real))
    assert unit.apply().state == "ok"

    def stranger(key: int, email: str) -> None:
        real.execute(
            "INSERT INTO acct (id, email, owner, balance, version, opened) "
            f"VALUES ({key}, '{email}', 'stranger', 1, 1, '2026-01-01 00:00:00')"
        )

    for key, email in ((97, "a@x"), (98, "b@x")):
        stranger(key, email)
        unit.write([source.put(source.row(key - 90, email, 1))])
        assert unit.apply(len(unit.topic) - 1).displaced == 1
    stranger(99, "c@x")
    start = len(unit.topic)
    copy = CopyOf(source, unit.topic)
    copy.begin()
    unit.write([source.put(source.row(3, "c@x", 1))])
    while not copy.done:
        copy.emit()
    assert unit.apply(start).state == "ok"
    assert unit.rows() == rows_of(source)
    session: Any = real.session
    topic = unit.unit.topic

    def marks() -> list[Any]:
        found = real.execute("SELECT displaced_by FROM rowlock_displaced ORDER BY id")
        return [json.loads(row[0]).get("superseded") for row in found]

    first = f"by the copy from offset {start} to {copy.markers[-1]}"
    assert marks() == [first, first, None]
    assert (session.count_displaced_rows("p"), session.count_displaced_rows("p", superseded=True)) == (
        {topic: 1},
        {topic: 2},
    )
    start = len(unit.topic)
    copy = CopyOf(source, unit.topic, id="copy-2")
    copy.all()
    assert unit.apply(start).state == "ok"
    assert marks() == [first, first, f"by the copy from offset {start} to {copy.markers[-1]}"]
    assert (session.count_displaced_rows("p"), session.count_displaced_rows("p", superseded=True)) == (
        {},
        {topic: 3},
    )


def test_a_row_that_waits_for_a_unique_value_is_applied_once_it_is_given_up(real: Real) -> None:
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real), replace=False)
    unit.write([source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "a@x", 1))])
    report = unit.apply()
    assert (report.state, report.held) == ("ok", 1)
    [held] = real.session.read_quarantine(unit.unit)
    assert is_waiting(held)
    assert find_trial_offset(held) == 2, "it was tried again once the lanes had drained"
    unit.write([source.put(source.row(1, "b@x", 2))])
    assert unit.apply(3).state == "ok"
    assert unit.rows() == rows_of(source)
    assert real.session.read_quarantine(unit.unit) == []
    assert real.displaced() == 0


@pytest.mark.parametrize(("old", "new"), [("a", "A"), ("A", "a")])
def test_the_entry_of_a_removed_key_touches_no_row_of_an_equal_key(real: Real, old: str, new: str) -> None:
    """Equal at the source and, by its collation, in some targets."""
    table, ignoring_case = account_table(), {"charset": "utf8mb4", "collation": "utf8mb4_general_ci"}
    key = Column(name="id", type=ColumnType(kind=Kind.VARCHAR, length=20, **ignoring_case), nullable=False)
    source = FakeSource(altered(table, columns=(key, *table.columns[1:])))
    unit = RealUnit(real, source, route_of(real))
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    bad = {**source.row(1, "1@x", 1), "id": old, "owner": "x" * 30}
    unit.write([source.event("c", None, bad)])
    assert unit.apply(1).held == 1
    source.rows[1] = {**source.row(1, "1@x", 2), "id": new}
    unit.write([source.event("p", ddl="ALTER TABLE acct DROP PARTITION p0")])
    unit.write([source.event("c", None, source.rows[1])])
    CopyOf(source, unit.topic, index=lambda _: 1, value=lambda _: new, keys=True).all()
    assert unit.apply(2).state == "ok"
    assert unit.apply(len(unit.topic)).state == "ok"
    assert unit.rows() == rows_of(source)
    assert real.session.read_quarantine(unit.unit) == []


def test_status_counts_the_displaced_rows_that_are_there(real: Real, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of workers that have ended since, and those that a snapshot displaced."""
    north, south = FakeSource(name="north"), FakeSource(name="south", table=account_table(name="other"))
    drifts, catches_up = (RealUnit(real, source, route_of(real)) for source in (north, south))
    monkeypatch.setattr("rowlock.inspect.status.KafkaView", partial(TopicLists, [drifts, catches_up]))
    monkeypatch.setattr("rowlock.inspect.status.PlacementReader", UnplacedUnits)
    monkeypatch.setattr("rowlock.views.topic_settings.TopicSettings.read_ids", lambda *_: {})
    reader = StatusReader(config_of(real))

    def shown() -> dict[str, int]:
        seen = json.loads(json.dumps(reader.read_status().as_dict()))
        assert seen["problems"] == []
        return {unit["topic"]: unit["displaced"] for unit in seen["units"]}

    for unit in (drifts, catches_up):
        assert unit.apply().state == "ok"
    assert shown() == {drifts.unit.topic: 0, catches_up.unit.topic: 0}
    for table, (one, two) in {"acct": (97, 98), "other": (98, 99)}.items():
        real.execute(
            f"INSERT INTO {table} (id, email, owner, balance, version, opened) VALUES "
            f"({one}, 'a@x', 'stranger', 1, 1, '2026-01-01'), ({two}, 'b@x', 'stranger', 1, 1, '2026-01-01')"
        )
    drifts.write([north.put(north.row(1, "a@x", 1)), north.put(north.row(2, "b@x", 1))])
    catches_up.write([south.put(south.row(1, "a@x", 1), "r"), south.put(south.row(2, "b@x", 1), "r")])
    with capture_logs() as logs:
        assert [unit.apply(1).displaced for unit in (drifts, catches_up)] == [2, 2]
    assert sum(entry["rows"] for entry in logs if "displaced" in entry["event"]) == 4
    assert [unit.rows() for unit in (drifts, catches_up)] == [rows_of(north), rows_of(south)]
    assert shown() == {drifts.unit.topic: 2, catches_up.unit.topic: 2}
    first = int(real.execute("SELECT min(id) FROM rowlock_displaced")[0][0])
    real.execute(f"DELETE FROM rowlock_displaced WHERE id = {first}")
    assert shown() == {drifts.unit.topic: 1, catches_up.unit.topic: 2}


@pytest.mark.parametrize("parts", [1, 3], ids=["one-chunk", "three-chunks-with-restarts"])
@pytest.mark.parametrize("short", [0, 500], ids=["lanes", "short-way"])
def test_rows_of_one_snapshot_that_collide_at_the_target_are_all_kept_somewhere(
    real: Real, parts: int, short: int
) -> None:
    """A unique index that the source does not have; the second row of a pair removes the first, with a
    record."""
    source = FakeSource(name="b1")
    unit = RealUnit(real, source, route_of(real), small_batch=short)
    assert unit.apply().state == "ok"
    real.execute("CREATE UNIQUE INDEX one_owner ON acct (owner)")
    unit.take_over()
    keys = list(range(1, 13))
    size = len(keys) // parts
    for at in range(0, len(keys), size):
        begin = len(unit.topic)
        rows = [source.row(key, f"{key}@x", 1) | {"owner": f"o{key % 10}"} for key in keys[at : at + size]]
        unit.write([source.put(row, "r") for row in rows])
        unit.write([source.chunk_end(at // size + 1)])
        report = unit.apply(begin)
        assert (report.state, report.held) == ("ok", 0)
        unit.take_over()
    there = [int(row[0]) for row in real.execute("SELECT id FROM acct")]
    kept = [json.loads(row[0]) for row in real.execute("SELECT row_data FROM rowlock_displaced")]
    assert sorted([*there, *(row["id"] for row in kept)]) == keys
    assert sorted(row["owner"] for row in kept) == ["o1", "o2"]


def test_an_old_epoch_cannot_write(real: Real) -> None:
    source = FakeSource()
    unit = RealUnit(real, source, route_of(real))
    assert unit.apply().state == "ok"
    old = unit.epoch
    unit.take_over()
    unit.epoch = old
    unit.write([source.put(source.row(1, "a@x", 1))])
    assert unit.apply(1).state == "fenced"
    assert unit.rows() == []


def test_the_table_in_the_target_keeps_its_own_unique_index(real: Real) -> None:
    """A unique index that only the target has is ordered by tickets too: its values move between rows."""
    source = FakeSource(table=account_table())
    unit = RealUnit(real, source, route_of(real), small_batch=0, limits=LaneLimits(max_gather=4, pause=0.01))
    assert unit.apply().state == "ok"
    real.execute("CREATE UNIQUE INDEX note_u ON acct (note)")
    real.tables.clear()
    unit.take_over()
    rng = random.Random(21)
    holder: int | None = None
    for step in range(120):
        key = rng.randrange(8)
        if holder not in (None, key) and holder in source.rows:
            unit.write([source.put({**source.rows[holder], "note": f"free {holder} {step}"})])
        unit.write([source.put({**source.row(key, None, step), "note": "the one"})])
        holder = key
    assert unit.apply(1).state == "ok"
    assert unit.rows() == rows_of(source)
    assert real.displaced() == 0


def test_keys_that_the_target_alone_holds_equal_go_to_one_lane(postgres: Any, pg_db: str) -> None:
    """PostgreSQL's catalog records that a collation does not compare exactly, whatever its name and the
    source's collation."""
    real = Real(Target("postgres", postgres, pg_db))
    # Made to look so: this build has no ICU, whose collations alone can be like that.
    real.execute("CREATE COLLATION utf8mb4_bin (provider = libc, locale = 'C')")
    real.execute("UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'utf8mb4_bin'")
    real.execute("CREATE TABLE acct (id text COLLATE utf8mb4_bin PRIMARY KEY)")
    found = real.session.read_table("public", "acct")
    assert found is not None
    text = ColumnType(kind=Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_bin")
    expected = altered(found, columns=(altered(found.columns[0], type=text),))
    fold = make_key_fold(build_target_table(expected, found).table)
    assert fold(("a007",)) == fold(("A7",)), "numeric order may hold them equal"
    real.close()
