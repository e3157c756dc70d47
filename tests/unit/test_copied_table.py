"""Whether the table of a requested copy exists at the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rowlock.errors import CommandError
from rowlock.inspect import copied_table
from rowlock.inspect.copied_table import explain_missing_table, explain_unknown_table
from schemas.config.model import Config, load_config
from schemas.problems import Problem
from schemas.table.names import NameRules, TableName
from schemas.wire.records import TableStop, Watermark

ACCT, NEW, LEFT_OUT = ("bank", "acct"), ("bank", "new"), ("bank", "a.b")
MISSING, DROPPED, CHANGED = ("bank", "missing"), ("bank", "dropped"), ("bank", "changed")
MARK = Watermark(source="b1", gen=1, position=(0, 1, 1, 0), file="f", commit_ts_ms=1, ts_ms=1, idle=True)
STOP = TableStop(
    cause="dropped", at=(0, 1, 1, 0), file="f", pos=4, reason="bank.dropped was dropped: DROP TABLE dropped",
    remedy="create it again", since_ms=1,
)  # fmt: skip
STOPS = {
    "bank.dropped": STOP,
    "bank.changed": replace(STOP, cause="rows-replaced", reason="rows replaced", remedy="copy it"),
}
UNREACHED = CommandError("source b1: nothing answers", "start it")


class View:
    """A Kafka with topics of bank.acct and bank.missing, a table that capture leaves out, and stops."""

    def __init__(self, _: object) -> None: ...

    def close(self) -> None: ...

    def list_topics(self) -> list[str]:
        return ["t"]

    def read_topic_tables(self, sources: list[str], topics: list[str]) -> dict[str, TableName]:
        assert (sources, topics) == (["b1"], ["t"])
        return {"t": ACCT, "u": MISSING}

    def read_watermark(self, _: str) -> tuple[int, Watermark]:
        return 7, replace(MARK, left_out={"bank.`a.b`": "no key"}, stops=STOPS)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(
        "kafka: {bootstrap: 127.0.0.1:9}\n"
        "sources: {b1: {type: mysql, host: h, user: u, password: p, tables: [bank.*]}}\n"
    )
    return load_config(file)


@pytest.fixture
def explain(config: Config, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Problem | None]:
    def ask(
        table: TableName, *, folds: bool = False, unreached: bool = False, must_exist: bool = True
    ) -> Problem | None:
        def read_present_tables(*_: object) -> tuple[list[TableName], NameRules]:
            if unreached:
                raise UNREACHED
            return [ACCT, NEW, LEFT_OUT], NameRules(folds)

        monkeypatch.setattr(copied_table, "KafkaView", View)
        monkeypatch.setattr(copied_table, "read_present_tables", read_present_tables)
        return explain_unknown_table(config, "b1", table, must_exist=must_exist)

    return ask


@pytest.mark.parametrize("table", [ACCT, LEFT_OUT, MISSING, DROPPED])
def test_the_copy_of_a_table_in_kafka_can_be_ended_without_the_source(
    config: Config, monkeypatch: pytest.MonkeyPatch, table: TableName
) -> None:
    monkeypatch.setattr(copied_table, "KafkaView", View)
    monkeypatch.setattr(copied_table, "read_present_tables", lambda *_: pytest.fail("it was asked"))
    assert explain_unknown_table(config, "b1", table, must_exist=False) is None


def test_the_copy_of_a_table_can_be_ended_under_a_name_as_the_source_compares_it(
    explain: Callable[..., Problem | None],
) -> None:
    assert explain(("Bank", "MISSING"), folds=True, must_exist=False) is None


def test_a_table_in_kafka_must_be_at_the_source(explain: Callable[..., Problem | None]) -> None:
    assert [explain(table) for table in (ACCT, LEFT_OUT)] == [None, None]
    assert explain(DROPPED) == Problem(STOP.reason, STOP.remedy)
    for table in (MISSING, CHANGED):
        problem = explain(table)
        assert problem is not None
        name = ".".join(table)
        assert problem.what.startswith(f"source b1 has no table {name}, or its user may not read it")
        assert "create it again" in problem.action
        assert f'(append "!{name}"; while rowlock runs, also `rowlock reload`)' in problem.action


def test_the_entry_that_excludes_a_missing_table_matches_no_other_one() -> None:
    remedy = explain_missing_table("b1", ("bank", "a*b"), None).action
    assert '(append "!bank.`a*b`"; while' in remedy


def test_a_table_in_kafka_is_known_if_the_source_does_not_answer(
    explain: Callable[..., Problem | None],
) -> None:
    assert [explain(table, unreached=True) for table in (ACCT, MISSING)] == [None, None]


def test_a_new_table_of_the_source_is_known(explain: Callable[..., Problem | None]) -> None:
    assert explain(NEW) is None
    problem = explain(NEW, unreached=True)
    assert problem is not None
    assert problem.what == (
        "no topic has events of bank.new, and source b1 cannot be asked for it: source b1: nothing answers"
    )
    assert problem.action.endswith("otherwise ask again when the source answers")


def test_a_wrong_name_is_refused_with_similar_ones(explain: Callable[..., Problem | None]) -> None:
    problem = explain(("bank", "acc"))
    assert problem is not None
    assert problem.what == "source b1 has no table bank.acc"
    assert problem.action.startswith("did you mean 'bank.acct' or ")
    assert problem.action.endswith("; otherwise give the source's user SELECT on the table")
    unreached = explain(("bank", "acc"), unreached=True)
    assert unreached is not None
    assert unreached.action.startswith("did you mean 'bank.acct' or ")


def test_names_compare_as_the_source_compares_them(explain: Callable[..., Problem | None]) -> None:
    upper = ("Bank", "ACCT")
    assert explain(upper, folds=True) is None
    assert explain(upper) is not None
    assert explain(upper, unreached=True) is None, "capture decides"
