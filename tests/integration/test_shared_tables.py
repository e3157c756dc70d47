"""Two sources whose tables change at different times, in one table of a real target: it is what both need,
and each row is its source's."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.attempt import spec as spec_of_unit
from consumer.attempt.drivers import driver
from consumer.attempt.evolution.in_target import require_rows_present
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.errors import TransientError
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import TableRoute
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.session import SqlSession
from schemas.problems import decode_problem
from schemas.table.model import ColumnType, Kind, Table
from schemas.wire.event import ColumnChanges
from tests.kits.alter import BIG
from tests.kits.apply import FakeSource
from tests.kits.attempts import Real, reals
from tests.kits.changed_definitions import added, changed, column, renamed, text, without
from tests.kits.evolving import Story, Values
from tests.kits.killed import Moments, MortalUnit
from tests.kits.targets import KINDS, as_target

real = reals(*KINDS)


class Branch(Story):
    """One of the sources."""

    unit: MortalUnit

    @classmethod
    def of(cls, real: Real, name: str) -> Branch:
        branch = cls.waiting(real, name)
        branch.goes_on()
        return branch

    @classmethod
    def waiting(cls, real: Real, name: str) -> Branch:
        """One of which nothing has been applied yet."""
        source = FakeSource(name=name)
        route = TableRoute("bank.*", f"{real.schema}.acct", (("branch", "{source}"),), policy="evolve")
        unit = MortalUnit(real, source, route)
        branch = cls(unit, source)  # type: ignore[arg-type]
        branch.unit = unit
        for key in range(3):
            branch.put(key, email=f"{key}@{name}", note=f"note {key}")
        return branch

    @property
    def table(self) -> Table:
        return self.source.table

    def changes(self, new: Table, fills: Values | None = None, **columns: Any) -> Branch:
        """A statement, and a row behind it."""
        self.statement(new, ColumnChanges(**columns), fills)
        self.put(len(self.rows), email=f"{len(self.rows)}@{self.source.name}")
        return self

    def applies(self) -> Report:
        return self.unit.apply(len(self.unit.topic) - 1)

    def goes_on(self) -> None:
        report = self.applies()
        assert report.state == "ok", report.message

    def stops(self, why: str) -> None:
        report = self.applies()
        assert report.state == "stopped", report
        assert why in str(decode_problem(report.message)), report.message

    def copied(self, fills: Values | None = None) -> None:
        """A copy of it heals the stop."""
        self.rows = {key: row | (fills or {}) for key, row in self.rows.items()}
        self.copy(self.table)
        self.unit.take_over()
        self.goes_on()


class Both:
    """The shared table."""

    def __init__(self, real: Real) -> None:
        self.real = real
        self.north, self.south = Branch.of(real, "north"), Branch.of(real, "south")

    @property
    def table(self) -> Table:
        found = self.real.session.read_table(self.real.schema, "acct")
        assert found is not None
        return found

    def equal(self, *lacks: str, more: Sequence[Branch] = ()) -> None:
        """Require that all rows are the sources' rows. `lacks`: columns, as "north.n", that a source does not
        have and whose rows have NULL; `more`: sources."""
        table, session = self.table, self.real.session
        rows = session.fetch_rows(as_target(table), None, 1000)
        named = [dict(zip(table.column_names, row, strict=True)) for row in rows]
        found: list[tuple[Any, ...]] = []
        expected: list[tuple[Any, ...]] = []
        for branch in (self.north, self.south, *more):
            _, state = session.read_progress(branch.unit.unit)
            assert state is not None
            assert state.ddl is None
            stored = decode_stored(state.definition or "")
            mine = [row for row in named if row["branch"] == branch.source.name]
            found += [
                (
                    branch.source.name,
                    *(row[stored.get_target_name(name)] for name in branch.table.column_names),
                )
                for row in mine
            ]
            expected += [
                (branch.source.name, *map(row.__getitem__, branch.table.column_names))
                for row in branch.rows.values()
            ]
            for name in lacks:
                if name.startswith(branch.source.name):
                    assert {row[name.partition(".")[2]] for row in mine} == {None}, name
        assert sorted(map(plain, found)) == sorted(map(plain, expected))
        assert len(named) == len(expected)


def plain(row: tuple[Any, ...]) -> str:
    """A row whose integers may be in a column of decimals."""
    return str(tuple(str(value) for value in row))


@pytest.fixture
def both(real: Real) -> Both:
    return Both(real)


def test_what_one_adds_comes_with_it_and_what_it_drops_goes_with_the_last(both: Both) -> None:
    north, south = both.north, both.south
    both.equal()
    north.changes(added(north.table, column("n")), {"n": None}, added=("n",)).put(0, n=5)
    north.goes_on()
    south.put(1, note="still without")
    south.goes_on()
    both.equal("south.n")
    north.changes(without(north.table, "note"), dropped=("note",)).goes_on()
    south.put(2, note="still with it")
    south.goes_on()
    assert "note" in both.table.column_names
    both.equal("south.n")
    south.changes(without(south.table, "note"), dropped=("note",)).goes_on()
    assert "note" not in both.table.column_names
    both.equal("south.n")
    south.changes(added(south.table, column("n")), {"n": None}, added=("n",)).put(0, n=6)
    south.goes_on()
    both.equal()


def test_a_required_column_that_one_drops_may_be_null_until_the_other_drops_it(both: Both) -> None:
    north, south = both.north, both.south
    north.changes(without(north.table, "owner"), dropped=("owner",)).goes_on()
    assert both.table.get_column("owner").nullable
    both.equal()
    south.put(1, owner="required there")
    south.goes_on()
    both.equal()
    south.changes(without(south.table, "owner"), dropped=("owner",)).goes_on()
    assert "owner" not in both.table.column_names
    both.equal()


def test_each_column_takes_the_values_of_both(both: Both) -> None:
    north, south = both.north, both.south
    north.changes(changed(north.table, "version", type=BIG), modified=("version",)).put(0, version=2**40)
    north.goes_on()
    both.equal()
    whole = ColumnType(kind=Kind.DECIMAL, precision=20, scale=0)
    south.changes(changed(south.table, "version", type=whole), modified=("version",)).put(0, version="7" * 20)
    south.goes_on()
    south.changes(changed(south.table, "owner", type=text(100)), modified=("owner",)).put(1, owner="o" * 90)
    south.goes_on()
    north.put(1, version=2**50, owner="o" * 40)
    north.goes_on()
    both.equal()
    south.changes(changed(south.table, "balance", nullable=True), modified=("balance",)).put(1, balance=None)
    south.goes_on()
    both.equal()


def test_an_index_is_unique_once_it_is_so_for_both(both: Both) -> None:
    north, south = both.north, both.south
    before = north.table.unique
    assert ("branch", "email") in {tuple(sorted(each.columns)) for each in both.table.unique}
    north.statement(replace(north.table, unique=()), ColumnChanges(), effect="kept")
    north.put(7, email="same")
    north.put(8, email="same")
    north.goes_on()
    both.equal()
    assert not both.table.unique
    north.put(8, email="another")
    north.goes_on()
    south.statement(replace(south.table, unique=()), ColumnChanges(), effect="kept")
    south.goes_on()
    for branch in (north, south):
        branch.statement(replace(branch.table, unique=before), ColumnChanges(), effect="kept")
        branch.put(9, email="again")
        branch.goes_on()
        assert bool(both.table.unique) == (branch is south)
    both.equal()


@pytest.mark.parametrize("what", ["default", "rename"])
def test_what_gives_rows_a_value_is_a_copy_of_those_rows(both: Both, what: str) -> None:
    """It must not give the others' rows one."""
    north, south = both.north, both.south
    if what == "default":
        new = added(north.table, column("n", default="7", nullable=False))
        north.changes(new, {"n": 7}, added=("n",))
    else:
        north.changes(renamed(north.table, "note", "remark"), renamed={"note": "remark"})
    north.stops("rowlock copy bank.acct")
    south.put(1, version=9)
    south.goes_on()
    north.copied({"n": 7} if what == "default" else None)
    south.put(2, version=10, note="kept")
    south.goes_on()
    both.equal("south.n" if what == "default" else "south.remark")


