"""A target table that must not be written stops the unit that would: at its take-over, and at its first
definition."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from consumer.attempt.spec import UnitSpec, load_active_definition
from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, TopicOptions
from consumer.tables.definition import list_ordering_columns, prepare_definition, read_real
from consumer.tables.router import (
    SchemaChangePolicy,
    TableRoute,
    build_desired_table,
    build_target_table,
    resolve_route,
)
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import explain_missing_target, find_table_misfit, judge_target_table
from consumer.targets.checks.column_spelling import match_other_spellings
from consumer.targets.checks.table_facts import Remark, TableFacts
from consumer.targets.checks.table_findings import check_table
from schemas.table.model import ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import EXACT, NameRules
from tests.kits.apply import account_table

ROUTES = (TableRoute("bank.*", "public.{table}"),)
SOURCE = account_table()


def target(real: Table | None, facts: TableFacts | None = None, names: NameRules = EXACT) -> Any:
    return SimpleNamespace(
        read_table=lambda *_: real,
        read_table_facts=lambda *_: facts or TableFacts(),
        judge_new_table=lambda _: [],
        column_names=names,
    )


def real_table() -> Table:
    routed = resolve_route(ROUTES, "b1", "bank", "acct")
    assert routed is not None
    return build_desired_table(SOURCE, routed)


def without(table: Table, column: str) -> Table:
    return structs.replace(table, columns=tuple(each for each in table.columns if each.name != column))


def respelled(table: Table, old: str, new: str) -> Table:
    columns = tuple(structs.replace(each, name=new) if each.name == old else each for each in table.columns)
    return structs.replace(table, columns=columns)


def test_the_target_table_of_a_definition_is_read_where_its_route_leads() -> None:
    session = SimpleNamespace(read_table=lambda *place: place)
    stored = StoredDefinition(SOURCE)
    assert read_real(session, stored, "b1", ROUTES) == ("public", "acct")  # type: ignore[arg-type]
    assert read_real(session, stored, "b1", ()) is None  # type: ignore[arg-type]


def test_only_a_topic_needs_whole_before_images() -> None:
    table = build_target_table(real_table(), real_table())
    assert list_ordering_columns(table) == {"id", "email"}
    topic: Any = SimpleNamespace()
    assert list_ordering_columns(replace(table, topic=topic)) == {*SOURCE.column_names}


def test_a_missing_table_of_several_sources_needs_a_copy_of_each() -> None:
    alone = resolve_route(ROUTES, "b1", "bank", "acct")
    assert alone is not None
    several = replace(alone, added=(("branch", "b1"),))
    found = [
        "every other table" in explain_missing_target(routed, SOURCE, debezium=debezium).action
        for routed in (alone, several)
        for debezium in (False, True)
    ]
    assert found == [False, False, True, False]


@pytest.mark.parametrize("policy", ["ignore", "lenient", "evolve", "stop"])
@pytest.mark.parametrize("names", [EXACT, NameRules(folds=True)])
def test_a_column_in_another_spelling_is_the_source_s_where_the_server_says_so(
    names: NameRules, policy: SchemaChangePolicy
) -> None:
    """To MySQL `NOTE` is the source's `note`: left out, its values would be lost without a word. To
    PostgreSQL it is another column."""
    route = TableRoute("bank.*", "public.{table}", policy=policy)
    session = target(respelled(real_table(), "note", "NOTE"), names=names)
    why = find_table_misfit(session, StoredDefinition(SOURCE), "b1", (route,))
    if names.folds:
        assert why is None
    elif policy != "ignore":
        assert why is not None
        assert "lacks the columns note" in str(why)
        return
    found = prepare_definition(
        session, StoredDefinition(SOURCE), source_name="b1", routes=(route,), create=False
    )
    if names.folds:
        assert (found.stored.names, found.stored.unmapped_columns) == ({"note": "NOTE"}, ())
        assert found.expected.column_names == (*real_table().column_names[:-1], "NOTE")
        assert found.written == SOURCE
        again = prepare_definition(session, found.stored, source_name="b1", routes=(route,), create=False)
        assert again.text == found.text
    else:
        assert (found.stored.names, found.stored.unmapped_columns) == ({}, ("note",))


def test_a_column_of_another_name_there_keeps_it_beside_one_in_another_spelling() -> None:
    real = respelled(respelled(real_table(), "note", "NOTE"), "owner", "owner_2")
    session = target(real, names=NameRules(folds=True))
    stored = StoredDefinition(SOURCE, {"owner": "owner_2"})
    found = prepare_definition(session, stored, source_name="b1", routes=ROUTES, create=False)
    assert found.stored.names == {"owner": "owner_2", "note": "NOTE"}


def test_a_key_and_a_unique_index_are_compared_by_the_names_that_they_have_there() -> None:
    real = real_table()
    for column in ("id", "email"):
        real = renamed_in(real, column, column.upper())
    session = target(real, names=NameRules(folds=True))
    assert find_table_misfit(session, StoredDefinition(SOURCE), "b1", ROUTES) is None
    found = prepare_definition(
        session, StoredDefinition(SOURCE), source_name="b1", routes=ROUTES, create=False
    )
    assert found.target.table.key.columns == ("ID",)
    assert [index.columns for index in found.target.table.unique] == [("EMAIL",)]
    strange = structs.replace(
        real, unique=(structs.replace(real.key, name="strange", parts=(IndexPart(column="owner"),)),)
    )
    assert "strange (owner) is stricter" in str(
        find_table_misfit(
            target(strange, names=NameRules(folds=True)), StoredDefinition(SOURCE), "b1", ROUTES
        )
    )


def renamed_in(table: Table, old: str, new: str) -> Table:
    def index(each: UniqueIndex) -> UniqueIndex:
        parts = (
            structs.replace(part, column=new if part.column == old else part.column) for part in each.parts
        )
        return structs.replace(each, parts=tuple(parts))

    named = respelled(table, old, new)
    return structs.replace(named, key=index(table.key), unique=tuple(map(index, table.unique)))


def test_a_column_of_the_route_has_the_name_that_the_route_gives() -> None:
    route = TableRoute("bank.*", "public.{table}", add=(("branch", "{source}"),))
    routed = resolve_route((route,), "b1", "bank", "acct")
    assert routed is not None
    session = target(
        renamed_in(build_desired_table(SOURCE, routed), "branch", "Branch"), names=NameRules(folds=True)
    )
    assert "lacks" in str(find_table_misfit(session, StoredDefinition(SOURCE), "b1", (route,)))
    with pytest.raises(UnitStoppedError, match="lacks"):
        prepare_definition(
            session, StoredDefinition(SOURCE), source_name="b1", routes=(route,), create=False, existed=True
        )


def test_a_column_that_was_left_out_and_is_there_in_another_spelling_needs_a_copy() -> None:
    """Its rows have nothing of what the source's column had until then."""
    route = TableRoute("bank.*", "public.{table}", policy="ignore")
    for name in ("note", "Note"):
        session = target(respelled(real_table(), "note", "NOTE"), names=NameRules(folds=True))
        stored = StoredDefinition(respelled(SOURCE, "note", name), unmapped_columns=(name,))
        with pytest.raises(CopyNeededError, match=f"column {name} was added to target table"):
            prepare_definition(session, stored, source_name="b1", routes=(route,), create=False)


