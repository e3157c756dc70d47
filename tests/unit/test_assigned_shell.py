"""The shell of a pipeline's units: what is reported of displaced rows and ended units, what a takeover finds
left to do, and connections."""

from __future__ import annotations

import io
import json
import queue
import threading
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.attempt.reports import Report
from consumer.errors import ServerSilentError, TransientError
from consumer.ordering.model import LaneProgress, QuarantineEntry
from consumer.process.effect_runner import EffectRunner, PipelineSlots, UnitProblems
from consumer.process.pipeline_shell import PipelineShell
from consumer.process.unit_operations import UnitOperations
from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import LineWriter
from consumer.reporting.status_lines import StatusWriter
from consumer.slots import served_pipeline
from consumer.slots.connections import ConnectionCache
from consumer.slots.messages import ServeUnit
from consumer.slots.schedule import ServedUnit, Turn
from consumer.slots.served_pipeline import ServedPipeline
from consumer.tables.stored import StoredDefinition
from consumer.units import decisions
from consumer.units.messages import (
    AttemptsReported,
    OperationFailed,
    PipelineTick,
    PlaceUnit,
    ReportEvent,
    SlotLost,
    UnitTakenOver,
)
from consumer.units.supervision import WatchedUnit
from consumer.units.unit import UnitRef
from schemas.problems import decode_problem
from schemas.units import WorkerEnded
from schemas.wire.position import ZERO
from tests.kits.apply import account_table


def slots_of(
    pool: Any, out: io.StringIO | None = None, *, batches: bool = False
) -> tuple[PipelineSlots, Any]:
    """Return the slots of the pipeline p, and what they report to its core."""
    pipeline: Any = SimpleNamespace(name="p", batches=batches)
    problems = UnitProblems(pipeline, StatusWriter("p", LineWriter(out or io.StringIO())))
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    return PipelineSlots(pipeline, pool, problems, events.put), events


