"""Units whose routes lead to one target table: a column of `add:` must distinguish their rows."""

from __future__ import annotations

from dataclasses import replace as replace_spec
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.attempt.spec import UnitSpec, resolve_definition
from consumer.errors import UnitStoppedError
from consumer.ordering.model import ApplyUnit, UnitState
from consumer.process.operations import target_checks
from consumer.process.operations.target_checks import TargetProbe
from consumer.tables.router import TableRoute, build_desired_table, resolve_route
from consumer.tables.shared_tables import (
    SharedTableReader,
    decode_unit_tables,
    find_shared_table_problem,
)
from consumer.tables.stored import StoredDefinition
from consumer.targets.checks.table_facts import TableFacts
from consumer.targets.oracle.sql import ORACLE_NAMES
from consumer.units.unit import UnitRef
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table
from schemas.table.names import EXACT, NameRules
from tests.kits.apply import account_table

ONE, TWO = account_table(), account_table(name="two")
PLACE = ("public", "acct")
FIRST, SECOND = "rl.b1.bank.acct", "rl.b1.bank.two"
CLASH = "contains no column that distinguishes the two"
Added = tuple[tuple[str, str], ...]


def route(table: str, add: Added = ()) -> TableRoute:
    return TableRoute(f"bank.{table}", "public.acct", add)


BOTH = (route("acct"), route("two"))


def state(table: Table, place: tuple[str, str] | None = PLACE) -> UnitState:
    return UnitState(StoredDefinition(table, target_place=place).encode(), None, None)


def find(
    routes: tuple[TableRoute, ...],
    other: UnitState,
    *,
    topic: str = SECOND,
    there: Table | None = None,
    tables: NameRules = EXACT,
    columns: NameRules = EXACT,
) -> str:
    mine = resolve_route(routes, "b1", "bank", "acct")
    assert mine is not None
    units = decode_unit_tables({FIRST: state(ONE), topic: other}, ["b1", "b2"])
    real = there or build_desired_table(ONE, mine)
    found = find_shared_table_problem(real, mine, FIRST, units, routes, tables=tables, columns=columns)
    return str(found or "")


@pytest.mark.parametrize(
    ("one", "two", "clashes"),
    [
        ((), (), True),
        ((("of", "{table}"),), (("of", "{table}"),), False),
        ((("of", "{source}"),), (("of", "{source}"),), True),
        ((("of", "{table}"),), (), True),
    ],
)
def test_two_tables_of_one_source_need_a_column_with_different_values(
    one: Added, two: Added, clashes: bool
) -> None:
    found = find((route("acct", one), route("two", two)), state(TWO))
    assert (CLASH in found and "b1:bank.two writes it, too" in found) if clashes else found == ""


def test_each_unique_index_needs_the_column() -> None:
    add = (("of", "{table}"),)
    routes = (route("acct", add), route("two", add))
    mine = resolve_route(routes, "b1", "bank", "acct")
    assert mine is not None
    there = replace(build_desired_table(ONE, mine), unique=ONE.unique)
    assert "unique index email (email) contains no column" in find(routes, state(TWO), there=there)


def test_a_second_source_needs_the_column_too() -> None:
    assert CLASH in find(BOTH, state(ONE), topic="rl.b2.bank.acct")
    assert find((route("acct", (("of", "{source}"),)),), state(ONE), topic="rl.b2.bank.acct") == ""


@pytest.mark.parametrize(
    ("routes", "other", "topic"),
    [
        (BOTH, state(TWO, ("public", "two")), SECOND),  # it waits for the copy into this table
        ((route("acct"), TableRoute("bank.two", "public.two")), state(TWO), SECOND),  # it is routed elsewhere
        ((route("acct"),), state(TWO), SECOND),  # no route
        (BOTH, UnitState(None, None, None), SECOND),
        (BOTH, state(TWO), "rl.gone.bank.two"),  # a source that the pipeline no longer has
        (BOTH, state(TWO), "other.b1.bank.two"),  # another prefix
    ],
)
def test_a_unit_without_rows_in_the_table_is_no_problem(
    routes: tuple[TableRoute, ...], other: UnitState, topic: str
) -> None:
    assert find(routes, other, topic=topic) == ""


FOLDED = NameRules(folds=True)


@pytest.mark.parametrize(("rules", "clashes"), [(EXACT, False), (FOLDED, True), (ORACLE_NAMES, True)])
@pytest.mark.parametrize("place", [("PUBLIC", "ACCT"), None])
def test_tables_are_the_same_if_the_target_considers_their_names_equal(
    rules: NameRules, clashes: bool, place: tuple[str, str] | None
) -> None:
    routes = (route("acct"), TableRoute("bank.two", "PUBLIC.ACCT"))
    assert (CLASH in find(routes, state(TWO, place), tables=rules)) is clashes


