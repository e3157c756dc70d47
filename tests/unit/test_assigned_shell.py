"""How long a query that starts is waited for, by a clock of our own; and what is said of displaced rows."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.attempt.reports import LaneFigures, Report
from consumer.attempt.spec import SMALL_BATCH
from consumer.errors import UnitStoppedError
from consumer.ordering.model import LaneProgress, QuarantineEntry
from consumer.process import pipeline_queries
from consumer.process.effect_runner import EffectRunner, UnitProblems
from consumer.process.operations.direct_apply import MAX_DIRECT_EVENTS, DirectApplier
from consumer.process.pipeline_queries import FIRST_BATCH_IDLE_S, FIRST_BATCH_SLOW_S, PipelineQueries
from consumer.process.pipeline_shell import FAST_POLL_S, SLOW_POLL_S, PipelineShell
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import LineWriter
from consumer.reporting.status_lines import StatusWriter
from consumer.spark import query_handle
from consumer.spark.query_handle import RunningQuery
from consumer.spark.worker import ConnectionCache
from consumer.tables.stored import StoredDefinition
from consumer.units import decisions
from consumer.units.messages import OperationFailed, PipelineTick, ReportEvent, StartQuery, UnitTakenOver
from consumer.units.progress_checks import MAX_LIVE_BACKLOG
from consumer.units.unit import ApplyPhase, LocalUnit, QueryKind, UnitRef
from schemas.units import WorkerEnded
from schemas.wire.position import ZERO
from tests.kits.apply import account_table

Look = tuple[int, dict[str, int], bool]


class Query:
    """What it looks like at each second; `at`: the clock."""

    name, active = "q", True

    def __init__(self, looks: Callable[[float], Look]) -> None:
        self.at, self._looks = 0.0, looks

    def read_progress(self) -> Look:
        return self._looks(self.at)


def test_displaced_rows_are_a_problem_whoever_displaced_them() -> None:
    """Of an attempt that has lost its unit meanwhile, too: the rows had to make room."""
    out = io.StringIO()
    working = object.__new__(EffectRunner)
    working._name = "p"
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    working._put_event = events.put
    working._problems = UnitProblems(SimpleNamespace(name="p"), StatusWriter("p", LineWriter(out)))  # type: ignore[arg-type]

    def receive(_timeout: float) -> list[Report]:
        return [Report("a", "ok", 1, 5), Report("b", "fenced", 1, 5, displaced=3)]

    working._queries = queries = object.__new__(PipelineQueries)
    queries._receiver = SimpleNamespace(receive=receive)  # type: ignore[assignment]
    assert [report.topic for _, report in working.receive_reports(0.1)] == ["a", "b"]
    taken: Future[Any] = Future()
    taken.set_result(UnitTakenOver("c", 1, 1, 5, displaced=2))
    working._put_result(taken)
    assert events.get_nowait() is taken.result(), "the pipeline's core learns the result"
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["kind"], line["what"]) for line in lines] == [
        ("problem", "unit b displaced rows"),
        ("problem", "unit c displaced rows"),
    ]
    assert lines[0]["why"].startswith("3 rows")
    assert "rowlock_displaced" in lines[0]["why"]


def test_a_unit_with_an_unknown_topic_is_reported_as_ended() -> None:
    out = io.StringIO()
    shell = object.__new__(PipelineShell)
    shell._pipeline = SimpleNamespace(name="p", find_source=lambda _topic: None)  # type: ignore[assignment]
    shell._reporter = CheckpointReporter("p", LineWriter(out), SimpleNamespace())  # type: ignore[arg-type]
    shell._events = queue.SimpleQueue()
    shell.prepare_unit("x", 7, None)
    [line] = map(json.loads, out.getvalue().splitlines())
    assert "x is not a topic of the pipeline p" in json.dumps(line)
    assert (line["event"]["event"], line["event"]["assignment"]) == ("ended", 7)
    assert shell._events.empty()


@pytest.mark.parametrize(("has_backlog", "pause"), [(True, FAST_POLL_S), (False, SLOW_POLL_S)])
def test_progress_is_polled_fast_while_a_unit_catches_up(has_backlog: bool, pause: float) -> None:
    unit = LocalUnit("t", "s", 7)
    unit.phase, unit.has_backlog, unit.checked = ApplyPhase.APPLYING, has_backlog, True
    shell = object.__new__(PipelineShell)
    shell._state = SimpleNamespace(units={"t": unit})  # type: ignore[assignment]
    assert shell._choose_poll_pause() == pause


def test_a_hand_adds_up_what_its_stretches_displaced(monkeypatch: pytest.MonkeyPatch) -> None:
    hand = object.__new__(DirectApplier)
    hand._aborted, hand._taking = set(), 1
    monkeypatch.setattr(hand, "build_spec", lambda *_: None)
    ends = iter(
        [
            Report("a", "ok", 1, MAX_LIVE_BACKLOG - 1, held=1, displaced=2, lanes=LaneFigures(5)),
            Report("a", "ok", 1, MAX_LIVE_BACKLOG + 6, held=3, displaced=1, lanes=LaneFigures(2)),
        ]
    )
    monkeypatch.setattr(hand, "_apply_records", lambda *_: next(ends))
    lowest = LaneProgress(0, 1, 0, "id", -1, ZERO, 0, "")
    taken = SimpleNamespace(lowest=lowest, epoch=1, commit_ts_ms=0, was=None)
    took = hand.catch_up(UnitRef("a", "s", 1), taken, MAX_LIVE_BACKLOG + 7, SimpleNamespace())  # type: ignore[arg-type]
    assert isinstance(took, UnitTakenOver)
    assert (took.offset, took.held, took.displaced) == (MAX_LIVE_BACKLOG + 6, 4, 3)
    assert took.lanes == LaneFigures(upserted=7)


@pytest.mark.parametrize(
    ("error", "sweep_since", "outcome", "tries"),
    [
        ("held behind offset 3", None, "ok", 1),
        ("held behind offset 3", None, "behind", 1),
        ("too long", None, "ok", 0),
        ("too long", 3, "ok", 1),
    ],
)
def test_a_takeover_continues_what_an_attempt_left_untried_or_uncompared(
    monkeypatch: pytest.MonkeyPatch, error: str, sweep_since: int | None, outcome: Any, tries: int
) -> None:
    """No event may follow, and so no other attempt."""
    hand = object.__new__(DirectApplier)
    hand._aborted, hand._taking = set(), 1
    target = SimpleNamespace(type="mysql")
    hand._pipeline = SimpleNamespace(name="p", debezium=set(), target=target)  # type: ignore[assignment]
    monkeypatch.setattr(hand, "build_spec", lambda *_: None)
    applied: list[tuple[int, int]] = []

    def apply(_spec: object, _sessions: object, start: int, end: int) -> Report:
        applied.append((start, end))
        return Report("a", outcome, 1, 5, held=2, trial_in_s=1.0, sweeping=sweep_since is not None)

    monkeypatch.setattr(hand, "_apply_records", apply)
    lowest = LaneProgress(0, 1, 0, "id", 5, ZERO, 0, "")
    definition = StoredDefinition(account_table(), sweep_since=sweep_since).encode()
    taken: Any = SimpleNamespace(lowest=lowest, epoch=1, commit_ts_ms=0, was=None, definition=definition)
    entry = QuarantineEntry(4, 0, "s.t", "[1]", "1", "{}", error, 0)
    session = SimpleNamespace(read_quarantine=lambda unit: [entry] if unit.pipeline == "p" else [])
    sessions: Any = SimpleNamespace(get_connection=lambda _number: session)
    took = hand.catch_up(UnitRef("a", "s", 1), taken, 6, sessions)
    assert applied == [(6, 6)] * tries
    assert isinstance(took, UnitTakenOver if outcome == "ok" else OperationFailed)
    if isinstance(took, UnitTakenOver):
        assert (took.held, took.trial_in_s, took.sweeping) == (
            2 * tries,
            float(tries),
            sweep_since is not None,
        )


@pytest.mark.parametrize("debezium", [True, False])
def test_the_end_of_a_topic_without_records_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, debezium: bool
) -> None:
    """Transaction markers are never applied, so no unit would ever be current; a new leader knows more in a
    moment."""
    hand = object.__new__(DirectApplier)
    hand._aborted, hand._taking = set(), 1
    monkeypatch.setattr(hand, "build_spec", lambda *_: None)
    hand._pipeline = SimpleNamespace(debezium={"s"} if debezium else {})  # type: ignore[assignment]
    monkeypatch.setattr(hand, "_apply_records", lambda *_: Report("a", "ok", 1, 4))
    lowest = LaneProgress(0, 1, 0, "id", -1, ZERO, 0, "")
    taken = SimpleNamespace(lowest=lowest, epoch=1, commit_ts_ms=0, was=None)
    sessions: Any = SimpleNamespace()
    if debezium:
        with pytest.raises(UnitStoppedError, match=r"5 to 5 hold no records.*exactly\.once\.source\.support"):
            hand.catch_up(UnitRef("a", "s", 1), taken, 6, sessions)  # type: ignore[arg-type]
        return
    failed = hand.catch_up(UnitRef("a", "s", 1), taken, 6, sessions)  # type: ignore[arg-type]
    assert isinstance(failed, OperationFailed)
    assert (failed.should_retry, failed.waits, failed.epoch) == (True, False, 1)
    assert "a: offsets 5 to 5 hold no records" in failed.error


def _warmed_after(monkeypatch: pytest.MonkeyPatch, query: Query) -> float:
    """Return how long the shell waits for `query`, in its own seconds."""

    def sleep(_seconds: float) -> None:
        query.at += 1.0
        assert query.at < 1000, "waits for ever"

    clock = SimpleNamespace(monotonic=lambda: query.at, sleep=sleep)
    monkeypatch.setattr(pipeline_queries, "time", clock)
    starting = object.__new__(PipelineQueries)
    starting._ending = threading.Event()
    starting._await_first_batch(query)  # type: ignore[arg-type]
    return query.at


def test_a_first_batch_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that moves onto a query which does nothing yet stands still: seen for 17 s on a busy machine."""
    took = 3 * FIRST_BATCH_SLOW_S
    query = Query(lambda at: (0 if at >= took else -1, {}, False))
    assert _warmed_after(monkeypatch, query) == took


