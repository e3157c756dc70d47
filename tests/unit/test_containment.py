"""No error of one unit, whatever its class and wherever it comes from, touches another unit or leaves this
one silent."""

from __future__ import annotations

import binascii
import contextlib
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from consumer.attempt.drivers import threads
from consumer.attempt.reports import CopyNeed
from consumer.attempt.unit_errors import classify_error
from consumer.errors import (
    AttemptLostError,
    FencedError,
    MissingGrantError,
    RefusedError,
    TableTooLargeError,
    TargetConfigError,
    TransientError,
    UnitStoppedError,
)
from consumer.ordering.model import UnitState
from consumer.process import takeover
from consumer.process.operations import unit_resources
from consumer.process.operations.copy_desk import CopyOutlook
from consumer.process.operations.target_checks import TargetProbe
from consumer.process.operations.unit_resources import UnitTopics
from consumer.process.unit_operations import UnitOperations
from consumer.reporting import source_times
from consumer.reporting.source_times import SourceTimes
from consumer.slots.pipeline import PipelineSettings
from consumer.tables.discovery import TopicDescription
from consumer.tables.stored import StoredDefinition
from consumer.units.messages import (
    CheckTable,
    OperationFailed,
    PrepareTarget,
    ProbeStopped,
    StoppedProbed,
    TakeOver,
    TargetPrepared,
    UnitTakenOver,
)
from consumer.units.unit import UnitRef
from schemas.config.model import KafkaConfig
from schemas.errors import UnsupportedTypeError
from schemas.findings import format_debezium_remedy
from schemas.problems import Problem, decode_problem
from schemas.wire.records import Watermark, unescape_topic_part
from tests.kits.apply import account_table
from tests.kits.debezium_units import TOPIC, Entered
from tests.kits.debezium_units import config as config
from tests.kits.hands import operations
from tests.kits.unit_apply import rows_of, started
from tests.stands.fake_target import FakeSession, FakeTarget, FakeTransaction

FAULTS: list[Exception] = [
    ValueError("odd"),
    KeyError("odd"),
    binascii.Error("odd"),
    RecursionError("odd"),
    AssertionError("odd"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "odd"),
    ZeroDivisionError(),
]
KNOWN: list[Exception] = [
    TargetConfigError("no such table: create it"),
    MissingGrantError("denied", "GRANT ALL"),
    RefusedError("refused"),
    UnsupportedTypeError("what type"),
    UnitStoppedError("a person"),
    TransientError("away"),
    OSError("file"),
    MemoryError(),
]


def raising(error: Exception) -> Callable[..., Any]:
    def throw(*_: object, **__: object) -> Any:
        raise error

    return throw


def function_of(error: Exception) -> Callable[..., Any]:
    """A factory of functions (decoders, folds) that raise."""
    return lambda *_, **__: raising(error)