@pytest.mark.parametrize(
    ("source", "there", "names", "found"),
    [
        (("note",), ("NOTE",), {}, {"note": "NOTE"}),
        (
            ("note",),
            ("note", "NOTE"),
            {},
            {},
        ),  # a server that takes them for two, whatever is known of its names
        (("note", "Note"), ("NOTE",), {}, {"note": "NOTE"}),  # and a column for the other one
        (("note",), ("NOTE",), {"note": "note"}, {}),
        (("note", "n"), ("NOTE",), {"n": "NOTE"}, {}),
    ],
)
def test_a_column_there_is_one_of_the_source_s_by_one_spelling(
    source: tuple[str, ...], there: tuple[str, ...], names: dict[str, str], found: dict[str, str]
) -> None:
    def table(columns: tuple[str, ...]) -> Table:
        return structs.replace(
            SOURCE, columns=tuple(structs.replace(SOURCE.columns[-1], name=each) for each in columns)
        )

    assert match_other_spellings(table(source), table(there), names, (), NameRules(folds=True)) == found


@pytest.mark.parametrize("names", [EXACT, NameRules(folds=True)])
@pytest.mark.parametrize("given", ["note", "NOTE", "branch"])
def test_a_column_that_the_route_gives_is_none_of_the_source_s(given: str, names: NameRules) -> None:
    """Two columns of one name: each statement failed at the target, and a record of a topic had one of the
    two values."""
    route = TableRoute("bank.*", "public.{table}", add=((given, "{source}"),))
    twice = names.fold_name(given) == "note"
    session = target(None, names=names)
    why = find_table_misfit(session, StoredDefinition(SOURCE), "b1", (route,))
    assert (why and str(why)) == (
        f"target table public.acct: the route adds the column {given} (`add`), but "
        "bank.acct already has a column of that name: give the route's column another name, "
        "in the target as well, and copy the table"
        if twice
        else None
    )
    topic = TableRoute("bank.*", "public.{table}", add=((given, "{source}"),), topic=TopicOptions())
    for each in (route, topic) if twice else ():
        with pytest.raises(UnitStoppedError, match="a column of that name"):
            prepare_definition(
                session, StoredDefinition(SOURCE), source_name="b1", routes=(each,), create=True, existed=True
            )


