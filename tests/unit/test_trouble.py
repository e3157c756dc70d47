"""What a report says of an attempt's progress, and of what it waits for."""

from __future__ import annotations

import pytest

from consumer.attempt.reports import CopyNeed
from consumer.attempt.spec import UnitSpec
from consumer.attempt.transactions import AttemptProgress
from consumer.attempt.unit_errors import AttemptFigures, Trouble, build_attempt_report, classify_error
from consumer.errors import CopyNeededError
from consumer.ordering.model import ApplyUnit, LaneProgress
from schemas.problems import Problem

SPEC = UnitSpec(
    unit=ApplyUnit("p", "rl.b1.bank.acct"), source="b1", epoch=3, topic_id="id", routes=(), lanes=2
)


def test_an_attempt_that_read_no_progress_reports_none() -> None:
    report = build_attempt_report(
        SPEC, AttemptProgress([]), AttemptFigures(), Trouble("fenced", Problem("another epoch"))
    )
    assert (report.offset, report.position, report.commit_ts_ms) == (-1, None, 0)


def test_a_report_tells_the_lowest_lane_s_progress() -> None:
    lanes = [LaneProgress(n, 3, 1, "id", 7 - n, (0, 1, 90 - n, 0), 1, "{}", 40 - n) for n in range(2)]
    report = build_attempt_report(
        SPEC, AttemptProgress(lanes), AttemptFigures(dropped=2), Trouble("ok", Problem("")), passed=3
    )
    assert (report.offset, report.position, report.commit_ts_ms) == (6, (0, 1, 89, 0), 39)
    assert (report.dropped, report.epoch) == (5, 3)


@pytest.mark.parametrize(("after", "reported"), [(None, -1), (0, 0), (7, 7)])
def test_a_copy_that_heals_a_unit_begins_behind_what_it_cannot_follow_or_anywhere(
    after: int | None, reported: int
) -> None:
    """Offsets count from 0: behind -1 is the whole topic."""
    trouble = classify_error("t", CopyNeededError("seen", cause="gap", after=after))
    assert (trouble.state, trouble.fault, trouble.copy) == ("stopped", False, CopyNeed(reported, "gap"))
