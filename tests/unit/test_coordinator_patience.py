"""A preparation is given up when it does not get on, not when it is slow; and who says that it gets on."""

from __future__ import annotations

import pytest

from coordinator.core.agent import WorkerEventReceived
from coordinator.core.leader.state import Alarm, LeaderConfig, Tick
from coordinator.core.messages import Header, Heartbeat, UnitStatus
from coordinator.core.replication_table import SetState
from coordinator.transport import wire
from rowlock.agent.unit_ledger import UnitLedger
from rowlock.agent.workers import PreparationMonitor
from schemas.units import Prepared, PrepareProgress, UnitOperation, UnitPhase, WorkerEnded, WorkerEvent
from tests.kits.agent_core import Driver
from tests.kits.leader_core import Cluster
from tests.kits.leader_history import play

CONFIG = LeaderConfig(
    leader_lease=1e9,
    balance_every=1e9,
    prepare_timeout=10.0,
    prepare_most=100.0,
    retry_first=0.0,
    retry_most=0.0,
)


@pytest.fixture
def cluster() -> Cluster:
    return play("a joins; +u; tick ⇒ a prepare u", Cluster(config=CONFIG))


def given_up(cluster: Cluster) -> bool:
    out = cluster.do(Tick())
    return any(isinstance(e, Alarm) and e.what == "preparation given up" for e in out)


def prepare(cluster: Cluster, seconds: int, *, every: int = 0) -> int | None:
    """Let the unit prepare, with progress after every `every` seconds (0: never); returns after how many
    seconds it is given up."""
    steps = 0
    for second in range(1, seconds + 1):
        cluster.now += 1.0
        steps += bool(every and second % every == 0)
        assignment = cluster.state.sets.by_unit["u"].replicas[0].assignment
        cluster.beat("a", UnitStatus("u", assignment, UnitPhase.PREPARING, steps=steps))
        if given_up(cluster):
            return second
    return None


def test_one_that_does_not_get_on_is_given_up(cluster: Cluster) -> None:
    assert prepare(cluster, 20) == 10


def test_one_that_gets_on_is_not_however_slow(cluster: Cluster) -> None:
    assert prepare(cluster, 95, every=9) is None
    assert cluster.state.sets.by_unit["u"].state is SetState.PREPARE


def test_but_not_for_ever(cluster: Cluster) -> None:
    assert prepare(cluster, 200, every=2) == 100


def test_each_time_doubles_the_patience_up_to_eight_times_until_it_gets_ready(cluster: Cluster) -> None:
    waits = []
    for _ in range(5):
        waits.append(prepare(cluster, 200))
        cluster.beat("a")
        cluster.do(Tick())
    assert waits == [10, 20, 40, 80, 80]
    cluster.replicate("u", "a")
    assert cluster.state.sets.memos["u"].given_up == 0


def test_the_word_of_another_replica_does_not_count(cluster: Cluster) -> None:
    cluster.join("b")
    for second in range(1, 11):
        cluster.now += 1.0
        cluster.beat("b", UnitStatus("u", 1, UnitPhase.PREPARING, steps=second))
        cluster.beat(
            "a", UnitStatus("u", cluster.state.sets.by_unit["u"].replicas[0].assignment, UnitPhase.PREPARING)
        )
    assert given_up(cluster)


def test_an_agent_counts_while_it_prepares_and_only_then() -> None:
    driver = Driver()
    driver.announce()
    driver.dispatch(UnitOperation.PREPARE)
    for _ in range(3):
        driver.do(WorkerEventReceived("u", PrepareProgress(5)))
    driver.do(WorkerEventReceived("u", PrepareProgress(4)))
    assert driver.state.units.by_name["u"].status.steps == 3
    driver.do(WorkerEventReceived("u", Prepared(5)))
    driver.do(WorkerEventReceived("u", PrepareProgress(5)))
    assert (driver.held(), driver.state.units.by_name["u"].steps) == (UnitPhase.PREPARED, 3)


@pytest.mark.parametrize("steps", [(0, 0), (0, 7), (3, 0)])
def test_the_wire_carries_it(steps: tuple[int, int]) -> None:
    reported = tuple(UnitStatus(f"u{n}", 1, UnitPhase.PREPARING, steps=n) for n in steps)
    beat = Heartbeat(Header(1, 2, 3, 4), "a", 5.0, reported)
    assert wire.decode_agent_frame(wire.encode_frame([beat])) == [beat]


class Efforts:
    def __init__(self) -> None:
        self.reported: list[tuple[str, WorkerEvent]] = []
        self.ledger = UnitLedger()
        self.ledger.listen(lambda unit, event: self.reported.append((unit, event)))
        self.effort = {"busy": 1.0, "hangs": 1.0}
        self.pulse = PreparationMonitor(self.ledger, lambda unit, _: self.effort[unit])

    def look(self) -> list[str]:
        self.reported.clear()
        self.pulse.report_progress()
        return [unit for unit, event in self.reported if isinstance(event, PrepareProgress)]


def test_a_process_that_uses_the_processor_gets_on_and_one_that_does_not_hangs() -> None:
    made = Efforts()
    made.ledger.register_unit("busy", 1)
    made.ledger.register_unit("hangs", 2)
    assert made.look() == [], "the first look only knows from then on"
    made.effort["busy"] += 0.05
    assert made.look() == ["busy"]
    assert made.look() == []


@pytest.mark.parametrize("event", [Prepared(1), WorkerEnded(1)])
def test_what_is_ready_or_has_ended_is_not_looked_at(event: WorkerEvent) -> None:
    made = Efforts()
    made.ledger.register_unit("busy", 1)
    made.look()
    made.ledger.report_event("busy", event)
    made.effort["busy"] += 1.0
    assert made.look() == []
