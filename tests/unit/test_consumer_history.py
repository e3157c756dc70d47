"""Random histories through the whole core end as serial replay does, whatever the schedule."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kits.history import TopicHistory, histories, run_pure, run_threads, serial, target_table
from tests.stands.fake_target import FakeTarget

TABLE = target_table()


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(histories(), st.integers(1, 8), st.integers(1, 5), st.randoms(use_true_random=False))
def test_any_schedule_of_the_lanes_ends_as_serial_replay(
    history: TopicHistory, lanes: int, max_gather: int, rng: random.Random
) -> None:
    target = FakeTarget()
    if history.topic:
        run_pure(history, target.session(), TABLE, lanes=lanes, max_gather=max_gather, rng=rng)
    assert target.state.rows.get("public.history", {}) == serial(history)
    assert target.state.displaced == []  # in correct operation no insert ever meets a held unique value


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(histories(), st.integers(1, 8), st.sampled_from((1, 2, 1000)), st.integers(0, 2**32))
def test_real_threads_end_as_serial_replay(
    history: TopicHistory, lanes: int, max_gather: int, seed: int
) -> None:
    target = FakeTarget()
    final = run_threads(history, target.session, TABLE, lanes=lanes, max_gather=max_gather, seed=seed)
    assert final == serial(history)
    assert target.state.displaced == []
