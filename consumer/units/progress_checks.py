"""Checks a query's progress: whether a unit has caught up, and whether Spark handed over records that
were not applied.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumer.units.messages import QueryProgress
from consumer.units.unit import ApplyPhase, LocalUnit

NEAR_POLLS = 4
"""Number of consecutive polls after which a unit near its topic's end counts as caught up."""
MAX_LIVE_BACKLOG = 5_000
"""Greatest backlog, in events, of a unit that the live query applies; it reads these events from Kafka
directly."""


def needs_fast_polling(units: Iterable[LocalUnit]) -> bool:
    """Return whether Spark's progress should be polled fast: a unit is new to its query, or catches up."""
    return any(unit.phase is ApplyPhase.APPLYING and (unit.has_backlog or not unit.checked) for unit in units)


def has_caught_up(unit: LocalUnit, look: QueryProgress) -> bool:
    """Return whether a unit with a backlog is at its topic's end, or stays so close to it that only
    newly arriving events are left.
    """
    lacks = look.ends[unit.topic] - (unit.watched.offset + 1)
    unit.polls_near_end = unit.polls_near_end + 1 if lacks <= MAX_LIVE_BACKLOG else 0
    return lacks <= 0 or unit.polls_near_end > NEAR_POLLS


def has_skipped_records(unit: LocalUnit, look: QueryProgress) -> bool:
    """Return whether Spark handed over records that were not applied.

    This happens before a unit becomes active in its query, or in a lost task. The check spans two polls
    and counts only batches that began after the unit became active, so that their reports have arrived.
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
