"""What `run --until-caught-up` and `copy --wait` wait for: also a copy that lets a stopped unit continue."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from consumer.ordering.model import LaneProgress, UnitState
from rowlock.commands import copying
from rowlock.errors import CommandError
from rowlock.inspect import caught_up
from rowlock.inspect.caught_up import CaughtUpGoal
from rowlock.inspect.observed import unit_goals
from rowlock.inspect.observed.first_copy_reader import FirstCopyReader
from rowlock.inspect.observed.remaining_work import PROGRESS_LINE_EVERY_S, RemainingWork
from rowlock.inspect.observed.stopped_units import STOP_SETTLES_S, StoppedUnits
from rowlock.views.kafka import OffsetSpan
from schemas.config.model import load_config
from schemas.problems import Problem, encode_problem
from schemas.wire.copies import CopyState
from schemas.wire.position import ZERO
from schemas.wire.records import Watermark
from tests.kits.topic import usual_tables

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}
targets:
  hq: {type: postgres, host: 127.0.0.1, port: 1, user: u, password: x, database: d}
pipelines:
  p: {sources: [b1], target: hq, routes: [{from: bank.*, to: "public.{table}"}]}
"""
TOPIC = "rowlock.b1.bank.acct"
STOP = encode_problem(Problem("the definition cannot be proven", "rowlock copy bank.acct"))
COPY = CopyState(id="c1", db="bank", table="acct", by="pipeline p", phase="waiting", requested_ms=1)


class System:
    """A captured source, a topic that ends at `end`, and the unit that applies it."""

    def __init__(self) -> None:
        self.end, self.offset = 10, 5
        self.stopped: str | None = STOP
        self.copy: CopyState | None = None
        self.pending: tuple[str, ...] = ()
        self.captured_to = 5
        self.now_s = 100.0

    def read_watermark(self, _source: str) -> tuple[int, Any]:
        copies = {} if self.copy is None else {"bank.acct": self.copy}
        return 1, Watermark(
            source="b1", gen=1, position=(0, 1, 4, -1), file="log.1", commit_ts_ms=1, ts_ms=1, idle=True,
            snapshot_pending=self.pending, topics={TOPIC: self.captured_to}, copies=copies,
        )  # fmt: skip

    def read_watermark_end(self, _source: str) -> int:
        return 0

    def count_partitions(self) -> dict[str, int]:
        return {TOPIC: 1}

    def read_topic_tables(self, _sources: object, topics: list[str]) -> object:
        return usual_tables(topics)

    def read_span(self, _topic: str) -> OffsetSpan:
        return OffsetSpan(0, self.end)

    def read_spans(self, topics: set[str]) -> dict[str, OffsetSpan]:
        return {topic: self.read_span(topic) for topic in topics}

    def list_topics(self) -> list[str]:
        return [TOPIC]

    def close(self) -> None:
        """Nothing is open."""

    def list_unit_topics(self, _pipeline: str) -> list[str]:
        return [TOPIC]

    def read_progress(self, _unit: object) -> tuple[list[LaneProgress], UnitState]:
        lane = LaneProgress(0, 0, 0, "id", self.offset, ZERO, 0, "{}")
        return [lane], UnitState(None, None, self.stopped)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> System:
    system = System()

    @contextlib.contextmanager
    def open_session(*_: object) -> Iterator[System]:
        yield system

    monkeypatch.setattr(caught_up, "KafkaView", lambda _: system)
    monkeypatch.setattr(caught_up, "read_log_end", lambda *_: (1, 4))
    monkeypatch.setattr(unit_goals, "target_session", open_session)
    monkeypatch.setattr(unit_goals, "StoppedUnits", lambda: StoppedUnits(lambda: system.now_s))
    return system


@pytest.fixture
def goal(system: System, tmp_path: Path) -> CaughtUpGoal:
    (file := tmp_path / "c.yaml").write_text(CONFIG)
    return CaughtUpGoal(load_config(file))


def test_the_copy_after_a_stop_is_awaited_with_all_its_rows(system: System, goal: CaughtUpGoal) -> None:
    assert not goal()  # the unit is about to request the copy
    system.copy = COPY
    system.now_s += 100 * STOP_SETTLES_S
    assert not goal()  # copies may wait for each other for long
    system.copy = structs.replace(COPY, phase="running", offset=12, rows=7)
    system.stopped, system.offset, system.end = None, 12, 20
    assert not goal()  # the unit continues, and the copy goes on
    system.copy, system.end = structs.replace(system.copy, phase="done"), 30
    assert not goal()  # the rows of the copy are not all applied
    assert not goal.summary
    system.offset = 29
    assert goal()
    assert goal.summary == "caught up: all that the sources had in 1 table at the start is in hq"


def test_a_stop_without_a_copy_ends_the_run_once_it_is_settled(system: System, goal: CaughtUpGoal) -> None:
    assert not goal()
    system.now_s += STOP_SETTLES_S - 1
    assert not goal()
    system.now_s += 1000 * STOP_SETTLES_S
    with pytest.raises(CommandError, match=r"(?s)these have not:.*acct has stopped: the definition"):
        goal()


def test_a_postponed_copy_is_not_awaited_and_is_named(system: System, goal: CaughtUpGoal) -> None:
    why = encode_problem(Problem("the copy is postponed until 14:31", "nothing to do"))
    system.copy = structs.replace(COPY, phase="refused", reason=why, retry_ms=9)
    assert not goal()
    system.now_s += 1000 * STOP_SETTLES_S
    with pytest.raises(CommandError, match="the copy is postponed until 14:31"):
        goal()


