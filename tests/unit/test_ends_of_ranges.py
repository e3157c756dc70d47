"""Both ends of ranges that a rule names, one value each: what stands at the end is inside."""

from __future__ import annotations

import pytest

from consumer.attempt.drivers.batches import SingleThreadSignals
from consumer.attempt.effects import Await
from consumer.attempt.lane_group import LaneGroup
from consumer.ordering.collations import make_text_fold
from consumer.ordering.dispatch import Dispatcher
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, RowChange
from consumer.ordering.tickets import TicketTable
from producer.snapshot.chunk_sender import compute_first_row
from schemas.wire.position import ZERO
from tests.kits.history import target_table


@pytest.mark.parametrize("collation", ["utf8mb4_0900_ai_ci", "utf8mb4_unicode_ci", "utf8mb4_general_ci"])
def test_every_hiragana_counts_as_its_katakana(collation: str) -> None:
    fold = make_text_fold(collation, None)
    apart = [chr(point) for point in range(0x3041, 0x3097) if fold(chr(point)) != fold(chr(point + 0x60))]
    assert apart == []


@pytest.mark.parametrize("point", [0x7F, 0x640, 0x674, 0xE2F, 0x309D])
@pytest.mark.parametrize("collation", ["utf8mb4_0900_ai_ci", "utf8mb4_general_ci"])
def test_what_stands_behind_a_range_of_letters_that_stay_is_dropped(collation: str, point: int) -> None:
    """A server may ignore it (DEL, the tatweel), or take it for the letter before it (an iteration mark)."""
    fold = make_text_fold(collation, None)
    assert fold(f"a{chr(point)}b") == fold("ab") != fold("a")


@pytest.mark.parametrize("row", [0, 1, 2**40])
def test_rows_of_the_log_at_a_topics_end_do_not_raise_those_of_a_snapshot(row: int) -> None:
    """The first row of a transaction is row 0."""
    assert compute_first_row(5, (0, 3, 4711, row)) == compute_first_row(5, None) < 0


@pytest.mark.parametrize("most", [0, 1, 3])
def test_as_many_events_as_the_limit_wait_for_nothing_and_one_more_does(most: int) -> None:
    locks = TicketTable(1)
    dispatcher = Dispatcher(Layout(lanes=1), locks, [LaneProgress(0, 1, 1, "id", -1, ZERO, 0, "")])
    group = LaneGroup(
        dispatcher, locks, lambda _lane, _batch: iter(()), limits=LaneLimits(max_pending=most),
        signals=SingleThreadSignals(),  # type: ignore[arg-type,return-value]
    )  # fmt: skip
    plan = dispatcher.plan_table(target_table())
    changes = [RowChange((n, 0), None, (n, None, None, 0), wire=b"{}") for n in range(most + 1)]
    assert list(group.submit_changes(plan, changes[:most])) == []
    assert isinstance(next(group.submit_changes(plan, changes[most:])), Await)
