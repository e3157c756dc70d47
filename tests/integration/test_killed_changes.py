"""A change of a real target table whose process dies, is cut off or is paused at each statement: the
process that takes over ends as if nothing had happened."""

from __future__ import annotations

from typing import cast

import pytest
from msgspec.structs import replace

from schemas.wire.event import ColumnChanges
from tests.kits.alter import BIG
from tests.kits.attempts import Real, quoted, reals
from tests.kits.changed_definitions import TABLE, added, changed, column, renamed, unique, without
from tests.kits.evolving import Story, dropped, notify
from tests.kits.killed import BLOWS, Blow, Moments, turn
from tests.kits.killed_stories import Case, RealStory
from tests.kits.targets import KINDS

real = reals(*KINDS)


def everything(tale: Story) -> None:
    """Each kind of step in one statement."""
    new = changed(without(TABLE, "note"), "version", type=BIG)
    new = added(renamed(new, "owner", "holder"), column("n", nullable=False, default="7"))
    new = replace(new, unique=(*new.unique, unique("u", "holder")))
    columns = ColumnChanges(
        renamed={"owner": "holder"}, dropped=("note",), added=("n",), modified=("version",)
    )
    tale.rows = {key: {**row, "holder": row["owner"]} for key, row in tale.rows.items()}
    tale.statement(new, columns, {"n": 7})
    tale.put(1, holder="h1", n=8, email="1@x", version=2**40)
    tale.put(9, holder="h9", n=9)


def another_key(tale: Story) -> None:
    """The rows that are there cannot have it."""
    for key in (1, 2):
        tale.put(key, owner="same")
    tale.rows = {key: {**row, "owner": f"own {key}"} for key, row in tale.rows.items()}
    tale.copy(replace(TABLE, key=unique("PRIMARY", "owner")))


def refused_index(tale: Story) -> None:
    for key in (1, 2):
        tale.put(key, note="twice")
    new = added(replace(TABLE, unique=(*TABLE.unique, unique("u", "note"))), column("n"))
    tale.statement(new, ColumnChanges(added=("n",)), {"n": None})


def dropped_and_made_again(tale: Story) -> None:
    dropped(tale)
    tale.rows = {key: {**row, "n": key} for key, row in tale.rows.items() if key}
    tale.copy(added(TABLE, column("n")))


CASES = {
    "everything": Case(everything),
    "a column dropped and made again": Case(lambda tale: notify(tale, "drop and add")),
    "a key that the rows cannot have": Case(another_key),
    "another type": Case(lambda tale: notify(tale, "copy with another type")),
    "an index that the rows refuse": Case(refused_index),
    "a table dropped and made again": Case(dropped_and_made_again, spec={"on_drop": "drop"}),
}
OFTEN = ("everything", "a key that the rows cannot have", "a table dropped and made again")


@pytest.mark.parametrize(
    ("name", "every"),
    [
        *((name, False) for name in OFTEN),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in CASES),
    ],
)
def test_whoever_comes_next_ends_as_if_nothing_had_been(
    real: Real, name: str, every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`every`: each blow at each moment; else they take turns, and one change alone is struck within its
    transactions."""
    monkeypatch.setattr("consumer.targets.progress.TAKEOVER_LOCK_TIMEOUT_S", 0.05)
    case, number, wrong = CASES[name], 0, []
    clean, moments = RealStory.begun(real, 0, case), Moments()
    clean.unit.strike(moments)
    expected = clean.ended()
    for at in moments.between("rowlock_unit", inside=every or name == OFTEN[0]):
        for blow in turn(at, len(BLOWS) if every or moments.statement_alone(at) else 1 + (name == OFTEN[0])):
            number += 1
            tale, struck = RealStory.begun(real, number, case), Moments(at, blow)
            if (why := met(tale, struck, expected)) is not None:
                wrong.append(f"{blow} {at}, {struck.seen[at - 1][:60]}: {why[:600]}")
    assert not wrong, "\n".join(wrong)
    assert number >= 6, "a begin and an end, each before and behind"


def met(tale: RealStory, moments: Moments, expected: object) -> str | None:
    """Strike, and let somebody else take the unit over; returns what is not as it shall be."""
    with tale.unit.struck(moments):
        assert moments.struck
        tale.unit.take_over()
        report = tale.unit.apply(len(tale.unit.topic) - 1)
        if report.state != "ok":
            return f"{report.state} {report.message}"
        if (found := tale.ended()) != expected:
            return f"{found}, and not {expected}"
    return (
        None if (found := tale.ended()) == expected else f"behind the paused one: {found}, and not {expected}"
    )


def test_a_table_that_somebody_drops_in_the_middle_of_a_change_is_made_by_a_copy(real: Real) -> None:
    """The process dies before the statement, after sending it, or after its end, and the table is dropped
    before another takes over: no mark stays that nothing removes."""
    case, number = CASES["everything"], 100
    clean, moments = RealStory.begun(real, number, case), Moments()
    clean.unit.strike(moments)
    for at in moments.between("rowlock_unit", inside=False):
        for blow in ("before", "sent"):
            number += 1
            tale = RealStory.begun(real, number, case)
            tale.unit.strike(Moments(at, cast(Blow, blow)))
            real.execute(f"DROP TABLE {quoted(real, f't{number}')}")
            for _ in range(2):
                tale.unit.take_over()
                report = tale.unit.apply(len(tale.unit.topic) - 1)
                _, state = real.session.read_progress(tale.unit.unit)
                assert state is not None
                assert (report.state, state.ddl) == ("stopped", None), (moments.seen[at - 1], report.message)
                assert "restore it, or rowlock copy bank." in report.message, report.message
            tale.copy(tale.source.table)
            tale.unit.take_over()
            report = tale.unit.apply(len(tale.unit.topic) - 1)
            assert report.state == "ok", (moments.seen[at - 1], report.message)
            assert tale.target_rows() == tale.rows
    assert number > 102
