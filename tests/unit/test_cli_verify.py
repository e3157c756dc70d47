"""`rowlock verify`: which tables it compares."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from consumer.tables.router import ResolvedRoute
from rowlock.cli import main
from rowlock.inspect.pairs import TablePair
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import TableName

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources: {b1: {type: mysql, host: h, user: u, password: p, tables: [shop.*]}}
"""


TABLES = [("shop", "customers"), ("shop", "orders"), ("shop", "items")]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[TableName]:
    """Return the tables that are compared; no source is asked."""
    found: list[TableName] = []

    def list_table_pairs(_: object, __: object, chosen: Collection[TableName] = ()) -> list[TablePair]:
        return [build_pair(each) for each in TABLES if not chosen or each in chosen]

    def verify_pairs(_: object, pairs: list[TablePair], **__: object) -> tuple[()]:
        found.extend((pair.table.db, pair.table.name) for pair in pairs)
        return ()

    monkeypatch.setattr("rowlock.commands.compared_pairs.list_table_pairs", list_table_pairs)
    monkeypatch.setattr("rowlock.commands.compared_pairs.list_missing_pairs", lambda *_: [])
    monkeypatch.setattr("rowlock.inspect.verify.verify_pairs", verify_pairs)
    return found


def build_pair(name: TableName) -> TablePair:
    empty = Table(db=name[0], name=name[1], columns=(), key=UniqueIndex(name="PRIMARY", parts=()))
    return TablePair("p", "b1", empty, "hq", ResolvedRoute("public", name[1]))


def verify(folder: Path, *words: str) -> Result:
    file = folder / "rowlock.yaml"
    file.write_text(CONFIG)
    return CliRunner().invoke(main, ["verify", "-c", str(file), *words])


@pytest.mark.parametrize("words", [("shop.orders",), ("--table", "shop.orders"), ("`shop`.orders",)])
def test_a_table_is_named_as_for_a_copy_or_by_the_option(
    tmp_path: Path, compared: list[TableName], words: tuple[str, ...]
) -> None:
    ended = verify(tmp_path, *words)
    assert (ended.exit_code, compared) == (0, [("shop", "orders")]), ended.output


@pytest.mark.parametrize(
    "words",
    [
        ("shop.orders", "shop.customers"),
        ("shop.orders", "shop.customers", "shop.orders"),
        ("shop.orders", "--table", "shop.customers"),
        ("--table", "shop.orders", "--table", "shop.customers"),
    ],
)
def test_several_tables_are_compared(
    tmp_path: Path, compared: list[TableName], words: tuple[str, ...]
) -> None:
    ended = verify(tmp_path, *words)
    assert (ended.exit_code, compared) == (0, [("shop", "customers"), ("shop", "orders")]), ended.output


def test_without_a_table_all_are_compared(tmp_path: Path, compared: list[TableName]) -> None:
    assert verify(tmp_path).exit_code == 0
    assert compared == TABLES


def test_nothing_is_compared_if_one_of_the_names_is_wrong(tmp_path: Path, compared: list[TableName]) -> None:
    ended = verify(tmp_path, "shop.orders", "shop.ordres", "bank.acct")
    assert (ended.exit_code, compared) == (2, [])
    first, second = ended.stderr.splitlines()
    why = "rowlock: there is nothing to compare: no selected table of the sources has a route"
    assert first.startswith(f"{why} (shop.ordres); did you mean 'shop.orders'")
    assert second == f"{why} (bank.acct); known: shop.customers, shop.items, shop.orders"


@pytest.mark.parametrize("words", [("orders",), ("--table", "orders")])
def test_a_name_without_a_database_is_explained(
    tmp_path: Path, compared: list[TableName], words: tuple[str, ...]
) -> None:
    ended = verify(tmp_path, *words)
    assert (ended.exit_code, compared) == (2, [])
    assert ended.stderr == (
        "rowlock: 'orders' is no table: database or table is missing: write database.table, names with "
        "special characters in backticks\n"
    )
