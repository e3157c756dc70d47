"""Units of Debezium's topics: where their definition comes from, what a hand does with it, and when a run has
caught up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest

from consumer.errors import TargetConfigError, TransientError, UnitStoppedError
from consumer.process import takeover
from consumer.slots.pipeline import PipelineSettings
from consumer.tables import source_tables
from consumer.tables.discovery import TopicDescription
from consumer.units.messages import OperationFailed, PrepareTarget, TargetPrepared, UnitTakenOver
from consumer.units.unit import UnitRef
from producer.main import main as producer_main
from rowlock.agent.capture import CaptureWorkers
from rowlock.agent.reported import ReportedFigures
from rowlock.coordinator.units import ApplyUnitName
from rowlock.errors import CommandError
from rowlock.inspect import caught_up
from rowlock.inspect.caught_up import CaughtUpGoal
from rowlock.views.kafka import OffsetSpan
from schemas.config.model import Config
from schemas.errors import NoKeyError, ServerConnectError
from schemas.problems import Problem, decode_problem, encode_problem
from schemas.table.model import Table
from schemas.table.names import TableName
from schemas.wire.codec import decode_table
from tests.kits.apply import account_table
from tests.kits.debezium_units import TOPIC, Entered
from tests.kits.debezium_units import config as config
from tests.kits.hands import operations
from tests.stands.fake_target import FakeTarget


class TestDefinition:
    @pytest.fixture
    def read(self, config: Config, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Table]:
        """Read the definition of `topic`'s table of a server that has `tables`, or that `fails`."""

        def run(*tables: str, topic: str = TOPIC, fails: Exception | None = None, table: Any = None) -> Table:
            def connect(_source: object) -> Any:
                if isinstance(fails, ServerConnectError):
                    raise fails
                return SimpleNamespace(close=lambda: None)

            def found(_conn: object, db: str, name: str) -> Table:
                if fails is not None:
                    raise fails
                return account_table(db, name)

            monkeypatch.setattr(source_tables, "connect_source", connect)
            monkeypatch.setattr(source_tables, "list_tables", lambda *_: [("bank", name) for name in tables])
            monkeypatch.setattr(source_tables, "read_table", found)
            return source_tables.read_definition(config.sources["b1"], "b1", "rowlock", topic)

        return run

    def test_it_is_that_of_the_table_whose_topic_it_is(self, read: Callable[..., Table]) -> None:
        assert read("acct", "cust").name == "acct"
        assert read("a$b", "acct", topic="rowlock.b1.bank.a_b").name == "a$b"

    @pytest.mark.parametrize(
        ("tables", "fails", "error", "message"),
        [
            (
                ["cust"],
                None,
                UnitStoppedError,
                "no table of that name, or user u may not see it: GRANT SELECT",
            ),
            (["acct"], NoKeyError("no key"), UnitStoppedError, "source b1: no key"),
            (["acct"], ServerConnectError("away", transient=True), TransientError, "source b1: away"),
            (["acct"], ServerConnectError("who?", transient=False), TargetConfigError, "source b1: who?"),
            (["acct"], pymysql.err.OperationalError(2013, "lost"), TransientError, "lost"),
        ],
    )
    def test_why_there_is_none(
        self, read: Callable[..., Table], tables: list[str], fails: Exception | None, error: Any, message: str
    ) -> None:
        with pytest.raises(error, match=message):
            read(*tables, fails=fails)

    def test_two_tables_of_one_topic_are_refused(self, read: Callable[..., Table]) -> None:
        with pytest.raises(
            UnitStoppedError, match=r"bank\.a\$b, bank\.a_b of source b1 all go to this topic"
        ):
            read("a$b", "a_b", topic="rowlock.b1.bank.a_b")


