"""A snapshot of Debezium's that is of a part of the table deletes nothing: the source is asked for what would
be deleted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from consumer.attempt.copies import source_keys
from consumer.attempt.drivers import threads
from consumer.attempt.reports import CopyNeed, Report
from consumer.errors import (
    LockWaitError,
    MissingGrantError,
    RefusedError,
    TargetConfigError,
    TransientError,
)
from consumer.ordering.model import TargetTable
from consumer.tables import source_tables
from schemas.config.model import SourceConfig
from schemas.problems import decode_problem
from schemas.table.model import IndexPart, UniqueIndex
from tests.kits.debezium import Values
from tests.kits.debezium_snapshots import BAD, SIGNAL, HealBench, now, stopped
from tests.kits.debezium_unit import TABLE, of, row

PART = [row(2, "2@y", 2), row(4, "4@x")]
"""Rows that a signal with conditions brings of `now()`."""


@pytest.fixture(autouse=True)
def paused(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """What happens while the topic is looked at again, pause by pause; then nothing does."""
    meanwhile: list[Callable[[], object]] = []

    def sleep(seconds: float) -> None:
        if seconds in source_keys.LOOKUP_DELAYS_S and meanwhile:
            meanwhile.pop(0)()

    monkeypatch.setattr(threads, "time", SimpleNamespace(sleep=sleep))
    return meanwhile


def partial(report: Report, bench: HealBench) -> None:
    """The unit has stopped before the last row of the snapshot that ends the topic's rows read, and reports
    why."""
    assert report.state == "stopped"
    problem = decode_problem(report.message)
    seen, remedy = problem.what, problem.action
    assert "covers only a part of the table" in seen
    assert "nothing was deleted" in seen
    assert remedy.startswith(
        "let the snapshot be of the whole table (no `additional-conditions` in the signal"
    )
    assert remedy.endswith(
        f"then put {SIGNAL} into the signal topic of Debezium's connector (see `rowlock docs debezium`)"
    )
    assert bench.stored().snapshot is not None
    assert report.copy == CopyNeed(bench.stored().snapshot[1], "partial")


def keys(bench: HealBench) -> set[object]:
    return {values[0] for values in bench.list_copies()}


def test_a_part_of_the_table_deletes_nothing_and_a_whole_snapshot_heals() -> None:
    bench = stopped()
    bench.there = now()
    bench.connector.snapshot(*PART)
    report = bench.again()
    partial(report, bench)
    assert "bank.acct has, 2 of 3 that were looked up, one of them with the key [0]" in report.message
    assert keys(bench) == {0, 1, 2, 3, 4}, "row 1 is gone, and its row waits, too"
    assert (2, "2@y") in {values[:2] for values in bench.list_copies()}, "rows that came are written"
    bench.connector.snapshot(*now())
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*now())


def test_what_is_gone_at_the_source_is_deleted() -> None:
    """Also what was deleted since the snapshot; and what was inserted since is asked for by nobody."""
    bench = stopped()
    bench.connector.snapshot(*now())
    bench.there = [*now(), row(12)]
    bench.connector.insert(row(12))
    assert bench.again().state == "ok"
    assert bench.asked == [(1,)]
    assert bench.list_copies() == of(*now(), row(12))


def test_every_key_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample would lose the one row that it misses."""
    monkeypatch.setattr(source_keys, "MAX_KEYS_PER_LOOKUP", 2)
    bench = HealBench()
    bench.connector.insert(*(row(key) for key in range(9)))
    bench.topic.append(BAD)
    assert bench.apply().state == "stopped"
    bench.connector.snapshot(row(0))
    bench.there = [row(0), row(8)]
    partial(bench.again(), bench)
    assert keys(bench) == set(range(9))
    assert [key for (key,) in bench.asked[:8]] == list(range(1, 9))


class TestDeletedAndInsertedAnew:
    """Row 1 was deleted before the snapshot, and was inserted before the source was asked."""

    @pytest.fixture
    def bench(self) -> HealBench:
        bench = stopped()
        bench.connector.snapshot(*now())
        bench.there = [*now(), row(1, "1@z")]
        return bench

    def ends(self, bench: HealBench) -> None:
        assert bench.again().state == "ok"
        assert bench.list_copies() == of(*now(), row(1, "1@z"))

    def test_its_event_is_there(self, bench: HealBench) -> None:
        bench.connector.insert(row(1, "1@z"))
        self.ends(bench)

    def test_its_event_comes_later(self, bench: HealBench, paused: list[Any]) -> None:
        paused += [lambda: None, lambda: bench.connector.insert(row(1, "1@z"))]
        self.ends(bench)
        assert not paused

    def test_it_is_deleted_again_meanwhile(self, bench: HealBench, paused: list[Any]) -> None:
        def delete() -> None:
            bench.there = now()

        paused.append(delete)
        assert bench.again().state == "ok"
        assert bench.list_copies() == of(*now())

    def test_a_stop_ends_by_itself_once_the_event_has_come(self, bench: HealBench) -> None:
        """Debezium takes longer than anybody waits: the unit stops, and is tried again now and then, as every
        stopped one."""
        partial(bench.again(), bench)
        assert 1 in keys(bench)
        bench.connector.insert(row(1, "1@z"))
        self.ends(bench)

    def test_it_is_read_by_another_snapshot(self, bench: HealBench) -> None:
        bench.connector.read_again(row(1, "1@z"))
        self.ends(bench)

    def test_its_key_was_moved_there(self, bench: HealBench) -> None:
        bench.connector.update(row(7, "3@x"), row(1, "1@z"))
        bench.there = [*(each for each in now() if each["id"] != 7), row(1, "1@z")]
        assert bench.again().state == "ok"
        assert bench.list_copies() == of(*bench.there)


