"""`rowlock verify` shows how far it is: in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

from typing import Any, cast

import pytest

from consumer.tables.router import ResolvedRoute
from rowlock.commands import verify_progress
from rowlock.commands.verify_progress import VerifyProgress
from rowlock.errors import CommandError
from rowlock.inspect.pairs import TablePair
from tests.kits.apply import account_table

PAIR = TablePair("p", "b1", account_table(), "hq", ResolvedRoute("public", "acct", (), "lenient", None))


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The source's estimates, one a question; an exception is raised."""
    found: list[Any] = []

    def estimate(*_: object) -> dict[str, tuple[int, int]]:
        answer = found.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return {"bank.acct": (answer, 1)} if answer is not None else {}

    monkeypatch.setattr(verify_progress, "estimate_tables", estimate)
    return found


def shown(replaced: bool, *pages: tuple[float, int, int], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what is printed for pages at these times: (seconds, rows of the source, rows of the target)."""
    now = 0.0
    config: Any = type("Config", (), {"sources": {PAIR.source: None}})
    progress = VerifyProgress(cast(Any, config), replaced, lambda: now)
    progress.show_page(PAIR, 0, 0)
    for at, source, target in pages:
        now = at
        progress.show_page(PAIR, source, target)
    text = capsys.readouterr().err
    # click removes the escape sequence where stderr is no terminal
    return [each for each in text.split("\r" if replaced else "\n") if each]


def test_rows_rate_and_rest(estimates: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    estimates += [4000]
    lines = shown(False, (4, 900, 0), (10, 1000, 0), (15, 3000, 0), (30, 4000, 2000), capsys=capsys)
    assert [line.partition(": ")[2].partition(": ")[2] for line in lines] == [
        "1,000 of about 4,000 rows compared, 100 rows/s, about 70.0 s left",
        "4,000 rows compared, 2,000 of the target, 200 rows/s, about 10.0 s left",
    ]


def test_on_a_terminal_the_line_is_replaced(estimates: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    estimates += [None]
    lines = shown(True, (0.2, 10, 0), (1, 20, 0), (2, 30, 0), capsys=capsys)
    assert [line.rpartition(": ")[2] for line in lines] == [
        "20 rows compared, 20 rows/s",
        "30 rows compared, 15 rows/s",
    ]


def test_a_source_without_an_estimate_does_not_end_the_comparison(
    estimates: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    estimates += [CommandError("it does not answer")]
    assert shown(False, (20, 100, 0), capsys=capsys)[0].endswith("100 rows compared, 5 rows/s")


@pytest.mark.parametrize(
    ("replaced", "rows", "line"),
    [
        (True, 1, "bank.acct: 1 row differs; read again for up to 15 s"),
        (True, 1200, "bank.acct: 1,200 rows differ; read again for up to 15 s"),
        (False, 1, ""),
    ],
)
def test_a_terminal_shows_what_is_read_again(
    replaced: bool, rows: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config: Any = type("Config", (), {})
    VerifyProgress(cast(Any, config), replaced).show_settling(PAIR, rows, 15.0)
    assert capsys.readouterr().err.strip() == line
