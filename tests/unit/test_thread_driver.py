"""The threads' driver: which session and which call each effect of an attempt comes to."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import Effect, Machine
from consumer.errors import TransientError
from tests.kits.driver_stage import Stage, U, X


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_a_transaction_does_its_operations_in_their_order(stage: Stage) -> None:
    operations = [
        ops.WriteChanges(X), ops.QuarantineEvents([X]), ops.TruncateTarget(X, {"a": "b"}),
        ops.CloseQuarantineBefore(5, "why"), ops.SupersedeDisplaced("s.t", 4, "why"),
        ops.WriteChanges(X, "why"), ops.WriteProgress([X]), ops.WriteUnit(X), ops.ReplaceLaneRows([X]),
    ]  # fmt: skip
    effect = fx.Transact(2, [X], operations)
    stage.did("threads", effect)
    names = (-1, "apply_net_change", X)
    assert stage.connections.reported == [
        (2, "transaction", U, [X]), (*names, ("displacing", None)), (-1, "write_quarantine", [X]),
        (-1, "truncate_table", X, {"a": "b"}), (-1, "close_held_before", 5, "why"),
        (-1, "supersede_displaced", "s.t", 4, "why"), (*names, ("displacing", "why")),
        (-1, "write_progress", [X]), (-1, "write_unit", X), (-1, "replace_lanes", [X]), (2, "commit"),
    ]  # fmt: skip
    assert effect.displaced == [["apply_net_change", "more"]] * 2


class Group:
    """A group of two lanes, each of which does `effects` and says its number."""

    count = 2

    def __init__(self, *effects: Effect[Any], error: Exception | None = None) -> None:
        self._effects, self._error = effects, error
        self.stopping = False
        self.ended: list[int] = []
        self.errors: list[BaseException] = []

    def run_lane(self, number: int) -> Machine[None]:
        yield from self._effects
        self.ended.append(number)
        if self._error is not None:
            raise self._error

    def record_lane_error(self, error: BaseException) -> None:
        self.errors.append(error)

    def stop(self) -> None:
        self.stopping = True


def test_every_lane_is_driven_and_its_error_is_handed_on(stage: Stage) -> None:
    group, error = Group(error=ValueError("lane")), ValueError("lane")

    def machine() -> Machine[None]:
        yield fx.StartLanes(group)  # type: ignore[arg-type]
        yield fx.JoinLanes(group)  # type: ignore[arg-type]

    stage.threads.run_machine(machine())
    assert sorted(group.ended) == [0, 1]
    assert [str(each) for each in group.errors] == [str(error)] * 2
    assert not group.stopping, "they had ended by themselves"


def test_a_lane_that_hangs_in_a_driver_keeps_no_process_from_ending(stage: Stage) -> None:
    kinds: list[bool] = []

    class Telling(Group):
        def run_lane(self, number: int) -> Machine[None]:
            kinds.append(threading.current_thread().daemon)
            yield from super().run_lane(number)

    group: Any = Telling()

    def machine() -> Machine[None]:
        yield fx.StartLanes(group)
        yield fx.JoinLanes(group)

    stage.threads.run_machine(machine())
    assert kinds == [True, True]


def test_an_attempt_that_fails_stops_its_lanes_and_waits_for_them(stage: Stage) -> None:
    """Whatever ends an attempt, nothing of it writes any more."""
    group = Group()
    signals = stage.threads.make_signals(2)
    group._effects = (fx.Await(lambda: group.stopping),)
    stop = group.stop

    def stopped() -> None:
        with signals.mutex:
            stop()
            signals.wake_lane(0)
            signals.wake_lane(1)

    group.stop = stopped  # type: ignore[method-assign]

    def machine() -> Machine[None]:
        yield fx.StartLanes(group)  # type: ignore[arg-type]
        raise ValueError("attempt")

    with pytest.raises(ValueError, match="attempt"):
        stage.threads.run_machine(machine())
    assert sorted(group.ended) == [0, 1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lane-")]


def test_an_error_goes_to_the_machine_which_decides(stage: Stage) -> None:
    stage.expected = False

    def machine() -> Machine[str]:
        try:
            yield fx.ReadRest(3)
        except TransientError:
            return "gone on"
        return "not told"

    assert stage.threads.run_machine(machine()) == "gone on"


def test_a_pause_of_a_lane_ends_with_its_lanes(stage: Stage) -> None:
    group: Any = Group()
    group.stopping = True
    stage.threads.make_signals(1)
    stage.threads._group = group
    stage.threads._lane.number = 0
    ThreadDriver.handlers.carry_out(stage.threads, fx.Sleep(600.0))
    stage.threads._lane.number = None
    ThreadDriver.handlers.carry_out(stage.threads, fx.Sleep(0.25))
    assert stage.slept == [0.25]
    stage.threads._group = None
