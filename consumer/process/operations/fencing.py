"""Fences this agent's own units: afterwards none of its processes can write their rows."""

from __future__ import annotations

import queue
import threading
import time
from contextlib import suppress
from typing import Protocol

import structlog

from consumer.attempt.unit_errors import classify_error
from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit
from consumer.process.operations.unit_resources import TargetConnectionPool
from consumer.slots.pipeline import PipelineSettings
from consumer.units.messages import FenceUnit, UnitFenced
from schemas.backoff import Backoff

log = structlog.get_logger(__name__)

FENCE_GRACE_S = 0.2
"""Seconds that an attempt in a slot may continue after its unit was stopped, before it is fenced."""
PROOF_S = 5.0
"""Seconds that a target may take to answer a fence; after that, the processes that run the unit's
attempts are killed."""
HOLDER_POLL_S = 0.2
"""Interval in seconds at which the end of an attempt's killed process is checked."""
FENCE_BACKOFF = Backoff(first=0.2, longest=10.0)
"""The delays between two tries to fence a unit in its target."""


class UnitSlots(Protocol):
    """The slots of this process, as far as the units of one pipeline are concerned."""

    def is_held(self, topic: str) -> bool:
        """Return whether a slot may run an attempt at the unit."""

    def kill_holder(self, topic: str) -> None:
        """Kill the process of the slot that has the unit, unless that is this process."""


class UnitFencing:
    """Fences the units of one pipeline, which have been withdrawn from the slots."""

    def __init__(self, pipeline: PipelineSettings, hands: TargetConnectionPool, slots: UnitSlots) -> None:
        self._pipeline, self._hands, self._slots = pipeline, hands, slots

    def fence(self, asked: FenceUnit) -> UnitFenced:
        """Raise the fencing token, so that no worker can write any more, and return the offset at which
        the unit ended.

        If the target does not answer for PROOF_S, kill the processes of the unit's attempts and wait
        until the attempts have ended: then no process of this agent can write either, and the offset is
        not known.
        """
        unit = asked.unit
        no_offset = UnitFenced(unit.topic, unit.assignment)
        if not asked.above:
            return no_offset
        self._let_end(unit.topic)
        answer: queue.SimpleQueue[UnitFenced] = queue.SimpleQueue()
        threading.Thread(
            target=lambda: answer.put(self._fence_until_done(asked)), name=f"fence {unit.topic}", daemon=True
        ).start()
        with suppress(queue.Empty):
            return answer.get(timeout=PROOF_S)
        log.warning("unit ended while its target is unreachable", topic=unit.topic)
        while self._slots.is_held(unit.topic):
            self._slots.kill_holder(unit.topic)  # an attempt in this process is waited for
            time.sleep(HOLDER_POLL_S)
        return no_offset

    def _let_end(self, topic: str) -> None:
        """Give an attempt a short time to end by itself: its lanes are then at one offset, and no event
        is applied twice.
        """
        last = time.monotonic() + FENCE_GRACE_S
        while time.monotonic() < last and self._slots.is_held(topic):
            time.sleep(FENCE_GRACE_S / 50)

    def _fence_until_done(self, asked: FenceUnit) -> UnitFenced:
        """Retry until the unit is fenced. The takeover by a later assignment fences the unit as well."""
        backoff = FENCE_BACKOFF
        while True:
            try:
                return self._fence_once(asked)
            except FencedError as error:
                log.info("unit has a later assignment", topic=asked.unit.topic, seen=str(error))
                return UnitFenced(asked.unit.topic, asked.unit.assignment)
            except Exception as error:  # of any class: until it is fenced, the unit may be written
                trouble, backoff = (
                    classify_error(asked.unit.topic, error),
                    backoff.with_failure(time.monotonic()),
                )
                log.warning(
                    "fencing of a unit retried", topic=asked.unit.topic, error=str(trouble.problem)[:300],
                    retry_in_s=backoff.pause, exc_info=error if trouble.fault else None,
                )  # fmt: skip
                time.sleep(backoff.pause)

    def _fence_once(self, asked: FenceUnit) -> UnitFenced:
        unit, pipeline = asked.unit, self._pipeline
        place = ApplyUnit(pipeline.name, unit.topic)
        with self._hands.borrow_connections() as sessions:
            epoch, rows, state = sessions.get_connection(0).take_over(
                place, unit.topic_id, pipeline.layout, pipeline.config.lanes,
                assigned=unit.assignment, above=asked.above,
            )  # fmt: skip
            if asked.stopped is not None:
                sessions.get_connection(0).stop_unit(place, epoch, asked.stopped, was=state.stopped)
        lowest = min(rows, key=lambda row: row.offset)
        return UnitFenced(unit.topic, unit.assignment, lowest.offset, lowest.position)
