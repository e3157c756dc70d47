"""A quarantined key recovers with its next change that the target accepts: without a person, in any number of
lanes, and whatever becomes of a commit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as altered
from structlog.testing import capture_logs

from consumer.errors import CommitUnknownError, RefusedError, TransientError, UniqueViolationError
from consumer.ordering import recovery
from consumer.ordering.lanes.batches import MAX_SUPERSEDED_ENTRIES
from consumer.ordering.model import ApplyUnit, QuarantineEntry, build_aged_entry
from consumer.ordering.recovery import (
    FAILED_TRIAL_PAUSE_S,
    MAX_FAILURES,
    MAX_TRIAL_KEYS,
    TRIAL_INTERVAL_S,
    TRIAL_LOCK_WAIT_S,
    HeldKey,
    RecoveryPlan,
    Trial,
    list_untried_keys,
)
from consumer.targets.bookkeeping import CHARACTERS_A_STATEMENT, ENTRIES_A_STATEMENT, Bookkeeping
from consumer.targets.postgres.dialect import SYNTAX as POSTGRES
from schemas.table.model import Column, ColumnType, Kind, Row
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope, Undecodable
from tests.kits.apply import FakeSource, Values, account_table
from tests.kits.unit_apply import FAST, Bench, apply, poisoned, refusing, rows_of

ROW_BY_ROW = replace(FAST, max_gather=1)
LANES = pytest.mark.parametrize("lanes", [1, 4])


def entries(bench: Bench) -> list[tuple[int, int, str, str]]:
    return [
        (each.offset, each.part, each.key, each.error) for _, each in sorted(bench.target.state.held.items())
    ]


# --- attempts


@LANES
@pytest.mark.parametrize("short", [0, 500])
def test_a_key_recovers_with_the_next_row_that_fits(lanes: int, short: int) -> None:
    bench, source = refusing(lanes, small_batch=short)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "b@x", 1))) == "ok"
    assert apply(bench, source.put(poisoned(source, 1, "a@x", 2))) == "ok"
    assert entries(bench) == [(3, 0, "[1]", "too long")]
    with capture_logs() as logs:
        assert apply(bench, source.put(source.row(2, "b@x", 2)), source.put(source.row(1, "a@x", 3))) == "ok"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert [(entry.offset, why) for entry, why in bench.target.state.closed] == [
        (3, "the target accepted the key's row of offset 5"),
        (5, "the target accepted the key's row of offset 5"),
    ]
    assert [entry["keys"] for entry in logs if entry["event"] == "quarantined rows recovered"] == [["[1]"]]
    assert apply(bench, source.put(source.row(1, "c@x", 4))) == "ok", "the key is free again"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


@LANES
def test_a_key_recovers_within_one_batch_of_records(lanes: int) -> None:
    bench, source = refusing(lanes, small_batch=0, limits=ROW_BY_ROW)
    assert (
        apply(
            bench,
            source.put(poisoned(source, 1, "a@x", 1)),
            source.put(source.row(1, "a@x", 2)),
            source.put(source.row(2, None, 1)),
        )
        == "ok"
    )
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


@LANES
def test_a_key_keeps_its_first_refusal_and_the_reason_of_its_newest_row(lanes: int) -> None:
    bench, source = refusing(lanes)
    assert apply(bench, source.put(poisoned(source, 1, None, 1))) == "ok"
    for version in range(2, 6):
        assert apply(bench, *(source.put(poisoned(source, 1, None, version)) for _ in range(3))) == "ok"
    newest = len(bench.topic) - 1
    assert entries(bench) == [(1, 0, "[1]", "too long"), (newest, 0, "[1]", "too long")]
    assert bench.target.state.closed == [], "nothing is resolved"


def test_what_the_target_refused_is_not_tried_again_without_a_new_event() -> None:
    bench, source = refusing(3)
    assert (
        apply(bench, source.put(poisoned(source, 1, None, 1)), source.put(poisoned(source, 1, None, 2)))
        == "ok"
    )
    tried = len(bench.target.nets)
    assert apply(bench, source.put(source.row(2, None, 1))) == "ok"
    assert [net.replaces for net in bench.target.nets[tried:]] == [[tuple(source.rows[2].values())]]


@LANES
def test_a_delete_still_resolves_a_key(lanes: int) -> None:
    bench, source = refusing(lanes)
    assert (
        apply(bench, source.put(poisoned(source, 1, None, 1)), source.put(poisoned(source, 1, None, 2)))
        == "ok"
    )
    assert apply(bench, source.delete(1), source.put(source.row(1, None, 3))) == "ok"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


@LANES
def test_the_halves_of_a_refused_key_move_end_apart(lanes: int) -> None:
    """The old row leaves at once, in whichever lanes the keys are; the new key recovers with its next row."""
    bench, source = refusing(lanes)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(9, None, 1))) == "ok"
    assert apply(bench, source.move(1, poisoned(source, 2, "a@x", 2))) == "ok"
    assert [row[0] for row in bench.target.rows_of()] == [9]
    assert [each[:3] for each in entries(bench)] == [(3, 1, "[2]")]
    assert apply(bench, source.put(source.row(2, "a@x", 3))) == "ok"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert bench.target.state.displaced == []


def test_keys_that_only_queue_behind_another_one_do_not_wait_for_it() -> None:
    """The target distinguishes the two keys, and the fold does not."""
    table = account_table()
    key = Column(name="id", type=ColumnType(kind=Kind.DOUBLE), nullable=False)
    source = FakeSource(altered(table, columns=(key, *table.columns[1:])))
    bench = Bench(lanes=2)
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    bench.write([source.definition()])
    first, other = 1.0, 1.0 + 1e-12
    good: Values = {**source.row(0, None, 1), "id": other}
    bad: Values = {**source.row(0, None, 1), "id": first, "owner": "poison"}
    bench.write([source.event("c", None, bad), source.event("c", None, good)])
    assert bench.apply().state == "ok"
    assert [row[0] for row in bench.target.rows_of()] == [other]
    assert [each[:3] for each in entries(bench)] == [(1, 0, "[1.0]")]
    later = {**good, "version": 2}
    bench.write([source.event("u", good, later), source.event("u", bad, {**bad, "owner": "fine"})])
    assert bench.apply(3).state == "ok"
    assert ([(row[0], row[4]) for row in bench.target.rows_of()], entries(bench)) == (
        [(first, 1), (other, 2)],
        [],
    )


def fail_recovery(bench: Bench, *faults: Exception) -> None:
    """Let the next transactions that write a row fail: those of a recovery, while all other rows queue."""
    left = list(faults)

    def judge_row(_row: Row) -> None:
        bench.target.faults = [left.pop(0)] if left else []

    bench.target.refuse = judge_row


@pytest.mark.parametrize(
    ("fault", "happened"),
    [
        (TransientError("deadlock"), True),
        (CommitUnknownError("lost"), True),
        (CommitUnknownError("lost"), False),
    ],
    ids=["failed", "unknown, happened", "unknown, did not happen"],
)
@LANES
def test_a_recovery_happens_once_whatever_becomes_of_its_commit(
    fault: Exception, happened: bool, lanes: int
) -> None:
    bench, source = refusing(lanes)
    assert apply(bench, source.put(poisoned(source, 1, "a@x", 1))) == "ok"
    bench.target.unknown_happened = happened
    fail_recovery(bench, fault)
    state = apply(bench, source.put(source.row(1, "a@x", 2)))
    if isinstance(fault, CommitUnknownError):
        assert state == "behind"
        bench.target.drop_connection(0)
        bench.take_over()
        assert bench.apply(len(bench.topic)).state == "ok", "there are no records, and the key is still tried"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert len(bench.target.state.closed) == 2
    assert bench.target.state.displaced == []


def test_what_an_attempt_leaves_untried_is_tried_by_the_next_one() -> None:
    bench, source = refusing(2)
    assert apply(bench, source.put(poisoned(source, 1, "a@x", 1))) == "ok"
    fail_recovery(bench, *[TransientError("deadlock")] * 2)
    with capture_logs() as logs:
        assert apply(bench, source.put(source.row(1, "a@x", 2))) == "ok"
    assert [each["key"] for each in logs if each["event"] == "quarantined row not tried"] == ["[1]"]
    assert [each[3] for each in entries(bench)] == ["too long", "held behind offset 1"]
    bench.take_over()
    assert bench.apply(len(bench.topic)).state == "ok"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


@LANES
@pytest.mark.parametrize("short", [0, 500])
def test_a_key_waits_an_interval_after_its_refusal(lanes: int, short: int) -> None:
    """Whatever its later rows are; then the newest of them is tried, also without further records."""
    bench, source = refusing(lanes, small_batch=short, trial_interval_s=3600.0)
    assert apply(bench, source.put(poisoned(source, 1, "a@x", 1))) == "ok"
    bench.target.age_ms, tried = 3_000_000, len(bench.target.nets)
    for version in range(2, 5):
        start = len(bench.topic)
        bench.write([source.put(source.row(1, "a@x", version)), source.put(source.row(2, None, version))])
        assert bench.apply(start).trial_in_s == TRIAL_INTERVAL_S
    assert [row[0] for net in bench.target.nets[tried:] for row in net.rows] == [2, 2, 2]
    bench.target.age_ms = 3_600_000
    assert bench.apply(len(bench.topic)).trial_in_s == 0.0
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


@LANES
@pytest.mark.parametrize("short", [0, 500])
def test_a_key_keeps_few_entries_however_often_it_changes(lanes: int, short: int) -> None:
    """Every attempt reads all of them. The first shows why the key is held, the newest is its final row."""
    bench, source = refusing(lanes, small_batch=short, trial_interval_s=3600.0)
    bench.target.age_ms = 0
    assert apply(bench, source.put(poisoned(source, 1, "a@x", 1))) == "ok"
    for version in range(2, 30):
        events = [source.put(source.row(key, None, version)) for key in (1, 2)]
        assert apply(bench, *events) == "ok"
        held = entries(bench)
        assert (held[0][0], held[-1][0]) == (1, len(bench.topic) - 2)
        assert len(held) <= MAX_SUPERSEDED_ENTRIES + 2
    bench.target.age_ms = 3_600_000
    assert bench.apply(len(bench.topic)).trial_in_s == 0.0
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


@LANES
def test_a_key_that_waits_keeps_no_other_key_waiting(lanes: int) -> None:
    bench, source = refusing(lanes, trial_interval_s=3600.0)
    assert apply(bench, source.put(poisoned(source, 1, None, 1)), source.put(source.row(2, None, 1))) == "ok"
    bench.target.age_ms = 0
    assert apply(bench, source.put(source.row(1, None, 2)), source.put(poisoned(source, 2, None, 2))) == "ok"
    assert apply(bench, source.put(source.row(2, None, 3)), source.delete(1)) == "ok", "a delete is no trial"
    assert [each[2] for each in entries(bench)] == ["[2]", "[2]"]


@pytest.mark.parametrize(
    ("ages", "elapsed", "due"),
    [
        ([None], 0.0, True),
        ([5000], 0.0, True),
        ([999], 0.0, False),
        ([999], 0.001, True),
        ([5000, 0], 0.5, False),
        ([-10, 5000], 0.0, True),
        ([-10, 5], 0.0, False),
    ],
)
def test_a_key_is_due_a_second_after_its_last_refusal(
    ages: list[int | None], elapsed: float, due: bool
) -> None:
    refused = [entry(at, 1, "too long") for at in range(len(ages))]
    aged = [
        each if age is None else build_aged_entry(each, age) for each, age in zip(refused, ages, strict=True)
    ]
    [key] = untried(*aged, build_aged_entry(entry(9, 1), 0))
    assert key.is_due(1.0, elapsed) is due


@LANES
def test_a_locked_row_holds_no_other_key(lanes: int) -> None:
    bench, source = refusing(lanes)
    keys = range(1, 21)
    assert apply(bench, *(source.put(poisoned(source, key, None, 1)) for key in keys)) == "ok"
    bench.target.refuse = lambda row: TransientError("lock wait") if row[0] == 7 else None
    start = len(bench.topic)
    bench.write(source.put(source.row(key, None, 2)) for key in keys)
    assert bench.apply(start).trial_in_s == FAILED_TRIAL_PAUSE_S
    assert [each[2] for each in entries(bench)] == ["[7]", "[7]"]
    bench.target.refuse = lambda _row: None
    assert apply(bench, source.put(source.row(99, None, 1))) == "ok"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])


def test_only_trials_wait_a_short_time_for_a_locked_row() -> None:
    bench, source = refusing(2)
    assert apply(bench, source.put(poisoned(source, 1, None, 1))) == "ok"
    assert set(bench.target.lock_waits) == {None}
    assert apply(bench, source.put(source.row(1, None, 2))) == "ok"
    assert bench.target.lock_waits.count(TRIAL_LOCK_WAIT_S) == 1


def test_a_drain_is_bounded_and_decides_on_a_key_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the target is: the first trial of several keys is refused, and takes longer than a drain
    may."""
    monkeypatch.setattr(recovery, "MAX_SECONDS", -1.0)
    bench, source = refusing(2)
    keys = range(1, 5)
    assert apply(bench, *(source.put(poisoned(source, key, None, 1)) for key in keys)) == "ok"
    still_bad = source.put(poisoned(source, 1, None, 2))
    assert apply(bench, still_bad, *(source.put(source.row(key, None, 2)) for key in keys[1:])) == "ok"
    newest = {each[2]: each[3] for each in entries(bench)}
    queued = "held behind offset"
    assert [newest[f"[{key}]"][: len(queued)] for key in keys] == ["too long", queued, queued, queued]
    assert bench.apply(len(bench.topic)).trial_in_s == 0.0
    assert {each[2] for each in entries(bench)} == {"[1]"}
    rows = [row for row in rows_of(source) if row[0] != 1]
    assert bench.target.rows_of() == rows


