"""A unit's checkpoint is never ahead of what it has applied, and an idle table's advances with its source."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer.reporting import source_times as watermarks
from consumer.reporting.source_times import UNKNOWN_TIME, SourceTimes, SourceWatermarks, TopicWatermarks
from schemas.config.model import KafkaConfig
from schemas.wire.records import Watermark, decode_claim_key, encode_claim_key


def mark(ts: int, gen: int = 1, **topics: int) -> Watermark:
    return Watermark(
        source="s", gen=gen, position=(0, 1, ts, -1), file="b.1", commit_ts_ms=ts, ts_ms=ts, idle=False,
        topics=topics
    )  # fmt: skip


def test_an_idle_table_advances_with_its_source() -> None:
    marks = SourceWatermarks()
    marks.fold_watermark(mark(10, a=4, b=0))
    assert (
        marks.compute_checkpoint("a", 4),
        marks.compute_checkpoint("a", 3),
        marks.compute_checkpoint("c", 99),
    ) == (10, 0, 0)
    marks.fold_watermark(mark(20, b=3))
    assert (
        marks.compute_checkpoint("a", 4),
        marks.compute_checkpoint("b", 0),
        marks.compute_checkpoint("b", 3),
    ) == (20, 10, 20)
    marks.fold_watermark(mark(30, b=9))
    assert [marks.compute_checkpoint("b", n) for n in (-1, 0, 2, 3, 8, 9)] == [0, 10, 10, 20, 20, 30]


def test_a_topic_known_only_by_its_end_counts_once_that_is_applied() -> None:
    marks = SourceWatermarks()
    marks.fold_watermark(mark(10))
    marks.seed_topic("a", 7)
    assert (marks.compute_checkpoint("a", 6), marks.compute_checkpoint("a", 7)) == (UNKNOWN_TIME, 10)
    marks.seed_topic("a", 5)  # what is known is not made worse
    assert marks.compute_checkpoint("a", 6) == UNKNOWN_TIME


def test_the_backlog_is_what_a_topic_had_at_the_last_watermark() -> None:
    times = SourceTimes(KafkaConfig(bootstrap="h:1", prefix="p"), ["s"])
    assert (times.count_left("s", "a", 3), times.count_left("unknown", "a", 3)) == (None, None)
    times._marks["s"].fold_watermark(mark(10, a=7))
    assert [times.count_left("s", "a", applied) for applied in (-1, 3, 7, 8)] == [8, 4, 0, 0]
    times._marks["s"].fold_watermark(mark(20, b=0))
    assert times.count_left("s", "a", 3) == 4, "a topic that is not named has not grown"


def test_a_replaced_capture_unit_and_a_topic_made_again_say_nothing() -> None:
    marks = SourceWatermarks()
    marks.fold_watermark(mark(10, gen=2, a=4))
    marks.fold_watermark(mark(99, gen=1, a=2))
    assert (marks.resolved_ts, marks.compute_checkpoint("a", 2)) == (10, UNKNOWN_TIME)
    marks.fold_watermark(mark(20, gen=2, a=1))
    assert [marks.compute_checkpoint("a", n) for n in (0, 1)] == [UNKNOWN_TIME, 20]


def test_a_replaced_capture_unit_says_nothing_once_another_one_has_begun() -> None:
    """From its successor's first event on, readers drop what it captures."""
    marks = SourceWatermarks()
    marks.fold_watermark(mark(10, gen=1, a=4))
    marks.fold_claim(2)
    marks.fold_watermark(mark(99, gen=1, a=9))
    assert (marks.resolved_ts, marks.compute_checkpoint("a", 9)) == (10, 10)
    marks.fold_claim(1)  # written late
    marks.fold_watermark(mark(20, gen=1, a=9))
    assert marks.resolved_ts == 10
    marks.fold_watermark(mark(30, gen=2, a=12))
    assert [marks.compute_checkpoint("a", n) for n in (9, 12)] == [10, 30]


@pytest.mark.parametrize("key", [None, b"s", b"claim:", b"claim:x", b"claim"])
def test_a_record_with_another_key_claims_nothing(key: bytes | None) -> None:
    assert decode_claim_key(key) is None
    assert decode_claim_key(encode_claim_key(7)) == 7


def test_a_long_list_becomes_coarser_and_stays_bounded() -> None:
    topic = TopicWatermarks([0], [UNKNOWN_TIME])
    for n in range(1, 5000):
        topic.add_watermark(n, n * 10)
    assert len(topic.ends) == len(topic.before) <= watermarks.MAX_TOPIC_ENTRIES
    assert topic.ends[-1] == 4999
    assert sorted(topic.ends) == topic.ends


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abw"), st.integers(1, 3)), max_size=120),
    st.sampled_from(["a", "b"]),
    st.integers(3, 8),
    st.booleans(),
)
def test_never_ahead_of_what_is_applied(
    log: list[tuple[str, int]], late: str, most: int, seeded: bool
) -> None:
    """The log: events of a and b at rising times, and watermarks (w), of which the first come before the
    reader."""
    before, watermarks.MAX_TOPIC_ENTRIES = watermarks.MAX_TOPIC_ENTRIES, most
    try:
        _check(log, late, seeded)
    finally:
        watermarks.MAX_TOPIC_ENTRIES = before


def _check(log: list[tuple[str, int]], late: str, seeded: bool) -> None:
    events: dict[str, list[int]] = {"a": [], "b": []}  # topic → time of each offset
    marks, reported, now = SourceWatermarks(), {"a": -1, "b": -1}, 0
    for number, (what, step) in enumerate(log):
        now += step
        if what != "w":
            events[what].append(now)
        else:
            touched = {t: len(e) - 1 for t, e in events.items() if len(e) - 1 > reported[t]}
            reported |= touched
            if number > 10:
                marks.fold_watermark(mark(now, **touched))
        if seeded and number == 30:
            marks.seed_topic(late, len(events[late]) - 1)
        for topic, times in events.items():
            for applied in range(-1, len(times)):
                missing = times[applied + 1] if applied + 1 < len(times) else now + 1
                assert marks.compute_checkpoint(topic, applied) < missing
