"""The figures and lines of the live view of `rowlock run`."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from coordinator.server.operators.copies import CopyRow
from rowlock.inspect.observed.first_copies import FirstCopy, FirstCopyProgress
from rowlock.inspect.observed.first_copy_reader import FirstCopyList
from rowlock.inspect.observed.source_status import SourceStatus, TableStatus
from rowlock.inspect.placement import Placement
from rowlock.inspect.status import ApplyUnitStatus, Status
from rowlock.live.figures import LiveFigures, LiveReading, LiveSnapshot, QuarantinedRows, compute_figures
from rowlock.live.layout import build_screen

NOW_MS = 1_790_000_000_000


def capture(source: str, **more: Any) -> dict[str, Any]:
    return unit(f"capture/{source}", kind="capture", pipeline=None, **more)


def unit(name: str, **more: Any) -> dict[str, Any]:
    """A unit as REST returns it. `lag_s`: the seconds by which it lags at NOW_MS."""
    checkpoint = NOW_MS - round(1000 * more.pop("lag_s", 1.0))
    usual = {
        "unit": name, "kind": "apply", "pipeline": name.split("/")[1], "health": "running", "reason": None,
        "checkpoint_ts": checkpoint, "rows_per_s": 10,
    }  # fmt: skip
    return usual | more


def copied(rows: int, phase: str = "running", table: str = "bank.acct", **more: Any) -> CopyRow:
    usual = {
        "source": "b1", "table": table, "id": f"of {table}", "phase": phase, "by": "operator", "cause": "",
        "where": None, "rows": rows, "estimate": 4000, "requested_ms": NOW_MS, "began_ms": NOW_MS,
        "ended_ms": None, "restarts": 0, "reason": "", "eta_s": 7.5,
    }  # fmt: skip
    return CopyRow(**{**usual, **more})


def reading(
    *units: dict[str, Any], sources: tuple[SourceStatus, ...] = (), time_ms: int = NOW_MS
) -> LiveReading:
    placement = Placement({each["unit"]: each for each in units}, rest="127.0.0.1:7780")
    return LiveReading(time_ms, placement, sources)


def figures(latest: LiveReading, earlier: LiveReading | None = None, **more: Any) -> LiveFigures:
    return compute_figures(LiveSnapshot(latest, earlier, **more), NOW_MS)


def show(shown: LiveFigures, width: int = 100, height: int = 24) -> list[str]:
    """Return the lines as a terminal of this size shows them."""
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, no_color=True)
    console.print(build_screen(shown, width, height))
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_long_name_is_shortened_in_its_middle(width: int) -> None:
    """Units are distinguished by their ends."""
    names = [f"apply/to-headquarters/rowlock.branch-office.bank.accounts_history_{each}" for each in "abc"]
    rows = [unit(name, lag_s=500.0, health="stopped", reason="why " * 30) for name in names]
    lines = show(figures(reading(*rows)), width)
    assert max(map(len, lines)) <= width
    for each in "abc":
        assert any(line.startswith("apply/") and f"history_{each} " in line for line in lines), lines


def test_a_source_has_the_rate_of_its_unit_and_the_lag_of_its_status() -> None:
    source = SourceStatus("b1", "running", lag_seconds=2.5, snapshot_pending=("bank.acct", "bank.moves"))
    (found,) = figures(reading(capture("b1", rows_per_s=1200), sources=(source,))).sources
    assert (found.rows_per_s, found.lag_s, found.snapshot_pending) == (1200, 2.5, 2)


def test_a_source_without_a_unit_has_no_rows() -> None:
    (found,) = figures(reading(sources=(SourceStatus("b1", "external"),))).sources
    assert (found.rows_per_s, found.lag_s) == (0, None)


def test_a_pipeline_sums_rates_and_lags_as_its_slowest_running_unit() -> None:
    rows = [
        unit("apply/p/t1", lag_s=3.0, rows_per_s=5),
        unit("apply/p/t2", lag_s=9.0, rows_per_s=7),
        unit("apply/p/t3", lag_s=900.0, rows_per_s=0, health="stopped"),
        unit("apply/p/t4", checkpoint_ts=None),
        unit("apply/q/t1", lag_s=20.0),
    ]
    q, p = figures(reading(*rows)).pipelines
    assert (q.name, q.lag_s) == ("q", 20.0)
    assert (p.running, p.units, p.rows_per_s, p.lag_s, p.held) == (3, 4, 22, 9.0, None)


def test_a_lag_that_is_not_known_comes_first() -> None:
    rows = (unit("apply/late/t", lag_s=50.0), unit("apply/unknown/t", checkpoint_ts=0))
    assert [each.name for each in figures(reading(*rows)).pipelines] == ["unknown", "late"]


def test_the_rate_of_a_copy_comes_from_two_readings() -> None:
    before = reading(sources=(SourceStatus("b1", "running", copies=(copied(1000),)),), time_ms=NOW_MS - 2000)
    copies = (
        copied(0, "waiting", "bank.a"),
        copied(1500),
        copied(9, "refused", "bank.no"),
        copied(5, table="bank.z"),
    )
    found = figures(reading(sources=(SourceStatus("b1", "running", copies=copies),)), before).copies
    assert [(each.table, each.rows_per_s) for each in found] == [
        ("b1: bank.acct", 250.0), ("b1: bank.z", None), ("b1: bank.a", None),
    ]  # fmt: skip
    assert (found[0].rows, found[0].estimate, found[0].eta_s) == (1500, 4000, 7.5)


def test_a_copy_that_began_again_has_no_negative_rate() -> None:
    before = reading(sources=(SourceStatus("b1", "running", copies=(copied(1000),)),), time_ms=NOW_MS - 2000)
    after = reading(sources=(SourceStatus("b1", "running", copies=(copied(10),)),))
    assert figures(after, before).copies[0].rows_per_s == 0


def test_stops_come_before_restarts_and_tables_that_are_left_out() -> None:
    tables = (
        TableStatus("bank.k", "left out", "it has no key", "add one"),
        TableStatus("bank.s", "stopped", "it was renamed", "copy it", cause="renamed"),
    )
    rows = (
        unit("apply/p/t", health="restarting", reason="deadlock"),
        unit("apply/p/u", health="stopped", reason="no such column"),
        unit("apply/p/v", health="starting", reason="it is being placed"),
    )
    found = figures(reading(*rows, sources=(SourceStatus("b1", "running", tables=tables),))).troubles
    assert [(each.what, each.state, each.why) for each in found] == [
        ("b1: bank.s", "stopped", "renamed: it was renamed"),
        ("apply/p/u", "stopped", "no such column"),
        ("apply/p/t", "restarting", "deadlock"),
        ("b1: bank.k", "left out", "it has no key"),
    ]


def test_the_quarantine_is_that_of_status() -> None:
    held = {"quarantined": 5, "quarantined_rows": 2}
    units = [ApplyUnitStatus("p", "b1", topic, "hq", "current", **held) for topic in ("t", "u")]
    held = QuarantinedRows.from_status(
        Status(1, NOW_MS, units=tuple(units), problems=("Kafka keeps too little",))
    )
    found = figures(reading(unit("apply/p/t"), unit("apply/q/t")), held=held)
    assert {each.name: each.held for each in found.pipelines} == {"p": 4, "q": 0}
    shown = show(found)
    assert "4 rows in quarantine" in shown[-1]
    assert "Kafka keeps too little" in shown


def test_slow_tables_are_named() -> None:
    rows = (unit("apply/p/t", lag_s=9.0), unit("apply/p/u", lag_s=11.0), unit("apply/p/v", lag_s=300.0))
    assert [each.unit for each in figures(reading(*rows)).slow] == ["apply/p/v", "apply/p/u"]


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (LiveSnapshot(), "no figures yet: the coordinator starts"),
        (LiveSnapshot(failure="Kafka is down"), "no figures yet: Kafka is down"),
        (LiveSnapshot(reading(time_ms=NOW_MS - 4000), failure="a"), ""),
        (
            LiveSnapshot(reading(time_ms=NOW_MS - 12_000)),
            "the figures are 12 s old: the coordinator does not answer",
        ),
        (
            LiveSnapshot(reading(time_ms=NOW_MS - 5000), failure="it waits"),
            "the figures are 5 s old: it waits",
        ),
    ],
)  # fmt: skip
def test_silence_is_reported_with_its_reason(snapshot: LiveSnapshot, expected: str) -> None:
    found = compute_figures(snapshot, NOW_MS)
    assert found.silence == expected
    assert (expected in show(found)) == bool(expected)


def test_the_screen_shows_each_part_and_the_address() -> None:
    source = SourceStatus("b1", "running", lag_seconds=0.4, snapshot_pending=("a.b",), copies=(copied(1500),))
    rows = (
        capture("b1", rows_per_s=1234),
        unit("apply/p/t", rows_per_s=1100),
        unit("apply/p/u", health="stopped", reason="[no] such column"),
    )
    lines = show(figures(reading(*rows, sources=(source,))))
    squeezed = [" ".join(line.split()) for line in lines]
    assert squeezed[1:] == [
        "source rows/s lag state",
        "b1 1,234 0.4 s running, first copies left: 1",
        "pipeline rows/s lag tables quarantine",
        "p 1,110 1.0 s 1 of 2 run –",
        "copy rows/s left progress",
        "b1: bank.acct – 7.5 s 1,500 of about 4,000 rows",
        "does not run state why (what to do: `rowlock status`)",
        "apply/p/u stopped [no] such column",
        "1 stopped · quarantine not read yet · http://127.0.0.1:7780 · Ctrl-C stops the run",
    ]


def first_copies(count: int) -> FirstCopyList:
    """First copies of `count` tables: one runs, and the others wait."""
    running = FirstCopy("b1", "bank.big", FirstCopyProgress(3000, 10_000, 250.0, 28.0))
    waiting = [FirstCopy("b1", f"bank.t{n}", FirstCopyProgress(0, 900 - n)) for n in range(count - 1)]
    return FirstCopyList((running, *waiting), FirstCopyProgress(3000, 500_000, 250.0, 1988.0))


def show_first_copies(count: int, height: int = 24) -> list[str]:
    latest = reading(sources=(SourceStatus("b1", "running", lag_seconds=0.4),))
    shown = figures(replace(latest, first_copies=first_copies(count)))
    lines = [" ".join(line.split()) for line in show(shown, height=height)]
    return lines[3:-1]


def test_a_first_copy_is_shown_as_a_running_copy_is() -> None:
    assert show_first_copies(1) == [
        "first copy rows/s left progress", "b1: bank.big 250 28.0 s 3,000 of about 10,000 rows",
    ]  # fmt: skip


def test_many_first_copies_are_a_sum_and_the_largest() -> None:
    assert show_first_copies(1000, height=16) == [
        "first copy rows/s left progress",
        "all 1,000 tables 250 33 min 3,000 of about 500,000 rows",
        "b1: bank.big 250 28.0 s 3,000 of about 10,000 rows",
        "… and 999 more",
    ]
    assert "b1: bank.t0 – – waits: about 900 rows" in show_first_copies(1000)


def large() -> LiveFigures:
    """Figures of 1,000 tables of 50 sources in 40 pipelines, many of them in trouble."""
    names = [f"apply/p{n % 40}/rowlock.b{n % 50}.bank.table_with_a_long_name_{n}" for n in range(1000)]
    rows = [unit(name, lag_s=n, health="stopped" if n % 9 == 0 else "running", reason="no " * 90)
            for n, name in enumerate(names)]  # fmt: skip
    copies = tuple(copied(n, table=f"bank.t{n}") for n in range(60))
    sources = [SourceStatus(f"b{n}", "running", lag_seconds=float(n), copies=copies[:3]) for n in range(50)]
    problems = tuple(f"topic t{n} is kept for too short a time" for n in range(30))
    held = QuarantinedRows(NOW_MS, {"p1": 7}, problems)
    late = replace(
        reading(*rows, sources=tuple(sources), time_ms=NOW_MS - 9000), first_copies=first_copies(700)
    )
    return compute_figures(LiveSnapshot(late, None, held), NOW_MS)


@pytest.mark.parametrize(("width", "height"), [(200, 60), (100, 24), (80, 24), (40, 24), (20, 24), (120, 40)])
def test_many_tables_fit_on_the_terminal_as_sums_and_the_worst(width: int, height: int) -> None:
    lines = show(large(), width, height)
    assert len(lines) <= height
    assert [line for line in lines if len(line) > width] == []
    assert any(line.startswith("b49 ") for line in lines), "the source with the most lag"


def test_what_is_not_shown_is_summed() -> None:
    text = "\n".join(" ".join(line.split()) for line in show(large(), 120, 24))
    assert "49 more 0 48.0 s 49 running" in text
    assert "39 more 9,750" in text
    assert "… and 149 more" in text, "copies"
    assert "112 stopped · 7 rows in quarantine" in text


def test_names_are_cut_before_figures() -> None:
    rows = (unit("apply/p/" + "x" * 300, lag_s=11.0),)
    lines = show(figures(reading(*rows)), 40)
    assert any(line.startswith("apply/") and line.rstrip().endswith("xxx 11.0 s") for line in
               (" ".join(line.split()) for line in lines))  # fmt: skip
