"""The threads' driver: which session and which call each effect of an attempt comes to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.drivers import driver as shared
from consumer.attempt.drivers import threads
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import Effect, Machine
from consumer.errors import TransientError
from consumer.tables.stored import StoredDefinition

SPEC: Any = SimpleNamespace(unit="u", epoch=7, was=None, place="d.t", source="b1", routes=(), debezium=None)
X: Any = "x"


class Sessions:
    """Says which call came over which session; `Session` number n is what `get(n)` returns."""

    def __init__(self) -> None:
        self.reported: list[tuple[Any, ...]] = []

    def get_connection(self, number: int) -> Any:
        return Session(number, self.reported)

    def drop_if_broken(self, number: int) -> None:
        self.reported.append((number, "check"))

    def drop_connection(self, number: int) -> None:
        self.reported.append((number, "drop"))


class Session:
    def __init__(self, number: int, reported: list[tuple[Any, ...]]) -> None:
        self.number, self.reported = number, reported

    def begin_attempt(self, *arguments: object) -> str:
        self.reported.append((self.number, "begin", *arguments))
        return "begun"

    def read_progress(self, unit: str) -> tuple[str, str]:
        self.reported.append((self.number, "read", unit))
        return "rows", "more"

    def stop_unit(self, *arguments: object, was: object) -> None:
        self.reported.append((self.number, "stop", *arguments, was))

    @contextmanager
    def begin_transaction(self, unit: str, guards: object) -> Iterator[Any]:
        self.reported.append((self.number, "transaction", unit, guards))
        yield Transaction(self.reported)
        self.reported.append((self.number, "commit"))


class Transaction:
    def __init__(self, reported: list[tuple[Any, ...]]) -> None:
        self.reported = reported

    def apply_net_change(self, net: object, *, displacing: object) -> int:
        self.reported.append(("apply", net, displacing))
        return 3

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.reported.append((name, *arguments))


class Stage:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions, self.tables = Sessions(), {"d.t": X, "d.other": X}
        self.reported = self.sessions.reported
        self.slept: list[float] = []
        self.assigned = True
        slices: Any = ["slice"]
        inputs = AttemptInputs(slices, lambda _start, upto: [upto], is_assigned=lambda: self.assigned)  # type: ignore[list-item]
        self.driver = ThreadDriver(SPEC, self.sessions, inputs, self.tables)
        monkeypatch.setattr(threads.time, "sleep", self.slept.append)
        for name in ("resolve_definition", "load_active_definition"):
            monkeypatch.setattr(
                shared,
                name,
                lambda spec, session, *rest, _name=name, **named: (
                    _name,
                    spec.unit,
                    session.number,
                    *rest,
                    named,
                ),
            )
        monkeypatch.setattr(
            shared,
            "explain_changed_table",
            lambda session, *rest, debezium: ("explained", session.number, *rest, debezium),
        )

    def did(self, effect: Effect[Any]) -> Any:
        def machine() -> Machine[Any]:
            return (yield effect)

        return self.driver.run_machine(machine())


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


@pytest.mark.parametrize(
    ("effect", "sent", "reported"),
    [
        (fx.BeginAttempt(), "begun", [(0, "begin", "u", 7)]),
        (fx.ReadProgress(2), "rows", [(2, "read", "u")]),
        (fx.CheckSession(2), None, [(2, "check")]),
        (fx.DropSession(2), None, [(2, "drop")]),
        (fx.StopUnit("why"), None, [(0, "stop", "u", 7, "why", None)]),
        (fx.PrepareDefinition(X, first=True), ("resolve_definition", "u", 0, X, {"first": True}), []),
        (fx.RestoreDefinition("text"), ("load_active_definition", "u", 0, "text", {}, {}), []),
        (fx.ExplainMisfit(StoredDefinition(X)), ("explained", 0, StoredDefinition(X), "b1", (), False), []),
        (fx.NextSlice(), "slice", []),
        (fx.ReadMissing(3, 9), 9, []),
        (fx.JoinLanes(X), None, []),
    ],
)  # fmt: skip
def test_what_an_effect_comes_to(stage: Stage, effect: Effect[Any], sent: Any, reported: list[Any]) -> None:
    stage.tables.clear()
    assert (stage.did(effect), stage.reported, stage.slept) == (sent, reported, [])


def test_a_unit_that_stops_has_its_target_table_looked_at_again(stage: Stage) -> None:
    stage.did(fx.StopUnit("why"))
    assert stage.tables == {"d.other": X}


def test_a_transaction_does_its_operations_in_their_order(stage: Stage) -> None:
    operations = [
        ops.WriteChanges(X), ops.QuarantineEvents([X]), ops.TruncateTarget(X, {"a": "b"}), ops.CloseQuarantineBefore(5, "why"),
        ops.SupersedeDisplaced("s.t", 4, "why"), ops.WriteChanges(X, "why"), ops.WriteProgress([X]),
        ops.WriteUnit(X), ops.ReplaceLaneRows([X]),
    ]  # fmt: skip
    effect = fx.Transact(2, [X], operations)
    stage.did(effect)
    assert stage.reported == [
        (2, "transaction", "u", [X]), ("apply", X, None), ("write_quarantine", [X]), ("truncate_table", X, {"a": "b"}), ("close_held_before", 5, "why"),
        ("supersede_displaced", "s.t", 4, "why"),
        ("apply", X, "why"), ("write_progress", [X]), ("write_unit", X), ("replace_lanes", [X]), (2, "commit"),
    ]  # fmt: skip
    assert effect.displaced == [3, 3]


def test_a_pause_without_lanes_lasts_as_long_as_it_is_asked_for(stage: Stage) -> None:
    stage.did(fx.Sleep(1.5))
    assert stage.slept == [1.5]


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

    stage.driver.run_machine(machine())
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

    stage.driver.run_machine(machine())
    assert kinds == [True, True]


def test_an_attempt_that_fails_stops_its_lanes_and_waits_for_them(stage: Stage) -> None:
    """Whatever ends an attempt, nothing of it writes any more."""
    group = Group()
    signals = stage.driver.make_signals(2)
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
        stage.driver.run_machine(machine())
    assert sorted(group.ended) == [0, 1]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lane-")]


def test_an_error_goes_to_the_machine_which_decides(stage: Stage) -> None:
    stage.assigned = False

    def machine() -> Machine[str]:
        try:
            yield fx.ReadRest(3)
        except TransientError:
            return "gone on"
        return "not told"

    assert stage.driver.run_machine(machine()) == "gone on"


def test_a_pause_of_a_lane_ends_with_its_lanes(stage: Stage) -> None:
    group: Any = Group()
    group.stopping = True
    stage.driver.make_signals(1)
    stage.driver._group = group
    stage.driver._lane.number = 0
    ThreadDriver.handlers.carry_out(stage.driver, fx.Sleep(600.0))
    stage.driver._lane.number = None
    ThreadDriver.handlers.carry_out(stage.driver, fx.Sleep(0.25))
    assert stage.slept == [0.25]
    stage.driver._group = None