def test_a_column_that_does_not_hold_all_as_it_is_is_said_beforehand() -> None:
    """Rows with spaces at the end are held for a CHAR, and such as are too short for a BINARY."""
    for source, there in (
        (ColumnType(kind=Kind.VARCHAR, length=20), ColumnType(kind=Kind.CHAR, length=20)),
        (ColumnType(kind=Kind.VARBINARY, length=4), ColumnType(kind=Kind.BINARY, length=4)),
        (ColumnType(kind=Kind.VARCHAR, length=20), ColumnType(kind=Kind.VARCHAR, length=19)),
    ):
        desired, real = (of_type(real_table(), "note", each) for each in (source, there))
        [found] = check_table(target(real), desired)
        assert (found.level, "column note cannot store every value" in found.message) == ("warning", True)
        assert check_table(target(desired), desired) == []


def of_type(table: Table, column: str, type_: ColumnType) -> Table:
    return structs.replace(
        table,
        columns=tuple(
            structs.replace(each, type=type_) if each.name == column else each for each in table.columns
        ),
    )


def test_what_is_left_out_is_no_finding() -> None:
    """Under `ignore` a column that the target lacks is not written; `check` once reported that the whole
    table must not be written."""
    [routed] = [resolve_route((replace(ROUTES[0], policy="ignore"),), "b1", "bank", "acct")]
    assert routed is not None
    lacking = target(without(real_table(), "note"))
    assert judge_target_table(lacking, StoredDefinition(SOURCE), routed) == []
    assert len(judge_target_table(lacking, StoredDefinition(SOURCE), replace(routed, policy="lenient"))) == 1


def test_rows_are_kept_only_under_a_key_that_the_source_gives() -> None:
    [routed] = [resolve_route((replace(ROUTES[0], keeps_removed_rows=True),), "b1", "bank", "acct")]
    assert routed is not None
    parts = (*real_table().key.parts, IndexPart(column="version"))
    longer = structs.replace(real_table(), key=structs.replace(real_table().key, parts=parts))
    for there, findings in ((real_table(), 0), (None, 0), (longer, 1)):
        assert len(judge_target_table(target(there), StoredDefinition(SOURCE), routed)) == findings
    [found] = judge_target_table(target(longer), StoredDefinition(SOURCE), routed)
    assert (found.level, "['version']" in found.message) == ("error", True)
    follows = replace(routed, keeps_removed_rows=False)
    assert judge_target_table(target(longer), StoredDefinition(SOURCE), follows) == []


def test_a_table_that_fits_or_is_not_there_yet_is_no_misfit() -> None:
    assert find_table_misfit(target(real_table()), StoredDefinition(SOURCE), "b1", ROUTES) is None
    assert find_table_misfit(target(None), StoredDefinition(SOURCE), "b1", ROUTES) is None


@pytest.mark.parametrize(
    ("real", "facts", "words"),
    [
        (without(real_table(), "note"), TableFacts(), ("lacks the columns note", ": add them")),
        (real_table(), TableFacts(triggers=("audit",)), ("has triggers: audit", ": drop them in the target")),
        (
            real_table(),
            TableFacts(triggers=("audit",), foreign_keys=("to_branch",)),
            ("foreign keys", "and 1 more, see `rowlock check`"),
        ),
    ],
)
def test_what_check_refuses_stops_the_unit_with_a_remedy(
    real: Table, facts: TableFacts, words: tuple[str, ...]
) -> None:
    session = target(real, facts)
    why = find_table_misfit(session, StoredDefinition(SOURCE), "b1", ROUTES)
    assert why is not None
    assert str(why).startswith("target table public.acct: ")
    assert all(word in str(why) for word in words), why
    with pytest.raises(UnitStoppedError) as stopped:
        prepare_definition(session, StoredDefinition(SOURCE), source_name="b1", routes=ROUTES, create=True)
    assert str(stopped.value) == str(why)


