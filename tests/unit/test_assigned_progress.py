"""The load that an apply process reports for its units: rows a second, measured over two seconds of its own
clock."""

from __future__ import annotations

import io
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from consumer.reporting.checkpoint_reporter import CheckpointReporter
from consumer.reporting.protocol import LineWriter
from consumer.reporting.source_times import SourceTimes
from consumer.units.messages import ReportEvent
from consumer.units.supervision import WatchedUnit
from consumer.units.unit import (
    Applying,
    AwaitingStart,
    Fencing,
    LocalState,
    LocalUnit,
    Preparing,
    TakingOver,
    UnitRef,
)
from schemas.config.model import KafkaConfig
from schemas.findings import WAITS_FOR_LOCK
from schemas.units import UnitLine, UnitProgress, WorkerEnded, WorkerEvent

UNIT = "apply/p/t"


class Driver:
    """One running unit, and a clock."""

    def __init__(self, debezium: frozenset[str] = frozenset()) -> None:
        self.now = 100.0
        self.unit = LocalUnit(UnitRef("t", "s", 7), Applying(), epoch=1)
        self._out = io.StringIO()
        times = SourceTimes(KafkaConfig(bootstrap="127.0.0.1:1"), ["s"])  # never started: it knows nothing
        self._speaker = CheckpointReporter("p", LineWriter(self._out), times, debezium)
        self._speaker.track_unit("t", 7, None)

    def after(
        self, seconds: float, *, applied: int, offset: int = 0, commit_ts_ms: int = 0
    ) -> list[WorkerEvent]:
        """Let time pass and rows be applied in it; return what is said then."""
        self.now += seconds
        before = self.unit.watched.applied
        watched = WatchedUnit(offset, applied=before + applied, commit_ts_ms=commit_ts_ms)
        self.unit = replace(self.unit, watched=watched)
        return self._said(lambda: self._speaker.report_changes(self.now, {"t": self.unit}))

    def ended(self, offset: int) -> WorkerEvent:
        (reported,) = self._said(
            lambda: self._speaker.report_event(ReportEvent("t", "s", 7, WorkerEnded, offset=offset))
        )
        return reported

    def _said(self, act: Callable[[], None]) -> list[WorkerEvent]:
        self._out.seek(0)
        self._out.truncate()
        act()
        lines = [msgspec.json.decode(line, type=UnitLine) for line in self._out.getvalue().splitlines()]
        assert {line.unit for line in lines} <= {UNIT}
        return [line.event for line in lines]

    def rate_after(self, seconds: float, *, applied: int) -> int | None:
        """None: nothing is said."""
        reported = self.after(seconds, applied=applied)
        assert all(each.assignment == 7 for each in reported)
        return reported[-1].rows_per_s if reported else None


@pytest.fixture
def driver() -> Driver:
    return Driver()


def test_rows_a_second_are_those_of_the_time_since_they_were_last_counted(driver: Driver) -> None:
    assert driver.rate_after(0.0, applied=9_000) == 0, "what was before counting began is no rate"
    assert driver.rate_after(1.0, applied=700) is None
    assert driver.rate_after(1.0, applied=300) == 500
    assert driver.rate_after(4.0, applied=1_000) == 250, "over the time that has really passed"
    assert driver.rate_after(2.0, applied=500) is None, "the same rate again is not said"
    assert driver.rate_after(2.0, applied=0) == 0, "a unit that rests is said to"
    assert driver.rate_after(60.0, applied=0) is None


def test_a_mark_between_two_counts_goes_with_the_rate_of_the_last(driver: Driver) -> None:
    driver.after(0.0, applied=0)
    driver.after(2.0, applied=200)
    driver.unit = replace(driver.unit, position=(0, 1, 2, 3))
    reported = driver.after(0.75, applied=5_000)
    assert [(each.rows_per_s, each.mark and each.mark.position) for each in reported] == [(100, (0, 1, 2, 3))]
    driver.unit = replace(driver.unit, position=(0, 1, 2, 4))
    assert driver.after(0.25, applied=0) == [], "not before half a second has passed"
    assert driver.rate_after(1.0, applied=0) == 2_500


def test_a_wait_for_a_row_lock_is_reported_and_ends(driver: Driver) -> None:
    driver.after(0.0, applied=0)
    driver.unit = driver.unit.enter(Applying("seen"))
    assert [each.error for each in driver.after(1.0, applied=0)] == [f"{WAITS_FOR_LOCK}seen"]
    assert driver.after(1.0, applied=0) == []
    driver.unit = driver.unit.enter(Applying())
    assert [each.error for each in driver.after(1.0, applied=0)] == [None]
    driver.unit = replace(driver.unit, epoch=0, state=TakingOver(0.0, lock_wait="seen"))
    assert [each.error for each in driver.after(1.0, applied=0)] == [f"{WAITS_FOR_LOCK}seen"]


@pytest.mark.parametrize("state", [Preparing(None), AwaitingStart(), Fencing(None)])
def test_only_a_unit_that_may_write_has_a_rate(driver: Driver, state: LocalState) -> None:
    driver.unit = driver.unit.enter(state)
    assert driver.after(0.0, applied=10) == []
    assert driver.after(2.0, applied=10) == []


def test_without_watermarks_a_unit_is_as_far_as_its_last_event() -> None:
    """More of that event's millisecond may follow; a unit that has seen no event of the log is nowhere
    yet."""
    driver = Driver(debezium=frozenset({"s"}))
    (first,) = driver.after(0.0, applied=5)
    assert first.mark == UnitProgress(0, 0)
    (then,) = driver.after(5.0, applied=5, commit_ts_ms=1_790_000_000_000)
    assert then.mark == UnitProgress(1_789_999_999_999, 1_789_999_999_999)
    again = driver.after(5.0, applied=5, commit_ts_ms=1_700_000_000_000)
    assert all(each.mark == then.mark for each in again), "never back"
    ended = driver.ended(offset=9)
    assert ended.mark == then.mark
