"""The records of units in the progress topic of a Kafka target."""

from __future__ import annotations

import msgspec
import pytest

from consumer.ordering.model import ApplyUnit, UnitState
from consumer.targets.batches import ProgressChange
from consumer.targets.kafka.store.progress_topic import OVERHEAD, measure_record
from consumer.targets.kafka.store.state import (
    PROGRESS_RECORD_VERSION,
    UNKNOWN_UNIT,
    KnownUnit,
    ProgressRecord,
    RecordScheme,
    TopicUnits,
    apply_progress_change,
    yield_progress_pairs,
)
from consumer.targets.kafka.writer import Outgoing

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


def test_a_commit_keeps_how_records_are_written_unless_it_brings_a_way() -> None:
    first, other = (RecordScheme("t", "rowlock", (key,), 1, "murmur2") for key in ("id", "name"))
    change = ProgressChange(guards=(), rows=())
    known = apply_progress_change(UNKNOWN_UNIT, change, first)
    assert known.written == first
    assert apply_progress_change(known, change, None).written == first
    assert apply_progress_change(known, change, other).written == other


def test_a_record_has_at_least_the_size_of_its_parts() -> None:
    headers = (("a", b"12345"), ("bc", b""))
    assert measure_record(Outgoing("t", 0, b"key", b"value")) == OVERHEAD + 8
    assert measure_record(Outgoing("t", 0, b"key", None, headers)) == OVERHEAD + 3 + 6 + 2 + 2 * 10