@LANES
def test_an_entry_of_another_table_is_not_tried_and_logged_once(lanes: int) -> None:
    """It was quarantined before the route's `to:` was changed."""
    bench, source = refusing(lanes)
    assert apply(bench, source.put(source.row(1, "a@x", 5)), source.put(source.row(2, None, 5))) == "ok"
    held = bench.target.state.held
    event = encode_event_value(FakeSource().put(source.row(1, "a@x", 2))).decode()
    older = altered(entry(0, 1, "held behind offset 0"), table="public.older", event=event)
    held[0, 0], held[0, 1] = older, altered(older, part=1, table="public.acct", key="[1,2]")
    with capture_logs() as logs:
        assert apply(bench, source.put(source.row(3, None, 5))) == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert len(entries(bench)) == 2
    name = "quarantined rows of another table or key left alone"
    assert [each["rows"] for each in logs if each["event"] == name] == [2]


def test_a_delete_under_another_key_removes_no_row() -> None:
    """The table had another key when the delete was quarantined; row 7 has the same value in its key now."""
    bench, source = refusing(2)
    assert apply(bench, source.put(source.row(7, None, 1))) == "ok"
    event = encode_event_value(FakeSource().event("d", source.row(1, None, 7), None)).decode()
    held = altered(entry(0, 7, "held behind offset 0"), table="public.acct", event=event)
    bench.target.state.held[0, 0] = held
    assert apply(bench, source.put(source.row(9, None, 1))) == "ok"
    assert bench.target.rows_of() == rows_of(source)
    assert [each[3][:11] for each in entries(bench)] == ["the key [7]"]


