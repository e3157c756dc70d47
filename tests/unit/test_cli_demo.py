"""The demo's bank keeps its own rules, and its figures add up."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowlock.demo_bank import Bank
from rowlock.demo_load import percentile
from rowlock.demo_view import Figures, View
from rowlock.status import Status, UnitStatus

KEY_COLUMNS = {"customers": "email", "accounts": "number"}


class Branch:
    """A database of two columns a table: the key and the unique value. Refuses what a server would refuse."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, str | None]] = {"customers": {}, "accounts": {}, "transfers": {}}

    def execute(self, text: str, values: tuple[object, ...]) -> None:
        words = text.split()
        if words[0] == "INSERT":
            table, key = words[2].partition("(")[0], int(str(values[0]))
            assert key not in self.tables[table], text
            self.set(table, key, str(values[1]) if table in KEY_COLUMNS else None)
        elif words[0] == "DELETE":
            del self.tables[words[2]][int(str(values[0]))]
        else:
            key = int(str(values[-1]))
            assert key in self.tables[words[1]], text
            if re.search(r"SET (email|number) =", text):
                self.set(words[1], key, str(values[0]))

    def set(self, table: str, key: int, value: str | None) -> None:
        taken = [other for other, held in self.tables[table].items() if held == value and other != key]
        assert value is None or not taken, f"{table}: {value} is taken"
        self.tables[table][key] = value


@given(st.integers(0, 2**32), st.integers(1, 120))
def test_every_transaction_is_one_that_a_server_accepts(seed: int, count: int) -> None:
    bank, branch = Bank(Random(seed)), Branch()
    transactions = [*bank.seed(50), *(bank.transaction() for _ in range(count))]
    for statement, values in (each for transaction in transactions for each in transaction):
        branch.execute(statement, values)
    assert branch.tables["customers"] == bank.emails
    assert branch.tables["accounts"] == bank.accounts


def test_values_wander_between_rows() -> None:
    bank = Bank(Random(1))
    list(bank.seed(50))
    before = dict(bank.emails)
    bank.hand_email_on()
    moved = [key for key in before if bank.emails[key] != before[key]]
    assert len(moved) == 2
    assert set(before.values()) & {bank.emails[key] for key in moved}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 6), (0.99, 10), (0.0, 1)])
def test_percentile(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(10, 0, -1)], share) == expected
    assert percentile([], share) is None


def status(*units: UnitStatus) -> Status:
    return Status(1, 0, (), units)


def unit(topic: str, offset: int, end: int, lag: float) -> UnitStatus:
    return UnitStatus(
        "p",
        "s",
        topic,
        "t",
        "behind",
        offset=offset,
        end_offset=end,
        lag_events=end - offset,
        lag_seconds=lag,
    )


def test_figures_add_up_over_branches() -> None:
    figures = Figures.of(status(unit("d.n.bank.acct", 3, 9, 1.0), unit("d.s.bank.acct", -1, 0, 2.5)), 10.0)
    assert figures.captured == {"acct": 11}
    assert figures.applied == {"acct": 4}
    assert figures.behind == 7
    assert figures.lag == 2.5
    later = Figures.of(status(unit("d.n.bank.acct", 9, 9, 0.0)), 12.0)
    assert later.rate(figures) == 3.0


def test_plain_lines_every_five_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    view = View()
    view.open()
    for now in range(12):
        view.show(Figures.of(status(unit("d.n.bank.acct", 3, 9, 1.0)), float(now)), 0.0123)
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0] == "  captured 10 · applied 4 · 0 rows/s · behind 6 · lag 1.0 s · latency p50 12 ms"
