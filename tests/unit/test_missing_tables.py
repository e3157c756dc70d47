"""`verify` names the tables that a source has no longer, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from consumer.tables.router import ResolvedRoute
from rowlock.cli import main
from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect import missing_tables
from rowlock.inspect.checks.flows import TableFlow
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.verify import PairResult
from schemas.config.model import Config, load_config
from schemas.findings import Finding
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import NameRules, TableName
from schemas.wire.records import TableStop, Watermark

CONFIG = """\
kafka: {bootstrap: 127.0.0.1:9}
sources: {b1: {type: mysql, host: h, user: u, password: p, tables: ["bank.*", "!bank.left"]}}
targets: {hq: {type: postgres, host: h, user: u, password: p, database: d}}
pipelines:
  p: {sources: [b1], target: hq, routes: [{from: bank.*, to: "public.{table}"}]}
  q: {sources: [b1], target: hq, routes: [{from: bank.closed, to: "q.{table}"}]}
"""
ACCT, CLOSED, LEFT = ("bank", "acct"), ("bank", "closed"), ("bank", "left")
TOPICS = {f"rowlock.b1.bank.{table}": (db, table) for db, table in (ACCT, CLOSED, LEFT)}
MARK = Watermark(source="b1", gen=1, position=(0, 1, 1, 0), file="f", commit_ts_ms=1, ts_ms=1, idle=True)
STOP = TableStop(
    cause="dropped", at=(0, 1, 1, 0), file="f", pos=4, reason="bank.closed was dropped: DROP TABLE closed",
    remedy="create it again", since_ms=1,
)  # fmt: skip


class View:
    """A Kafka with topics of three tables."""

    stops: dict[str, TableStop]

    def __init__(self, _: object) -> None: ...

    def close(self) -> None: ...

    def list_topics(self) -> list[str]:
        return list(TOPICS)

    def read_topic_tables(self, _sources: list[str], _topics: list[str]) -> dict[str, TableName]:
        return TOPICS

    def read_watermark(self, _: str) -> tuple[int, Watermark]:
        return 7, replace(MARK, stops=self.stops)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG)
    return load_config(file)


ListMissing = Callable[..., list[TablePair]]


@pytest.fixture
def list_missing(config: Config, monkeypatch: pytest.MonkeyPatch) -> ListMissing:
    def ask(
        *, present: list[TableName], stops: dict[str, TableStop] | None = None, folds: bool = False,
        pipelines: tuple[str, ...] = ("p",), chosen: tuple[TableName, ...] = (),
    ) -> list[TablePair]:  # fmt: skip
        monkeypatch.setattr(View, "stops", stops or {}, raising=False)
        monkeypatch.setattr(missing_tables, "KafkaView", View)
        monkeypatch.setattr(
            missing_tables, "read_present_tables", lambda *_: (present, NameRules(folds=folds))
        )
        return missing_tables.list_missing_pairs(config, pipelines, [pair(ACCT)], chosen)

    return ask


def pair(name: TableName) -> TablePair:
    empty = Table(db=name[0], name=name[1], columns=(), key=UniqueIndex(name="PRIMARY", parts=()))
    return TablePair("p", "b1", empty, "hq", ResolvedRoute("public", name[1]))


def test_a_dropped_table_is_named_with_the_reason_of_its_stop(list_missing: ListMissing) -> None:
    (found,) = list_missing(present=[ACCT], stops={"bank.closed": STOP})
    assert found.label == "b1:bank.closed → hq:public.closed"
    assert found.problem == "bank.closed was dropped: DROP TABLE closed: create it again"


def test_without_a_stop_it_is_named_as_missing(list_missing: ListMissing) -> None:
    (found,) = list_missing(present=[ACCT])
    assert found.problem.startswith(
        "source b1 has no table bank.closed, or its user may not read it, and Kafka"
    )
    assert '(append "!bank.closed"; while rowlock runs, also `rowlock reload`)' in found.problem


def test_a_table_that_the_source_has_is_not_missing(list_missing: ListMissing) -> None:
    """It has no pair because it was just created, or in another spelling."""
    assert list_missing(present=[ACCT, CLOSED]) == []
    assert list_missing(present=[("BANK", "Closed")], folds=True) == []
    assert len(list_missing(present=[("BANK", "Closed")])) == 1


def test_only_the_chosen_pipelines_and_table_count(list_missing: ListMissing) -> None:
    assert [each.pipeline for each in list_missing(present=[], pipelines=("p", "q"))] == ["p", "q"]
    assert list_missing(present=[], chosen=(ACCT,)) == []
    assert len(list_missing(present=[], chosen=(ACCT, CLOSED))) == 1


def map_findings(
    config: Config, monkeypatch: pytest.MonkeyPatch, read: Callable[..., object]
) -> dict[str, list[Finding]]:
    monkeypatch.setattr(View, "stops", {"bank.closed": STOP}, raising=False)
    monkeypatch.setattr(missing_tables, "KafkaView", View)
    monkeypatch.setattr(missing_tables, "read_present_tables", read)
    found = pair(ACCT)
    return missing_tables.map_missing_findings(
        config, [TableFlow(found.pipeline, found.source, found.table, found.target, found.routed)]
    )


def test_check_warns_once_of_a_table_that_the_source_lacks(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pipelines apply bank.closed."""
    found = map_findings(config, monkeypatch, lambda *_: ([ACCT], NameRules()))
    assert found == {"b1": [Finding("warning", "source b1, table bank.closed", STOP.reason, STOP.remedy)]}
    assert map_findings(config, monkeypatch, lambda *_: ([ACCT, CLOSED], NameRules())) == {"b1": []}


def test_check_leaves_out_a_source_that_does_not_answer(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CommandError("source b1: nothing answers", "start it")

    assert map_findings(config, monkeypatch, fail) == {}


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(*words: str, known: bool = True) -> Result:
        file = tmp_path / "c.yaml"
        file.write_text(CONFIG)
        pairs = [pair(ACCT)] if known else []
        monkeypatch.setattr("rowlock.commands.compared_pairs.list_table_pairs", lambda *_: list(pairs))
        monkeypatch.setattr(
            "rowlock.inspect.verify.verify_pairs",
            lambda _, pairs, **__: [
                PairResult(each, rows=3, complete=not each.problem, problem=each.problem) for each in pairs
            ],
        )
        return CliRunner().invoke(main, ["verify", "-c", str(file), *words])

    return run


def test_verify_lists_a_missing_table_and_ends_with_1(
    verify: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = TablePair("p", "b1", pair(CLOSED).table, "hq", pair(CLOSED).routed, "it was dropped")
    monkeypatch.setattr("rowlock.commands.compared_pairs.list_missing_pairs", lambda *_: [closed])
    for words, known in (((), True), (("bank.closed",), False)):
        ended = verify(*words, known=known)
        assert ended.exit_code == 1, ended.output
        assert "CANNOT COMPARE b1:bank.closed" in ended.stdout
        assert ended.stdout.endswith(": it was dropped\n")


def test_verify_compares_without_kafka_and_says_what_it_leaves_out(
    verify: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[TablePair]:
        raise KafkaUnreachableError("Kafka does not answer", "start it")

    monkeypatch.setattr("rowlock.commands.compared_pairs.list_missing_pairs", fail)
    ended = verify()
    assert (ended.exit_code, ended.stdout.count("equal ")) == (0, 1), ended.output
    assert ended.stderr == (
        "rowlock: tables that a source has no longer are not listed: Kafka does not answer: start it\n"
    )
