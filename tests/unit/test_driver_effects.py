"""What both drivers make of the effects that ask for the target, for Kafka and for keys: which connection is
asked for what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from consumer.attempt import effects as fx
from consumer.attempt import operations as ops
from consumer.attempt.copies.keys_on_disk import ScratchKeys
from consumer.attempt.drivers import batches, threads
from consumer.attempt.drivers.batches import BatchDriver
from consumer.attempt.drivers.threads import KEYS_PER_FETCH
from consumer.attempt.effects import Effect, Machine
from consumer.errors import FencedError, ServerSilentError, TransientError
from consumer.ordering.model import EveryChange
from consumer.tables.stored import StoredDefinition
from consumer.targets.batches import BatchFenced
from tests.kits.driver_stage import ANY, SPEC, Said, Stage, U, X


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


BOTH = ("threads", "batches")
ASKED = [
    (fx.BeginAttempt(), ["begin_attempt", "more"], [(0, "begin_attempt", U, 7)]),
    (fx.ReadProgress(0), "read_progress", [(0, "read_progress", U)]),
    (fx.ReadQuarantine(), ["read_quarantine", "more"], [(0, "read_quarantine", U)]),
    (fx.CheckSession(0), None, [(0, "check")]),
    (fx.DropSession(0), None, [(0, "drop")]),
    (fx.ReadTable(ANY), ["read_table", "more"], [(0, "read_table", "s", X)]),
    (fx.PrepareDefinition(ANY, first=True),
     ("resolve_definition", 0, X, ("first", True), ("sharers", X)), []),
    (fx.ExplainMisfit(StoredDefinition(ANY)),
     ("explain_changed_table", 0, StoredDefinition(ANY), "b1", (), ("debezium", False)), []),
    (fx.NextSlice(), [(1, b"one")], []),
    (fx.ReadMissing(3, 9), [(3, b"read")], []),
    (fx.ReadPassed(4, 8), [(4, b"read")], []),
    (fx.FindBegin(5, 6), ("begin", 5, 6), []),
    (fx.FindSnapshot(5), ("snapshot", 5), []),
]  # fmt: skip


@pytest.mark.parametrize("driver", BOTH)
@pytest.mark.parametrize(("effect", "sent", "reported"), ASKED, ids=lambda each: type(each).__name__)
def test_both_ask_the_same_of_the_first_connection(
    stage: Stage, driver: str, effect: Effect[Any], sent: Any, reported: Said
) -> None:
    assert (stage.did(driver, effect), stage.connections.reported) == (sent, reported)


@pytest.mark.parametrize("driver", BOTH)
def test_a_stop_is_said_to_the_target_and_its_table_is_looked_at_again(stage: Stage, driver: str) -> None:
    stage.did(driver, fx.StopUnit("why"))
    assert stage.connections.reported == [(0, "stop_unit", U, 7, "why", ("was", "before"))]
    assert stage.tables == {"d.other": X}


@pytest.mark.parametrize("driver", BOTH)
def test_a_silent_server_is_reported_while_an_attempt_may_go_on(stage: Stage, driver: str) -> None:
    """Its slot gets no unit then, not even the one that has just ended."""

    def fail(_unit: object) -> None:
        raise ServerSilentError("nothing came back")

    stage.connections.only.read_progress = fail
    with pytest.raises(ServerSilentError):
        stage.did(driver, fx.ReadProgress(0))
    assert stage.connections.reported == [("silence", "nothing came back")]


@pytest.mark.parametrize("driver", BOTH)
def test_a_definition_in_force_is_kept_with_the_others(stage: Stage, driver: str) -> None:
    assert stage.did(driver, fx.RestoreDefinition("text")) == (
        "load_active_definition",
        0,
        "text",
        stage.tables,
    )


@pytest.mark.parametrize("driver", BOTH)
def test_what_takes_long_ends_where_the_unit_is_wanted_elsewhere(stage: Stage, driver: str) -> None:
    stage.expected = False
    for effect in (fx.ReadPassed(4, 8), fx.ListKeys(ANY, None, None, None)):
        with pytest.raises(TransientError, match="taken away from this process"):
            stage.did(driver, effect)
    assert (stage.read, stage.connections.reported) == ([], [])
    assert stage.did(driver, fx.ReadMissing(3, 9)) == [(3, b"read")], "an attempt reads what it lacks"


@pytest.mark.parametrize("driver", BOTH)
def test_room_for_keys_is_in_the_systems_folder_where_no_other_is_named(stage: Stage, driver: str) -> None:
    keys = stage.did(driver, fx.OpenKeys())
    assert isinstance(keys, ScratchKeys)
    keys.close()


@pytest.mark.parametrize("driver", BOTH)
def test_a_pause_outside_lanes_lasts_as_long_as_it_is_asked_for(stage: Stage, driver: str) -> None:
    stage.did(driver, fx.Sleep(1.5))
    assert stage.slept == [1.5]


@pytest.mark.parametrize(
    ("effect", "sent", "reported"),
    [
        (fx.ListKeys(ANY, (1,), (9,), {"a": "b"}), ["fetch_rows", "more"], [(0, "fetch_rows", X, (1,), KEYS_PER_FETCH, {"a": "b"}, ("upto", (9,)))]),  # noqa: E501
        (fx.LookUpKeys(ANY, [(1,)]), ["fetch_keys", "more"], [(0, "fetch_keys", X, [(1,)])]),
        (fx.OwnConnection(), ["get_connection_id", "more"], [(0, "get_connection_id")]),
        (fx.AlterTarget(ANY, 3), None, [(0, "alter_table", X, ("connection", 3))]),
        (fx.EndConnection(3), None, [(0, "end_connection", 3)]),
        (fx.ReadSharers(ANY), ("sharing", ["read_unit_states", "more"], X), [(0, "read_unit_states", "p")]),
        (fx.ReadProgress(2), "read_progress", [(2, "read_progress", U)]),
        (fx.CheckSession(2), None, [(2, "check")]),
        (fx.DropSession(2), None, [(2, "drop")]),
        (fx.JoinLanes(ANY), None, []),
    ],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_what_only_sessions_are_asked_for(
    stage: Stage, effect: Effect[Any], sent: Any, reported: Said
) -> None:
    assert (stage.did("threads", effect), stage.connections.reported) == (sent, reported)


def test_who_alters_in_a_transaction_needs_no_connection_of_its_own(stage: Stage) -> None:
    stage.connections.only.transactional_ddl = True
    assert (stage.did("threads", fx.OwnConnection()), stage.connections.reported) == (None, [])


def test_operations_that_look_at_the_target_get_its_session(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: Said = []
    for name in ("follow_definition", "drop_target", "lose_others", "require_table_unchanged"):
        monkeypatch.setattr(
            threads, name,
            lambda spec, session, transaction, asked,
            name=name: did.append((name, session._number, transaction._number, asked)),
        )  # fmt: skip
    monkeypatch.setattr(
        threads,
        "require_rows_present",
        lambda spec, transaction: did.append(("not_lost", transaction._number)),
    )
    followed, dropped, lost = (
        ops.FollowDefinition(ANY, "whole", ANY),
        ops.DropTarget(ANY),
        ops.MarkSharersIncomplete(ANY),
    )
    same = ops.RequireTableUnchanged(ANY, ANY)
    stage.did(
        "threads",
        fx.Transact(
            2,
            [],
            [followed, dropped, lost, ops.RequireRowsPresent(), same, ops.CloseQuarantine([(5, 1)], "why")],
        ),
    )
    assert did == [
        ("follow_definition", 2, -1, followed), ("drop_target", 2, -1, dropped), ("lose_others", 2, -1, lost),
        ("not_lost", -1), ("require_table_unchanged", 2, -1, same),
    ]  # fmt: skip
    assert stage.connections.reported == [
        (2, "transaction", U, []), (-1, "close_held", [(5, 1)], "why"), (2, "commit")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "operation", [ops.PublishDefinition(ANY, ANY), ops.WriteChanges(EveryChange(ANY, []))]
)
def test_a_database_is_given_nothing_that_is_meant_for_topics(stage: Stage, operation: ops.Operation) -> None:
    with pytest.raises(NotImplementedError, match=r"only to topics|a database is given"):
        stage.did("threads", fx.Transact(0, [], [operation]))


# --- whole batches


def test_whole_batches_need_one_lane() -> None:
    spec: Any = SimpleNamespace(**vars(SPEC) | {"lanes": 2})
    with pytest.raises(ValueError, match="one lane, not 2"):
        BatchDriver(spec, ANY, ANY, {})


def test_what_whole_batches_are_not_asked_for(stage: Stage) -> None:
    assert stage.did("batches", fx.OwnConnection()) is None
    assert stage.did("batches", fx.ReadSharers(ANY)) == []
    for effect in (fx.AlterTarget(ANY, 3), fx.EndConnection(3)):
        with pytest.raises(
            NotImplementedError, match="is not carried out here: a target of whole batches is not altered"
        ):
            stage.did("batches", effect)
    assert stage.connections.reported == []


def test_keys_of_whole_batches_are_listed_once_from_their_beginning(stage: Stage) -> None:
    def listed(after: Any) -> Any:
        return stage.did("batches", fx.ListKeys(ANY, after, None, {"a": "b"}))

    assert [listed(None), listed((1,)), listed((2,))] == [[1], [2], ()]
    assert listed(None) == [1], "another list begins"
    assert stage.connections.reported == [(0, "keys", U, X, {"a": "b"})] * 2


def test_keys_of_whole_batches_are_looked_up(stage: Stage) -> None:
    assert stage.did("batches", fx.LookUpKeys(ANY, [(1,)])) == ["look_up", "more"]
    assert stage.connections.reported == [(0, "look_up", X, [(1,)])]


def test_a_commit_of_whole_batches_that_finds_another_owner_is_fenced(stage: Stage) -> None:
    stage.did("batches", fx.Transact(0, [], []))
    assert [each[:3] for each in stage.connections.reported] == [(0, "apply", U)]
    stage.connections.only.outcome = BatchFenced("another")  # type: ignore[arg-type]
    with pytest.raises(FencedError, match="another worker now owns t of pipeline p"):
        stage.did("batches", fx.Transact(0, [], []))


def test_whole_batches_are_told_what_a_definition_comes_to(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ops.FollowDefinition(ANY, "whole", ANY)
    monkeypatch.setattr(
        batches, "build_unaltered_state", lambda spec, target, operation: ("state", target._number, operation)
    )
    stage.did("batches", fx.Transact(0, [], [asked]))
    progress = stage.connections.reported[0][-1]
    assert progress.state == ("state", 0, asked)


class Lanes:
    """A lane that awaits `ready` and ends, with `error` if there is one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.ready, self.ended, self._error = False, False, error
        self.errors: list[BaseException] = []

    def run_lane(self, number: int) -> Machine[None]:
        assert number == 0
        yield fx.Await(lambda: self.ready)
        yield fx.Sleep(0.25)
        if self._error is not None:
            raise self._error
        self.ended = True

    def record_lane_error(self, error: BaseException) -> None:
        self.errors.append(error)


