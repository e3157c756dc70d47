"""Decisions about progress rows: where to start, with which layout, what each lane writes (design.md §6, findings 4-6, 11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumer.layout import Layout
from consumer.model import LaneProgress
from schemas.position import Position

Mark = tuple[int, Position, int, int]
"""How far: (offset, position, gen, source commit ms)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a task attempt goes on. `start`: first offset to read (lowest lane + 1). `layout`: to dispatch with.

    `finish`: None, or the offset (the highest lane's) at which the batch must be ended so that all lanes stand equal
    and `switch` (the wanted layout's rows) can be written by `Transaction.relayout`; then make a new Plan.
    `switch_now`: all lanes stand equal already and another layout is wanted: relayout before anything is dispatched.
    """

    start: int
    layout: Layout
    finish: int | None
    switch_now: bool


def plan(rows: Sequence[LaneProgress], wanted: Layout) -> Plan:
    """Decide from the rows read at `Session.begin`. Raises UnitStoppedError (stored layout not computable)."""
    raise NotImplementedError


def relaid(rows: Sequence[LaneProgress], wanted: Layout) -> list[LaneProgress]:
    """Return the rows of `wanted`, all standing where `rows` stand (which must be equal), for `Transaction.relayout`."""
    raise NotImplementedError


def advanced(row: LaneProgress, mark: Mark) -> LaneProgress:
    """Return `row` moved to `mark`: what a lane writes in its transaction (never backwards: ValueError)."""
    raise NotImplementedError


def committed(read: LaneProgress | None, guard: LaneProgress, wrote: LaneProgress) -> bool:
    """After a commit of unknown outcome: whether it happened, by the row read afterwards. FencedError if neither."""
    raise NotImplementedError


def start_refusal(rows: Sequence[LaneProgress], topic_id: str, beginning: int, end: int) -> str | None:
    """Return why the unit must stop: another topic id, offsets that retention deleted, progress beyond the topic's end."""
    raise NotImplementedError
