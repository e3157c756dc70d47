"""`rowlock verify --metrics-file`: the results as Prometheus reads them, also of earlier runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from consumer.tables.router import ResolvedRoute
from rowlock.cli import main
from rowlock.commands.verify_metrics import VerifyMetrics
from rowlock.errors import CommandError
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.verify import PairResult
from tests.kits.apply import account_table
from tests.promtool import run_promtool

PAIR = TablePair("p", "b1", account_table(), "hq", ResolvedRoute("public", "acct", (), "lenient", None))
OTHER = replace(PAIR, source="b2")
ACCT, OTHERS = (
    '{pipeline="p",source="b1",table="bank.acct"}',
    '{pipeline="p",source="b2",table="bank.acct"}',
)
NOW = 1_800_000_000.0


def result(pair: TablePair = PAIR, different: int = 0, **fields: Any) -> PairResult:
    findings: Any = [SimpleNamespace()] * different
    return PairResult(pair, **{"rows": 9, "complete": True, "findings": findings, **fields})


def record(path: Path, at: float, *results: PairResult, tables: list[TablePair] | None = None) -> list[str]:
    """Record the results of a run at a time, and return the lines of the file that are no comments."""
    metrics = VerifyMetrics.open_file(path, tables)
    metrics.wall = lambda: at
    for each in results:
        metrics.record_result(each)
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def test_each_table_has_its_time_and_its_differences(tmp_path: Path) -> None:
    file = tmp_path / "rowlock.prom"
    assert record(file, NOW, result(), result(OTHER, 3)) == [
        f"rowlock_verify_last_timestamp_seconds{ACCT} 1.8e+09",
        f"rowlock_verify_last_timestamp_seconds{OTHERS} 1.8e+09",
        f"rowlock_verify_different_rows{ACCT} 0.0",
        f"rowlock_verify_different_rows{OTHERS} 3.0",
    ]
    checked = run_promtool("check", "metrics", stdin=file.read_text())
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    assert [each.name for each in tmp_path.iterdir()] == ["rowlock.prom"], "nothing else is read there"


def test_a_run_for_one_table_keeps_the_others(tmp_path: Path) -> None:
    file = tmp_path / "rowlock.prom"
    record(file, NOW, result(different=1), result(OTHER, 3))
    assert record(file, NOW + 60, result())[1:] == [
        f"rowlock_verify_last_timestamp_seconds{OTHERS} 1.8e+09",
        f"rowlock_verify_different_rows{ACCT} 0.0",
        f"rowlock_verify_different_rows{OTHERS} 3.0",
    ]


def test_a_run_for_everything_drops_tables_that_were_removed(tmp_path: Path) -> None:
    file = tmp_path / "rowlock.prom"
    record(file, NOW, result(), result(OTHER, 3))
    assert not any("b2" in line for line in record(file, NOW, tables=[PAIR]))


@pytest.mark.parametrize(
    "outcome", [result(complete=False), result(complete=False, problem="the target does not answer")]
)
def test_what_was_not_compared_stays_overdue(tmp_path: Path, outcome: PairResult) -> None:
    file = tmp_path / "rowlock.prom"
    before = record(file, NOW, result())
    assert record(file, NOW + 60, outcome) == before


def test_a_table_with_too_many_differences_counts_as_compared(tmp_path: Path) -> None:
    found = record(tmp_path / "rowlock.prom", NOW, result(different=10_000, complete=False, more=True))
    assert found[1] == f"rowlock_verify_different_rows{ACCT} 10000.0"


@pytest.mark.parametrize("text", ["up 1\n", "something else", 'rowlock_verify_different_rows{a="b"} 1\n'])
def test_a_file_of_something_else_is_not_replaced(tmp_path: Path, text: str) -> None:
    file = tmp_path / "precious"
    file.write_text(text)
    with pytest.raises(CommandError, match="--metrics-file"):
        VerifyMetrics.open_file(file, None)
    assert file.read_text() == text


def test_a_folder_that_is_missing_is_known_before_anything_is_compared(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        VerifyMetrics.open_file(tmp_path / "missing" / "rowlock.prom", None)


@pytest.mark.parametrize("table", ["", "bank.acct"])
def test_the_command_writes_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    file = tmp_path / "rowlock.prom"
    record(file, NOW, result(OTHER, 3))
    monkeypatch.setattr("rowlock.commands.compared_pairs.list_table_pairs", lambda *_: [PAIR])
    monkeypatch.setattr("rowlock.commands.compared_pairs.list_missing_pairs", lambda *_: [])
    monkeypatch.setattr("rowlock.inspect.verify.verify_pairs", lambda *_, **__: [result()])
    config = tmp_path / "rowlock.yaml"
    config.write_text(
        "kafka: {bootstrap: '127.0.0.1:1'}\n"
        "sources: {b1: {type: mysql, host: h, user: u, password: p, tables: [b.*]}}\n"
    )
    words = ["verify", "-c", str(config), "--metrics-file", str(file), *(["--table", table] if table else [])]
    ended = CliRunner().invoke(main, words)
    assert ended.exit_code == 0, ended.output
    assert f"rowlock_verify_different_rows{ACCT} 0.0" in file.read_text()
    assert (f"rowlock_verify_different_rows{OTHERS} 3.0" in file.read_text()) is bool(table)