@pytest.mark.parametrize(
    "write",
    [
        lambda bench: bench.connector.update(row(3, "3@x"), row(3, "3@z", 9)),
        lambda bench: bench.connector.again(0, 5),
        lambda bench: bench.topic.append(bench.topic[3].replace(b'"note":', b'"notes":')),
        lambda bench: bench.topic.append(None),
    ],
)
def test_no_other_event_vouches_for_a_row(write: Callable[[HealBench], object]) -> None:
    """An update is of a row that was there all the time; an insert that comes once more is applied already,
    and will be dropped."""
    bench = stopped()
    bench.connector.snapshot(*PART)
    bench.there = [*PART, row(3)]
    write(bench)
    partial(bench.again(), bench)
    assert keys(bench) == {0, 1, 2, 3, 4}


def test_only_an_insert_beyond_the_applied_position_vouches_for_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One at the position is applied, and would be dropped: its row would be deleted and not come back."""
    monkeypatch.setattr(source_keys, "decode_debezium_record", lambda *given: given[3])
    proof = object.__new__(source_keys.SourceKeyProof)
    proof._topic, proof._active, proof._position, proof._key_at = "t", None, (0, 1, 50, 2), (0,)  # type: ignore[assignment]
    events: list[Any] = [
        SimpleNamespace(op=source_keys.INSERT, after=(row,), source=SimpleNamespace(position=(0, 1, 50, row)))
        for row in (1, 2, 3)
    ]
    assert list(proof._yield_written_keys(list(enumerate(events)))) == [(3,)]


def test_a_key_that_the_source_takes_for_the_same_is_another_one() -> None:
    """Its collation tells no case apart, the target does: what it shows is a row of the snapshot."""
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="owner"),))
    bench = HealBench(table=changed(TABLE, key=key, unique=()))
    bench.connector.insert({**row(1), "owner": "Anna"}, {**row(2), "owner": "Bert"})
    bench.topic.append(BAD)
    assert bench.apply().state == "stopped"
    renamed: Values = {**row(1), "owner": "ANNA"}
    bench.connector.snapshot(renamed)
    bench.there = [renamed]
    assert bench.again().state == "ok"
    assert [values[2] for values in bench.list_copies()] == ["ANNA"]
    assert bench.asked == [("Anna",), ("Bert",)]


def test_a_held_row_is_asked_for_too() -> None:
    """It is in the quarantine, and not in the target: the snapshot would let it go."""
    bench = HealBench()
    bench.target.refuse = lambda values: RefusedError("no") if values[1] == "poison" else None
    bench.connector.insert(row(1), row(8, "poison"))
    bench.topic.append(BAD)
    assert bench.apply().held == 1
    bench.connector.snapshot(row(1))
    bench.there = [row(1), row(8, "poison")]
    partial(bench.again(), bench)
    assert len(bench.target.state.held) == 1
    bench.there = [row(1)]
    assert bench.again().state == "ok"
    assert not bench.target.state.held


def test_a_source_that_cannot_be_asked_deletes_nothing() -> None:
    bench = stopped()
    bench.connector.snapshot(*now())
    bench.there = TransientError("source b1: away")
    report = bench.again()
    assert (report.state, str(decode_problem(report.message))) == ("behind", "source b1: away")
    bench.there = TargetConfigError("source b1: SELECT command denied")
    report = bench.again()
    assert report.state == "stopped"
    assert "lacks 1 rows of the target" in report.message
    assert "could not confirm that they were deleted: source b1: SELECT command denied" in report.message
    assert SIGNAL in report.message
    assert keys(bench) == {0, 1, 2, 3, 4}, "row 7 is the last one, and waits"
    bench.there = now()
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*now())


def test_who_has_no_time_asks_nobody() -> None:
    """A task of Spark cannot: a hand does it."""
    bench = stopped()
    bench.connector.snapshot(*now())
    end = len(bench.topic)
    bench.take_over()
    lowest = min(lane.offset for lane in bench.target.state.lanes.values())
    assert bench.apply(lowest + 1, end - 1).state == "ok"
    bench.patient = False
    report = bench.apply(end - 1)
    assert (report.state, bench.asked) == ("behind", [])
    bench.patient = True
    assert bench.again().state == "ok"
    assert bench.list_copies() == of(*now())


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (MissingGrantError("SELECT is denied", "GRANT SELECT …"), TargetConfigError),
        (TargetConfigError("no such table"), TargetConfigError),
        (LockWaitError("locked"), TransientError),
    ],
)
def test_what_a_source_answers_names_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception, raised: type[Exception]
) -> None:
    asked: list[tuple[str, ...]] = []

    def fetch_keys(table: TargetTable, _keys: object) -> object:
        asked.append(table.table.column_names)
        raise error

    session = SimpleNamespace(fetch_keys=fetch_keys, close=lambda: None)
    monkeypatch.setattr(source_tables, "open_session", lambda *_, **__: session)
    source = SourceConfig.model_validate(
        {
            "type": "mysql",
            "events": "debezium",
            "host": "h",
            "user": "u",
            "password": "p",
            "tables": ["bank.*"],
        }
    )
    with pytest.raises(raised, match="source b1: "):
        source_tables.find_source_keys(source, "b1", TABLE, [(1,)])
    assert asked == [("id",)], "its key, and no other column"


def test_nothing_to_delete_is_no_question() -> None:
    bench = stopped()
    bench.connector.snapshot(row(1), *now())
    assert bench.again().state == "ok"
    assert bench.asked == []