def test_a_published_copy_has_time_to_reach_its_unit(system: System, goal: CaughtUpGoal) -> None:
    system.copy = structs.replace(COPY, phase="running")
    assert not goal()
    system.now_s += 1000 * STOP_SETTLES_S
    system.copy = structs.replace(COPY, phase="done", offset=8)
    assert not goal()
    system.stopped, system.offset = None, 9
    assert goal()


def test_a_unit_that_a_person_lets_continue_is_awaited(system: System, goal: CaughtUpGoal) -> None:
    assert not goal()
    system.stopped = None
    assert not goal()
    system.offset = 9
    assert goal()


class Leader:
    """A leader that knows one copy, which capture has published."""

    def list_copies(self, _path: str) -> dict[str, Any]:
        row = {"id": "c1", "source": "b1", "table": "bank.acct", "phase": "done", "reason": ""}
        return {"copies": [{**row, "rows": 3, "estimate": 3, "eta_s": None}]}


@pytest.fixture
def wait(system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """`rowlock copy bank.acct --wait`."""
    (file := tmp_path / "c.yaml").write_text(CONFIG)
    leader = SimpleNamespace(get=Leader().list_copies)
    opened = SimpleNamespace(from_config=lambda _: contextlib.nullcontext(leader))
    monkeypatch.setattr(copying, "LeaderClient", opened)
    monkeypatch.setattr(copying, "KafkaView", lambda _: system)
    return lambda: copying.wait_for(file, "c1", "table")


def test_copy_waits_until_the_target_has_it(
    system: System,
    wait: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system.copy = structs.replace(COPY, phase="done", offset=8)
    offsets: list[int] = []

    def go_on(_seconds: float) -> None:
        """The unit finds the copy, and applies one more event each time."""
        offsets.append(system.offset)
        system.stopped, system.offset = None, system.offset + 1

    monkeypatch.setattr("time.sleep", go_on)
    assert wait() == 0
    assert offsets == [5, 6, 7, 8]
    assert capsys.readouterr().err.splitlines()[1:] == [
        "bank.acct: published; waiting until hq has applied it",
        "bank.acct: applied to hq",
    ]


def test_copy_does_not_wait_for_a_target_that_applies_nothing(
    system: System,
    wait: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system.stopped = None
    limit = SimpleNamespace(renew=lambda: None, is_over=lambda: True, waited=120.0)
    monkeypatch.setattr(copying, "AdaptiveTimeout", lambda _: limit)
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert wait() == 1
    assert "published, but not applied yet" in capsys.readouterr().err


def test_copy_reports_a_unit_that_stays_stopped(
    system: System,
    wait: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def pass_time(_seconds: float) -> None:
        system.now_s += 1000 * STOP_SETTLES_S

    monkeypatch.setattr("time.sleep", pass_time)
    assert wait() == 1
    assert "has stopped: the definition cannot be proven" in capsys.readouterr().err


def test_the_wait_for_topics_shows_the_events_left_their_rate_and_the_time(
    system: System, tmp_path: Path
) -> None:
    (file := tmp_path / "c.yaml").write_text(CONFIG)
    lines: list[str] = []
    goal = CaughtUpGoal(load_config(file), lines.append)
    goal._work = RemainingWork(lambda: system.now_s)
    system.stopped, system.end, system.offset = None, 1_000_001, 0
    assert not goal()
    system.offset, system.now_s = 100_000, system.now_s + PROGRESS_LINE_EVERY_S / 2
    assert not goal()
    system.offset, system.now_s = 400_000, system.now_s + PROGRESS_LINE_EVERY_S / 2
    assert not goal()
    assert lines == [
        "waiting for 1 of 1 topics: 1,000,000 events left",
        "waiting for 1 of 1 topics: 600,000 events left, 40,000 events/s, about 15 s left",
    ]


def test_the_wait_for_capture_shows_the_rows_of_first_copies(system: System, tmp_path: Path) -> None:
    (file := tmp_path / "c.yaml").write_text(CONFIG)
    config, lines = load_config(file), list[str]()
    goal = CaughtUpGoal(config, lines.append)
    goal._work = RemainingWork(lambda: system.now_s)
    goal._first_copies = FirstCopyReader(
        config,
        system.read_topic_tables,
        lambda *_: {"bank.acct": (1_000_000, 0)},
        clock_s=lambda: system.now_s,
        start_work=lambda work: work(),
    )
    system.pending = ("bank.acct",)
    for rows in (0, 100_000, 400_000):
        system.captured_to = rows
        assert not goal()
        system.now_s += PROGRESS_LINE_EVERY_S / 2
    wait = "waiting for capture of b1, first copies left: 1"
    assert lines == [
        f"{wait} (0 of about 1,000,000 rows)",
        f"{wait} (400,000 of about 1,000,000 rows, 40,000 rows/s, about 15 s left)",
    ]


def test_the_rate_is_measured_anew_if_the_goal_moves(system: System) -> None:
    work = RemainingWork(lambda: system.now_s)
    assert work.format_line("waiting", 100) == "waiting: 100 events left"
    system.now_s += PROGRESS_LINE_EVERY_S
    assert work.format_line("waiting", 500) == "waiting: 500 events left"
    system.now_s += PROGRESS_LINE_EVERY_S
    assert work.format_line("waiting", 400) == "waiting: 400 events left, 10 events/s, about 40 s left"
