"""The records of units in the progress topic of a Kafka target."""

from __future__ import annotations

import msgspec
import pytest

from consumer.ordering.model import ApplyUnit, UnitState
from consumer.targets.kafka.store.state import NOTHING, VERSION, Known, ProgressRecord, Units, pairs

UNIT = ApplyUnit("p", "t")


def _record(version: int) -> Known:
    return Known(ProgressRecord((), UnitState("d", None, None), version=version))


def test_a_record_is_read_as_it_was_written() -> None:
    units = Units()
    for key, value in pairs(UNIT, NOTHING, _record(VERSION)):
        units.take(key, value)
    assert units.unit(UNIT) == _record(VERSION)


def test_what_a_newer_version_wrote_is_refused_and_nothing_is_taken_of_it() -> None:
    units = Units()
    ((key, value),) = pairs(UNIT, NOTHING, _record(VERSION + 1))
    assert value is not None
    assert msgspec.json.decode(value)["version"] == VERSION + 1
    with pytest.raises(ValueError, match="a newer rowlock wrote it"):
        units.take(key, value)
    assert units.unit(UNIT) == NOTHING
