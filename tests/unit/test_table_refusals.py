"""Tables that cannot be captured: each remedy that excludes one names the entry to write."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.errors import UnitStoppedError
from consumer.tables import source_tables
from producer.sources import survey
from producer.sources.survey import judge_catalog_table
from rowlock.views import source as source_views
from schemas.errors import NoKeyError
from schemas.findings import add_exclusion
from schemas.io.mysql_catalog import CatalogEntry
from schemas.io.mysql_columns import CatalogColumn
from schemas.problems import Problem
from schemas.table.names import EXACT
from schemas.table.online_ddl import ToolNames
from schemas.wire.debezium import format_debezium_topic
from tests.kits.apply import account_table

NAME = ("bank", "my log")
REMEDY = (
    'exclude the table (append "!bank.`my log`" to the source\'s `tables`; while rowlock runs, also rowlock '
    "reload)"
)
NO_KEY = NoKeyError("table bank.my log has no key", "add a primary key, or exclude the table")
SOURCE: Any = SimpleNamespace(
    tables=["bank.*"], online_ddl=SimpleNamespace(names=ToolNames()), left_out_columns={}, type="mysql"
)


def test_the_entry_is_added_once_and_only_to_this_remedy() -> None:
    once = add_exclusion("add a key, or exclude the table", *NAME)
    assert once == f"add a key, or {REMEDY}"
    assert add_exclusion(once, *NAME) == once
    assert add_exclusion("add a key", *NAME) == "add a key"
    earlier = once.replace("; while rowlock runs, also", ", then")
    assert add_exclusion(earlier, *NAME) == earlier, "a version before has stored it"


@pytest.mark.parametrize(
    "entry",
    [
        CatalogEntry(NO_KEY),
        CatalogEntry(account_table(), engine="MyISAM"),
        CatalogEntry(account_table(), (CatalogColumn("c", *["x"] * 14),)),  # type: ignore[arg-type]
        CatalogEntry(account_table()),
    ],
    ids=["no key", "engine", "stored otherwise", "character set"],
)
def test_capture_names_the_entry(entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    undecodable = Problem("column c", "ALTER it, or exclude the table")
    monkeypatch.setattr(survey, "explain_undecodable_columns", lambda _: undecodable)
    problem = judge_catalog_table(NAME, entry, lambda _: True).problem
    assert problem is not None
    assert problem.action.endswith(f"or {REMEDY}")


def test_check_names_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {NAME: CatalogEntry(NO_KEY)}
    monkeypatch.setattr(source_views, "has_view", lambda _: False)
    monkeypatch.setattr(source_views, "source_connection", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(source_views, "list_tables", lambda *_: [NAME])
    monkeypatch.setattr(source_views, "read_name_rules", lambda _: EXACT)
    monkeypatch.setattr(source_views, "read_tables", lambda *_: entries)
    found = source_views.read_selected_tables(SOURCE, "b1")
    assert found.unfit[NAME] == Problem(NO_KEY.problem.what, f"add a primary key, or {REMEDY}")


def test_apply_names_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_table(*_: object) -> None:
        raise NO_KEY

    monkeypatch.setattr(source_tables, "connect_source", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(source_tables, "list_tables", lambda *_: [NAME])
    monkeypatch.setattr(source_tables, "read_table", read_table)
    topic = format_debezium_topic("r", "b1", *NAME)
    with pytest.raises(UnitStoppedError) as raised:
        source_tables.read_definition(SOURCE, "b1", "r", topic)
    assert raised.value.problem == Problem(
        f"source b1: {NO_KEY.problem.what}", f"add a primary key, or {REMEDY}"
    )
