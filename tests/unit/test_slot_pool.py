"""The slots of an apply process: their messages, and what becomes of those that are lost or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumer.attempt.reports import Report
from consumer.slots import pool as pools
from consumer.slots.messages import (
    CloseSlot,
    ForgetPipeline,
    PipelineRefused,
    ReleaseUnit,
    ServerUnreachable,
    ServeUnit,
    SlotReports,
    UnitReleased,
    UsePipeline,
    identify_machine,
)
from consumer.slots.plan import LAG_EVENTS
from consumer.slots.pool import OWN, REMOTE_END_S, SLOT_RETRY_BACKOFF
from tests.kits.apply import until
from tests.kits.slot_pool import Slots

PLACE = ("r", "t")
LIVING = -2
"""The test replaces it by the number of a process that runs."""


def serve(topic: str = "t", epoch: int = 7, **more: Any) -> ServeUnit:
    return ServeUnit("r", topic, "s", 1, "id", epoch, 9, 10, **more)


def released(topic: str = "t", epoch: int = 7, **more: Any) -> UnitReleased:
    return UnitReleased("r", topic, epoch, 20, 30, **more)


@pytest.fixture
def slots() -> Slots:
    return Slots()


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that would run for long."""
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield made
    made.kill()
    made.wait(60)


def test_a_slot_gets_the_settings_once_and_before_the_first_unit(slots: Slots) -> None:
    slots.pool.serve_unit(serve("t"))
    slots.pool.serve_unit(serve("u"))
    assert slots.own.take() == [UsePipeline("r", b"settings"), serve("t"), serve("u")]
    slots.pool.withdraw_unit(("r", "t"))
    assert slots.own.take() == [ReleaseUnit("r", "t")]


def test_units_move_to_the_slots_of_spark_as_soon_as_they_are_released(slots: Slots) -> None:
    slots.pool.serve_unit(serve())
    slots.pool.serve_unit(serve("whole", only_here=True))
    slots.own.take()
    link, _ = slots.open(1)
    assert (slots.own.take(), link.take()) == ([ReleaseUnit("r", "t")], [])
    slots.pool.take_answer(OWN, released())
    assert link.take() == [UsePipeline("r", b"settings"), replace(serve(), offset=20, end=30)]


def test_a_second_slot_gets_its_share_and_the_units_of_a_lost_one_go_nowhere(slots: Slots) -> None:
    first, one = slots.open(1)
    for number in range(4):
        slots.pool.serve_unit(serve(f"t{number}"))
    first.take()
    second, two = slots.open(2)
    moved = [command.topic for command in first.take() if isinstance(command, ReleaseUnit)]
    assert len(moved) == 2
    for topic in moved:
        slots.pool.take_answer(one, released(topic))
    assert [command.topic for command in second.take() if isinstance(command, ServeUnit)] == moved
    with capture_logs():
        slots.pool.lose_slot(two)
    assert slots.listener.lost == [(topic, 7) for topic in sorted(moved)]
    assert (first.take(), slots.own.take(), second.ended) == ([], [], 1), "they must be taken over first"
    slots.pool.serve_unit(serve(moved[0], epoch=8))
    assert first.take() == [serve(moved[0], epoch=8)]


def test_a_later_stream_of_a_slot_replaces_the_earlier_one(slots: Slots) -> None:
    link, number = slots.open(1)
    slots.pool.serve_unit(serve())
    with capture_logs():
        again, later = slots.open(1)
    assert (link.ended, later != number, slots.listener.lost) == (1, True, [("t", 7)])
    slots.pool.take_answer(number, SlotReports("r", [Report("t", "ok", 7, 12)]))
    slots.pool.take_answer(number, released())
    assert slots.listener.reports == [], "what the earlier one reports changes nothing"
    slots.pool.serve_unit(serve(epoch=8))
    assert again.take()[-1] == serve(epoch=8)


def test_reports_reach_their_pipeline(slots: Slots) -> None:
    slots.pool.serve_unit(serve())
    report = Report("t", "ok", 7, 12)
    slots.pool.take_answer(OWN, SlotReports("r", [report]))
    slots.pool.take_answer(OWN, SlotReports("another", [report]))
    assert slots.listener.reports == [report]


def lagging(topic: str) -> Report:
    return Report(topic, "ok", 7, 12, left=LAG_EVENTS + 1)