def test_a_query_with_nothing_to_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        FIRST_BATCH_IDLE_S
        <= _warmed_after(monkeypatch, Query(lambda _at: (-1, {}, True)))
        <= FIRST_BATCH_IDLE_S + 1
    )


def test_a_query_that_died_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(lambda _at: (-1, {}, False))
    query.active = False
    assert _warmed_after(monkeypatch, query) == 0


def test_a_long_backlog_waits_for_spark_while_many_takeovers_run() -> None:
    applier = object.__new__(DirectApplier)
    applier._mutex, applier._taking = threading.Lock(), 0
    for _ in range(4):
        applier.queue_takeover()
    with applier.track_takeover():
        pass
    assert applier._max_direct_events == SMALL_BATCH, "three are left"
    with applier.track_takeover():
        pass
    assert applier._max_direct_events == MAX_DIRECT_EVENTS


def test_a_query_also_reads_a_topic_whose_bounds_are_unknown() -> None:
    starting = object.__new__(PipelineQueries)
    starting._bounds = lambda _topics: {"read": (2, 5)}
    asked = StartQuery(1, QueryKind.LIVE, {"read": 5, "new": 0, "unknown end": -1}, [], {})
    assert starting._resolve_offsets(asked) == {"read": 4, "new": 0}


@dataclass
class SparkQuery:
    """A query as Spark shows it: its last finished batch, and the batch at which it was stopped."""

    isActive: bool = True  # noqa: N815  # PySpark's name
    batch: int = 3
    stopped_at: list[int] = field(default_factory=list)
    status: dict[str, bool] = field(default_factory=lambda: {"isTriggerActive": True})

    @property
    def _jsq(self) -> Any:
        return SimpleNamespace(lastProgress=lambda: SimpleNamespace(batchId=lambda: self.batch))

    def stop(self) -> None:
        self.stopped_at.append(self.batch)