#: layer → (what is replaced there, by what)
LAYERS: dict[str, tuple[str, Callable[[Exception], Callable[..., Any]]]] = {
    "decode": ("consumer.tables.definition.make_row_decoder", function_of),
    "row": ("consumer.tables.definition.make_image_converter", function_of),
    "duplicates": ("consumer.ordering.dedup.Deduplicator.judge_record", raising),
    "route": ("consumer.tables.definition.resolve_route", raising),
    "target table": ("consumer.tables.definition.build_target_table", raising),
    "prepare": ("consumer.attempt.spec.prepare_definition", raising),
    "layout": ("consumer.attempt.attempt_state.plan_resume", raising),
    "fold": ("consumer.ordering.dispatch.make_key_fold", function_of),
    "dispatch": ("consumer.ordering.dispatch.Dispatcher.dispatch", raising),
    "locks": ("consumer.ordering.tickets.TicketTable.register", raising),
    "lanes": ("consumer.ordering.lanes.lane.Lane.choose_effect", raising),
    "net change": ("consumer.ordering.netchange.NetChangeReducer.reduce", raising),
    "begin": ("tests.stands.fake_target.FakeSession.begin_attempt", raising),
    "transaction": ("tests.stands.fake_target.FakeSession.begin_transaction", raising),
    "apply": ("tests.stands.fake_target.FakeTransaction.apply_net_change", raising),
    "write progress": ("tests.stands.fake_target.FakeTransaction.write_progress", raising),
    "barrier": ("consumer.attempt.readers.reader.decode_full_event", raising),
    "connect": ("tests.stands.fake_target.FakeTarget.get_connection", raising),
}


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was logged. Unconfigured, structlog would draw each traceback with all variables, for seconds."""
    monkeypatch.setattr(threads.time, "sleep", lambda _s: None)
    with capture_logs() as logs:
        yield logs


@pytest.mark.parametrize("error", [*FAULTS, *KNOWN], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("layer", LAYERS)
def test_an_error_of_any_layer_and_class_is_its_units_own(
    monkeypatch: pytest.MonkeyPatch, logs: list[Any], layer: str, error: Exception
) -> None:
    bench, source = started(small_batch=0)
    bench.write(source.history(random.Random(7), 30, keys=6))
    place, make = LAYERS[layer]
    with monkeypatch.context() as patched:
        patched.setattr(place, make(error))
        report = bench.apply()
    if layer == "apply" and isinstance(error, RefusedError):
        assert (report.state, report.held > 0) == ("ok", True), (
            "rows that are refused are held, and only they"
        )
        return
    if layer == "decode" and isinstance(error, UnicodeDecodeError):
        assert report.state == "ok", "the fast decoder's no is not the last word"
        return
    assert report.state in ("stopped", "behind")
    if isinstance(error, tuple(type(fault) for fault in FAULTS)) and report.message:
        notified = [line for line in logs if line["event"] == "unit failed by an internal error"]
        assert notified, "with its traceback"
        assert all(line["exc_info"] for line in notified)
    if report.state == "stopped" and layer != "connect":
        assert bench.target.state.unit.stopped == report.message, "told in the target, for status"
    bench.take_over()  # as after the fault is mended
    bench.tables.clear()
    assert bench.apply().state == "ok"
    assert bench.target.rows_of() == rows_of(source), "nothing was lost or doubled"


def test_a_stop_that_the_target_does_not_take_is_said_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, _ = started()
    monkeypatch.setattr(FakeTransaction, "write_unit", raising(TargetConfigError("revoked", "GRANT it")))
    monkeypatch.setattr(FakeSession, "stop_unit", raising(TargetConfigError("revoked", "GRANT it")))
    report = bench.apply()
    assert (report.state, decode_problem(report.message)) == ("stopped", Problem("revoked", "GRANT it"))


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (AttemptLostError("unknown"), "behind"),
        (FencedError("other"), "fenced"),
        (TransientError("away"), "behind"),
        (ConnectionResetError(), "behind"),
        (TargetConfigError("table"), "stopped"),
        (TableTooLargeError("table"), "stopped"),
        (RefusedError("row"), "stopped"),
        (IndexError("bug"), "stopped"),
    ],
)
def test_what_an_error_comes_to(error: Exception, state: str) -> None:
    trouble = classify_error("t", error)
    assert trouble.state == state
    assert trouble.problem.what, "no error without words"
    assert trouble.fault == isinstance(error, IndexError | ConnectionResetError)


# -- hands


@pytest.fixture
def hands(config: Any, monkeypatch: pytest.MonkeyPatch) -> UnitOperations:
    cluster = SimpleNamespace(
        describe_topics=lambda _: {TOPIC: TopicDescription("id", 1)},
        fetch_bounds=lambda _: {TOPIC: (0, 0)},
        fetch_cleanup_policy=lambda _: "delete",
    )
    monkeypatch.setattr(takeover, "read_definition", lambda *_: account_table())
    target = FakeTarget()
    return operations(PipelineSettings.from_config(config, "p"), lambda: Entered(target), cluster)


@pytest.fixture
def lost(hands: UnitOperations) -> FakeTarget:
    """The target of `hands`, where the unit's rows are lost."""
    target: Any
    with hands._hands.borrow_connections() as target:
        pass
    target.state.unit = UnitState(StoredDefinition(account_table(), rows_missing=True).encode(), None, None)
    found: FakeTarget = target
    return found


HANDS = {
    "topic": "consumer.process.operations.unit_resources.UnitTopics.describe_topic",
    "bounds": "consumer.process.operations.unit_resources.UnitTopics.require_bounds",
    "take-over": "consumer.process.unit_operations.take_unit",
    "go on": "consumer.process.unit_operations.UnitOperations._go_on",
    "definition": "consumer.process.unit_operations.define_unit",
    "target": "tests.stands.fake_target.FakeTarget.get_connection",
    "waiting work": "consumer.process.unit_operations.UnitOperations._has_waiting_work",
}