def test_units_that_lag_are_spread_over_the_slots(slots: Slots) -> None:
    first, one = slots.open(1)
    second, _ = slots.open(2)
    for topic in "abcd":
        slots.pool.serve_unit(serve(topic))
    there = [command.topic for command in first.take() if isinstance(command, ServeUnit)]
    slots.pool.take_answer(one, SlotReports("r", [lagging(there[0])]))
    assert first.take() == []
    slots.pool.take_answer(one, SlotReports("r", [lagging(there[1])]))
    assert first.take() == [ReleaseUnit("r", there[1])]
    second.take()
    slots.pool.take_answer(one, released(there[1]))
    assert [command.topic for command in second.take() if isinstance(command, ServeUnit)] == [there[1]]


def test_a_failed_unit_is_served_again_only_under_another_fencing_token(slots: Slots) -> None:
    slots.pool.serve_unit(serve())
    slots.own.take()
    slots.pool.take_answer(OWN, released(failed=True))
    assert (slots.own.take(), slots.pool.is_held(PLACE)) == ([], False)
    slots.pool.serve_unit(serve(epoch=8))
    assert slots.own.take() == [serve(epoch=8)]


def test_a_unit_is_held_until_its_slot_has_released_it(slots: Slots) -> None:
    assert not slots.pool.is_held(PLACE)
    slots.pool.serve_unit(serve())
    assert slots.pool.is_held(PLACE)
    slots.pool.withdraw_unit(PLACE)
    assert slots.pool.is_held(PLACE), "an attempt may be running"
    slots.pool.take_answer(OWN, released())
    assert not slots.pool.is_held(PLACE)
    slots.pool.withdraw_unit(PLACE)


def test_the_process_of_a_slot_can_be_killed_and_holds_its_unit_until_it_has_ended(
    slots: Slots, process: subprocess.Popen[bytes]
) -> None:
    """The target does not answer, so only the end of the process shows that nothing is written any more."""
    _, number = slots.open(1, process.pid)
    slots.pool.serve_unit(serve())
    slots.pool.withdraw_unit(PLACE)
    with capture_logs() as logs:
        slots.pool.kill_holder(PLACE)
        until(lambda: process.poll() is not None, what="the end of the process")
        assert slots.pool.is_held(PLACE)
        slots.pool.lose_slot(number)
    assert not slots.pool.is_held(PLACE)
    assert [line["event"] for line in logs] == [
        "slot's process killed, because its unit is taken over",
        "slot lost",
    ]


def test_the_process_of_a_lost_stream_is_killed(slots: Slots, process: subprocess.Popen[bytes]) -> None:
    """It may not have noticed that its stream is cut, and would write until it is fenced."""
    _, number = slots.open(1, process.pid)
    slots.pool.serve_unit(serve())
    with capture_logs():
        slots.pool.lose_slot(number)
    until(lambda: not slots.pool.is_held(PLACE), what="the end of the process")
    assert process.wait(60) != 0
    slots.pool.lose_slot(number)
    assert slots.listener.lost == [("t", 7)], "once"


@pytest.mark.parametrize(
    ("number", "started", "machine"),
    [
        (0, 0.0, ""), (-1, 0.0, ""), (1, None, ""), (None, None, ""), (LIVING, 5.0, ""),
        (LIVING, None, "other"),
    ],
)  # fmt: skip
def test_only_another_process_of_this_machine_is_killed(
    slots: Slots, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, number: int | None,
    started: float | None, machine: str,
) -> None:  # fmt: skip
    """Number 0 would be the whole group of this process; the test replaces None by this one's number.
    `started`: another process had the number then; None: it is the same one.
    """
    pid = os.getpid() if number is None else process.pid if number == LIVING else number
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *call: killed.append(call))
    _, slot = slots.open(1, pid, machine or identify_machine(), started)
    slots.pool.serve_unit(serve())
    with capture_logs():
        slots.pool.kill_holder(PLACE)
        slots.pool.lose_slot(slot)
    assert killed == []
    _, slot = slots.open(1, process.pid)
    slots.pool.serve_unit(serve(epoch=8))
    with capture_logs():
        slots.pool.lose_slot(slot)
    assert killed == [(process.pid, signal.SIGKILL)]