def test_types_that_no_column_can_hold_stop_the_one_that_brings_the_second(both: Both) -> None:
    north, south = both.north, both.south
    north.changes(changed(north.table, "version", type=BIG), modified=("version",)).goes_on()
    date = ColumnType(kind=Kind.DATE)
    south.rows = {key: {**row, "version": "2026-01-02"} for key, row in south.rows.items()}
    south.source.table = changed(south.table, "version", type=date)
    south.copy(south.table)
    south.stops("version")
    north.put(0, version=2**41)
    north.goes_on()
    south.rows = {key: {**row, "version": key} for key, row in south.rows.items()}
    south.source.table = changed(south.table, "version", type=BIG)
    south.copied()
    both.equal()


def test_one_that_is_paused_in_its_statement_lets_the_other_wait_and_nothing_is_lost(both: Both) -> None:
    """Where statements commit by themselves: the other unit's mark is waited for."""
    north, south = both.north, both.south
    if both.real.session.transactional_ddl:
        return
    clean = Moments()
    north.changes(added(north.table, column("e")), {"e": None}, added=("e",))
    north.unit.strike(clean)
    [alone] = [at for at in range(1, len(clean.seen) + 1) if clean.statement_alone(at)]
    north.changes(without(north.table, "note"), dropped=("note",)).goes_on()
    south.changes(without(south.table, "note"), dropped=("note",))
    with south.unit.struck(Moments(alone, "paused")):
        north.changes(added(north.table, column("n")), {"n": None}, added=("n",))
        report = north.applies()
        assert (report.state, "is being altered for" in report.message) == ("behind", True), report
        south.unit.take_over()
        south.goes_on()
        north.goes_on()
        assert "note" not in both.table.column_names
        both.equal("south.n")
    both.equal("south.n")


