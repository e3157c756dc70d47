"""verify: reads both sides to their ends, whatever is under way meanwhile, and never reports "equal" for what
it did not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.errors import RefusedError
from consumer.ordering.model import ApplyUnit, TargetTable, UnitState
from consumer.tables.router import ResolvedRoute
from consumer.tables.stored import StoredDefinition
from consumer.targets.session import SqlSession
from rowlock.commands.tables import verify_lines
from rowlock.inspect.compare import Difference
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.verify import PairResult, VerifyLimits, compare_pair
from schemas.findings import format_copy_remedy
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex
from tests.kits.verify_topics import Clock

PAGE = 7


def table(name: str) -> Table:
    return Table(
        db="bank",
        name=name,
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
            Column(name="owner", type=ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4")),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    )


PAIR = TablePair("p", "branch1", table("acct"), "hq", ResolvedRoute("bank", "acct"))


class Side:
    """A server with one table, id → owner. `before`: is called with the number of the read before each one.

    `order`: the server's own order of keys; the two need not agree.
    """

    def __init__(self, rows: dict[int, str], order: Callable[[int], Any] = int) -> None:
        self.read_rows = rows
        self.order = order
        self.reads = 0
        self.units: dict[str, UnitState] = {}
        self.kept: set[str] = set()
        self.before: Callable[[int], None] = lambda _: None

    def read_table(self, schema: str, name: str) -> Table | None:
        return table(name)

    def read_unit_states(self, pipeline: str) -> dict[str, Any]:
        return self.units

    def find_kept_keys(self, _unit: ApplyUnit, _table: str, keys: Sequence[str]) -> list[str]:
        return [key for key in keys if key in self.kept]

    def fetch_rows(
        self, of: TargetTable, after: Key | None, limit: int, where: dict[str, str] | None = None
    ) -> list[Row]:
        self._read()
        keys = sorted(self.read_rows, key=self.order)
        first = 0
        if after is not None:
            first = next(
                (i for i, key in enumerate(keys) if self.order(key) > self.order(cast(int, after[0]))),
                len(keys),
            )
        return [(key, self.read_rows[key]) for key in keys[first : first + limit]]

    def fetch_keys(self, of: TargetTable, keys: Sequence[Key]) -> list[Row]:
        self._read()
        return [(key, self.read_rows[key]) for (key,) in keys if key in self.read_rows]  # type: ignore[index, misc]

    def _read(self) -> None:
        self.reads += 1
        self.before(self.reads)


def compare(
    left: Side, right: Side, *, clock: Clock | None = None, settle_s: float = 15.0, suspects: int = 10
) -> PairResult:
    clock = clock or Clock()
    limits = VerifyLimits(settle_s, PAGE, suspects, clock.now, clock.sleep)
    return compare_pair(PAIR, cast(SqlSession, left), cast(SqlSession, right), limits)


def rows(*keys: int) -> dict[int, str]:
    return {key: f"o{key}" for key in keys}


@pytest.mark.parametrize(("settle_s", "reported"), [(15.0, [2]), (0.0, [])])
def test_the_number_of_differing_rows_is_reported_before_they_are_read_again(
    settle_s: float, reported: list[int]
) -> None:
    clock, seen = Clock(), list[int]()
    limits = VerifyLimits(settle_s, PAGE, 10, clock.now, clock.sleep, on_settle=seen.append)
    left, right = Side(rows(1, 2, 3)), Side(rows(1))
    compare_pair(PAIR, cast(SqlSession, left), cast(SqlSession, right), limits)
    assert seen == reported


def kinds(result: PairResult) -> dict[Any, Difference]:
    return {finding.key[0]: finding.kind for finding in result.findings}


def test_it_reads_on_where_more_keys_were_suspect_than_are_kept_and_these_settled() -> None:
    """The first rows arrive while it waits; the later ones never do. (An earlier version then reported the
    whole table as equal.)"""
    left, right = Side(rows(*range(60))), Side({})
    result = compare(left, right, clock=Clock(lambda: right.read_rows.update(rows(*range(20)))))
    assert not result.equal
    assert result.rows > 20
    assert set(kinds(result).values()) == {Difference.MISSING}
    assert all(key >= 20 for key in kinds(result))
    assert result.more, "there are more than are kept"


def test_rows_that_only_the_target_has_are_looked_for_behind_suspects_too() -> None:
    left, right = Side({}), Side(rows(*range(60)))

    def deletes_arrive() -> None:
        for key in range(55):
            right.read_rows.pop(key, None)

    result = compare(left, right, clock=Clock(deletes_arrive))
    assert kinds(result) == dict.fromkeys(range(55, 60), Difference.EXTRA)
    assert result.complete
    assert not result.more


def test_a_target_that_is_far_behind_and_catches_up_is_equal_once_all_was_read() -> None:
    left, right = Side(rows(*range(100))), Side({})

    def twelve_more() -> None:
        arrived = len(right.read_rows)
        right.read_rows |= rows(*range(arrived, min(100, arrived + 12)))

    result = compare(left, right, clock=Clock(twelve_more))
    assert result.equal
    assert result.complete
    assert result.rows == 100


@pytest.mark.parametrize("more", [True, False])
def test_kept_rows_are_counted_and_are_no_difference(more: bool) -> None:
    """The target has more of them than suspects are kept at a time."""
    left, right = Side(rows(*range(5))), Side(rows(*range(40)) | (rows(99) if more else {}))
    stored = StoredDefinition(PAIR.table, has_kept_rows=True)
    right.units = {"rl.branch1.bank.acct": UnitState(stored.encode(), None, None)}
    right.kept = {f"[{n}]" for n in range(3, 40)}  # 3 and 4 came again
    pair = replace(PAIR, routed=replace(PAIR.routed, keeps_removed_rows=True))
    limits = VerifyLimits(0.0, PAGE, 10)
    result = compare_pair(pair, cast(SqlSession, left), cast(SqlSession, right), limits)
    assert (result.kept, result.equal, kinds(result)) == (
        35,
        not more,
        {99: Difference.EXTRA} if more else {},
    )
    assert "kept: 35" in verify_lines(result)[0]
    assert compare(left, right).kept == 0, "a route that follows keeps nothing"


def test_too_many_differences_end_it_and_are_never_called_equal() -> None:
    result = compare(Side(rows(*range(60))), Side({}), suspects=10)
    assert not result.equal
    assert not result.complete
    assert result.more
    assert len(result.findings) == 10
    (head, *_) = verify_lines(result)
    assert head.startswith("DIFFERENT")
    assert "at least 10" in head
    assert "not compared" in head


@pytest.mark.parametrize(("shown", "more"), [(9, True), (10, False)])
def test_differences_that_are_not_shown_are_counted(shown: int, more: bool) -> None:
    result = compare(Side(rows(*range(10))), Side({}), suspects=10)
    lines = verify_lines(result, shown)
    assert len(lines) == 1 + shown + more + 1
    assert (lines[-2] == "  … and 1 more") is more


def test_differences_are_followed_by_the_commands_that_explain_and_repair_them() -> None:
    result = compare(Side(rows(1)), Side({}))
    table = result.pair.table
    assert verify_lines(result)[-1].startswith("  next: rowlock quarantine list")
    assert verify_lines(result)[-1].endswith(f", {format_copy_remedy(table.db, table.name)}")
    assert verify_lines(replace(result, note="the filter has changed"))[-1] == "  the filter has changed"


def test_as_many_differences_as_are_kept_are_all_there_are() -> None:
    result = compare(Side(rows(*range(10))), Side({}), suspects=10)
    assert (len(result.findings), result.complete, result.more) == (10, True, False)


def test_without_time_to_settle_what_differs_differs() -> None:
    left, right = Side(rows(*range(30))), Side(rows(*range(25)))
    result = compare(left, right, settle_s=0)
    assert kinds(result) == dict.fromkeys(range(25, 30), Difference.MISSING)


def test_a_key_that_the_target_cannot_hold_is_missing_there_and_the_others_are_compared() -> None:
    """A zero date in the key, into PostgreSQL: its row is in the quarantine. (Then the whole table was not
    compared.)"""

    class Strict(Side):
        def fetch_keys(self, of: TargetTable, keys: Sequence[Key]) -> list[Row]:
            if (13,) in keys:
                raise RefusedError("PostgreSQL cannot hold a value")
            return super().fetch_keys(of, keys)

    result = compare(Side(rows(*range(20))), Strict(rows(*range(13), *range(14, 19))))
    assert kinds(result) == {13: Difference.MISSING, 19: Difference.MISSING}
    assert result.complete


def test_what_was_not_read_to_its_end_is_not_equal() -> None:
    unread = PairResult(PAIR, rows=5)
    assert not unread.equal
    assert unread.as_dict()["equal"] is False
    assert not verify_lines(unread)[0].startswith("equal")
    assert not PairResult(PAIR, problem="the target has no table", complete=True).equal


def test_a_server_that_goes_away_in_the_middle_is_no_verdict() -> None:
    right = Side(rows(*range(30)))

    def missing(number: int) -> None:
        if number > 2:
            raise ConnectionError("gone")

    right.before = missing
    with pytest.raises(ConnectionError):
        compare(Side(rows(*range(30))), right)


TABLES = st.dictionaries(st.integers(0, 60), st.sampled_from(["a", "b"]), max_size=60)


@given(TABLES, TABLES, st.integers(1, 80))
@settings(deadline=None)
def test_what_stands_still_is_judged_exactly_however_little_is_kept(
    left: dict[int, str], right: dict[int, str], kept: int
) -> None:
    """The two servers order the keys differently."""
    result = compare(Side(left), Side(right, order=lambda key: key * 37 % 61), suspects=kept)
    differ = {key for key in left.keys() | right.keys() if left.get(key) != right.get(key)}
    assert result.equal == (not differ)
    assert kinds(result).keys() <= differ
    assert len(result.findings) == min(len(differ), kept)
    assert result.more == (len(differ) > kept)
    if result.complete:
        assert result.rows == len(left)


@given(st.data())
@settings(deadline=None)
def test_a_target_that_follows_a_source_under_load_is_equal(data: st.DataObject) -> None:
    """Each read and each wait lets the source change and the target follow some steps behind it."""
    left, right = Side(data.draw(TABLES)), Side({})
    late: list[tuple[int, str | None]] = [(key, owner) for key, owner in left.read_rows.items()]
    draws = st.lists(st.tuples(st.integers(0, 60), st.sampled_from([None, "a", "b", "c"])), max_size=3)

    def changes(number: int) -> None:
        for key, owner in data.draw(draws) if number < 30 else ():
            put(left.read_rows, key, owner)
            late.append((key, owner))

    def follows(steps: int) -> None:
        for _ in range(min(steps, len(late))):
            put(right.read_rows, *late.pop(0))

    left.before = changes
    right.before = lambda number: follows(1)
    result = compare(left, right, clock=Clock(lambda: follows(40)), suspects=data.draw(st.integers(3, 40)))
    assert result.equal, result


def put(side: dict[int, str], key: int, owner: str | None) -> None:
    if owner is None:
        side.pop(key, None)
    else:
        side[key] = owner
