"""After rowlock has changed the target table, keys that the table refused before are tried again."""

from __future__ import annotations

import pytest

from consumer.errors import RefusedError
from schemas.table.model import Row, Table, Value
from schemas.wire.copies import CopyMark
from schemas.wire.event import ColumnChanges
from tests.kits.changed_definitions import TABLE, changed, renamed, text
from tests.kits.evolving import KINDS, Story, kill_at, story

PLACE = "public.acct"
LONG = "x" * 300
WIDENED: dict[str, tuple[Table, ColumnChanges, dict[str, Value]]] = {
    "a longer column": (changed(TABLE, "note", type=text(400)), ColumnChanges(), {"note": LONG}),
    "a column that may be null": (changed(TABLE, "owner", nullable=True), ColumnChanges(), {"owner": None}),
}
"""(definition after the change, its columns, values that the table accepts only then)."""
WIDER = pytest.mark.parametrize("name", WIDENED)


def refuse_unfit_row(tale: Story, row: Row) -> RefusedError | None:
    """Judge a row as a server does with the target's present table."""
    for each, value in zip(tale.bench.target.tables[PLACE].columns, row, strict=True):
        if value is None and not each.nullable:
            return RefusedError(f"{each.name} is null")
        if (
            each.name in {"note", "remark"}
            and isinstance(value, str)
            and len(value) > (each.type.length or 0)
        ):
            return RefusedError("too long")
    return None


def held_story(values: dict[str, Value], *, transactional: bool) -> Story:
    """Return a unit with two quarantined keys: the last row of key 1 has `values`, key 2 fits no table."""
    tale = story(transactional=transactional, rows=0)
    tale.bench.target.refuse = lambda row: refuse_unfit_row(tale, row)
    tale.put(1, **values)
    tale.put(2, note="y" * 900)
    tale.put(3)
    assert tale.bench.apply().state == "ok"
    assert held_keys(tale) == ["[1]", "[2]"]
    return tale


def held_keys(tale: Story) -> list[str]:
    return sorted({entry.key for entry in tale.bench.target.state.held.values()})


def reasons(tale: Story) -> list[str]:
    return [entry.error for _, entry in sorted(tale.bench.target.state.held.items())]


@KINDS
@WIDER
def test_keys_are_tried_after_a_change_that_may_make_them_fit(name: str, transactional: bool) -> None:
    after, columns, values = WIDENED[name]
    tale = held_story(values, transactional=transactional)
    tale.statement(after, columns)
    report = tale.bench.apply()
    assert (report.state, report.trial_in_s, held_keys(tale)) == ("ok", 0.0, ["[2]"])
    assert reasons(tale) == ["too long"], "the target's own reason, after one more trial"
    del tale.rows[2]
    assert tale.equal()


@KINDS
def test_killed_at_any_moment_of_a_change_the_next_attempt_tries_the_keys(transactional: bool) -> None:
    after, columns, values = WIDENED["a longer column"]
    number = 0
    while True:
        number += 1
        tale = held_story(values, transactional=transactional)
        tale.statement(after, columns)
        if not kill_at(tale, number):
            break
        tale.bench.take_over()
        assert tale.bench.apply().state == "ok"
        assert held_keys(tale) == ["[2]"], f"killed at moment {number}"
    assert number > 3


@KINDS
def test_rows_whose_columns_have_other_names_keep_the_reason_of_the_target(transactional: bool) -> None:
    """A trial would only show that their values can no longer be matched to columns."""
    tale = held_story({"note": LONG}, transactional=transactional)
    after = changed(renamed(TABLE, "note", "remark"), "remark", type=text(400))
    tale.statement(after, ColumnChanges(renamed={"note": "remark"}))
    assert tale.bench.apply().state == "ok"
    assert reasons(tale) == ["too long", "too long"]


def test_a_copy_that_begins_tries_no_key() -> None:
    """It brings the rows again; at its end the keys are tried."""
    tale = held_story({"note": LONG}, transactional=True)
    after = changed(TABLE, "note", type=text(400))
    tale.bench.write([tale.source.event("m", definition=after, copy=CopyMark(id="1"))])
    tale.source.table = after
    assert tale.bench.apply().state == "ok"
    assert reasons(tale) == ["too long", "too long"]