def drop(both: Both) -> None:
    """Somebody drops the target table. The units' next attempts look for it."""
    both.real.execute(f"DROP TABLE {both.real.schema}.acct")
    both.real.tables.clear()


def test_a_dropped_table_that_one_copy_makes_anew_waits_for_the_copies_of_the_others(both: Both) -> None:
    """The table is there again, and has the rows of one source: another one that wrote on would pass for
    whole."""
    north, south = both.north, both.south
    drop(both)
    north.put(1, version=2)
    north.stops("the target table no longer exists")
    north.copied()
    for times in range(2):
        south.put(1, version=3 + times)
        south.stops("the rows of this source are not in it: rowlock copy bank.acct")
        south.unit.take_over()  # which takes the message away, and not what it says
    south.statement(added(south.table, column("n")), ColumnChanges(added=("n",)), {"n": None})
    south.stops("the rows of this source are not in it: rowlock copy bank.acct")
    north.put(2, version=5)
    north.goes_on()
    south.copied()
    south.put(2, version=6)
    south.goes_on()
    both.equal("north.n")
    north.copied()  # the table is there: nobody loses anything
    south.put(0, version=7)
    south.goes_on()
    both.equal("north.n")


def test_a_source_that_is_new_makes_a_dropped_table_and_the_others_wait(both: Both) -> None:
    north, south = both.north, both.south
    drop(both)
    east = Branch.of(both.real, "east")
    for branch in (north, south):
        branch.put(1, version=2)
        branch.stops("the rows of this source are not in it: rowlock copy bank.acct")
        branch.copied()
    both.equal(more=[east])


def test_a_source_that_joins_while_another_one_s_statement_runs_looks_at_the_table_again(
    real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the table, and nobody heeds what it needs of it yet: its rows were held."""
    north, east = Branch.of(real, "north"), Branch.waiting(real, "east")
    looked: list[Table] = []

    def prepared(
        spec: UnitSpec, session: SqlSession, stored: StoredDefinition, *, first: bool, **more: Any
    ) -> ActiveDefinition:
        found = spec_of_unit.resolve_definition(spec, session, stored, first=first, **more)
        if spec.source == "east" and not looked:
            looked.append(found.real)
            new = added(north.table, replace(column("n"), nullable=False))
            north.changes(new, {"n": 0}, added=("n",)).goes_on()
        return found

    monkeypatch.setattr(driver, "resolve_definition", prepared)
    east.stops("its columns n are NOT NULL without a default, and the source has no values for them")
    assert [each.column_names for each in looked] == [(*east.table.column_names, "branch")]
    assert list(real.session.read_quarantine(east.unit.unit)) == []


def test_a_unit_under_way_does_not_write_over_what_another_one_says_of_its_rows(both: Both) -> None:
    """Its attempt has begun, and what is written of its rows comes then."""
    north, south = both.north, both.south
    session, unit = both.real.session, south.unit.unit
    spec: Any = SimpleNamespace(unit=unit)
    lanes, _ = session.read_progress(unit)
    with session.begin_transaction(unit, lanes) as transaction:
        require_rows_present(spec, transaction)
    drop(both)
    north.put(1, version=2)
    north.stops("the target table no longer exists")
    north.copied()
    with pytest.raises(TransientError, match="recreated the target table"):
        with session.begin_transaction(unit, lanes) as transaction:
            require_rows_present(spec, transaction)
