"""`rowlock verify`: which table it compares."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rowlock.cli import main

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources: {b1: {type: mysql, host: h, user: u, password: p, tables: [shop.*]}}
"""


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the tables that were looked for; no source is asked."""
    found: list[object] = []

    def list_table_pairs(_config: object, _pipelines: object, table: object = None) -> list[object]:
        found.append(table)
        return ["a pair"]

    monkeypatch.setattr("rowlock.inspect.pairs.list_table_pairs", list_table_pairs)
    monkeypatch.setattr("rowlock.inspect.missing_tables.list_missing_pairs", lambda *_: [])
    monkeypatch.setattr("rowlock.inspect.verify.verify_pairs", lambda *_, **__: ())
    return found


def verify(folder: Path, *words: str) -> Result:
    file = folder / "rowlock.yaml"
    file.write_text(CONFIG)
    return CliRunner().invoke(main, ["verify", "-c", str(file), *words])


@pytest.mark.parametrize("words", [("shop.orders",), ("--table", "shop.orders"), ("`shop`.orders",)])
def test_a_table_is_named_as_for_a_copy_or_by_the_option(
    tmp_path: Path, chosen: list[object], words: tuple[str, ...]
) -> None:
    ended = verify(tmp_path, *words)
    assert (ended.exit_code, chosen) == (0, [("shop", "orders")]), ended.output


def test_two_tables_are_refused(tmp_path: Path, chosen: list[object]) -> None:
    ended = verify(tmp_path, "shop.orders", "--table", "shop.customers")
    assert (ended.exit_code, chosen) == (2, [])
    assert "Error: TABLE and --table name two tables: give one of them" in ended.stderr


@pytest.mark.parametrize("words", [("orders",), ("--table", "orders")])
def test_a_name_without_a_database_is_explained(
    tmp_path: Path, chosen: list[object], words: tuple[str, ...]
) -> None:
    ended = verify(tmp_path, *words)
    assert (ended.exit_code, chosen) == (2, [])
    assert ended.stderr == (
        "rowlock: 'orders' is no table: database or table is missing: write database.table, names with "
        "special characters in backticks\n"
    )
