"""Routing (consumer.tables.router) and the choice of topics (consumer.tables.discovery)."""

from __future__ import annotations

import pytest

from consumer.errors import TargetConfigError
from consumer.tables.discovery import select_topics
from consumer.tables.router import (
    TableRoute,
    build_desired_table,
    build_target_table,
    compute_routes_fingerprint,
    make_key_function,
    resolve_route,
)
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from tests.kits.apply import account_table
from tests.kits.topic import usual_tables

TO_HQ = TableRoute("bank.*", "public.{table}", (("branch", "{source}"),))


def test_the_first_route_that_matches_counts() -> None:
    routes = (TableRoute("bank.acct", "a.{table}"), TableRoute("bank.*", "b.{db}_{table}"))
    first, second = resolve_route(routes, "s", "bank", "acct"), resolve_route(routes, "s", "bank", "log")
    assert first is not None
    assert second is not None
    assert (first.schema, first.table) == ("a", "acct")
    assert (second.schema, second.table) == ("b", "bank_log")
    assert resolve_route(routes, "s", "other", "acct") is None


@pytest.mark.parametrize(
    ("to", "db", "table", "place"),
    [
        ("{db}.{table}", "bank", "customers3.0", ("bank", "customers3.0")),
        ("{db}.{table}", "ba.nk", "t.2", ("ba.nk", "t.2")),
        ("public.{table}_{source}", "bank", "DBZ.1834", ("public", "DBZ.1834_s")),
        ("{db}.{table}", "{table}", "{source}", ("{table}", "{source}")),
        ("`a.b`.{table}", "bank", "t", ("a.b", "t")),
        ("{db}.`x.{table}`", "bank", "t", ("bank", "x.t")),
        ("{db}.{table}", "`", "a`b", ("`", "a`b")),
    ],
)
def test_names_are_filled_in_and_not_looked_at_again(
    to: str, db: str, table: str, place: tuple[str, str]
) -> None:
    """A dot in a name once sent the rows to another schema, without a word."""
    routed = resolve_route((TableRoute("*.*", to),), "s", db, table)
    assert routed is not None
    assert (routed.schema, routed.table) == place


def test_a_star_does_not_reach_over_the_dot() -> None:
    assert resolve_route((TableRoute("bank.*", "{db}.{table}"),), "s", "bank.old", "acct") is None


def test_added_columns_stand_last_and_join_every_key() -> None:
    routed = resolve_route((TO_HQ,), "north", "bank", "acct")
    assert routed is not None
    assert routed.where == {"branch": "north"}
    table = build_desired_table(account_table(), routed)
    assert table.column_names[-1] == "branch"
    assert table.key.columns == ("branch", "id")
    assert table.unique[0].columns == ("branch", "email")
    assert not table.get_column("branch").nullable


def test_the_real_tables_indexes_count() -> None:
    expected = account_table()
    real = Table(
        db="bank",
        name="acct",
        columns=(*expected.columns[::-1], Column(name="sid", type=ColumnType(kind=Kind.INT, bits=64))),
        key=expected.key,
        unique=(
            UniqueIndex(name="own", parts=(IndexPart(column="sid"),)),
            UniqueIndex(name="owner_u", parts=(IndexPart(column="owner"), IndexPart(column="id"))),
        ),
    )
    target = build_target_table(expected, real)
    assert target.table.column_names == expected.column_names
    assert target.key_at == (0,)
    assert target.unique_at == ((2, 0),)
    assert make_key_function(target)((5, "x", "o", "1", 1, "d", "")) == (5,)


def _with(table: Table, **changes: object) -> Table:
    fields = {name: getattr(table, name) for name in table.__struct_fields__}
    return Table(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"columns": account_table().columns[:-1]}, "lacks the columns"),
        ({"key": account_table().unique[0]}, "lacks"),
        (
            {"key": UniqueIndex(name="p", parts=(IndexPart(column="id"), IndexPart(column="zone")))},
            "the source has no values",
        ),
        (
            {"unique": (UniqueIndex(name="u", parts=(IndexPart(column="id"), IndexPart(column="zone"))),)},
            "mixes",
        ),
    ],
)
def test_a_target_that_does_not_fit_is_refused(changes: dict[str, object], word: str) -> None:
    with pytest.raises(TargetConfigError, match=word):
        build_target_table(account_table(), _with(account_table(), **changes))


def test_a_column_of_the_route_is_to_be_written_as_the_target_spells_it() -> None:
    """MySQL takes both spellings for one column, and refuses the second one that "add them" would ask for."""
    real = account_table().with_renamed_columns({account_table().columns[-1].name: "BRANCH"})
    expected = real.with_renamed_columns({"BRANCH": "branch"})
    with pytest.raises(TargetConfigError, match=r"lacks the columns \['branch'\]: write BRANCH under `add`"):
        build_target_table(expected, real, ("branch",))
    with pytest.raises(TargetConfigError, match=r"lacks the columns \['branch'\]: add them"):
        build_target_table(expected, real)


def test_the_fingerprint_follows_the_routes() -> None:
    assert compute_routes_fingerprint((TO_HQ,)) == compute_routes_fingerprint(
        (TableRoute("bank.*", "public.{table}", (("branch", "{source}"),)),)
    )
    assert compute_routes_fingerprint((TO_HQ,)) != compute_routes_fingerprint(
        (TableRoute("bank.*", "public.{table}"),)
    )


def test_topics_are_chosen_by_source_and_route() -> None:
    names = [
        "rl.north.bank.acct",
        "rl.north.bank.odd_x24_name",
        "rl.north.audit.log",
        "rl.north.watermark",
        "rl.north.position",
        "rl.northern.bank.acct",
        "rl.south.bank.acct",
        "rl.control",
        "other.north.bank.acct",
    ]
    found = select_topics(
        names, prefix="rl", sources=["north", "east"], routes=[TO_HQ], assigned=usual_tables(names)
    )
    assert found == {"rl.north.bank.acct": "north", "rl.north.bank.odd_x24_name": "north"}


def test_of_debezium_s_topics_those_of_the_source_s_tables_are_read() -> None:
    """There may be topics of other tables, and of its own; it escapes no names."""
    names = [
        "rl.north",
        "rl.north.transaction",
        "rl.north.bank.acct",
        "rl.north.bank.odd_x24_name",
        "rl.north.bank.tmp_1",
        "rl.north.audit.log",
        "__debezium-heartbeat.rl.north",
    ]
    found = select_topics(
        names,
        prefix="rl",
        sources=["north"],
        routes=[TO_HQ],
        assigned={},
        debezium={"north": ["*.*", "!bank.tmp_*"]},
    )
    assert sorted(found) == ["rl.north.bank.acct", "rl.north.bank.odd_x24_name"]
    assert select_topics(
        names[3:4], prefix="rl", sources=["north"],
        routes=[TableRoute("bank.odd_x24_name", "public.{table}")], assigned={},
        debezium={"north": ["bank.odd_*"]},
    ) == {"rl.north.bank.odd_x24_name": "north"}  # fmt: skip
