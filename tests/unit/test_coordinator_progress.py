"""Progress: never back, never past a missing unit, and the cut over all sources."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.progress import PipelineProgress, PipelineUnits, advance_mark, advance_pipeline
from schemas.units import UnitProgress

UNITS = PipelineUnits("to-hq", {"b1": ("a", "b"), "b2": ("c",)})
MARKS = st.builds(
    UnitProgress, st.integers(0, 9), st.integers(0, 9), st.none() | st.tuples(*[st.integers(0, 2)] * 4)
)


def test_a_unit_never_goes_back() -> None:
    known = UnitProgress(5, 9, (0, 1, 1, 0))
    assert advance_mark(known, UnitProgress(4, 8, (0, 1, 0, 9))) == known
    assert advance_mark(known, UnitProgress(12, 8)) == UnitProgress(12, 12, (0, 1, 1, 0))
    assert advance_mark(None, known) == known == advance_mark(known, None)


@settings(max_examples=100, deadline=None)
@given(st.lists(MARKS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_reports_in_any_order_and_number_give_the_same_mark(
    marks: list[UnitProgress], random: object
) -> None:
    def fold(many: list[UnitProgress]) -> UnitProgress | None:
        mark: UnitProgress | None = None
        for one in many:
            before = mark
            mark = advance_mark(mark, one)
            assert before is None or (mark is not None and mark.checkpoint_ts >= before.checkpoint_ts)
        return mark

    shuffled = [*marks, *marks]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = fold(marks), fold(shuffled)
    assert first is not None
    assert second is not None
    assert (first.checkpoint_ts, first.position) == (second.checkpoint_ts, second.position)


def test_a_pipeline_is_where_its_slowest_unit_is() -> None:
    progress = advance_pipeline(
        PipelineProgress(),
        UNITS,
        {"a": UnitProgress(5, 9), "b": UnitProgress(7, 8), "c": UnitProgress(6, 20)},
    )
    assert (progress.checkpoint_ts, progress.resolved_ts, progress.cut_ts) == (5, 8, 5)
    assert progress.by_source == {"b1": 5, "b2": 6}


def test_a_missing_unit_or_source_stops_the_pipeline_and_is_named() -> None:
    before = PipelineProgress(3, 4, {"b1": 3, "b2": 3})
    after = advance_pipeline(before, UNITS, {"a": UnitProgress(9, 9), "c": UnitProgress(9, 9)})
    assert (after.checkpoint_ts, after.resolved_ts, after.waits_for) == (3, 4, ("b",))
    assert after.by_source == {"b1": 3, "b2": 9}
    bare = advance_pipeline(before, PipelineUnits("p", {"b1": ("a",), "b2": ()}), {"a": UnitProgress(9, 9)})
    assert (bare.checkpoint_ts, bare.waits_for) == (3, ("b2",))


def test_a_pipeline_without_sources_has_no_checkpoint() -> None:
    assert advance_pipeline(PipelineProgress(), PipelineUnits("p", {}), {}).checkpoint_ts is None


def test_a_unit_added_behind_does_not_take_the_pipeline_back() -> None:
    before = PipelineProgress(10, 10, {"b1": 10, "b2": 10})
    behind = {"a": UnitProgress(2, 20), "b": UnitProgress(30, 30), "c": UnitProgress(30, 30)}
    assert advance_pipeline(before, UNITS, behind).checkpoint_ts == 10
    assert advance_pipeline(before, UNITS, {**behind, "a": UnitProgress(25, 25)}).checkpoint_ts == 25


def test_a_source_that_is_held_where_it_was_does_not_let_the_pipeline_pass_its_new_unit() -> None:
    """Found by the simulation: source b2 stays at 12 for its readers, but its unit c was created again and is
    at 0."""
    before = PipelineProgress(5, 5, {"b1": 5, "b2": 12})
    after = advance_pipeline(
        before, UNITS, {"a": UnitProgress(10, 10), "b": UnitProgress(10, 10), "c": UnitProgress(0, 0)}
    )
    assert (after.checkpoint_ts, after.by_source) == (5, {"b1": 10, "b2": 12})


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), MARKS), max_size=8))
def test_a_pipeline_never_goes_back_and_never_passes_a_unit(reports: list[dict[str, UnitProgress]]) -> None:
    marks: dict[str, UnitProgress | None] = {}
    progress = PipelineProgress()
    for report in reports:
        marks.update({unit: advance_mark(marks.get(unit), mark) for unit, mark in report.items()})
        before, progress = progress, advance_pipeline(progress, UNITS, marks)
        if before.checkpoint_ts is not None:
            assert progress.checkpoint_ts is not None
            assert progress.checkpoint_ts >= before.checkpoint_ts
        if progress.checkpoint_ts is not None:
            assert all(
                mark is not None and mark.checkpoint_ts >= progress.checkpoint_ts for mark in marks.values()
            )