def make_shared_table(
    kind: Kind = Kind.VARCHAR, collation: str | None = None, prefix: int | None = None
) -> Table:
    """Return the target table with a column `of` in its key."""
    column = Column(name="of", type=ColumnType(kind=kind, length=9, collation=collation), nullable=False)
    key = replace(ONE.key, parts=(IndexPart(column="of", prefix=prefix), *ONE.key.parts))
    return replace(ONE, db="public", columns=(*ONE.columns, column), key=key, unique=())


@pytest.mark.parametrize(
    ("one", "two", "there", "clashes"),
    [
        ("HQ", "hq", make_shared_table(collation="utf8mb4_0900_ai_ci"), True),
        ("HQ", "hq", make_shared_table(collation="utf8mb4_general_ci"), True),
        ("HQ", "hq", make_shared_table(collation="utf8mb4_bin"), False),
        ("HQ", "hq", make_shared_table(), False),
        ("hq", "hq ", make_shared_table(collation="utf8mb4_bin"), True),
        ("Zürich", "Zurich", make_shared_table(collation="utf8mb4_0900_ai_ci"), True),
        ("north", "south", make_shared_table(collation="utf8mb4_0900_ai_ci"), False),
        ("北京", "上海", make_shared_table(collation="utf8mb4_0900_ai_ci"), False),
        ("branch1", "branch2", make_shared_table(prefix=6), True),
        ("branch1", "branch2", make_shared_table(prefix=7), False),
        ("07", "7", make_shared_table(Kind.INT), True),
        ("north", "south", make_shared_table(collation="public.of_a_person"), True),
    ],
)
def test_added_values_are_the_same_if_the_index_may_consider_them_equal(
    one: str, two: str, there: Table, clashes: bool
) -> None:
    """Otherwise the row of the one would replace the row of the other."""
    found = find((route("acct", (("of", one),)), route("two", (("of", two),))), state(TWO), there=there)
    assert (CLASH in found and f"{one!r} and {two!r} may be one value of of there" in found) is clashes


def test_added_columns_are_compared_as_the_target_compares_names() -> None:
    there = make_shared_table()
    routes = (route("acct", (("OF", "1"),)), route("two", (("Of", "2"),)))
    assert find(routes, state(TWO), there=there, columns=FOLDED) == ""
    assert CLASH in find(routes, state(TWO), there=there, columns=EXACT)


def test_a_definition_of_an_older_version_counts() -> None:
    assert CLASH in find(BOTH, state(TWO, None))


# --- where it is checked


class Session:
    """A target with the table and the units."""

    column_names = EXACT
    table_names = EXACT

    def __init__(self, **units: UnitState) -> None:
        self.units = {f"rl.b1.bank.{name}": each for name, each in units.items()}
        self.tables = {PLACE: replace(ONE, db="public")}
        self.reads = self.table_reads = 0
        self.read_topics: list[list[str] | None] = []

    def read_unit_states(self, _pipeline: str, topics: list[str] | None = None) -> dict[str, UnitState]:
        self.reads += 1
        self.read_topics.append(topics)
        return {topic: each for topic, each in self.units.items() if topics is None or topic in topics}

    def list_defined_topics(self, _pipeline: str) -> list[str]:
        return [topic for topic, each in self.units.items() if each.definition is not None]

    def read_progress(self, unit: ApplyUnit, *, lanes: bool) -> tuple[list[Any], UnitState]:
        assert not lanes
        return [], self.units[unit.topic]

    def read_table(self, *place: str) -> Table | None:
        self.table_reads += 1
        return self.tables.get((place[0], place[1]))

    def read_table_facts(self, *_: str) -> TableFacts:
        return TableFacts()

    def judge_new_table(self, _table: Table) -> list[Any]:
        return []

    def create_table(self, table: Table) -> None:
        raise AssertionError(table)


def probe() -> TargetProbe:
    config = SimpleNamespace(sources=["b1"])
    pipeline: Any = SimpleNamespace(name="p", routes=BOTH, debezium={}, config=config)
    return TargetProbe(pipeline)


def unit(topic: str) -> UnitRef:
    return UnitRef(topic, "b1", 1, "id")


def test_a_rerouted_unit_stops_at_its_takeover_and_the_other_continues() -> None:
    session: Any = Session(acct=state(ONE), two=state(TWO, ("public", "two")))
    looks = probe()
    looks.read_real_table(session, unit(SECOND))
    assert looks.was_misfit(unit(SECOND)), "its takeover checks again"
    assert CLASH in str(looks.find_misfit(session, unit(SECOND), session.units[SECOND].definition))
    assert looks.find_misfit(session, unit(FIRST), session.units[FIRST].definition) is None
    assert looks.explain_unfit(session, unit(FIRST)) is None