def test_nothing_recovers_while_the_lanes_are_at_different_offsets() -> None:
    """A lane that is ahead has passed events that the key's newest entry does not have."""
    bench, source = refusing(2)
    assert apply(bench, source.put(poisoned(source, 1, None, 1))) == "ok"
    state = bench.target.state
    ahead = state.lanes[1]
    state.lanes[1] = msgspec.structs.replace(ahead, offset=3)
    entry = state.held[1, 0]
    state.held[1, 0] = msgspec.structs.replace(entry, error="held behind offset 0")
    bench.target.refuse = lambda _row: None
    bench.write([source.put(source.row(8, None, 1))])
    assert bench.apply(2).state == "ok"
    assert [each[2] for each in entries(bench)] == ["[1]"]
    bench.write([source.put(source.row(9, None, 1)), source.put(source.row(10, None, 1))])
    assert bench.apply(3).state == "ok"
    assert entries(bench) == []


@LANES
def test_a_key_that_gives_up_a_value_makes_room_for_one_that_recovers_with_it(lanes: int) -> None:
    """Two keys recover together, and one has the value that the other's older row still has."""
    bench, source = refusing(lanes, replace=False)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "b@x", 1))) == "ok"
    poison = [source.put(poisoned(source, 1, "c@x", 2)), source.put(poisoned(source, 2, "a@x", 2))]
    assert apply(bench, *poison) == "ok"
    assert [each[2] for each in entries(bench)] == ["[1]", "[2]"]
    assert apply(bench, source.put(source.row(2, "a@x", 3)), source.put(source.row(1, "c@x", 3))) == "ok"
    assert (bench.target.rows_of(), entries(bench)) == (rows_of(source), [])
    assert bench.target.state.displaced == []


