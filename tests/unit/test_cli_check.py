"""`rowlock check` of routes and target tables, without servers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.router import Route, resolve, wanted_table
from consumer.targets.facts import TableFacts
from rowlock import check
from rowlock.source_view import Selected
from schemas.config import load_config
from schemas.findings import Finding
from schemas.table import Table
from tests.apply_kit import account_table

CONFIG = """\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b1: {{type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: ["*.*"]}}
targets:
  hq: {{type: postgres, host: 127.0.0.1, port: 1, user: u, password: p, database: d}}
pipelines:
  p:
    sources: [b1]
    target: hq
    routes: [{{from: "{from_}", to: "public.{{table}}"}}]
    create_tables: {create}
"""


class Judge:
    """`check` of a source with the tables `at_source` and a target with the tables `at_target`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "c.yaml"
        self.at_source: list[Table] = [account_table()]
        self.at_target: list[Table] = []
        for name in ("_java", "_kafka", "_source", "coordination_findings", "findings_for_session"):
            monkeypatch.setattr(check, name, lambda *_: [])
        monkeypatch.setattr(check, "selected_tables", lambda *_: Selected(self.at_source, {}))
        monkeypatch.setattr(check, "open_session", lambda *_, **__: self._session())

    def _session(self) -> Any:
        tables = {(table.db, table.name): table for table in self.at_target}
        return SimpleNamespace(
            read_table=lambda *name: tables.get(name),
            facts=lambda *_: TableFacts(),
            missing_rights=lambda *_, **__: [],
            close=lambda: None,
        )

    def __call__(self, *, from_: str = "bank.*", create: bool = True) -> list[Finding]:
        self._file.write_text(CONFIG.format(from_=from_, create=str(create).lower()))
        return check.check(load_config(self._file))


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    return Judge(tmp_path, monkeypatch)


def test_a_missing_table_is_refused_where_none_is_to_be_made(judge: Judge) -> None:
    assert judge(create=True) == []
    (finding,) = judge(create=False)
    assert (finding.level, finding.place) == ("error", "target table public.acct")
    assert finding.message == "does not exist in the target"
    assert "create_tables: true" in finding.remedy


def test_a_table_that_is_there_need_not_be_made(judge: Judge) -> None:
    routed = resolve([Route("bank.*", "public.{table}")], "b1", "bank", "acct")
    assert routed is not None
    judge.at_target = [wanted_table(account_table(), routed)]
    assert judge(create=False) == []


def test_routes_that_take_no_table_are_refused(judge: Judge) -> None:
    (finding,) = judge(from_="bnak.*")
    assert finding.level == "error"
    assert "c.yaml:10" in finding.place
    assert finding.message == "pipeline p: no route takes any table of its sources"
    assert "`from`" in finding.remedy


def test_of_a_source_without_tables_its_routes_are_not_blamed(judge: Judge) -> None:
    judge.at_source = []
    assert [finding.message for finding in judge(from_="bnak.*")] == ["no table of the source is selected"]
