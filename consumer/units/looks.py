"""Looks at a query's progress: has a unit that was behind caught up, and did Spark hand over records that nobody applied?"""

from __future__ import annotations

from collections.abc import Iterable

from consumer.units.messages import QueryProgress
from consumer.units.unit import ApplyPhase, LocalUnit

NEAR_POLLS = 4
"""Looks in a row after which a unit that stays near its topic's end is taken to have caught up."""
MAX_LIVE_BACKLOG = 5_000
"""Events that a unit may lack and still be applied by the live query, which gets them from Kafka beside Spark."""


def needs_fast_polling(units: Iterable[LocalUnit]) -> bool:
    """Tell whether Spark's progress is of interest now: a unit is new on its board, or catches up."""
    return any(unit.phase is ApplyPhase.APPLYING and (unit.behind or not unit.checked) for unit in units)


def has_caught_up(unit: LocalUnit, look: QueryProgress) -> bool:
    """Tell whether a unit that was behind is at its topic's end, or stays so near that the end runs ahead of it."""
    lacks = look.ends[unit.topic] - (unit.watched.offset + 1)
    unit.polls_near_end = unit.polls_near_end + 1 if lacks <= MAX_LIVE_BACKLOG else 0
    return lacks <= 0 or unit.polls_near_end > NEAR_POLLS


def has_skipped_records(unit: LocalUnit, look: QueryProgress) -> bool:
    """Tell whether Spark handed records over that nobody applied: before the unit was on the board, or in a lost task.

    Two looks apart, and only by batches that began when the unit was on the board: their reports have arrived.
    """
    if unit.expected_offset is not None and unit.watched.offset + 1 < unit.expected_offset:
        return True
    unit.expected_offset = None
    if unit.since is None:
        unit.since = look.finished
    elif look.idle or look.finished >= unit.since + 2:
        end = look.ends.get(unit.topic, 0)
        unit.checked = unit.watched.offset + 1 >= end
        unit.expected_offset = None if unit.checked else end
    return False