@LANES
def test_a_row_that_a_recovery_displaces_is_logged_and_counted(lanes: int) -> None:
    """The target still has the value in the row of a key whose own later row is refused."""
    bench, source = refusing(lanes, replace=True)
    assert apply(bench, source.put(source.row(1, "a@x", 1)), source.put(source.row(2, "b@x", 1))) == "ok"
    poison = [source.put(poisoned(source, 1, None, 2)), source.put(poisoned(source, 2, "a@x", 2))]
    assert apply(bench, *poison) == "ok"
    start = len(bench.topic)
    bench.write([source.put(source.row(1, "b@x", 3)), source.put(poisoned(source, 2, "a@x", 3))])
    with capture_logs() as logs:
        done = bench.apply(start)
    assert bench.target.rows_of() == rows_of(source)[:1]
    assert {each[2] for each in entries(bench)} == {"[2]"}
    assert len(bench.target.state.displaced) == 1
    shown = [(each["rows"], each["event_keys"]) for each in logs if each["event"] == "rows displaced"]
    assert (shown, done.displaced) == ([(1, [(1,)])], 1)


def test_a_key_that_only_queued_and_is_refused_is_logged_once() -> None:
    """Of keys that a collation holds equal the second one queues. Its refusal was not logged."""
    bench, source = refusing(2)
    assert apply(bench, source.put(source.row(7, None, 1))) == "ok"
    event = encode_event_value(FakeSource().put(poisoned(source, 1, None, 1))).decode()
    held = altered(entry(0, 1, "held behind offset 0"), table="public.acct", event=event)
    bench.target.state.held[0, 0] = held
    with capture_logs() as logs:
        assert apply(bench, source.put(source.row(9, None, 1))) == "ok"
        assert apply(bench, source.put(poisoned(source, 1, None, 2))) == "ok"
    shown = [(each["key"], each["reason"]) for each in logs if each["event"] == "row quarantined"]
    assert shown == [("[1]", "too long")]
    assert [each[3] for each in entries(bench)] == ["too long", "too long"]


