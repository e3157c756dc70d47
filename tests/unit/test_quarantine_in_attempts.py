"""A refused key move, and a delete of a held key, in attempts: one transaction, whatever becomes of its
commit, and on the short way too."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from consumer.attempt.reports import Report
from consumer.errors import CommitUnknownError, RefusedError, TransientError
from schemas.wire.event import EventEnvelope, Undecodable
from tests.kits.apply import FakeSource
from tests.kits.unit_apply import Bench, rows_of, started

FAULTS = pytest.mark.parametrize(
    ("fault", "happened"),
    [
        (None, True),
        (TransientError("deadlock"), True),
        (CommitUnknownError("lost"), True),
        (CommitUnknownError("lost"), False),
    ],
    ids=["none", "failed", "unknown, happened", "unknown, did not happen"],
)


def refusing(lanes: int, **options: object) -> tuple[Bench, FakeSource]:
    """A unit whose target refuses the owner "poison"."""
    bench, source = started(lanes=lanes, **options)
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    return bench, source


def poisoned(source: FakeSource, key: int, email: str | None, version: int) -> dict[str, object]:
    return {**source.row(key, email, version), "owner": "poison"}


def apply(bench: Bench, *events: EventEnvelope) -> Report:
    start = len(bench.topic)
    bench.write(events)
    return bench.apply(start if start > 1 else 0)


def entries(bench: Bench) -> list[tuple[int, int, str]]:
    return [(each.offset, each.part, each.key) for _, each in sorted(bench.target.state.held.items())]


def commits(bench: Bench) -> list[tuple[list[int], list[str]]]:
    """(keys in the table, keys in the quarantine) after each commit to come."""
    seen: list[tuple[list[int], list[str]]] = []

    def at(moment: str) -> None:
        if moment == "committed":
            keys = [int(str(row[0])) for row in bench.target.rows_of()]
            seen.append((keys, [key for *_, key in entries(bench)]))

    bench.target.at = at
    return seen


@FAULTS
def test_halves_of_a_refused_key_move_in_one_lane_are_one_transaction(
    fault: Exception | None, happened: bool
) -> None:
    bench, source = refusing(lanes=1)
    assert apply(bench, source.put(source.row(1, "a@x", 1))).state == "ok"
    bench.target.faults, bench.target.unknown_happened = [fault], happened
    seen = commits(bench)
    report = apply(bench, source.move(1, poisoned(source, 2, "a@x", 2)))
    assert (report.state, report.held) == ("ok", 1)
    assert [each for each in seen if each not in (([1], []), ([], ["[2]"]))] == []
    assert (bench.target.rows_of(), entries(bench)) == ([], [(2, 1, "[2]")])
    assert bench.target.state.closed == []


@FAULTS
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("how", ["delete", "move"])
def test_a_delete_of_a_held_key_ends_that_in_one_transaction(
    fault: Exception | None, happened: bool, lanes: int, how: str
) -> None:
    bench, source = refusing(lanes)
    assert apply(bench, source.put(source.row(1, "a@x", 1))).state == "ok"
    assert apply(bench, source.put(poisoned(source, 1, "a@x", 2))).held == 1
    bench.target.faults, bench.target.unknown_happened = [fault], happened
    seen = commits(bench)
    change = source.delete(1) if how == "delete" else source.move(1, source.row(2, "a@x", 3))
    report = apply(bench, change)
    assert (report.state, report.held) == ("ok", 0)
    assert [each for each in seen if (1 in each[0]) != (each[1] == ["[1]"])] == []
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert [(entry.offset, why) for entry, why in bench.target.state.closed] == [
        (2, "a later snapshot row or delete of the same key made this entry obsolete")
    ]
    assert apply(bench, source.put(source.row(1, "b@x", 4))).held == 0, "the key is free again"
    assert bench.target.rows_of() == rows_of(source)


@pytest.mark.parametrize("short", [0, 500])
@pytest.mark.parametrize("lanes", [1, 4])
def test_the_short_way_and_lanes_leave_the_same(short: int, lanes: int) -> None:
    bench, source = refusing(lanes, small_batch=short)
    assert apply(bench, *(source.put(source.row(key, f"{key}@x", 1)) for key in range(1, 9))).state == "ok"
    moves = [source.move(key, poisoned(source, key + 20, f"{key}@x", 2)) for key in range(1, 9)]
    assert apply(bench, *moves).held == 8
    assert bench.target.rows_of() == []
    assert entries(bench) == [(8 + key, 1, f"[{key + 20}]") for key in range(1, 9)]
    back = [source.move(key + 20, source.row(key, f"{key}@x", 3)) for key in range(1, 9)]
    assert apply(bench, *back).held == 0
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert apply(bench, source.put(source.row(21, None, 4))).held == 0
    assert bench.target.rows_of() == rows_of(source)
    assert bench.target.state.displaced == []


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_entry_that_its_own_batch_closes_is_neither_counted_nor_reported(lanes: int) -> None:
    """What the log would recommend finds nothing."""
    bench, source = started(lanes=lanes, small_batch=0)
    row = source.row(1, None, 2)
    odd = source.event(
        "c", None, {**row, "note": {"undecodable": "qqE="}}, undecodable=Undecodable(after=("note",))
    )
    with capture_logs() as logs:
        report = apply(bench, odd, source.event("d", row, None), source.put(source.row(1, None, 3)))
    assert (report.state, report.held, logs) == ("ok", 0, [])
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert len(bench.target.state.closed) == 1, "the history has it"


def test_what_a_delete_has_ended_is_not_known_again_after_a_definition() -> None:
    """The lanes that follow it would queue the next row of the key, for an entry that is no more."""
    bench, source = refusing(lanes=2)
    assert apply(bench, source.put(poisoned(source, 1, None, 1))).held == 1
    report = apply(bench, source.delete(1), source.definition(), source.put(source.row(1, None, 2)))
    assert (report.state, report.held) == ("ok", 0)
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