def test_a_lost_slot_of_another_machine_counts_as_running_for_a_while(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It notices the loss of its stream a few seconds later. The apply process cannot see when it ends."""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    _, slot = slots.open(1, os.getpid(), "other", 1.0)
    slots.pool.serve_unit(serve())
    with capture_logs():
        slots.pool.lose_slot(slot)
    assert slots.pool.is_held(PLACE)
    monkeypatch.setattr(time, "monotonic", lambda: now + REMOTE_END_S + 60)
    assert not slots.pool.is_held(PLACE)


def test_the_own_slot_is_never_killed(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[object] = []
    monkeypatch.setattr("consumer.slots.pool._kill_process", killed.append)
    slots.pool.serve_unit(serve())
    slots.pool.kill_holder(PLACE)
    slots.pool.lose_slot(OWN)
    assert killed == []
    slots.pool.kill_holder(PLACE)


def test_a_forgotten_pipeline_is_closed_in_every_slot(slots: Slots) -> None:
    link, _ = slots.open(1)
    slots.pool.serve_unit(serve())
    slots.pool.withdraw_unit(PLACE)
    slots.pool.take_answer(1, released())
    link.take()
    slots.pool.forget_pipeline("r")
    assert (link.take(), slots.own.take()) == ([ForgetPipeline("r")], [ForgetPipeline("r")])
    slots.pool.take_answer(1, SlotReports("r", [Report("t", "ok", 7, 12)]))
    assert slots.listener.reports == []


def test_a_slot_that_cannot_reach_a_server_serves_no_unit_for_a_while(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(pools.time, "monotonic", lambda: now)
    (first, one), (second, _) = slots.open(1), slots.open(2)
    slots.pool.serve_unit(serve())
    with capture_logs() as logs:
        slots.pool.take_answer(one, ServerUnreachable("nothing answers"))
        slots.pool.take_answer(one, ServerUnreachable("nothing answers"))
    assert [(line["event"], line["host"], line["error"]) for line in logs] == [
        ("slot cannot reach a server", "h", "nothing answers")
    ]
    assert first.take()[-1] == ReleaseUnit("r", "t")
    slots.pool.take_answer(one, released())
    assert [type(command) for command in second.take()] == [UsePipeline, ServeUnit]
    slots.pool.serve_unit(serve("u"))
    assert second.take() == [serve("u")]
    now += SLOT_RETRY_BACKOFF.first - 1
    slots.pool.end_troubles()
    assert second.take() == []
    now += 1
    slots.pool.end_troubles()
    assert second.take() == [ReleaseUnit("r", "u")]


def test_a_slot_that_lacks_a_secret_gets_the_settings_again_after_a_while(
    slots: Slots, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(pools.time, "monotonic", lambda: now)
    (first, one), (second, _) = slots.open(1), slots.open(2)
    slots.pool.serve_unit(serve())
    first.take()
    with capture_logs() as logs:
        slots.pool.take_answer(one, PipelineRefused("r", "no file"))
    assert [(line["event"], line["host"], line["error"], line["retry_in_s"]) for line in logs] == [
        ("slot cannot serve a pipeline", "h", "no file", 15)
    ]
    assert first.take() == [ReleaseUnit("r", "t")]
    slots.pool.take_answer(one, released())
    assert [type(command) for command in second.take()] == [UsePipeline, ServeUnit]
    slots.pool.serve_unit(serve("u"))
    now += SLOT_RETRY_BACKOFF.first
    slots.pool.end_troubles()
    slots.pool.take_answer(2, released("u"))
    assert [type(command) for command in first.take()] == [UsePipeline, ServeUnit]
    with capture_logs() as logs:
        slots.pool.take_answer(one, PipelineRefused("r", "no file"))
        slots.pool.take_answer(one, PipelineRefused("q", "nor this one"))
    assert [line["retry_in_s"] for line in logs] == [30, 30]


def test_the_end_closes_every_slot(slots: Slots) -> None:
    link, number = slots.open(1)
    closing = threading.Thread(target=slots.pool.close, args=(60.0,))
    closing.start()
    until(lambda: link.ended, what="the end of the stream")
    assert closing.is_alive(), "Spark would abort the task"
    slots.pool.lose_slot(number)
    closing.join(60)
    assert not closing.is_alive()
    for each in (link, slots.own):
        assert each.take() == [CloseSlot()]
    late, _ = slots.open(2)
    assert (late.take(), late.ended) == ([CloseSlot()], 1), "Spark has started its task again"


def test_a_takeover_does_not_wait_for_the_slot_that_had_the_unit(slots: Slots) -> None:
    """It may wait for a statement for ever. What it still writes is fenced."""
    first, one = slots.open(1)
    second, _ = slots.open(2)
    slots.pool.serve_unit(serve())
    slots.pool.serve_unit(serve("u"))
    first.take()
    second.take()
    slots.pool.withdraw_unit(PLACE)
    assert first.take() == [ReleaseUnit("r", "t")]
    slots.pool.serve_unit(serve(epoch=8))
    assert [*first.take(), *second.take()][-1] == serve(epoch=8)
    slots.pool.take_answer(one, released(epoch=7))
    assert slots.pool.is_held(PLACE), "the release is of the former fencing token"