@LANES
def test_a_value_that_cannot_be_decoded_is_never_tried(lanes: int) -> None:
    bench, source = refusing(lanes)
    assert apply(bench, source.put(poisoned(source, 1, None, 1))) == "ok"
    odd = {**source.row(1, None, 2), "note": {"undecodable": "qqE="}}
    tried = len(bench.target.nets)
    event = source.event("u", source.rows[1], odd, undecodable=Undecodable(after=("note",)))
    assert apply(bench, event) == "ok"
    assert len(bench.target.nets) == tried
    assert entries(bench)[1][3].startswith("column note: its bytes")


@pytest.mark.parametrize(("size", "statements"), [(10, 2), (CHARACTERS_A_STATEMENT // 4, 334)])
def test_entries_are_inserted_by_statements_that_every_server_takes(size: int, statements: int) -> None:
    """PostgreSQL takes 65,535 parameters, MySQL `max_allowed_packet` bytes."""
    held = [altered(entry(at, at), event="x" * size) for at in range(ENTRIES_A_STATEMENT * 2)]
    inserts = Bookkeeping("hq", POSTGRES).quarantine.build_insert(ApplyUnit("p", "t"), held)
    assert len(inserts) == statements
    assert [value for _, params in inserts for value in params[2::10]] == list(range(len(held)))
    assert Bookkeeping("hq", POSTGRES).quarantine.build_insert(ApplyUnit("p", "t"), []) == []


# --- drawn histories


@dataclass
class Drawn:
    """A drawn history of a table, of which the target refuses the owner "poison"."""

    source: FakeSource = field(default_factory=FakeSource)
    events: list[EventEnvelope] = field(default_factory=list)

    @classmethod
    def draw(cls, rng: random.Random, steps: int) -> Drawn:
        drawn = cls()
        drawn.events.append(drawn.source.definition())
        for version in range(steps):
            drawn._add(rng, version)
        return drawn

    def _add(self, rng: random.Random, version: int) -> None:
        source, key = self.source, rng.randint(1, 4)
        what = rng.choice(("put", "put", "put", "drop", "move"))
        taken = {row["email"] for other, row in source.rows.items() if other != key}
        free = [email for email in (None, "a@x", "b@x") if email is None or email not in taken]
        row = source.row(key, rng.choice(free), version)
        if rng.random() < 0.4:
            row["owner"] = "poison"
        if what == "put":
            self.events.append(source.put(row))
        elif key in source.rows and what == "drop":
            self.events.append(source.delete(key))
        elif key in source.rows:
            other = rng.randint(1, 4)
            if other not in source.rows:
                self.events.append(source.move(key, {**row, "id": other}))


def played(drawn: Drawn, seed: int, lanes: int, **options: object) -> Bench:
    """Apply the history in batches of random length, some of which are applied again."""
    rng = random.Random(seed)
    bench = Bench(lanes=lanes, limits=ROW_BY_ROW, **options)  # type: ignore[arg-type]
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    bench.write(drawn.events)
    topic, at = bench.topic, 0
    while at < len(topic):
        start, at = max(0, at - rng.randint(0, 3)), min(len(topic), at + rng.randint(1, 9))
        bench.topic = topic[:at]
        assert bench.apply(start).state == "ok"
    return bench


def judge(bench: Bench, drawn: Drawn, where: str) -> None:
    """Each key is as at the source, or its final row is refused and it has an entry with the reason."""
    source = {key: tuple(row.values()) for key, row in drawn.source.rows.items()}
    refused = {key for key, row in source.items() if row[2] == "poison"}
    newest = {each[2]: each for each in entries(bench)}
    assert set(newest) == {f"[{key}]" for key in refused}, where
    assert {each[3] for each in newest.values()} <= {"too long"}, where
    rows: dict[object, Row] = {row[0]: row for row in bench.target.rows_of()}
    assert {key: row for key, row in rows.items() if key not in refused} == {
        key: row for key, row in source.items() if key not in refused
    }, where


@pytest.mark.parametrize("part", range(4))
def test_after_the_last_event_only_keys_whose_final_row_is_refused_are_held(part: int) -> None:
    for seed in range(part * 15, part * 15 + 15):
        drawn = Drawn.draw(random.Random(seed), 30)
        outcomes = []
        for lanes in (1, 4):
            bench = played(drawn, seed, lanes, replace=True)
            judge(bench, drawn, f"seed {seed}, {lanes} lanes")
            outcomes.append((entries(bench), bench.target.rows_of()))
        assert outcomes[0] == outcomes[1], f"seed {seed}: lanes 1 and 4 differ"


# --- the plan


def entry(offset: int, key: int, error: str = "held behind offset 0", folded: str = "") -> QuarantineEntry:
    return QuarantineEntry(offset, 0, "public.t", f"[{key}]", folded or str(key), "{}", error, 0)


def untried(*entries: QuarantineEntry) -> list[HeldKey]:
    return list_untried_keys(entries, 0)


def run(plan: RecoveryPlan, accepts: Any) -> list[tuple[list[int], bool]]:
    """Run the plan; return the offsets of each trial, and whether it displaces."""
    trials = []
    while (trial := plan.choose_trial()) is not None:
        trials.append(([key.newest.offset for key in trial.keys], trial.displacing))
        error = accepts(trial)
        if error is None:
            plan.record_recovery()
        else:
            plan.record_refusal(error)
    return trials


def test_keys_are_tried_in_the_order_of_their_last_events() -> None:
    keys = untried(entry(5, 1), entry(3, 2), entry(4, 3, "too long"), entry(1, 1, "too long"))
    assert [(key.first.offset, key.newest.offset) for key in keys] == [(3, 3), (1, 5)]


def test_a_refused_trial_is_halved_by_event_order() -> None:
    plan = RecoveryPlan(untried(*(entry(at, at) for at in range(4))), replace=True)
    trials = run(plan, lambda trial: RefusedError("no") if 2 in offsets(trial) else None)
    assert trials == [([0, 1, 2, 3], False), ([0, 1], False), ([2, 3], False), ([2], False), ([3], False)]
    assert [key.newest.offset for key in plan.recovered] == [0, 1, 3]
    assert [key.newest.offset for key, _ in plan.take_refusals()] == [2]


def offsets(trial: Trial) -> set[int]:
    return {key.newest.offset for key in trial.keys}


@pytest.mark.parametrize("replace", [True, False])
def test_a_row_is_displaced_only_when_nothing_else_recovers(replace: bool) -> None:
    plan = RecoveryPlan(untried(entry(1, 1), entry(2, 2)), replace=replace)
    trials = run(
        plan,
        lambda trial: UniqueViolationError("taken") if 1 in offsets(trial) and not trial.displacing else None,
    )
    last: Sequence[tuple[list[int], bool]] = [([1], True)] if replace else []
    assert trials == [([1, 2], False), ([1], False), ([2], False), ([1], False), *last]
    assert [key.newest.offset for key, _ in plan.take_refusals()] == ([] if replace else [1])


@pytest.mark.parametrize("locked", [0, 250, MAX_TRIAL_KEYS - 1])
def test_a_locked_row_is_found_after_few_waits(locked: int) -> None:
    plan = RecoveryPlan(untried(*(entry(at, at) for at in range(MAX_TRIAL_KEYS))), replace=True)
    while (trial := plan.choose_trial()) is not None:
        if locked in offsets(trial):
            left = plan.record_failure()
        else:
            plan.record_recovery()
    assert (plan.failures, len(plan.recovered)) == (4, MAX_TRIAL_KEYS - 1)
    assert left is not None
    assert left.newest.offset == locked
    assert plan.failures < MAX_FAILURES


def test_two_keys_of_one_fold_are_tried_one_after_the_other() -> None:
    plan = RecoveryPlan(
        untried(entry(1, 1, folded="x"), entry(2, 2, folded="x"), entry(3, 3, folded="y")), replace=True
    )
    assert run(plan, lambda _trial: None) == [([1, 3], False), ([2], False)]


def test_a_trial_is_bounded() -> None:
    plan = RecoveryPlan(untried(*(entry(at, at) for at in range(MAX_TRIAL_KEYS + 1))), replace=True)
    assert [len(keys) for keys, _ in run(plan, lambda _trial: None)] == [MAX_TRIAL_KEYS, 1]