def test_a_column_of_the_route_in_another_spelling_is_to_be_written_as_the_target_has_it() -> None:
    routes = (TableRoute("bank.*", "public.{table}", add=(("NOTE2", "b1"),)),)
    real = real_table()
    there = structs.replace(
        real, columns=(*real.columns, structs.replace(real.get_column("note"), name="note2"))
    )
    why = find_table_misfit(target(there), StoredDefinition(SOURCE), "b1", routes)
    assert why is not None
    assert "lacks the columns NOTE2" in str(why)
    assert ": write note2 under `add`, as the table spells it" in str(why)


def test_what_only_a_dialect_knows_of_is_said_in_its_words() -> None:
    odd = Remark("is odd", "ALTER TABLE acct MAKE EVEN")
    assert str(
        find_table_misfit(
            target(real_table(), TableFacts(remarks=(odd,))), StoredDefinition(SOURCE), "b1", ROUTES
        )
    ) == ("target table public.acct: is odd: ALTER TABLE acct MAKE EVEN")
    mild = replace(odd, level="warning")
    assert (
        find_table_misfit(
            target(real_table(), TableFacts(remarks=(mild,))), StoredDefinition(SOURCE), "b1", ROUTES
        )
        is None
    )


def test_a_remark_about_columns_counts_where_they_are_updated() -> None:
    fixed = Remark("columns {columns} never change", "free {column}", columns=("owner", "note", "elsewhere"))
    why = find_table_misfit(
        target(real_table(), TableFacts(remarks=(fixed,))), StoredDefinition(SOURCE), "b1", ROUTES
    )
    assert str(why) == "target table public.acct: columns note, owner never change: free note"
    for columns in (("id",), ("elsewhere",)):  # of a key, which is only inserted; not ours
        facts = TableFacts(remarks=(replace(fixed, columns=columns),))
        assert find_table_misfit(target(real_table(), facts), StoredDefinition(SOURCE), "b1", ROUTES) is None


@pytest.mark.parametrize(
    ("source", "there", "too_short"),
    [
        (None, None, False),
        (10, 10, False),
        (10, 20, False),
        (10, None, False),
        (None, 10, True),
        (20, 10, True),
    ],
)
def test_unique_index_of_the_target_compares_as_much_of_a_value(
    source: int | None, there: int | None, too_short: bool
) -> None:
    """Values that differ only after the shorter prefix would be one value there."""

    def with_index(prefix: int | None) -> Table:
        unique = UniqueIndex(name="note", parts=(IndexPart(column="note", prefix=prefix),))
        return structs.replace(real_table(), unique=(unique,))

    found = check_table(target(with_index(there)), with_index(source))
    assert [each.message for each in found] == (
        [f"unique index note compares only {there} characters of note"] if too_short else []
    )


def test_a_missing_table_is_judged_where_two_sources_write_it() -> None:
    assert check_table(target(None), real_table(), sources=1) == []
    (found, *_) = check_table(target(None), real_table(), sources=2)
    assert found.message.startswith(
        "2 topics write the table, and unique index PRIMARY (id) contains no column"
    )


def test_what_may_only_quarantine_rows_stops_nothing() -> None:
    real = real_table()
    narrow = structs.replace(
        real.get_column("note"), type=structs.replace(real.get_column("note").type, length=1)
    )
    columns = tuple(narrow if each.name == "note" else each for each in real.columns)
    assert (
        find_table_misfit(
            target(structs.replace(real, columns=columns)), StoredDefinition(SOURCE), "b1", ROUTES
        )
        is None
    )


def test_a_table_that_was_judged_at_the_take_over_is_not_asked_for_again() -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked again")

    session: Any = SimpleNamespace(
        read_table=never, read_table_facts=never, column_names=EXACT, table_names=EXACT
    )
    prepare_definition(
        session, StoredDefinition(SOURCE), source_name="b1", routes=ROUTES, create=False, real=real_table()
    )
    session.read_table = lambda *_: real_table()
    prepare_definition(
        session, StoredDefinition(SOURCE), source_name="b1", routes=ROUTES, create=False, existed=True
    )


def test_what_is_in_force_is_kept_by_unit_and_not_by_topic_alone() -> None:
    """Two pipelines that read one topic may be at equal numbers of their epochs: rows of the one would go to
    the other's table."""
    text, tables = StoredDefinition(SOURCE).encode(), {}  # type: ignore[var-annotated]
    found = []
    for pipeline in ("p", "q"):
        routes = (TableRoute("bank.*", f"public.{pipeline}"),)
        spec = UnitSpec(
            unit=ApplyUnit(pipeline, "rl.b1.bank.acct"),
            source="b1",
            epoch=7,
            topic_id="id",
            routes=routes,
            lanes=1,
        )
        found.append(load_active_definition(spec, target(real_table()), text, tables))
    assert [each.target.name for each in found] == ["p", "q"]
