"""Asking for copies (consumer.process.operations.copy_desk), and what a unit that waits for one reports and
does (consumer.units)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from msgspec import structs

from consumer.attempt.reports import CopyNeed, Report
from consumer.process.operations.copy_desk import UnitCopies
from consumer.reporting.source_times import SourceWatermarks
from consumer.slots.pipeline import PipelineSettings
from consumer.units.decisions import PipelineState, step_pipeline
from consumer.units.messages import (
    AttemptsReported,
    OperationFailed,
    ProbeStopped,
    StoppedProbed,
    TakeOver,
    UnitTakenOver,
)
from consumer.units.unit import Applying, LocalUnit, Stopped, UnitRef
from schemas.config.model import load_config
from schemas.problems import Problem, decode_problem, encode_problem
from schemas.wire.copies import CopyOutcome, CopyRequest, CopyState, RepairLimits, find_copy_state
from schemas.wire.records import Watermark, format_former_table_topic
from tests.kits.apply import write_config
from tests.kits.topic import usual_tables

UNIT = UnitRef("rowlock.branch1.bank.my_x20_acct", "branch1", 3, "id")
NEED = CopyNeed(41, "rows-replaced")
WHY = "topic offset 41: rows are missing: rowlock copy bank.my acct"


class Desk:
    def __init__(self, folder: Path, **pipeline: Any) -> None:
        kafka: Any = type("Kafka", (), {"bootstrap": "127.0.0.1:1"})
        target = {
            "type": "postgres",
            "host": "127.0.0.1",
            "port": 1,
            "user": "u",
            "password": "p",
            "database": "d",
        }
        path = write_config(
            folder,
            kafka=kafka,
            prefix="rowlock",
            target=target,
            routes=[{"from": "bank.*", "to": "public.{table}"}],
            **pipeline,
        )
        self.state: CopyState | None = None
        self.place = ("bank", "my acct")
        self.sent: list[tuple[str, CopyRequest]] = []
        self.broken = False
        known: Any = SimpleNamespace(find_tables=lambda _sources, topics: usual_tables(topics))
        settings = replace(PipelineSettings.from_config(load_config(path), "p"), tables=known)
        self.desk = UnitCopies(
            settings,
            lambda source, *place: self.state if (source, place) == ("branch1", self.place) else None,
            self.send,
        )

    def send(self, source: str, request: CopyRequest) -> None:
        if self.broken:
            raise KafkaException("down")
        self.sent.append((source, request))

    def notified(self, **more: Any) -> None:
        values = {
            "id": "x",
            "db": "bank",
            "table": "my acct",
            "by": "operator",
            "phase": "waiting",
            "requested_ms": 1,
        }
        self.state = CopyState(**{**values, **more})


def test_a_copy_is_asked_for_once_with_the_pipelines_limits(tmp_path: Path) -> None:
    desk = Desk(tmp_path, repair={"mode": "copy", "max_rows": 9, "max_per_day": 2})
    for _ in range(3):
        seen = desk.desk.check_needed_copy(UNIT, NEED, WHY)
        assert (
            str(decode_problem(seen.waiting_reason))
            == "topic offset 41: rows are missing; a copy of the table is requested: nothing to do, it "
            "begins automatically (rowlock status)"
        )
        assert not seen.has_begun
    [(source, request)] = desk.sent
    assert (source, request.db, request.table, request.by) == ("branch1", "bank", "my acct", "pipeline p")
    assert (request.cause, request.after, request.limits) == (
        "rows-replaced",
        41,
        RepairLimits(max_rows=9, max_per_day=2),
    )
    again = Desk(tmp_path)
    again.desk.check_needed_copy(UNIT, NEED, WHY)
    assert again.sent[0][1].id == request.id, "another process sends the same"
    again.desk.check_needed_copy(UNIT, CopyNeed(42, "gap"), WHY)
    assert again.sent[1][1].id != request.id


@pytest.mark.parametrize("place", [("bank.2024", "acct"), ("bank", "2024.acct"), ("a.b", "c.d e")])
def test_dots_in_names_divide_nothing(tmp_path: Path, place: tuple[str, str]) -> None:
    desk = Desk(tmp_path)
    desk.place = place
    unit = structs.replace(UNIT, topic=format_former_table_topic("rowlock", "branch1", *place))
    desk.desk.check_needed_copy(unit, NEED, WHY)
    [(_, request)] = desk.sent
    assert (request.db, request.table) == place
    desk.notified(id=request.id, db=place[0], table=place[1], offset=77)
    assert desk.desk.find_copy_offset(unit) == 77


def test_a_state_of_another_table_that_is_written_alike_says_nothing() -> None:
    mark = Watermark(
        source="s", gen=1, position=(0, 1, 1, 0), file="f", commit_ts_ms=1, ts_ms=1, idle=True,
        copies={"`bank.2024`.acct": CopyState(id="x", db="bank.2024", table="acct", by="operator",
         phase="done", requested_ms=1)},
    )  # fmt: skip
    assert find_copy_state(mark.copies, "bank.2024", "acct") is mark.copies["`bank.2024`.acct"]
    assert find_copy_state(mark.copies, "bank", "2024.acct") is None
    assert find_copy_state(mark.copies, "bank", "acct") is None


def test_what_kafka_does_not_take_is_sent_at_the_next_look(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.broken = True
    desk.desk.check_needed_copy(UNIT, NEED, WHY)
    desk.broken = False
    desk.desk.check_needed_copy(UNIT, NEED, WHY)
    assert len(desk.sent) == 1


@pytest.mark.parametrize("cause", ["dropped", "unseen"])
def test_a_unit_says_why_capture_did_not_copy_what_is_there_again(tmp_path: Path, cause: str) -> None:
    desk = Desk(tmp_path)
    desk.notified(
        id="made again",
        by="capture",
        phase="refused",
        reason="too large: rowlock copy bank.acct (about 9 rows)",
    )
    dropped = desk.desk.check_needed_copy(UNIT, CopyNeed(41, cause), "it was dropped: rowlock copy")
    assert (
        str(decode_problem(dropped.waiting_reason))
        == "it was dropped; a copy was requested and refused: too large: rowlock "
        "copy bank.acct (about 9 rows)"
    )
    other = desk.desk.check_needed_copy(UNIT, CopyNeed(41, "policy"), "it is another one: rowlock copy")
    assert other.waiting_reason is None
    assert desk.sent == []


def test_repair_stop_asks_for_nothing_and_leaves_the_reason(tmp_path: Path) -> None:
    desk = Desk(tmp_path, repair="stop")
    assert desk.desk.check_needed_copy(UNIT, NEED, WHY).waiting_reason is None
    desk.notified(phase="running", id="by hand")
    assert "it begins automatically" in str(desk.desk.check_needed_copy(UNIT, NEED, WHY).waiting_reason)
    assert desk.sent == []


def test_a_refused_request_says_why_and_changes_what_is_seen(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = desk.desk.check_needed_copy(UNIT, NEED, WHY)
    desk.notified(
        id=desk.sent[0][1].id,
        phase="refused",
        reason=encode_problem(
            Problem("about 70000000 rows", "rowlock copy bank.my acct (about 70000000 rows)")
        ),
    )
    second = desk.desk.check_needed_copy(UNIT, NEED, WHY)
    assert second.waiting_reason is not None
    assert decode_problem(second.waiting_reason) == Problem(
        "topic offset 41: rows are missing; a copy was requested and refused: about 70000000 rows",
        "rowlock copy bank.my acct (about 70000000 rows)",
    )
    assert second.digest != first.digest
    assert len(desk.sent) == 1


@pytest.mark.parametrize(
    ("phase", "waits_for"),
    [
        ("cancelled", "; the requested copy was cancelled"),
        ("waiting", "; a copy of the table is requested"),
        ("running", "; a copy of the table is requested"),
    ],
)
def test_a_unit_shows_what_became_of_its_copy(tmp_path: Path, phase: str, waits_for: str) -> None:
    desk = Desk(tmp_path, repair={"mode": "copy"})
    desk.desk.check_needed_copy(UNIT, NEED, WHY)
    desk.notified(id=desk.sent[0][1].id, phase=phase)
    waiting = decode_problem(desk.desk.check_needed_copy(UNIT, NEED, WHY).waiting_reason)
    assert waiting.what == f"topic offset 41: rows are missing{waits_for}"


@pytest.mark.parametrize(("offset", "begun"), [(None, False), (41, False), (42, True)])
def test_a_copy_that_begins_behind_the_stop_is_seen(tmp_path: Path, offset: int | None, begun: bool) -> None:
    desk = Desk(tmp_path)
    desk.notified(phase="running", offset=offset)
    assert desk.desk.check_needed_copy(UNIT, NEED, WHY).has_begun is begun
    assert len(desk.sent) == (0 if begun else 1)
    assert desk.desk.find_copy_offset(UNIT) == offset


def test_watermarks_tell_of_copies_and_those_of_a_replaced_capture_do_not() -> None:
    marks = SourceWatermarks()
    state = CopyState(id="x", db="b", table="t", by="operator", phase="running", requested_ms=1, offset=7)
    mark = Watermark(
        source="s",
        gen=2,
        position=(0, 1, 1, 0),
        file="f",
        commit_ts_ms=1,
        ts_ms=1,
        idle=True,
        copies={"b.t": state},
    )
    marks.fold_watermark(mark)
    zombie = Watermark(source="s", gen=1, position=(0, 1, 1, 0), file="f", commit_ts_ms=1, ts_ms=1, idle=True)
    marks.fold_watermark(zombie)
    assert marks.copies["b.t"].offset == 7


# --- the core


def waiting() -> PipelineState:
    """A unit that a slot applies, and that reports that it needs a copy."""
    unit = LocalUnit(UnitRef("a", "s", 1, "id"), Applying(), epoch=7)
    state = PipelineState(units={"a": unit})
    report = Report(topic="a", state="stopped", epoch=7, offset=4, message=WHY, copy=NEED)
    state, effects = step_pipeline(state, AttemptsReported([report]), 1.0)
    assert ProbeStopped(unit.ref, NEED, WHY) in effects
    return state


def test_a_unit_that_needs_a_copy_has_one_asked_for_and_says_so() -> None:
    state = waiting()
    state, _ = step_pipeline(state, StoppedProbed("a", 1, "seen", "id", message="asked for"), 2.0)
    assert state.units["a"].watched.message == "asked for"
    assert state.units["a"].stop_cause == WHY, "the cause of the stop stays as it is"
    assert isinstance(state.units["a"].state, Stopped)


def test_a_copy_that_has_begun_is_gone_on_at_at_once_by_a_hand_and_not_again_and_again() -> None:
    state = waiting()
    state, effects = step_pipeline(state, StoppedProbed("a", 1, "seen", "id", begun=True), 2.0)
    [take] = [each for each in effects if isinstance(each, TakeOver)]
    assert take.look
    again = OperationFailed("a", 1, WHY, should_retry=False, waits=True, copy=NEED)
    state, _ = step_pipeline(state, again, 2.5)
    state, effects = step_pipeline(state, StoppedProbed("a", 1, "seen", "id", begun=True), 3.0)
    assert not [each for each in effects if isinstance(each, TakeOver)], "nothing has changed"
    state, effects = step_pipeline(state, StoppedProbed("a", 1, "another", "id", begun=True), 4.0)
    assert [each for each in effects if isinstance(each, TakeOver)]
    state, _ = step_pipeline(state, UnitTakenOver("a", 1, 9, 50, 51), 5.0)
    assert state.units["a"].state == Applying()


def outcome(request: CopyRequest, **more: Any) -> CopyOutcome:
    values = {"id": request.id, "by": request.by, "db": "bank", "table": "my acct", "requested_ms": 1}
    return CopyOutcome(**{**values, "phase": "done", **more})


@pytest.mark.parametrize("phase", ["waiting", "running", "done"])
def test_a_key_sweep_hides_neither_the_copy_before_it_nor_a_refusal(tmp_path: Path, phase: str) -> None:
    desk = Desk(tmp_path)
    desk.notified(keys=True, phase=phase, by="capture", offset=70)
    assert desk.desk.find_copy_offset(UNIT) is None
    assert not desk.desk.check_needed_copy(UNIT, NEED, WHY).has_begun
    [(_, request)] = desk.sent
    refusal = encode_problem(Problem("it is large", "rowlock copy"))
    desk.notified(
        keys=True, phase=phase, offset=70, last_copy=outcome(request, phase="refused", reason=refusal)
    )
    seen = desk.desk.check_needed_copy(UNIT, NEED, WHY)
    assert "a copy was requested and refused: it is large" in str(decode_problem(seen.waiting_reason))
    desk.notified(keys=True, phase=phase, offset=70, last_copy=outcome(request, offset=60))
    assert desk.desk.find_copy_offset(UNIT) == 60
    assert desk.desk.check_needed_copy(UNIT, NEED, WHY).has_begun
    assert len(desk.sent) == 1