@pytest.mark.parametrize(("is_active", "stopped_at"), [(True, [4]), (False, [])])
def test_a_query_is_stopped_after_the_batch_in_flight(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_active: bool, stopped_at: list[int]
) -> None:
    """Its stop would cancel the task of that batch within its transactions."""
    spark_query = SparkQuery(is_active)

    def sleep(_seconds: float) -> None:
        spark_query.batch += 1

    monkeypatch.setattr(query_handle, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    query = object.__new__(RunningQuery)
    query.name, query._query = "q", spark_query
    query._folder, query._board, query._epochs = tmp_path, tmp_path / "board", {"t": 1}
    query.stop()
    assert spark_query.stopped_at == stopped_at
    assert query._epochs == {}, "tasks begin no further topic"


def test_a_dropped_connection_is_closed() -> None:
    """The target keeps the session, with its locks, until its own time-out."""
    closed: list[int] = []
    connections = ConnectionCache(SimpleNamespace(), "rowlock p")  # type: ignore[arg-type]
    for number in (0, 1):
        connections._open[number] = SimpleNamespace(close=partial(closed.append, number))  # type: ignore[assignment]
    connections.drop_connection(1)
    assert closed == [1]
    connections.close()
    assert closed == [1, 0]


def test_figures_are_reported_before_the_end_of_their_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent would count them as those of a later preparation of the unit."""
    done: list[str] = []
    shell = object.__new__(PipelineShell)
    shell._state, shell._ending = SimpleNamespace(units={}), threading.Event()  # type: ignore[assignment]
    ended = ReportEvent("a", "s", 1, WorkerEnded)
    monkeypatch.setattr(decisions, "step_pipeline", lambda state, *_: (state, [ended]))
    shell._status = SimpleNamespace(write_changes=lambda *_: done.append("figures"))  # type: ignore[assignment]
    shell._effects = SimpleNamespace(run_effect=lambda _: done.append("end"))  # type: ignore[assignment]
    shell._reporter = SimpleNamespace(report_changes=lambda *_: None)  # type: ignore[assignment]
    shell._handle_event(PipelineTick())
    assert done == ["figures", "end"]