@pytest.mark.parametrize("error", [*FAULTS, *KNOWN], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("layer", HANDS)
def test_a_hand_never_raises(
    monkeypatch: pytest.MonkeyPatch, hands: UnitOperations, layer: str, error: Exception
) -> None:
    monkeypatch.setattr(HANDS[layer], raising(error))
    unit = UnitRef(TOPIC, "b1", 1, "id")
    warmed = hands.prepare_target(PrepareTarget(unit))
    assert isinstance(warmed, TargetPrepared | OperationFailed)
    assert not isinstance(warmed, OperationFailed) or warmed.should_retry, (
        "nothing is known to be wrong with the unit yet"
    )
    if layer == "topic":
        assert isinstance(warmed, OperationFailed), "the topic is read before the takeover"
        return  # not asked again
    taken = hands.take_over(TakeOver(unit, 0))
    assert isinstance(taken, OperationFailed)
    assert taken.error
    assert taken.should_retry != taken.waits
    assert taken.should_retry == isinstance(error, TransientError | MemoryError)
    assert isinstance(hands.probe_stopped(ProbeStopped(unit)), StoppedProbed)


def test_a_unit_whose_rows_are_lost_waits_also_where_nothing_comes(
    hands: UnitOperations, lost: FakeTarget
) -> None:
    """Another one has made the shared target table anew: it is seen at a start, and while an idle unit
    runs."""
    unit = UnitRef(TOPIC, "b1", 1, "id")
    reported = f"the rows of this source are not in it: {format_debezium_remedy('bank', 'acct')}"
    assert isinstance(hands.prepare_target(PrepareTarget(unit)), TargetPrepared)
    taken = hands.take_over(TakeOver(unit, 0))
    assert isinstance(taken, OperationFailed)
    assert (taken.waits, taken.should_retry, str(decode_problem(taken.error)).endswith(reported)) == (
        True,
        False,
        True,
    )
    assert taken.copy is not None
    assert lost.state.unit.stopped == taken.error
    why = hands.check_table(CheckTable(unit, taken.epoch)).why
    assert why is not None
    assert str(decode_problem(why)).endswith(reported)


def test_a_running_unit_stops_also_if_the_target_cannot_record_it(
    hands: UnitOperations, lost: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSession, "stop_unit", raising(TransientError("gone away")))
    with capture_logs() as logs:
        checked = hands.check_table(CheckTable(UnitRef(TOPIC, "b1", 1, "id"), 1))
    assert checked.why is not None
    assert [(each["event"], each["topic"], each["error"]) for each in logs] == [
        ("stop of a unit not recorded", TOPIC, "gone away")
    ]


def test_a_running_unit_that_cannot_be_checked_goes_on(
    hands: UnitOperations, lost: FakeTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "consumer.process.operations.target_checks.TargetProbe.explain_unfit", raising(TransientError("gone"))
    )
    with capture_logs() as logs:
        checked = hands.check_table(CheckTable(UnitRef(TOPIC, "b1", 1, "id"), 1))
    assert checked.why is None
    assert [each["event"] for each in logs] == ["running unit not checked"]
    assert lost.state.unit.stopped is None


def test_a_table_that_does_not_fit_stops_the_unit_at_its_takeover(
    hands: UnitOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, misfit = UnitRef(TOPIC, "b1", 1, "id"), Problem("column x is missing", "add it")
    seen: list[Problem | None] = [misfit, None]
    monkeypatch.setattr(TargetProbe, "find_misfit", lambda *_: seen.pop(0))
    taken = hands.take_over(TakeOver(unit, 0, look=True))
    assert isinstance(taken, OperationFailed)
    assert (taken.waits, decode_problem(taken.error)) == (True, misfit)
    assert isinstance(hands.take_over(TakeOver(unit, 0, look=True)), UnitTakenOver), "it fits now"


def test_a_takeover_at_the_same_offset_is_logged_once(hands: UnitOperations) -> None:
    """A stopped unit is retried at intervals."""
    unit = UnitRef(TOPIC, "b1", 1, "id")

    def take_over() -> int:
        with capture_logs() as lines:
            assert isinstance(hands.take_over(TakeOver(unit, 0, look=True)), UnitTakenOver)
        return sum(line["event"] == "unit taken over" for line in lines)

    assert [take_over() for _ in range(3)] == [1, 0, 0]
    hands._logged_offsets[TOPIC, 1] -= 1  # it has applied an event meanwhile
    assert [take_over() for _ in range(2)] == [1, 0]


class CountedConnections:
    """Connections that count how often the first one was opened and dropped."""

    def __init__(self, *_: object) -> None:
        self.opened, self.dropped = 0, 0

    def get_connection(self, number: int) -> Any:
        self.opened += 1
        return SimpleNamespace(ensure_bookkeeping=lambda: None)

    def drop_connection(self, number: int) -> None:
        self.dropped += number == 0


def test_every_session_logs_in_again_after_a_missing_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GRANT on *.* of MySQL does not reach sessions that are open."""
    monkeypatch.setattr(unit_resources, "ConnectionCache", CountedConnections)
    pipeline: Any = SimpleNamespace(target=None, name="p", config=SimpleNamespace(lanes=1))
    pool = unit_resources.TargetConnectionPool(pipeline)
    with pytest.raises(MissingGrantError), pool.borrow_connections():
        raise MissingGrantError("access denied", "GRANT PROCESS ON *.* TO u")
    every: list[Any] = pool._all
    for _ in range(2):
        with contextlib.ExitStack() as stack:
            for _ in every:
                stack.enter_context(pool.borrow_connections())
        assert {each.dropped for each in every} == {1}


def test_a_stopped_unit_is_probed_with_its_table_and_copy(hands: UnitOperations) -> None:
    target: Any
    with hands._hands.borrow_connections() as target:
        pass
    target.get_connection(0).read_surroundings = lambda *_: "triggers"
    hands._copies = SimpleNamespace(find_copy_offset=lambda _: None)  # type: ignore[assignment]
    unit, need = UnitRef(TOPIC, "b1", 1, "id"), CopyNeed(41, "gap")
    first = hands.probe_stopped(ProbeStopped(unit))
    target.state.unit = UnitState(StoredDefinition(account_table()).encode(), None, "stopped")
    missing = hands.probe_stopped(ProbeStopped(unit))
    target.tables["public.acct"] = structs.replace(account_table(), db="public")
    there = hands.probe_stopped(ProbeStopped(unit))
    assert [bool(each.real) for each in (first, missing, there)] == [False, False, True]
    assert len({each.seen for each in (first, missing, there)}) == 3, "each change is seen"
    assert (there.message, there.begun) == (None, False)
    hands._copies = SimpleNamespace(  # type: ignore[assignment]
        check_needed_copy=lambda *asked: CopyOutlook(asked == (unit, need, "why"), "a copy waits", 1),
        find_copy_offset=lambda _: None,
    )
    copied = hands.probe_stopped(ProbeStopped(unit, need, "why"))
    assert (copied.message, copied.begun) == ("a copy waits", True)
    assert copied.seen != there.seen


def test_a_copy_that_a_person_requested_is_seen_by_a_unit_that_asked_for_none(hands: UnitOperations) -> None:
    """Its target table was dropped, for example: the unit waits for a person, and would see the copy minutes
    later."""
    begins: list[int | None] = [None, 41, 41, 97]
    hands._copies = SimpleNamespace(find_copy_offset=lambda _: begins.pop(0))  # type: ignore[assignment]
    none, first, still, second = (
        hands.probe_stopped(ProbeStopped(UnitRef(TOPIC, "b1", 1, "id"))).seen for _ in range(4)
    )
    assert first == still
    assert len({none, first, second}) == 3


def test_an_operation_passes_on_the_last_offset_of_its_topic() -> None:
    seen: list[tuple[str, str, int]] = []
    cluster: Any = SimpleNamespace(fetch_bounds=lambda _: {TOPIC: (3, 9)})
    topics = UnitTopics(cluster, lambda *found: seen.append(found))
    assert topics.require_bounds(UnitRef(TOPIC, "b1", 1, "id")) == (3, 9)
    assert seen == [("b1", TOPIC, 8)]


# -- what serves all units


def test_a_watermark_that_cannot_be_read_is_its_sources_own(monkeypatch: pytest.MonkeyPatch) -> None:
    times = SourceTimes(KafkaConfig(bootstrap="h:1", prefix="p"), ["a", "b"])
    good = Watermark(
        source="b", gen=1, position=(0, 1, 2, 3), file="f", commit_ts_ms=7, ts_ms=7, idle=False,
        topics={"t": 1}
    )  # fmt: skip
    odd = msgspec.json.encode(good)
    for raw in (b"{", b"\xff", b'{"source":"\xff"}', odd):
        with monkeypatch.context() as patched:
            if raw is odd:
                patched.setattr(source_times.SourceWatermarks, "fold_watermark", raising(ValueError("odd")))
            times._take_record("p.a.watermark", b"a", raw)
    times._take_record("p.b.watermark", b"b", msgspec.json.encode(good))
    assert times.get_times("b", "t", 1) == (7, 7)


def test_a_topic_of_a_strange_name_is_shown_as_it_stands() -> None:
    """An odd number of digits is none of ours; it must not end the look at all topics."""
    assert unescape_topic_part("t_xabc_") == "t_xabc_"
    assert unescape_topic_part("a_x2e_b") == "a.b"