class Hand:
    """The hands of the pipeline over a target in memory. `source`: what reading the definition comes to."""

    def __init__(self, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
        self.target = FakeTarget()
        self.source: Table | Exception = account_table()
        self.asked = 0
        self.partitions = 1
        self.policy: str | None = "delete"
        monkeypatch.setattr(takeover, "read_definition", self._read)
        cluster = SimpleNamespace(
            describe_topics=lambda _: {TOPIC: TopicDescription("id", self.partitions)},
            fetch_bounds=lambda _: {TOPIC: (0, 0)},
            fetch_cleanup_policy=lambda _: self.policy,
        )
        self._hands = operations(
            PipelineSettings.from_config(config, "p"), lambda: Entered(self.target), cluster
        )

    def _read(self, *_: object) -> Table:
        self.asked += 1
        if isinstance(self.source, Exception):
            raise self.source
        return self.source

    def take(self, assignment: int = 1) -> UnitTakenOver | OperationFailed:
        took = self._hands._take_over_unit(UnitRef(TOPIC, "b1", assignment, "id"), 0, look=False)
        assert took.epoch > 0, "what was raised is known to the core, whatever came of it"
        return took

    def warm(self) -> TargetPrepared | OperationFailed:
        return self._hands.prepare_target(PrepareTarget(UnitRef(TOPIC, "b1", 1)))


@pytest.fixture
def hand(config: Config, monkeypatch: pytest.MonkeyPatch) -> Hand:
    return Hand(config, monkeypatch)


def test_the_first_to_take_a_unit_over_reads_its_definition(hand: Hand) -> None:
    assert isinstance(hand.take(), UnitTakenOver)
    stored = hand.target.state.unit.definition
    assert stored is not None
    assert decode_table(stored) == account_table()
    assert "public.acct" in hand.target.tables
    assert isinstance(hand.take(2), UnitTakenOver)
    assert hand.asked == 1, "the next one asks the target only"


@pytest.mark.parametrize("error", [TransientError("away"), TargetConfigError("who?")])
def test_a_source_that_cannot_be_asked_now_stops_nothing_for_good(hand: Hand, error: Exception) -> None:
    hand.source = error
    failed = hand.take()
    assert isinstance(failed, OperationFailed)
    waits = isinstance(error, TargetConfigError)  # a person must act; it is tried again all the same
    assert (failed.should_retry, failed.waits, failed.error) == (not waits, waits, str(error))
    assert hand.target.state.unit.stopped == (str(error) if waits else None)
    hand.source = account_table()
    assert isinstance(hand.take(), UnitTakenOver)


def test_a_table_that_cannot_be_applied_waits_for_a_person(hand: Hand) -> None:
    hand.source = UnitStoppedError("source b1: no key")
    failed = hand.take()
    assert isinstance(failed, OperationFailed)
    assert (failed.should_retry, failed.waits) == (False, True)
    assert decode_problem(failed.error) == Problem("source b1: no key")
    assert hand.target.state.unit.stopped == failed.error


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_waits_for_a_person(hand: Hand, policy: str) -> None:
    hand.policy = policy
    failed = hand.take()
    assert isinstance(failed, OperationFailed)
    assert failed.waits
    assert failed.error.startswith(f"topic {TOPIC} has cleanup.policy={policy}")
    hand.policy = None  # the user may not see it
    assert isinstance(hand.take(), UnitTakenOver)


def test_a_topic_with_several_partitions_waits_for_a_person(hand: Hand) -> None:
    """Only its first partition would be read, and nobody would know."""
    hand.partitions = 3
    failed = hand.take()
    assert isinstance(failed, OperationFailed)
    assert (failed.should_retry, failed.waits) == (False, True)
    assert failed.error.startswith(f"{TOPIC} has 3 partitions")
    assert "topic.creation.default.partitions=1" in failed.error
    assert hand.target.state.unit.stopped == failed.error
    hand.partitions = 1
    assert isinstance(hand.take(), UnitTakenOver)


@pytest.mark.parametrize("fits", [True, False])
def test_one_table_that_cannot_be_applied_keeps_no_other_from_being_taken(hand: Hand, fits: bool) -> None:
    bad, hand.partitions = hand.target, 2
    assert isinstance(hand.take(), OperationFailed)
    hand.target, hand.partitions = FakeTarget(), 1
    if not fits:
        hand.source = UnitStoppedError("source b1: no key")
    took = hand.take()
    assert isinstance(took, UnitTakenOver if fits else OperationFailed)
    state = hand.target.state.unit
    assert (state.definition is not None) == fits
    assert state.stopped == (None if fits else encode_problem(Problem("source b1: no key")))
    assert bad.state.unit.stopped is not None
    assert bad.state.unit.stopped.startswith(f"{TOPIC} has 2 partitions")


def test_units_know_how_the_connector_is_set(config: Config) -> None:
    pipeline = PipelineSettings.from_config(config, "p")
    spec = pipeline.build_unit_spec(TOPIC, "b1", epoch=1, topic_id="id", assigned=1)
    assert spec.sources == tuple(pipeline.config.sources) != ()
    assert spec.debezium is not None
    assert spec.debezium.decimal_strings


class TestCaughtUp:
    class View:
        """What Kafka has: topic → (next offset, partitions)."""

        def __init__(self) -> None:
            self.topics = {TOPIC: (10, 1), "rowlock.b1.bank.empty": (0, 1), "rowlock.b1.other.t": (5, 1)}

        def count_partitions(self) -> dict[str, int]:
            return {name: partitions for name, (_, partitions) in self.topics.items()}

        def read_topic_tables(self, _sources: object, _topics: object) -> dict[str, TableName]:
            return {}

        def read_spans(self, names: set[str]) -> dict[str, OffsetSpan]:
            return {name: OffsetSpan(0, self.topics[name][0]) for name in names}

    @pytest.fixture
    def view(self, monkeypatch: pytest.MonkeyPatch) -> View:
        view = self.View()
        monkeypatch.setattr(caught_up, "KafkaView", lambda _: view)
        monkeypatch.setattr(caught_up, "read_log_end", lambda *_: pytest.fail("its log is not read here"))
        return view

    def test_it_is_the_end_that_the_topics_have_at_the_start(
        self, config: Config, view: View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        goal = CaughtUpGoal(config)
        view.topics[TOPIC] = (50, 1)  # Debezium goes on
        asked: list[dict[str, int]] = []

        def applied(ends: Mapping[ApplyUnitName, int]) -> bool:
            asked.append({unit.topic: end for unit, end in ends.items()})
            return True

        monkeypatch.setattr(goal, "_has_applied_all", applied)
        assert goal()
        assert asked == [{TOPIC: 10}]

    def test_without_a_topic_there_is_no_such_end(self, config: Config, view: View) -> None:
        view.topics = {"dbserver1.bank.acct": (5, 1)}
        with pytest.raises(CommandError, match=r"no topic rowlock\.b1\.<database>.*topic\.prefix"):
            CaughtUpGoal(config)

    def test_topics_that_are_still_empty_are_caught_up_with(self, config: Config, view: View) -> None:
        view.topics = {TOPIC: (0, 1)}
        assert CaughtUpGoal(config)()

    def test_a_topic_with_several_partitions_is_refused_once_the_others_have_arrived(
        self, config: Config, view: View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = TOPIC.replace("acct", "other")
        view.topics |= {TOPIC: (10, 2), other: (7, 1)}
        goal = CaughtUpGoal(config)
        asked: list[dict[str, int]] = []

        def applied(ends: Mapping[ApplyUnitName, int]) -> bool:
            asked.append({unit.topic: end for unit, end in ends.items()})
            return len(asked) > 1

        monkeypatch.setattr(goal, "_has_applied_all", applied)
        assert not goal()
        with pytest.raises(CommandError, match="2 partitions"):
            goal()
        assert asked == [{other: 7}] * 2


def test_nobody_else_captures_what_debezium_does(
    config: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by hand, and not because a coordinator with an older configuration file says so."""
    monkeypatch.setattr("producer.main.structlog.configure", lambda **_: None)
    assert producer_main(["--config", str(config.path), "--source", "b1", "--detached"]) == 2
    assert "source b1 is captured by Debezium" in capsys.readouterr().err
    with pytest.raises(ValueError, match="Debezium captures b1"):
        CaptureWorkers(config, SimpleNamespace(), ReportedFigures()).prepare("capture/b1", 1, None)


@pytest.mark.parametrize(
    ("watermark", "is_captured", "stopped"),
    [
        (None, False, {}),
        ((4, "an older error"), False, {}),
        ((5, ""), False, {}),
        ((5, "no space"), False, {"source b1": "no space"}),
        ((5, "no space"), True, {"source b1": "no space"}),
        ((5, ""), True, {}),
    ],
)
def test_a_source_is_awaited_and_its_error_since_the_start_is_kept(
    watermark: tuple[int, str] | None, is_captured: bool, stopped: dict[str, str]
) -> None:
    """An error of before may have been mended: a restart of capture writes it no more."""
    goal = object.__new__(CaughtUpGoal)
    seen = watermark and (watermark[0], SimpleNamespace(error=watermark[1], snapshot_pending=()))
    goal._kafka = SimpleNamespace(read_watermark=lambda _: seen)  # type: ignore[assignment]
    start: Any = SimpleNamespace(watermark_from=5, is_captured=lambda _: is_captured)
    goal._starts, goal._stopped = {"b1": start}, {}
    goal._log_remaining = lambda _: None  # type: ignore[method-assign]
    assert goal._has_captured_all() is is_captured
    assert goal._stopped == stopped
