"""What a start leaves out of a pipeline because of its routes, and what a reload refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.errors import TransientError
from consumer.targets.checks.table_facts import TableFacts
from coordinator.server.operators.configuration import ConfigurationRefusedError
from rowlock.coordinator.run import ActiveConfiguration
from rowlock.errors import CommandError
from rowlock.inspect import check
from rowlock.inspect.checks import pipeline_check
from rowlock.inspect.checks.flows import list_flows
from rowlock.inspect.checks.pipeline_check import list_pipeline_errors
from rowlock.inspect.scopes import FindingScope, ScopedFinding, explain_refused_start, list_not_started
from rowlock.views.source import SelectedTables
from schemas.config.model import Config, load_config
from schemas.findings import Finding
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table
from schemas.table.names import EXACT, NameRules
from tests.kits.apply import account_table
from tests.kits.running import write_config

TABLES = {
    "b1": [account_table(), account_table(name="two"), account_table(name="three")],
    "b2": [account_table()],
}
SERVER = {"host": "h", "port": 1, "user": "u", "password": "p"}
MERGED = [{"from": "bank.acct", "to": "public.one"}, {"from": "bank.two", "to": "public.one"}]
REST = {"from": "bank.*", "to": "public.{table}"}
CLASH = "2 topics write the table"


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., Config]:
    def make(*routes: dict[str, Any], events: str = "rowlock", **more: Any) -> Config:
        parts: dict[str, Any] = {
            "kafka": {"bootstrap": "h:1"},
            "sources": {
                name: {"type": "mariadb", **SERVER, "tables": ["bank.*"], "events": events} for name in TABLES
            },
            "targets": {"hq": {"type": "postgres", **SERVER, "database": "d"}},
            "pipelines": {"p": {"sources": ["b1"], "target": "hq", "routes": list(routes)}, **more},
        }
        return load_config(write_config(tmp_path, **parts))

    return make


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The servers: `unread`: sources that do not answer; `down`: whether the target does not."""
    state: dict[str, Any] = {"unread": set(), "down": False, "opened": 0, "table": None, "folds": False}

    def read(_: object, name: str) -> SelectedTables:
        if name in state["unread"]:
            raise CommandError(f"source {name}: does not answer", "start it")
        return SelectedTables(TABLES[name], {})

    def open_target(*_: object, **__: object) -> Any:
        state["opened"] += 1
        if state["down"]:
            raise TransientError("the target does not answer")
        return SimpleNamespace(
            read_table=lambda *_: state["table"], read_table_facts=lambda *_: TableFacts(),
            judge_new_table=lambda _: [], column_names=EXACT, close=lambda: None,
            table_names=NameRules(folds=state["folds"]),
        )  # fmt: skip

    monkeypatch.setattr(pipeline_check, "read_selected_tables", read)
    monkeypatch.setattr(pipeline_check, "open_target", open_target)
    monkeypatch.setattr(pipeline_check, "read_unit_definitions", lambda *_: {})
    return state


def test_two_tables_of_one_target_table_are_an_error(make_config: Callable[..., Config]) -> None:
    found = list_pipeline_errors(make_config(*MERGED, REST), ["p"])
    assert {(each.place, CLASH in each.message) for each in found} == {("target table public.one", True)}
    assert all("add: {branch:" in each.remedy for each in found)


def test_tables_that_stay_apart_ask_no_target(
    make_config: Callable[..., Config], servers: dict[str, Any]
) -> None:
    assert list_pipeline_errors(make_config(REST), ["p"]) == []
    assert servers["opened"] == 0


def test_a_server_that_does_not_answer_refuses_no_reload(
    make_config: Callable[..., Config], servers: dict[str, Any]
) -> None:
    servers["unread"].add("b1")
    assert list_pipeline_errors(make_config(*MERGED), ["p"]) == []
    servers["unread"].clear()
    servers["down"] = True
    assert list_pipeline_errors(make_config(*MERGED), ["p"]) == []


