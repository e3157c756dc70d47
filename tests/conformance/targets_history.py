"""Random histories through the real core, many lanes at once, into every kind of real target: the end is
serial replay.

Also: no row is displaced on the way, so no statement met a unique value that the lanes' locks should have
kept away.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.kits.history import UNIT, TopicHistory, histories, run_threads, serial, target_table
from tests.kits.targets import Target


def test_random_histories_end_as_serial_replay(target: Target) -> None:
    @settings(
        max_examples=8,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )
    @given(histories(), st.integers(1, 8), st.sampled_from((1, 3, 1000)), st.integers(0, 2**32))
    def run(history: TopicHistory, lanes: int, max_gather: int, seed: int) -> None:
        table = target_table(target.schema, f"h{len(used)}")
        used.append(table.name)
        if len(used) > 1:
            target.sql("DELETE FROM rowlock_progress")
            target.sql("DELETE FROM rowlock_unit")
        final = run_threads(history, target.open, table, lanes=lanes, max_gather=max_gather, seed=seed)
        for session in target.sessions:
            session.close()
        target.sessions.clear()
        assert final == serial(history)
        assert target.sql("SELECT COUNT(*) FROM rowlock_displaced") == [(0,)]

    used: list[str] = []
    run()
    assert used
    assert UNIT.topic
