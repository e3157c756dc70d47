"""The slots of an apply process, which serve the units of all its pipelines.

`plan` decides which slot serves which unit. A slot is reached through its link: that of the process's own
slot, or a stream that a task of Spark has opened (`channel`).
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import psutil
import structlog

from consumer.attempt.reports import Report
from consumer.slots.messages import (
    CloseSlot,
    ForgetPipeline,
    PipelineRefused,
    ServerUnreachable,
    ServeUnit,
    SlotAnswer,
    SlotCommand,
    SlotOpened,
    SlotReports,
    UnitPlace,
    UnitReleased,
    UsePipeline,
    identify_machine,
)
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.plan import PlanEffect, SendCommand, SlotPlan, UnitLost
from schemas.backoff import Backoff

log = structlog.get_logger(__name__)

OWN = 0
"""The slot of the apply process itself. The slots of Spark's tasks have greater numbers, a new one for each
stream."""


class SlotLink(Protocol):
    """The way to one slot. Its methods never block."""

    def send_command(self, command: SlotCommand) -> None: ...

    def end_stream(self) -> None:
        """Send nothing more, and let the slot end. May be called repeatedly."""


class PipelineListener(Protocol):
    """The pipeline of units, as slots report to it. Its methods are called from any thread, and never
    block.
    """

    def take_reports(self, reports: list[Report]) -> None: ...

    def lose_unit(self, topic: str, epoch: int) -> None:
        """The slot that served the unit under `epoch` is lost."""


REMOTE_END_S = 10.0
"""Seconds after the loss of its stream for which a slot on another machine counts as running: it notices the
loss within three seconds, and the attempt under way ends with its next step."""
SLOT_RETRY_BACKOFF = Backoff(first=15.0, longest=300.0, quiet=900.0)
"""For how long a slot that cannot reach a server serves no unit, and one that lacks a secret none of its
pipeline."""
CLOSE_S = 5.0
"""Longest wait in seconds for the end of the slots in Spark's tasks, which have no unit any more."""


@dataclass(slots=True)
class _Slot:
    link: SlotLink
    opened: SlotOpened
    known: set[str] = field(default_factory=set)
    """The runs of pipelines of which it has the settings."""
    trouble: Backoff = SLOT_RETRY_BACKOFF
    """Until when it gets no units, or none of a pipeline, because it could not reach a server or lacks a
    secret."""

    def record_trouble(self, now: float) -> None:
        """Record that it could not reach a server, or lacks a secret."""
        self.trouble = self.trouble.with_failure(now)


@dataclass(frozen=True, slots=True)
class _LostSlot:
    """A slot whose stream has ended. `until`: when it has noticed that as well."""

    opened: SlotOpened
    until: float

    def may_run(self, now: float) -> bool:
        """Return whether the slot may still begin or end a transaction.

        A process of this machine can be seen. Another one has lost the stream, too, and begins no attempt:
        what it may still commit meets the fencing token of the next takeover.
        """
        if self.opened.machine == identify_machine():
            return is_running_here(self.opened)
        return now < self.until


