"""What an apply process says about its units' load: rows a second, measured over two seconds of its own clock."""

from __future__ import annotations

import io

import msgspec
import pytest

from consumer.assigned.lines import Lines, Said
from consumer.assigned.progress import Speaker
from consumer.assigned.source_times import SourceTimes
from consumer.assigned.units import Phase, UnitHere
from consumer.supervision import Watched
from schemas.config import KafkaConfig

UNIT = "apply/p/t"


class Driver:
    """One running unit, and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.unit = UnitHere("t", "s", 7, phase=Phase.RUNNING, epoch=1)
        self._out = io.StringIO()
        times = SourceTimes(KafkaConfig(bootstrap="127.0.0.1:1"), ["s"])  # never started: it knows nothing
        self._speaker = Speaker("p", Lines(self._out), times)
        self._speaker.opened("t", 7, None)

    def after(self, seconds: float, *, applied: int, offset: int = 0) -> list[Said]:
        """Let time pass and rows be applied in it; return what is said then."""
        self.now += seconds
        self.unit.watched = Watched(offset, applied=self.unit.watched.applied + applied)
        self._out.seek(0)
        self._out.truncate()
        self._speaker.tick(self.now, {"t": self.unit})
        return [msgspec.json.decode(line, type=Said) for line in self._out.getvalue().splitlines()]

    def rate_after(self, seconds: float, *, applied: int) -> int | None:
        """None: nothing is said."""
        said = self.after(seconds, applied=applied)
        assert all((each.unit, each.epoch, each.event) == (UNIT, 7, "progressed") for each in said)
        return said[-1].rows_per_s if said else None


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
    driver.unit.position = (0, 1, 2, 3)
    said = driver.after(0.75, applied=5_000)
    assert [(each.rows_per_s, each.mark and each.mark.position) for each in said] == [(100, (0, 1, 2, 3))]
    driver.unit.position = (0, 1, 2, 4)
    assert driver.after(0.25, applied=0) == [], "not before half a second has passed"
    assert driver.rate_after(1.0, applied=0) == 2_500


@pytest.mark.parametrize("phase", [Phase.OPENING, Phase.READY, Phase.STOPPING])
def test_only_a_unit_that_may_write_has_a_rate(driver: Driver, phase: Phase) -> None:
    driver.unit.phase = phase
    assert driver.after(0.0, applied=10) == []
    assert driver.after(2.0, applied=10) == []
