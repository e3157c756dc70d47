"""The records of units in the progress topic of a Kafka target."""

from __future__ import annotations

import msgspec
import pytest

from consumer.ordering.model import ApplyUnit, UnitState
from consumer.targets.kafka.store.state import (
    PROGRESS_RECORD_VERSION,
    UNKNOWN_UNIT,
    KnownUnit,
    ProgressRecord,
    TopicUnits,
    yield_progress_pairs,
)

UNIT = ApplyUnit("p", "t")


def _record(version: int) -> KnownUnit:
    return KnownUnit(ProgressRecord((), UnitState("d", None, None), version=version))


def test_a_record_is_read_as_it_was_written() -> None:
    units = TopicUnits()
    for key, value in yield_progress_pairs(UNIT, UNKNOWN_UNIT, _record(PROGRESS_RECORD_VERSION)):
        units.take_record(key, value)
    assert units.get_unit(UNIT) == _record(PROGRESS_RECORD_VERSION)


def test_what_a_newer_version_wrote_is_refused_and_nothing_is_taken_of_it() -> None:
    units = TopicUnits()
    ((key, value),) = yield_progress_pairs(UNIT, UNKNOWN_UNIT, _record(PROGRESS_RECORD_VERSION + 1))
    assert value is not None
    assert msgspec.json.decode(value)["version"] == PROGRESS_RECORD_VERSION + 1
    with pytest.raises(ValueError, match="a newer version of rowlock wrote this record"):
        units.take_record(key, value)
    assert units.get_unit(UNIT) == UNKNOWN_UNIT