def test_a_slow_source_does_not_hold_up_a_reload(
    make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def read(*_: object) -> SelectedTables:
        answers.wait()
        return SelectedTables([], {})

    monkeypatch.setattr(pipeline_check, "RELOAD_CHECK_TIMEOUT_S", 0.01)
    monkeypatch.setattr(pipeline_check, "read_selected_tables", read)
    try:
        assert list_pipeline_errors(make_config(*MERGED), ["p"]) == []
    finally:
        answers.set()


def test_routes_that_take_nothing_are_an_error(make_config: Callable[..., Config]) -> None:
    (found,) = list_pipeline_errors(make_config({"from": "other.*", "to": "public.{table}"}), ["p"])
    assert "no route takes any table" in found.message


@pytest.mark.parametrize("of", [("HQ", "hq"), ("hq", "hq "), ("Zürich", "zurich")])
def test_values_that_the_target_considers_equal_are_an_error(
    make_config: Callable[..., Config], servers: dict[str, Any], of: tuple[str, str]
) -> None:
    """`check` and a reload report it before the rows of the one replace those of the other."""
    routes = [{**each, "add": {"of": value}} for each, value in zip(MERGED, of, strict=True)]
    servers["table"] = make_shared_table("utf8mb4_general_ci")
    (found,) = list_pipeline_errors(make_config(*routes, REST), ["p"])
    assert found.message.startswith(
        "b1:bank.acct and b1:bank.two write it, and unique index PRIMARY (of, id)"
    )
    assert f"{of[0]!r} and {of[1]!r} may be one value of of there" in found.message
    routes[1]["add"] = {"of": "another"}
    assert list_pipeline_errors(make_config(*routes, REST), ["p"]) == []


@pytest.mark.parametrize("folds", [False, True])
def test_tables_are_the_same_if_the_target_considers_their_names_equal(
    make_config: Callable[..., Config], servers: dict[str, Any], folds: bool
) -> None:
    servers["folds"] = folds
    config = make_config({"from": "bank.two", "to": "Public.ACCT"}, REST)
    found = list_pipeline_errors(config, ["p"])
    assert bool(found) is folds
    assert all(CLASH in each.message for each in found)


def make_shared_table(collation: str) -> Table:
    """Return the target table of MERGED with a column `of` in its key."""
    column = Column(
        name="of", type=ColumnType(kind=Kind.VARCHAR, length=9, collation=collation), nullable=False
    )
    made = TABLES["b1"][0]
    key = replace(made.key, parts=(IndexPart(column="of"), *made.key.parts))
    return replace(made, db="public", name="one", columns=(*made.columns, column), key=key, unique=())


def test_a_table_that_another_pipeline_writes_is_an_error(make_config: Callable[..., Config]) -> None:
    config = make_config(REST, q={"sources": ["b2"], "target": "hq", "routes": [REST]})
    for name in ("p", "q"):
        found = list_pipeline_errors(config, [name])
        assert found
        assert all(CLASH in each.message for each in found)


# --- what a start leaves out


def scoped(config: Config, monkeypatch: pytest.MonkeyPatch) -> list[ScopedFinding]:
    def refuse(*_: object, **__: object) -> Any:
        raise TransientError("the target does not answer")

    monkeypatch.setattr(check, "open_target", refuse)
    flows = list_flows(config, {name: list(tables) for name, tables in TABLES.items()})
    found = check._yield_target_findings(config, flows, TABLES, [])
    return [each for each in found if each.scope in (FindingScope.PIPELINE, FindingScope.SHARED)]


def added(route: dict[str, Any]) -> dict[str, Any]:
    return {**route, "add": {"of": "same"}}


def test_a_start_leaves_out_the_mixed_tables_alone(
    make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(*map(added, MERGED), REST)
    (found,) = scoped(config, monkeypatch)
    assert (found.scope, found.tables) == (FindingScope.SHARED, (("b1", "bank.acct"), ("b1", "bank.two")))
    assert list_not_started([found], []) == ["pipeline/p/b1/bank.acct", "pipeline/p/b1/bank.two"]
    assert explain_refused_start([found], config.sources, config.pipelines) is None
    assert explain_refused_start([found], config.sources, config.pipelines, all_needed=True) is not None


@pytest.mark.parametrize("reason", ["nothing else", "another pipeline", "debezium"])
def test_a_start_leaves_out_the_pipeline_if_its_tables_cannot_be_told_apart(
    make_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    routes = list(map(added, MERGED))
    if reason == "nothing else":
        config = make_config(*routes)
    elif reason == "another pipeline":
        q = {"sources": ["b2"], "target": "hq", "routes": [routes[0]]}
        config = make_config(routes[0], REST, q=q)
    else:
        config = make_config(*routes, REST, events="debezium")
    for each in scoped(config, monkeypatch):
        assert (each.scope, each.tables) == (FindingScope.PIPELINE, ())


def test_a_reload_is_refused_with_the_sentences_of_check(make_config: Callable[..., Config]) -> None:
    old = make_config(REST)
    asked: list[list[str]] = []
    wrong = Finding("error", "target table public.one", "2 topics write it", "add a column")

    def judge(config: Config, pipelines: Any) -> list[Finding]:
        asked.append(list(pipelines))
        return [wrong] if len(config.pipelines["p"].routes) > 1 else []

    held = ActiveConfiguration(old, (), None, judge)
    assert held.read_checked_file().changed == frozenset()
    assert asked == [], "an unchanged file is not judged"
    make_config(*MERGED, REST)
    found = held.read_file()
    with pytest.raises(ConfigurationRefusedError) as refused:
        held.read_checked_file()
    assert refused.value.lines == (str(wrong),)
    held.adopt_config(found.digest)
    assert held.config is old, "what was refused is not adopted"
    make_config({**REST, "to": "public.new_{table}"})
    assert held.read_checked_file().changed == {"pipeline/p"}
    assert asked == [["p"], ["p"]]
