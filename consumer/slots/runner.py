"""Runs the units of one slot: threads that run attempts, and for each pipeline one that reads new records.

The same code runs in a task of Spark and in the apply process. Decisions are in `schedule`.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import structlog
from msgspec.structs import replace

from consumer.attempt.readers.reader import RecordSlice
from consumer.slots.connections import ConnectionCache
from consumer.slots.faults import fault_ends_process
from consumer.slots.messages import (
    CloseSlot,
    ForgetPipeline,
    PipelineRefused,
    ReleaseUnit,
    ServerUnreachable,
    ServeUnit,
    SlotAnswer,
    SlotCommand,
    UnitReleased,
    UsePipeline,
)
from consumer.slots.pipeline import PipelineSettings, decode_pipeline
from consumer.slots.report_outbox import ReportOutbox
from consumer.slots.schedule import FollowTopic, LeaveTopic, SlotEffect, SlotSchedule, Turn
from consumer.slots.served_pipeline import ServedPipeline
from schemas.config.errors import ConfigErrors

log = structlog.get_logger(__name__)

USUAL_THREADS, MAX_THREADS = 2, 8
"""Threads that run attempts: up to the first number at once, and up to the second if a unit has waited for
`MAX_WAIT_S`, because the others may be waiting for a statement of the target. Those end when they have
nothing to do, with their connections."""
MAX_WAIT_S = 0.05
THREAD_IDLE_S = 60.0
"""Seconds after which a thread without work ends and closes its connections."""


class SlotRunner:
    """The units of one slot. `answer` receives the slot's messages from any thread; it must not block."""

    def __init__(
        self, answer: Callable[[SlotAnswer], None], name: str = "slot", scratch: Path | None = None
    ) -> None:
        """`scratch`: the folder for scratch files, instead of that of the pipeline's settings."""
        self._outbox, self._name, self._scratch = ReportOutbox(answer, name), name, scratch
        self._answer = answer
        self._schedule = SlotSchedule()
        self._pipelines: dict[str, ServedPipeline] = {}
        self._forgotten: set[str] = set()
        """Runs to be closed as soon as they have no unit here."""
        self._changed = threading.Condition()
        """Guards everything here; notified when an attempt may be due."""
        self._closing = False
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._numbers = itertools.count()
        self._watch = threading.Thread(target=self._watch_waits, name=f"{name} waits", daemon=True)
        self._watch.start()

    # -- commands

    def handle_command(self, command: SlotCommand) -> None:
        """Carry out a command of the apply process. Commands come from one thread."""
        match command:
            case UsePipeline(run, settings):
                self._read_settings(run, settings)
            case ForgetPipeline(run):
                with self._changed:
                    self._forgotten.add(run)
                self._close_forgotten()
            case ServeUnit():
                self._serve_unit(command)
            case ReleaseUnit(run, topic):
                with self._changed:
                    self._carry_out(self._schedule.release_unit((run, topic)))
            case CloseSlot():
                with self._changed:
                    for unit in self._schedule.units:
                        self._carry_out(self._schedule.release_unit(unit.place))

    def _read_settings(self, run: str, raw: bytes) -> None:
        """Use the settings of a pipeline, or refuse it if this host lacks a secret."""
        try:
            settings = decode_pipeline(raw, self._scratch)
        except ConfigErrors as error:
            why = f"the executor on {socket.gethostname()} lacks a secret: {'; '.join(error.lines)}"
            self._answer(PipelineRefused(run, why))
        else:
            self._use_pipeline(run, settings)

    def _use_pipeline(self, run: str, settings: PipelineSettings) -> None:
        """Serve units of a pipeline, or use other secrets of one that is known."""
        known = self._pipelines.get(run)
        if known is not None:
            known.use_settings(settings)
            return
        pipeline = ServedPipeline(
            settings,
            report=lambda report: self._outbox.put_report(run, report),
            take=partial(self._take_records, run),
            lose=partial(self._lose_records, run),
            others_wait=lambda: self._schedule.has_waiting,
            on_unreachable=lambda error: self._answer(ServerUnreachable(error)),
        )
        with self._changed:
            self._pipelines[run] = pipeline

    def _close_forgotten(self) -> None:
        """Close the forgotten pipelines that have no unit here any more; an attempt may outlast its
        pipeline. Called without the mutex, because the end of a reader is awaited.
        """
        with self._changed:
            busy = {unit.serve.run for unit in self._schedule.units}
            over = [run for run in self._forgotten if run not in busy]
            self._forgotten -= set(over)
            pipelines = [self._pipelines.pop(run) for run in over if run in self._pipelines]
        for pipeline in pipelines:
            pipeline.close()

    def _serve_unit(self, serve: ServeUnit) -> None:
        pipeline = self._pipelines.get(serve.run)
        if pipeline is None:  # it is refused
            self._outbox.put_release(
                UnitReleased(serve.run, serve.topic, serve.epoch, serve.offset, serve.end, serve.trial)
            )
            return
        with self._changed:
            interval_s = pipeline.settings.commit_every
            self._carry_out(self._schedule.add_unit(serve, time.monotonic(), interval_s))
            self._wake_thread()

    def close(self) -> None:
        """Let the running attempts end, and close everything. Nothing of this slot writes afterwards."""
        self.handle_command(CloseSlot())
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            threads, pipelines = list(self._threads), list(self._pipelines.values())
        for thread in threads:
            thread.join()
        for pipeline in pipelines:
            pipeline.close()
        self._watch.join()
        self._outbox.close()

    def _carry_out(self, effects: Iterable[SlotEffect]) -> None:
        """Carry out what the schedule decided. Called with the mutex held, so that effects keep their order;
        none of them blocks.
        """
        for effect in effects:
            run, topic = (effect.run, effect.topic) if isinstance(effect, UnitReleased) else effect.place
            pipeline = self._pipelines[run]
            match effect:
                case FollowTopic():
                    pipeline.reader.follow_topic(topic, effect.offset, effect.number)
                case LeaveTopic():
                    pipeline.reader.leave_topic(topic)
                case UnitReleased():
                    self._outbox.put_release(effect)

    # -- records

    def _take_records(self, run: str, topic: str, number: int, records: RecordSlice) -> None:
        with fault_ends_process(self._name), self._changed:
            self._carry_out(self._schedule.add_records((run, topic), number, records, time.monotonic()))
            self._wake_thread()

    def _lose_records(self, run: str, topic: str, number: int) -> None:
        with fault_ends_process(self._name), self._changed:
            self._carry_out(self._schedule.lose_records((run, topic), number, time.monotonic()))
            self._wake_thread()

    # -- threads

    def _wake_thread(self) -> None:
        """Let a thread take the next turn, and the watch see new times. Called with the mutex held."""
        if self._schedule.has_waiting and not self._idle and len(self._threads) < USUAL_THREADS:
            self._start_thread()
        self._changed.notify_all()

    def _start_thread(self) -> None:
        if self._closing:
            return
        number = next(self._numbers)
        thread = threading.Thread(
            target=self._run_attempts, args=(number,), name=f"{self._name} attempts {number}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _watch_waits(self) -> None:
        """Wake threads for units that are due by time, and start a further one when a unit has waited for its
        turn for too long.
        """
        with fault_ends_process(self._name), self._changed:
            while not self._closing:
                self._await_waiting()
                self._wake_thread()
                self._changed.wait_for(lambda: self._closing, MAX_WAIT_S)
                waited = self._schedule.measure_wait(time.monotonic())
                if waited > MAX_WAIT_S and not self._idle and len(self._threads) < MAX_THREADS:
                    self._start_thread()

    def _await_waiting(self) -> None:
        """Wait until a unit waits for its turn, or the slot ends."""
        while not self._closing:
            now = time.monotonic()
            self._schedule.queue_timed(now)
            if self._schedule.has_waiting:
                return
            due = self._schedule.find_next_due()
            self._changed.wait_for(
                lambda due=due: (  # type: ignore[misc]  # mypy infers no type for it
                    self._closing or self._schedule.has_waiting or self._schedule.find_next_due() != due
                ),
                None if due is None else max(0.0, due - now),
            )

    def _run_attempts(self, number: int) -> None:
        with fault_ends_process(self._name):
            self._take_turns(number)

    def _take_turns(self, number: int) -> None:
        connections: dict[str, ConnectionCache] = {}
        try:
            while (turn := self._await_turn()) is not None:
                self._run_turn(turn, number, connections)
                self._close_unused(connections)
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())
            for each in connections.values():
                each.close()

    def _await_turn(self) -> Turn | None:
        """Wait for the next turn, and return it; None: the thread is to end."""
        last = time.monotonic() + THREAD_IDLE_S
        with self._changed:
            while True:
                now = time.monotonic()
                if (turn := self._schedule.take_turn(now)) is not None:
                    return turn
                is_surplus = self._idle > 0 and len(self._threads) > USUAL_THREADS
                if self._closing or is_surplus or now >= last:
                    return None
                self._idle += 1
                self._changed.wait(last - now)
                self._idle -= 1

    def _run_turn(self, turn: Turn, number: int, connections: dict[str, ConnectionCache]) -> None:
        run, _ = turn.unit.place
        pipeline = self._pipelines[run]
        if run not in connections:
            connections[run] = pipeline.make_connections(number)
        connections[run].use_target(pipeline.settings.target)
        report, end = pipeline.run_attempt(turn, connections[run])
        with self._changed:
            effects = self._schedule.end_turn(turn, report, end, time.monotonic())
            self._outbox.put_report(run, replace(report, left=turn.unit.left))
            if any(isinstance(effect, UnitReleased) for effect in effects):
                pipeline.forget_unit(turn.unit.serve)
            self._carry_out(effects)
            self._wake_thread()
            is_forgotten = run in self._forgotten
        if is_forgotten:
            self._close_forgotten()

    def _close_unused(self, connections: dict[str, ConnectionCache]) -> None:
        """Close the connections of pipelines that are forgotten."""
        for run in [run for run in connections if run not in self._pipelines]:
            connections.pop(run).close()
