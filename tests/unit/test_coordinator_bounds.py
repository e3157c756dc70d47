"""What an agent cannot mean is refused, counted and alarmed, and changes nothing durable."""

from __future__ import annotations

import pytest

from coordinator.core.handlers.bounds import LONGEST_NAME, MOST_ROWS
from coordinator.core.leader import steps
from coordinator.core.leader.state import Alarm, LeaderConfig, Persist
from coordinator.core.messages import Checkpoint, DispatchResponse, Hello, Sync, UnitStatus
from coordinator.transport.access import (
    build_call_metadata,
    explain_other_caller_system,
    explain_unknown_caller,
)
from schemas.units import UnitPhase, UnitProgress
from tests.kits.leader_core import CONFIG, Cluster
from tests.kits.leader_history import play

NOW_MS = 1_790_000_000_000
FAR = NOW_MS + 3_600_000


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.state.claim.floor, made.state.claim.began = NOW_MS, made.now
    play("a joins; +u +v; tick; a: prepared u, prepared v; a: replicating u, replicating v", made)
    made.effects.clear()
    return made


def assignment(cluster: Cluster, unit: str) -> int:
    return cluster.state.sets.by_unit[unit].replicas[0].assignment


def alarms(cluster: Cluster) -> list[str]:
    return [e.what for e in cluster.effects if isinstance(e, Alarm)]


def held(cluster: Cluster, mark: UnitProgress, rows: int = 7) -> list[UnitStatus]:
    return [UnitStatus(u, assignment(cluster, u), UnitPhase.REPLICATING, mark, rows) for u in ("u", "v")]


def test_a_mark_later_than_now_is_refused_however_it_comes(cluster: Cluster) -> None:
    good, bad = UnitProgress(NOW_MS - 5, NOW_MS), UnitProgress(NOW_MS, FAR)
    cluster.beat("a", *held(cluster, good))
    cluster.beat("a", *held(cluster, bad))
    cluster.up(Sync, "a", sent=2.0, running=tuple(held(cluster, bad)))
    cluster.up(DispatchResponse, "a", answers=0, status=held(cluster, bad)[0])
    cluster.up(
        Checkpoint,
        "a",
        marks=(
            ("u", assignment(cluster, "u"), bad),
            ("v", assignment(cluster, "v"), UnitProgress(NOW_MS, NOW_MS)),
        ),
    )
    assert cluster.state.sets.memos["u"].mark == good
    assert cluster.state.sets.memos["v"].mark == UnitProgress(NOW_MS, NOW_MS)
    assert alarms(cluster) == ["mark refused"]
    assert cluster.state.history.dropped["mark refused"] == 4
    assert cluster.state.sets.by_unit["u"].primary is not None, "its other words are believed"


def test_a_source_s_clock_may_be_a_little_ahead_and_time_goes_on(cluster: Cluster) -> None:
    ahead = int(1000 * CONFIG.ahead)
    cluster.beat("a", *held(cluster, UnitProgress(NOW_MS, NOW_MS + ahead)))
    cluster.now += 5.0
    cluster.beat("a", *held(cluster, UnitProgress(NOW_MS, NOW_MS + ahead + 5000)))
    assert not alarms(cluster)


def test_an_epoch_that_was_never_given_raises_nothing_and_is_told_to_stop(cluster: Cluster) -> None:
    before = cluster.state.numbers.counter
    cluster.sent.clear()
    cluster.beat("a", *held(cluster, UnitProgress(1, 1)), UnitStatus("w", 10**15, UnitPhase.REPLICATING))
    assert cluster.state.numbers.counter == before
    assert cluster.dispatched() == [("a", "w", "remove")]
    assert alarms(cluster) == ["epoch refused"]
    later = steps.begin_leader_term("p", 99, cluster.records, LeaderConfig(), 0.0)[0]
    assert later.numbers.counter == before


def test_alarms_come_now_and_then_and_all_is_counted(cluster: Cluster) -> None:
    for _ in range(130):
        cluster.now += 1.0
        cluster.beat("a", *held(cluster, UnitProgress(FAR, FAR + 10**9)))
    assert alarms(cluster).count("mark refused") == 3
    assert cluster.state.history.dropped["mark refused"] == 130


@pytest.mark.parametrize(("reported", "believed"), [(-5, 0), (10**15, MOST_ROWS), (8, 8)])
def test_rates_are_kept_within_reason(cluster: Cluster, reported: int, believed: int) -> None:
    cluster.beat("a", *held(cluster, UnitProgress(1, 1), reported))
    assert cluster.state.sets.memos["u"].rows_per_s == believed


@pytest.mark.parametrize("sent", [float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(cluster: Cluster, sent: float) -> None:
    cluster.up(Sync, "a", sent=sent)
    assert alarms(cluster) == ["time refused"]
    assert cluster.state.members.by_name["a"].echo == cluster.now


def test_there_are_not_more_agents_than_can_be() -> None:
    made = Cluster(config=LeaderConfig(agents=2))
    made.join("a", "b")
    made.up(Hello, "c", assignment=0, rev=0, incarnation="c-1")
    assert set(made.state.members.by_name) == {"a", "b"}
    assert "agent/c" not in made.records
    assert alarms(made) == ["too many agents"]
    made.up(Hello, "a", assignment=0, rev=0, incarnation="a-2")
    assert made.state.members.by_name["a"].incarnation == "a-2", "a restart of one that is known is none more"


def test_a_name_has_an_end_and_one_registration_at_a_time(cluster: Cluster) -> None:
    cluster.up(Hello, "x" * (LONGEST_NAME + 1), assignment=0, rev=0, incarnation="i")
    assert alarms(cluster) == ["name refused"]
    cluster.storing = False
    for number in range(9):
        cluster.up(Hello, "n", assignment=0, rev=0, incarnation=f"n-{number}")
    assert len([e for e in cluster.effects if isinstance(e, Persist)]) == 1


@pytest.mark.parametrize(
    ("token", "shown", "fine"),
    [
        ("t", "t", True),
        ("t", "", False),
        ("t", "x", False),
        ("", "", True),
        ("", "x", True),
        ("tö", "tö", True),
    ],
)
def test_who_bears_the_token_is_no_stranger(token: str, shown: str, fine: bool) -> None:
    assert (explain_unknown_caller(token, build_call_metadata("p", shown)) is None) is fine
    assert explain_other_caller_system("p", build_call_metadata("q", shown)) is not None
    assert explain_other_caller_system("p", build_call_metadata("", shown)) is None
