"""The models outside the cores: every fault happens, and each of them finds what it is there for.

The rules that are broken here are the models' and the workers', not the coordinator's; its own known bugs are
in mutations.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from coordinator.control.codec import Candidate, Changes, Claim, Message, Snapshot
from coordinator.control.fold import ControlFold
from coordinator.core.leader import steps
from coordinator.core.replication_table import ReplicaAction, ReplicaPhase, Role, SetState
from tests.sim.coordination.control import ControlTopic, Producer
from tests.sim.coordination.mutations import Mutation, _weak, attribute, cells, find
from tests.sim.coordination.nodes import LeaderNode, Options
from tests.sim.coordination.target import Target, Worker
from tests.sim.coordination.world import CoordinationSimulation, run

UNLOCKED = _weak(locked=False)
_begin, _land, _trim = steps.begin_leader_term, CoordinationSimulation._land, ControlTopic.trim


def _floor_alone(*args: Any, floor: int = 0, **kwargs: Any) -> Any:
    """An owner that takes the clock of the day for enough, and forgets which epochs have been given."""
    state, out = _begin(*args, floor=floor, **kwargs)
    state.numbers.counter = floor
    return state, out


def _believe(
    self: CoordinationSimulation, node: LeaderNode, producer: Producer, messages: tuple[Message, ...]
) -> int | None:
    """An owner that takes a commit of unknown outcome for done, and goes on with its producer."""
    offset = _land(self, node, producer, messages)
    if offset is None and producer.number == self.topic.producers:
        producer.broken = False
        return self.topic.end
    return offset


def _marker_too(self: ControlTopic, before: int) -> None:
    _trim(self, before + 1)


def _skip_snapshot(fold: ControlFold, offset: int, message: Message, size: int = 0) -> bool:
    if isinstance(message, Snapshot):
        fold.end = offset + 1
        return False
    return _fold(fold, offset, message, size)


_fold = ControlFold.fold_message
_BELIEVING = {"believing": True}
_OWNERS = ("crash owner", "two owners", "pause owner", "commands")
BROKEN = {
    "commit lost": Mutation("late commit, no lock", "", (UNLOCKED,), faults=("commit lost",)),
    "commit lost, taken for done": Mutation("", "", (UNLOCKED,), _BELIEVING, ("commit lost",)),
    "cut server": Mutation("late commit, no lock", "", (UNLOCKED,), faults=("cut server",)),
    "cut server, taken for done": Mutation("", "", (UNLOCKED,), _BELIEVING, ("cut server",)),
    "target restart": Mutation("old connection", "", (UNLOCKED,), _BELIEVING, ("target restart",)),
    "failover": Mutation("old connection", "", (UNLOCKED,), _BELIEVING, ("failover",)),
    "clock: behind": Mutation("lease longer than thought", "", (UNLOCKED,), faults=("clock",)),
    "clock: set back": Mutation("", "", (attribute(steps, "begin_leader_term", _floor_alone),),
     faults=("clock", *_OWNERS)),
    "leave": Mutation("", "",
     (cells((ReplicaAction.KEEP,), (SetState.REPLICATING, Role.PRIMARY, ReplicaPhase.LOST)),),
      faults=("leave",)),
    "hanging commit": Mutation("", "", (attribute(CoordinationSimulation, "_land", _believe),),
     faults=("hanging commit", *_OWNERS)),
    "cut of the topic": Mutation("", "", (attribute(ControlTopic, "trim", _marker_too),), faults=_OWNERS),
    "snapshot": Mutation("", "", (attribute(ControlFold, "fold_message", _skip_snapshot),), faults=_OWNERS),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_each_model_finds_what_it_is_there_for(name: str) -> None:
    assert find(BROKEN[name], range(60)) is not None


#: What must have happened in the few seeds of the next test.
HAPPENS = {
    "target: cut", "kafka: cut", "target: request lost", "target: answer lost", "target: late", "kafka: late",
    "kafka: request lost", "kafka: answer lost", "outcome unknown to a live worker", "deadlock",
    "target restart", "failover that lost commits", "broker restart", "join", "leave", "clock: leap",
    "clock: sleep", "clock: set back", "clock: set forward", "control: snapshot",
    "control: cut before a reader", "control: hangs", "control: ended late", "control: fenced while open",
    "control: open for too long", "control: unknown", "control: resigned", "reader lags",
}  # fmt: skip


#: Few at a time: where everything breaks, little gets far enough to be broken.
TOGETHER = (
    ("commit lost", "deadlock", "clock"),
    ("cut server", "target restart", "join"),
    ("failover", "broker restart", "leave"),
    ("hanging commit", "commit unknown"),
    ("hanging commit", "crash owner"),
    ("reader lags", "commands", "pause owner"),
)


def test_every_fault_of_the_models_happens() -> None:
    happened: Counter[str] = Counter()
    for faults in TOGETHER:
        for seed in range(12):
            happened += run(Options(seed, faults)).happened
    print(dict(happened))
    assert not HAPPENS - set(happened), f"never: {sorted(HAPPENS - set(happened))}"


def test_an_agent_that_joins_gets_work_and_one_that_left_has_none() -> None:
    worked = left = 0
    for seed in range(10):
        world = run(Options(seed, ("join", "leave")))
        for node in world.agents.values():
            live = [w for w in node.workers.values() if w.live]
            worked += node.name not in ("a1", "a2", "a3") and bool(live)
            left += node.left
            assert not (node.left and live)
    assert worked
    assert left


def test_a_failover_goes_back_to_what_the_standby_has() -> None:
    target = Target()
    worker = Worker("a1", 1, "a1-1", "u1", 7, take=1)
    assert target.take_over(worker, 1, kill=False) == ("taken", 0)
    target.replicate()
    first = target.begin(worker, 5)
    assert first is not None
    assert target.commit(first)
    worker.offset = 5
    hanging = target.begin(worker, 9)
    assert hanging is not None
    assert target.restart(lost=True)
    assert (target.row("u1").offset, target.row("u1").writes) == (0, [])
    assert not target.commit(hanging)
    assert target.take_over(worker, 2, kill=False) == ("taken", 0)


def test_an_open_transaction_hides_what_it_wrote_until_it_is_ended_or_fenced() -> None:
    topic, first, second = ControlTopic(), Producer(), Producer()
    topic.begin(first)
    assert topic.write(first, "c1", (Claim(Candidate("c1", ""), ""),)) == 0
    hanging = topic.hang(first, "c1", (Changes(0, ()),), now=1.0)
    assert hanging is not None
    assert len(topic.read(0)) == 1
    topic.begin(second)
    assert not topic.commit(hanging)
    assert topic.write(first, "c1", (Changes(0, ()),)) is None
    late = topic.hang(second, "c2", (Changes(0, ()),), now=2.0)
    assert late is not None
    assert topic.commit(late)
    assert len(topic.read(0)) == 2
