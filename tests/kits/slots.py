"""A slot in the test's own process."""

from __future__ import annotations

import queue

from consumer.attempt.reports import Report
from consumer.process.effect_runner import build_serve_unit
from consumer.slots.messages import SlotAnswer, SlotReports, UsePipeline
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.runner import SlotRunner
from consumer.units.messages import PlaceUnit, UnitTakenOver
from consumer.units.unit import UnitRef

LONG_S = 120.0
"""A hang's end."""


def apply_here(settings: PipelineSettings, unit: UnitRef, taken: UnitTakenOver) -> list[Report]:
    """Apply what the unit lacks, and return the reports of its attempts."""
    answers: queue.SimpleQueue[SlotAnswer] = queue.SimpleQueue()
    runner = SlotRunner(answers.put)
    runner.handle_command(UsePipeline("r", settings.encode()))
    runner.handle_command(
        build_serve_unit("r", PlaceUnit(unit, taken), copy_at=None, only_here=settings.batches)
    )
    reports: list[Report] = []
    try:
        while taken.offset + 1 < taken.end and (not reports or reports[-1].offset + 1 < taken.end):
            answer = answers.get(timeout=LONG_S)
            if isinstance(answer, SlotReports):
                reports += answer.reports
                assert reports[-1].state == "ok", reports[-1]
    finally:
        runner.close()
    return reports
