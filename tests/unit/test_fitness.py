"""A target table that must not be written stops the unit that would: at its take-over, and at its first definition."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from consumer.errors import UnitStoppedError
from consumer.tables.definition import prepare
from consumer.tables.fitness import misfit
from consumer.tables.router import TableRoute, resolve, wanted_table
from consumer.tables.stored import Stored
from consumer.targets.checks.table_facts import Remark, TableFacts
from schemas.table.model import Table
from schemas.table.names import EXACT, Names
from tests.apply_kit import account_table

ROUTES = (TableRoute("bank.*", "public.{table}"),)
SOURCE = account_table()


def target(real: Table | None, facts: TableFacts | None = None, names: Names = EXACT) -> Any:
    return SimpleNamespace(
        read_table=lambda *_: real, facts=lambda *_: facts or TableFacts(), column_names=names
    )


def real_table() -> Table:
    routed = resolve(ROUTES, "b1", "bank", "acct")
    assert routed is not None
    return wanted_table(SOURCE, routed)


def without(table: Table, column: str) -> Table:
    return structs.replace(table, columns=tuple(each for each in table.columns if each.name != column))


@pytest.mark.parametrize("names", [EXACT, Names(folds=True)])
def test_under_ignore_a_column_in_another_spelling_is_not_left_out(names: Names) -> None:
    """To MySQL `NOTE` is the source's `note`: its values would be lost without a word. To PostgreSQL it is another column."""
    real = real_table()
    columns = tuple(
        structs.replace(each, name="NOTE") if each.name == "note" else each for each in real.columns
    )
    route = TableRoute("bank.*", "public.{table}", policy="ignore")
    why = misfit(target(structs.replace(real, columns=columns), names=names), SOURCE, "b1", (route,))
    if names.folds:
        assert (
            why
            == "target table public.acct: to its server the column NOTE has the name of the source's column note: rename it to note"
        )
    else:
        assert why is None


def test_a_table_that_fits_or_is_not_there_yet_is_no_misfit() -> None:
    assert misfit(target(real_table()), SOURCE, "b1", ROUTES) is None
    assert misfit(target(None), SOURCE, "b1", ROUTES) is None


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
    why = misfit(session, SOURCE, "b1", ROUTES)
    assert why is not None
    assert why.startswith("target table public.acct: ")
    assert all(word in why for word in words), why
    with pytest.raises(UnitStoppedError) as stopped:
        prepare(session, Stored(SOURCE), source_name="b1", routes=ROUTES, create=True)
    assert str(stopped.value) == why


def test_what_only_a_dialect_knows_of_is_said_in_its_words() -> None:
    odd = Remark("is odd", "ALTER TABLE acct MAKE EVEN")
    assert misfit(target(real_table(), TableFacts(remarks=(odd,))), SOURCE, "b1", ROUTES) == (
        "target table public.acct: is odd: ALTER TABLE acct MAKE EVEN"
    )
    mild = replace(odd, level="warning")
    assert misfit(target(real_table(), TableFacts(remarks=(mild,))), SOURCE, "b1", ROUTES) is None


def test_a_remark_about_columns_counts_where_they_are_updated() -> None:
    fixed = Remark("columns {columns} never change", "free {column}", columns=("owner", "note", "elsewhere"))
    why = misfit(target(real_table(), TableFacts(remarks=(fixed,))), SOURCE, "b1", ROUTES)
    assert why == "target table public.acct: columns note, owner never change: free note"
    for columns in (("id",), ("elsewhere",)):  # of a key, which is only inserted; not ours
        facts = TableFacts(remarks=(replace(fixed, columns=columns),))
        assert misfit(target(real_table(), facts), SOURCE, "b1", ROUTES) is None


def test_what_may_only_quarantine_rows_stops_nothing() -> None:
    real = real_table()
    narrow = structs.replace(real.column("note"), type=structs.replace(real.column("note").type, length=1))
    columns = tuple(narrow if each.name == "note" else each for each in real.columns)
    assert misfit(target(structs.replace(real, columns=columns)), SOURCE, "b1", ROUTES) is None


def test_a_table_that_was_judged_at_the_take_over_is_not_asked_for_again() -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked again")

    session: Any = SimpleNamespace(read_table=never, facts=never)
    prepare(session, Stored(SOURCE), source_name="b1", routes=ROUTES, create=False, real=real_table())
    session.read_table = lambda *_: real_table()
    prepare(session, Stored(SOURCE), source_name="b1", routes=ROUTES, create=False, gone=True)