def test_the_lane_of_whole_batches_runs_where_the_attempt_waits_for_it(stage: Stage) -> None:
    group = Lanes()

    def machine() -> Machine[bool]:
        yield fx.StartLanes(group)  # type: ignore[arg-type]
        yield fx.Await(lambda: True)
        ran = group.ended
        group.ready = True
        yield fx.Await(lambda: group.ended)
        yield fx.JoinLanes(group)  # type: ignore[arg-type]
        return ran

    assert stage.batches.run_machine(machine()) is False
    assert (group.ended, stage.slept) == (True, [0.25])


@pytest.mark.parametrize("last", [fx.Await(lambda: False), fx.JoinLanes(ANY)])
def test_an_attempt_and_its_lane_that_wait_for_each_other_are_a_fault(
    stage: Stage, last: Effect[Any]
) -> None:
    def machine() -> Machine[None]:
        yield fx.StartLanes(Lanes())  # type: ignore[arg-type]
        yield last

    with pytest.raises(RuntimeError, match="wait for each other"):
        stage.batches.run_machine(machine())


def test_an_error_of_the_lane_of_whole_batches_is_told_to_the_attempt(stage: Stage) -> None:
    group, error = Lanes(ValueError("lane")), ValueError
    group.ready = True

    def machine() -> Machine[None]:
        yield fx.StartLanes(group)  # type: ignore[arg-type]
        yield fx.JoinLanes(group)  # type: ignore[arg-type]

    stage.batches.run_machine(machine())
    assert [type(each) for each in group.errors] == [error]