def test_running_units_are_checked_by_one_reading_of_all_units(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Session(acct=state(ONE))
    looks = probe()
    assert looks.explain_unfit(session, unit(FIRST)) is None
    session.units[SECOND] = state(TWO)
    assert looks.explain_unfit(session, unit(FIRST)) is None
    assert session.reads == 1
    monkeypatch.setattr(target_checks, "UNITS_MAX_AGE_S", 0.0)
    for topic in (FIRST, SECOND):
        assert CLASH in str(looks.explain_unfit(session, unit(topic)))


def test_a_unit_with_a_table_of_its_own_needs_no_reading_of_the_table_for_it() -> None:
    session: Any = Session(acct=state(ONE))
    looks = probe()
    looks.find_misfit(session, unit(FIRST), session.units[FIRST].definition)
    alone, session.table_reads = session.table_reads, 0
    session.units[SECOND] = state(TWO)
    shared = probe()
    assert CLASH in str(shared.find_misfit(session, unit(FIRST), session.units[FIRST].definition))
    assert (alone, session.table_reads) == (1, 1)


@pytest.mark.parametrize("there", [True, False])
def test_a_first_definition_is_not_activated_beside_rows_of_another_unit(there: bool) -> None:
    session: Any = Session(acct=state(ONE))
    if not there:
        session.tables.clear()
    spec = UnitSpec(ApplyUnit("p", SECOND), "b1", 1, "id", BOTH, 1, sources=("b1",))
    with pytest.raises(UnitStoppedError, match=CLASH):
        resolve_definition(spec, session, StoredDefinition(TWO), first=True)


def test_of_many_units_a_first_definition_reads_those_that_are_new_and_the_sharers() -> None:
    """Each of a thousand units reads the others when it begins."""
    reader = SharedTableReader()
    session: Any = Session(
        acct=state(ONE),
        **{f"t{at}": state(account_table(name=f"t{at}"), ("public", f"t{at}")) for at in range(3)},
    )
    routes = (*BOTH, TableRoute("bank.*", "public.{table}"))
    spec = UnitSpec(ApplyUnit("p", "rl.b1.bank.new"), "b1", 1, "id", routes, 1, sources=("b1",))

    def begin(name: str) -> None:
        session.tables["public", name] = replace(ONE, db="public", name=name)
        resolve_definition(
            spec, session, StoredDefinition(account_table(name=name)), first=True, sharers=reader
        )

    begin("new")
    assert session.read_topics == [sorted(session.units), []]
    session.read_topics.clear()
    begin("new")
    assert session.read_topics == [[], []], "nothing is read twice"
    session.units["rl.b1.bank.late"] = state(account_table(name="late"), ("public", "late"))
    begin("new")
    assert session.read_topics[2:] == [["rl.b1.bank.late"], []]
    session.read_topics.clear()
    mine = replace_spec(spec, unit=ApplyUnit("p", SECOND))
    with pytest.raises(UnitStoppedError, match=CLASH):
        resolve_definition(mine, session, StoredDefinition(TWO), first=True, sharers=reader)
    assert session.read_topics == [[], [FIRST]], "of the sharers, as they are now"


def test_a_sharer_that_came_back_from_another_table_is_seen() -> None:
    """What is remembered is the table of a topic, not where its rows are."""
    reader = SharedTableReader()
    session: Any = Session(acct=state(ONE, ("public", "elsewhere")))
    spec = UnitSpec(ApplyUnit("p", SECOND), "b1", 1, "id", BOTH, 1, sources=("b1",))
    resolve_definition(spec, session, StoredDefinition(TWO), first=True, sharers=reader)
    session.units[FIRST] = state(ONE)
    with pytest.raises(UnitStoppedError, match=CLASH):
        resolve_definition(spec, session, StoredDefinition(TWO), first=True, sharers=reader)


def test_other_routes_are_resolved_anew() -> None:
    reader = SharedTableReader()
    session: Any = Session(acct=state(ONE))
    apart = (TableRoute("bank.acct", "public.own"), route("two"))
    spec = UnitSpec(ApplyUnit("p", SECOND), "b1", 1, "id", apart, 1, sources=("b1",))
    resolve_definition(spec, session, StoredDefinition(TWO), first=True, sharers=reader)
    with pytest.raises(UnitStoppedError, match=CLASH):
        resolve_definition(
            replace_spec(spec, routes=BOTH), session, StoredDefinition(TWO), first=True, sharers=reader
        )