class SlotPool:
    """The open slots and the pipelines of this process. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._plan = SlotPlan(OWN)
        self._slots: dict[int, _Slot] = {}
        self._numbers = itertools.count(OWN + 1)
        self._pipelines: dict[str, tuple[PipelineSettings, PipelineListener]] = {}
        self._closing = False
        self._changed = threading.Condition(self._mutex)
        """Notified when a slot is lost."""
        self._lost: dict[UnitPlace, _LostSlot] = {}
        """The lost slots that may still be applying a unit."""

    # -- pipelines

    def add_pipeline(self, run: str, settings: PipelineSettings, listener: PipelineListener) -> None:
        """Serve units of a pipeline from now on. `run`: a name that no other pipeline or start of it has."""
        with self._mutex:
            self._pipelines[run] = settings, listener

    def replace_settings(self, run: str, settings: PipelineSettings) -> None:
        """Let slots connect with these settings from now on, which differ in secrets alone."""
        with self._mutex:
            if run not in self._pipelines:  # it has just been closed
                return
            self._pipelines[run] = settings, self._pipelines[run][1]
            for slot in self._slots.values():
                if run in slot.known:
                    self._send_settings(slot, run)

    def forget_pipeline(self, run: str) -> None:
        """Forget a pipeline whose units have been withdrawn and fenced. An attempt may still be running."""
        with self._mutex:
            del self._pipelines[run]
            for slot in self._slots.values():
                slot.known.discard(run)
                slot.link.send_command(ForgetPipeline(run))

    def serve_unit(self, unit: ServeUnit) -> None:
        """Let a slot apply the unit, which has been taken over."""
        with self._mutex:
            self._carry_out(self._plan.serve_unit(unit))

    def withdraw_unit(self, place: UnitPlace) -> None:
        """Let no slot apply the unit any more; `is_held` shows when none does."""
        with self._mutex:
            self._carry_out(self._plan.withdraw_unit(place))

    def is_held(self, place: UnitPlace) -> bool:
        """Return whether a slot may run an attempt at the unit."""
        with self._mutex:
            if self._plan.get_slot(place) is not None:
                return True
            lost = self._lost.get(place)
            if lost is not None and not lost.may_run(time.monotonic()):
                del self._lost[place]
                return False
            return lost is not None

    def kill_holder(self, place: UnitPlace) -> None:
        """Kill the process of the slot that has the unit. The process's own slot cannot be killed."""
        with self._mutex:
            number = self._plan.get_slot(place)
            slot = None if number is None or number == OWN else self._slots.get(number)
        if slot is not None:
            log.warning(
                "slot's process killed, because its unit is taken over", topic=place[1],
                process=slot.opened.process,
            )  # fmt: skip
            _kill_process(slot.opened)

    # -- slots

    def open_slot(self, link: SlotLink, opened: SlotOpened) -> int:
        """Give units to a slot that has opened its stream; return the number by which the plan knows it.

        An earlier stream of the same slot counts as lost: its task has been started again.
        """
        with self._mutex:
            for number, slot in list(self._slots.items()):
                if slot.opened.number == opened.number:
                    self.lose_slot(number)
            number = OWN if opened.number == OWN else next(self._numbers)
            if self._closing:
                link.send_command(CloseSlot())
                link.end_stream()
                return number
            self._slots[number] = _Slot(link, opened)
            if number != OWN:
                log.info("slot opened", slot=opened.number, host=opened.host, process=opened.process)
            self._carry_out(self._plan.open_slot(number))
            return number

    def count_open(self) -> int:
        """Return the number of open slots in Spark's tasks."""
        with self._mutex:
            return len(self._slots.keys() - {OWN})

    def lose_slot(self, number: int) -> None:
        """Take the units away from a slot whose stream has ended."""
        with self._mutex:
            slot = self._slots.pop(number, None)
            if slot is None:
                return
            slot.link.end_stream()
            self._changed.notify_all()
            held = self._plan.list_units(number)
            if number != OWN and not self._closing:
                log.warning("slot lost", slot=slot.opened.number, host=slot.opened.host, units=len(held))
                _kill_process(slot.opened)  # it may hang, and Spark would wait for it
                lost = _LostSlot(slot.opened, time.monotonic() + REMOTE_END_S)
                self._lost |= dict.fromkeys(held, lost)
            self._carry_out(self._plan.lose_slot(number))

    def take_answer(self, number: int, answer: SlotAnswer) -> None:
        """Take a message of a slot. Messages of a lost one change nothing."""
        with self._mutex:
            if number not in self._slots:
                return
            match answer:
                case UnitReleased():
                    self._carry_out(self._plan.record_release(number, answer))
                case SlotReports(run, reports):
                    if run in self._pipelines:
                        self._pipelines[run][1].take_reports(reports)
                    for report in reports:
                        if report.left is not None:
                            self._carry_out(self._plan.record_left(number, (run, report.topic), report.left))
                case ServerUnreachable(error):
                    self._begin_trouble(number, self._slots[number], error)
                case PipelineRefused(run, error):
                    self._refuse_pipeline(number, self._slots[number], run, error)
                case SlotOpened():
                    log.error("slot opened its stream twice", slot=answer.number)

    def _begin_trouble(self, number: int, slot: _Slot, error: str) -> None:
        now = time.monotonic()
        if number == OWN or now < slot.trouble.next_at:
            return
        slot.record_trouble(now)
        log.warning(
            "slot cannot reach a server", slot=slot.opened.number, host=slot.opened.host, error=error,
            retry_in_s=slot.trouble.pause,
        )  # fmt: skip
        self._carry_out(self._plan.begin_trouble(number))

    def _refuse_pipeline(self, number: int, slot: _Slot, run: str, error: str) -> None:
        slot.known.discard(run)  # the next unit brings the settings again
        now = time.monotonic()
        if now >= slot.trouble.next_at:
            slot.record_trouble(now)
        log.warning(
            "slot cannot serve a pipeline", slot=slot.opened.number, host=slot.opened.host, error=error,
            retry_in_s=round(slot.trouble.next_at - now),
        )  # fmt: skip
        self._carry_out(self._plan.refuse_pipeline(number, run))

    def end_troubles(self) -> None:
        """Give units to slots again that could not serve them for a while. Called every second or so."""
        now = time.monotonic()
        with self._mutex:
            for number, slot in self._slots.items():
                if slot.trouble.failures and now >= slot.trouble.next_at:
                    self._carry_out(self._plan.end_trouble(number))

    def _carry_out(self, effects: Iterable[PlanEffect]) -> None:
        for effect in effects:
            match effect:
                case SendCommand(number, command):
                    self._send_command(self._slots[number], command)
                case UnitLost((run, topic), epoch):
                    if run in self._pipelines:
                        self._pipelines[run][1].lose_unit(topic, epoch)

    def _send_command(self, slot: _Slot, command: SlotCommand) -> None:
        if isinstance(command, ServeUnit) and command.run not in slot.known:
            slot.known.add(command.run)
            self._send_settings(slot, command.run)
        slot.link.send_command(command)

    def _send_settings(self, slot: _Slot, run: str) -> None:
        settings, _ = self._pipelines[run]
        is_own = slot.opened.number == OWN
        raw = settings.encode() if is_own else settings.encode_for_executor()
        slot.link.send_command(UsePipeline(run, raw))

    def close(self, patience_s: float = CLOSE_S) -> None:
        """End all slots, and wait up to `patience_s` seconds for those of Spark. No unit is served."""
        with self._mutex:
            self._closing = True
            for slot in self._slots.values():
                slot.link.send_command(CloseSlot())
                slot.link.end_stream()
            self._changed.wait_for(lambda: self._slots.keys() <= {OWN}, patience_s)


def _kill_process(slot: SlotOpened) -> None:
    """Kill a slot's process, if it is another one of this machine."""
    if slot.process != os.getpid() and is_running_here(slot):
        with suppress(ProcessLookupError):
            os.kill(slot.process, signal.SIGKILL)


def is_running_here(slot: SlotOpened) -> bool:
    """Return whether a slot's process still runs on this machine: not another one with its number."""
    if slot.machine != identify_machine() or slot.process <= 1:
        return False
    try:
        process = psutil.Process(slot.process)
        return bool(process.create_time() == slot.started and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