def test_displaced_rows_are_a_problem_whoever_displaced_them() -> None:
    """Of an attempt that has lost its unit meanwhile, too: the rows had to make room."""
    out = io.StringIO()
    slots, events = slots_of(SimpleNamespace(add_pipeline=lambda *_: None), out)
    reports = [Report("a", "ok", 1, 5), Report("b", "fenced", 1, 5, displaced=3)]
    slots.take_reports(reports)
    assert events.get_nowait() == AttemptsReported(reports)
    (line,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (line["kind"], line["what"]) == ("problem", "unit b displaced rows")
    assert line["why"].startswith("3 rows")
    assert "rowlock_displaced" in line["why"]


def test_the_core_gets_the_results_of_operations_and_losses_of_slots() -> None:
    working = object.__new__(EffectRunner)
    working._name = "p"
    slots, events = slots_of(SimpleNamespace(add_pipeline=lambda *_: None))
    working._problems, working._put_event = slots._problems, events.put
    taken: Future[Any] = Future()
    taken.set_result(UnitTakenOver("c", 1, 1, 5, 6))
    working._put_result(taken)
    assert events.get_nowait() is taken.result()
    slots.lose_unit("c", 7)
    assert events.get_nowait() == SlotLost("c", 7)


@pytest.mark.parametrize("batches", [False, True])
def test_a_unit_is_placed_as_it_was_taken_over(batches: bool) -> None:
    served: list[ServeUnit] = []
    pool = SimpleNamespace(add_pipeline=lambda *_: None, serve_unit=served.append)
    slots, _ = slots_of(pool, batches=batches)
    taken = UnitTakenOver("a", 3, 70_001, 41, 99, was="a reason", trial=True)
    slots.place_unit(PlaceUnit(UnitRef("a", "s", 3, "id", b"t"), taken), 17)
    (found,) = served
    assert found.run.startswith("p-")
    assert found == ServeUnit(
        found.run, "a", "s", 3, "id", 70_001, 41, 99, b"t", "a reason", 17, trial=True, only_here=batches
    )


def test_the_backlog_is_that_of_watermarks_and_else_of_the_last_attempt() -> None:
    """Watermarks count the records of a unit that is stopped, too. Debezium's topics have none."""
    shell = object.__new__(PipelineShell)
    sources = {"a": "b1", "new": "b1", "d": "debezium"}
    shell._pipeline = SimpleNamespace(find_source=sources.get, debezium={"debezium": None})  # type: ignore[assignment]
    ends = {"a": 9, "d": 9}
    shell._times = SimpleNamespace(  # type: ignore[assignment]
        count_left=lambda _source, topic, offset: ends[topic] - offset if topic in ends else None
    )
    unit = WatchedUnit(offset=2, left=70)
    found = {topic: shell._count_left(topic, unit) for topic in (*sources, "unknown")}
    assert found == {"a": 7, "new": 70, "d": 70, "unknown": 70}


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


@pytest.mark.parametrize(
    ("kind", "error", "sweep_since", "due"),
    [
        ("mysql", "held behind offset 3", None, True),
        ("mysql", "too long", None, False),
        ("mysql", "too long", 3, True),
        ("kafka", "held behind offset 3", 3, False),
    ],
)
def test_a_takeover_finds_what_an_attempt_left_untried_or_uncompared(
    kind: str, error: str, sweep_since: int | None, due: bool
) -> None:
    """No event may follow, and so no other attempt."""
    hand = object.__new__(UnitOperations)
    hand._pipeline = SimpleNamespace(name="p", target=SimpleNamespace(type=kind))  # type: ignore[assignment]
    lowest = LaneProgress(0, 1, 0, "id", 5, ZERO, 0, "")
    definition = StoredDefinition(account_table(), sweep_since=sweep_since).encode()
    taken: Any = SimpleNamespace(lowest=lowest, definition=definition)
    entry = QuarantineEntry(4, 0, "s.t", "[1]", "1", "{}", error, 0)
    session = SimpleNamespace(read_quarantine=lambda unit: [entry] if unit.pipeline == "p" else [])
    sessions: Any = SimpleNamespace(get_connection=lambda _number: session)
    assert hand._has_waiting_work(UnitRef("a", "s", 1), taken, sessions) is due


@pytest.mark.parametrize(
    ("debezium", "given", "end", "stops"),
    [(True, [], 6, True), (True, [[(5, b"x")]], 6, False), (True, [], 5, False), (False, [], 6, False)],
)
def test_the_end_of_a_topic_without_records_is_not_tried_for_ever(
    monkeypatch: pytest.MonkeyPatch, debezium: bool, given: list[Any], end: int, stops: bool
) -> None:
    """Transaction markers are never applied, so no unit would ever be current; a new leader knows more in a
    moment."""

    def read(_options: Any, _topic: str, _start: int, _most: int, note_end: Any) -> Any:
        note_end(end)
        return iter(given)

    recorded: list[str] = []
    monkeypatch.setattr(served_pipeline, "read_new_records", read)
    monkeypatch.setattr(served_pipeline, "stop_topic", lambda _spec, _sessions, why: recorded.append(why))
    monkeypatch.setattr(
        served_pipeline, "apply_topic",
        lambda _spec, _sessions, inputs, _tables: Report("a", "ok", 1, 5 if [*inputs.slices] else 4),
    )  # fmt: skip
    served = object.__new__(ServedPipeline)
    served.settings = SimpleNamespace(debezium={"s"} if debezium else {})  # type: ignore[assignment]
    served._others_wait, served._tables = lambda: False, {}
    served._inputs = SimpleNamespace(  # type: ignore[assignment]
        reader={}, build=lambda _spec, slices, _assigned: SimpleNamespace(slices=slices)
    )
    monkeypatch.setattr(
        served, "_build_spec", lambda *_, **__: SimpleNamespace(unit=SimpleNamespace(topic="a"))
    )
    turn = Turn(ServedUnit(ServeUnit("r", "a", "s", 1, "id", 1, 4, 6), 5, 6), 5, None)
    closed: list[bool] = []
    connections: Any = SimpleNamespace(close=lambda: closed.append(True))
    report, seen = served.run_attempt(turn, connections)
    assert seen == end
    assert closed == [True] * stops, "a right that is given then holds for new sessions only"
    assert (report.state == "stopped") is stops
    assert len(recorded) == stops
    if stops:
        what = str(decode_problem(report.message))
        assert "5 to 5 hold no records" in what
        assert "exactly.once.source.support" in what


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


def test_a_target_that_cannot_be_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_target(*_: object, **__: object) -> None:
        raise TransientError("nothing answers")

    monkeypatch.setattr("consumer.slots.connections.open_target", open_target)
    unreachable: list[str] = []
    connections = ConnectionCache(SimpleNamespace(), "rowlock p", unreachable.append)  # type: ignore[arg-type]
    for lane in range(2):
        with pytest.raises(TransientError):
            connections.get_connection(lane)
    assert unreachable == ["nothing answers"]
    connections.report_silence(ServerSilentError("nothing came back"))
    assert unreachable[1:] == ["nothing came back"]


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


def test_a_failed_operation_is_a_problem_unless_its_unit_waits() -> None:
    out = io.StringIO()
    slots, _ = slots_of(SimpleNamespace(add_pipeline=lambda *_: None), out)
    slots._problems.log_outcome(OperationFailed("a", 1, "no broker", should_retry=True))
    slots._problems.log_outcome(OperationFailed("a", 1, "no broker", should_retry=False, waits=True))
    (line,) = [json.loads(line) for line in out.getvalue().splitlines()]
    assert line["what"] == "unit a in trouble"
