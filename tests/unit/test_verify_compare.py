"""The comparer: finds exactly the differences of two tables, and settles rows that are under way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowlock.inspect.compare import Difference, RowDifference, Suspects, TableShape, compare_page
from schemas.table.model import Key, Kind, Row

SHAPE = TableShape(("id", "name", "x"), (Kind.INT, Kind.VARCHAR, Kind.DOUBLE), (0,))
FLOATS = st.sampled_from([None, 0.0, -0.0, 1.5])
TABLES = st.dictionaries(st.integers(0, 8), st.tuples(st.sampled_from([None, "", "a", "A"]), FLOATS))


def rows(table: dict[int, tuple[object, ...]]) -> dict[Key, Row]:
    return SHAPE.map_by_key((key, *values) for key, values in table.items())  # type: ignore[misc]


@given(TABLES, TABLES)
def test_exactly_the_differences_are_found(left: dict, right: dict) -> None:
    found = {finding.key[0]: finding for finding in compare_page(SHAPE, rows(left), rows(right))}
    for key in range(9):
        finding = found.get(key)
        if key in left and key in right:
            wrong = [
                n for n, a, b in zip(("name", "x"), left[key], right[key], strict=True) if repr(a) != repr(b)
            ]
            assert (finding.columns if finding else ()) == tuple(wrong)
            assert finding is None or finding.kind is Difference.DIFFERENT
        elif key in left:
            assert finding == RowDifference(Difference.MISSING, (key,))
        elif key in right:
            assert finding == RowDifference(Difference.EXTRA, (key,))
        else:
            assert finding is None


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, "a", "b", "c"])), max_size=30), st.data())
def test_a_target_that_follows_with_a_lag_settles(
    history: list[tuple[int, str | None]], data: st.DataObject
) -> None:
    """The target replays the source's history and lags by some steps; once it has caught up nothing may be
    suspect."""
    source: dict[int, tuple[object, ...]] = {}
    target: dict[int, tuple[object, ...]] = {}
    applied = 0
    suspects = Suspects(SHAPE, 100)
    for at, (key, value) in enumerate(history):
        _write(source, key, value)
        while applied < at and data.draw(st.booleans()):
            _write(target, *history[applied])
            applied += 1
        suspects.add_findings(compare_page(SHAPE, rows(source), rows(target)), rows(source), rows(target))
    for change in history[applied:]:
        _write(target, *change)
    suspects.observe_keys(suspects.split_chunks(100)[0] if len(suspects) else (), rows(source), rows(target))
    assert suspects.findings == []


def _write(table: dict[int, tuple[object, ...]], key: int, value: str | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = (value, 1.0)


def test_a_row_that_always_changes_settles_when_the_target_follows() -> None:
    suspects = Suspects(SHAPE, 10)
    suspects.add_findings(
        [RowDifference(Difference.DIFFERENT, (1,), ("name",))],
        {(1,): (1, "v1", None)},
        {(1,): (1, "v0", None)},
    )
    suspects.observe_keys([(1,)], {(1,): (1, "v3", None)}, {(1,): (1, "v2", None)})
    assert [finding.moving for finding in suspects.findings] == [True]
    suspects.observe_keys([(1,)], {(1,): (1, "v5", None)}, {(1,): (1, "v3", None)})
    assert len(suspects) == 0


def test_a_target_that_stands_still_stays_a_difference() -> None:
    suspects = Suspects(SHAPE, 10)
    stuck = {(1,): (1, "v0", None)}
    suspects.add_findings(
        [RowDifference(Difference.DIFFERENT, (1,), ("name",))], {(1,): (1, "v1", None)}, stuck
    )
    for version in range(2, 6):
        suspects.observe_keys([(1,)], {(1,): (1, f"v{version}", None)}, stuck)
    assert suspects.findings == [RowDifference(Difference.DIFFERENT, (1,), ("name",), moving=True)]
    suspects.observe_keys([(1,)], {}, stuck)
    assert suspects.findings == [RowDifference(Difference.EXTRA, (1,), moving=True)]


def test_suspects_are_bounded_and_none_is_forgotten() -> None:
    suspects = Suspects(SHAPE, 2)
    many = {(i,): (i, "a", None) for i in range(3)}
    waiting = suspects.add_findings(compare_page(SHAPE, many, {}), many, {})
    assert suspects.full
    assert [finding.key for finding in waiting] == [(2,)]
    assert [finding.key for finding in suspects.give_up()] == [(0,), (1,)]
    assert suspects.add_findings(waiting, many, {}) == []
    assert [finding.key for finding in suspects.findings] == [(2,)]
