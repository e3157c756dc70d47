"""Election and state log on a real broker: one leader, state that survives, zombies refused, a topic that
stays short."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from coordinator.control import transactions
from coordinator.control.codec import Beat, Candidate, Changes, Claim, encode_message
from coordinator.control.election import Claimed, ElectionConfig, ElectionPhase, WriteFailed
from coordinator.control.events import (
    ControlLogEvent,
    ControlTopicLost,
    Elected,
    Heard,
    Lost,
    NewLeader,
    RecordsCommitted,
    WriteConfirmed,
)
from coordinator.control.kafka_log import ControlConfig, ControlLog
from coordinator.control.reader import ControlReader
from coordinator.control.topic import (
    TRANSACTION_MS,
    ControlTopic,
    ControlTopicError,
    build_control_topic_name,
)
from coordinator.control.transactions import TermProducer, WriteFailedError, WriterConfig
from coordinator.control.writer import ControlWriter
from coordinator.core.records import CounterRecord, PausedRecord
from deploy.embedded import ports
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaConfig
from tests.kits.apply import create_topic, delete_topic
from tests.kits.coordination import until

pytestmark = pytest.mark.integration

QUICK = ControlConfig(ElectionConfig(patience=1.5), WriterConfig(beat=0.3), jitter=0.2, probe=0.1)


class One:
    """A candidate and everything that its log has said."""

    def __init__(self, kafka: KafkaConfig, name: str, config: ControlConfig = QUICK) -> None:
        self.name = name
        self.events: list[ControlLogEvent] = []
        self.log = ControlLog(kafka, Candidate(name, f"{name}:1", f"{name}:2"), self.events.append, config)

    def __enter__(self) -> One:
        self.log.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.log.close()

    def reported(self, kind: type[Any]) -> list[Any]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    @property
    def leads(self) -> bool:
        """Whether it leads and has said so: its events come a moment after the phase."""
        terms = [event for event in list(self.events) if isinstance(event, Elected | Lost)]
        return self.log.phase is ElectionPhase.LEADING and bool(terms) and isinstance(terms[-1], Elected)

    @property
    def term(self) -> Elected:
        found: Elected = self.reported(Elected)[-1]
        return found

    def write(self, token: int, epoch: int) -> None:
        self.log.append_changes(self.term.rev, token, (("counter", CounterRecord(epoch)),))
        until(lambda: RecordsCommitted(self.term.rev, token) in self.events, what="Persisted")


@pytest.fixture
def config(kafka: Kafka, unique: str) -> KafkaConfig:
    return KafkaConfig(bootstrap=kafka.bootstrap, prefix=unique)


@pytest.fixture
def start(config: KafkaConfig) -> Iterator[Callable[..., One]]:
    with ExitStack() as stack:
        yield lambda name, how=QUICK: stack.enter_context(One(config, name, how))


def leader(*all_of_them: One) -> One:
    """Wait until exactly one leads and everybody knows it."""

    def settled() -> One | None:
        leading = [one for one in all_of_them if one.leads]
        following = [one for one in all_of_them if one.log.phase is ElectionPhase.FOLLOWING]
        if (len(leading), len(following)) != (1, len(all_of_them) - 1):
            return None  # two that claim at once: the later one wins in the end
        rev = leading[0].term.rev
        return (
            leading[0]
            if all(one.reported(NewLeader)[-1:] == [NewLeader(rev, known(leading[0]))] for one in all_of_them)
            else None
        )

    found: One = until(settled, what="one leader")
    return found


def known(one: One) -> Candidate:
    return Candidate(one.name, f"{one.name}:1", f"{one.name}:2")


def test_one_of_three_leads_and_its_state_goes_to_the_next(start: Callable[..., One]) -> None:
    ones = [start("a"), start("b"), start("c")]
    first = leader(*ones)
    first.write(1, 41)
    first.log.append_changes(first.term.rev, 2, (("paused/u", PausedRecord("u")),))
    first.log.append_changes(first.term.rev, 3, (("paused/u", None), ("counter", CounterRecord(42))))
    until(lambda: RecordsCommitted(first.term.rev, 3) in first.events)
    term = first.term.rev
    first.log.resign_term()
    until(lambda: first.reported(Lost))
    second = leader(*ones)  # on a busy machine it may be the first one again
    assert second.term.rev > term
    assert dict(second.term.records) == {"counter": CounterRecord(42)}


def test_a_leader_confirms_itself_while_it_has_nothing_to_write(start: Callable[..., One]) -> None:
    one = leader(start("a"))
    before = time.monotonic()
    until(lambda: [c for c in one.reported(WriteConfirmed) if c.at > before + 0.5], what="a beat")
    assert [event for event in one.events if isinstance(event, Lost)] == []
    times = [confirmed.at for confirmed in one.reported(WriteConfirmed)]
    assert times == sorted(times)


def test_events_of_a_term_stand_between_elected_and_lost(start: Callable[..., One]) -> None:
    one = leader(start("a"))
    for token in range(20):
        one.log.append_changes(one.term.rev, token, (("counter", CounterRecord(token)),))
    one.log.resign_term()
    until(lambda: one.reported(Lost))
    one.log.append_changes(one.reported(Elected)[0].rev, 99, (("counter", CounterRecord(99)),))
    again = leader(one)
    assert again.term.records.get("counter") != CounterRecord(99)
    kinds = [type(event) for event in one.events if not isinstance(event, NewLeader)]
    lost = kinds.index(Lost)
    assert set(kinds[1:lost]) <= {RecordsCommitted, WriteConfirmed}
    assert kinds[0] is Elected
    assert kinds[lost + 1] is Elected
    tokens = [persisted.token for persisted in one.reported(RecordsCommitted)]
    assert tokens == list(range(len(tokens)))


def test_another_leader_is_heard_while_it_writes_and_not_from_the_past(
    config: KafkaConfig, start: Callable[..., One]
) -> None:
    """What the topic holds when a candidate begins to read is no evidence of a live leader: the process that
    claimed there may be dead."""
    dead = leader(start("dead"))
    rev = dead.term.rev
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead.log, "resign_term", lambda _why="": None)  # as if it were killed
        dead.log.close()
    late = start("late")
    leader(late)
    assert [heard for heard in late.reported(Heard) if heard.rev == rev] == []
    follower = start("follower")
    until(lambda: [heard for heard in follower.reported(Heard) if heard.rev == late.term.rev])


def test_a_candidate_does_not_hear_itself(config: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reader may have its claim before its writer has reported that it is committed (on a busy machine:
    at any time)."""
    step = ControlLog._step_election

    def late(log: ControlLog, event: Any) -> None:
        if isinstance(event, Claimed):
            until(lambda: NewLeader(event.rev, known(one)) in one.events, what="its own claim, read")
        step(log, event)

    monkeypatch.setattr(ControlLog, "_step_election", late)
    one = One(config, "a")
    with one:
        leader(one)
        assert one.reported(Heard) == []


def ensure(config: KafkaConfig) -> None:
    """As the coordinator does it: a topic that was created just now is not known to the broker at once."""

    def ensured() -> bool:
        try:
            ControlTopic(config).ensure_topic()
        except KafkaException:
            return False
        return True

    until(ensured)


def test_a_write_of_an_earlier_term_is_refused(config: KafkaConfig, start: Callable[..., One]) -> None:
    """The zombie: it led, another has claimed, and only now it wants to write."""
    ensure(config)
    zombie = TermProducer(config, 10.0)
    rev = zombie.commit_payloads(
        [encode_message(Claim(Candidate("z", "z:1"), "n"))], "claim"
    ) or zombie.commit_payloads([encode_message(Claim(Candidate("z", "z:1"), "n"))], "claim")
    zombie.commit_payloads([encode_message(Changes(rev, (("counter", CounterRecord(1)),)))], "write")
    one = leader(start("a"))
    assert dict(one.term.records) == {"counter": CounterRecord(1)}
    with pytest.raises(WriteFailedError, match="another coordinator") as raised:
        zombie.commit_payloads([encode_message(Changes(rev, (("counter", CounterRecord(99)),)))], "write")
    assert raised.value.fenced
    zombie.discard()
    one.write(1, 2)
    one.log.resign_term()
    until(lambda: one.reported(Lost))
    assert dict(leader(one).term.records) == {"counter": CounterRecord(2)}


def test_what_somebody_else_writes_to_the_topic_is_ignored(
    config: KafkaConfig, start: Callable[..., One]
) -> None:
    """A producer without the transactional id is not fenced by Kafka: readers drop what is not of the newest
    term."""
    one = leader(start("a"))
    one.write(1, 5)
    stranger = Producer({"bootstrap.servers": config.bootstrap})
    stale = encode_message(Changes(one.term.rev - 1, (("counter", CounterRecord(99)),)))
    for value in (b"nonsense", stale, encode_message(Beat(one.term.rev + 1000))):
        stranger.produce(build_control_topic_name(config), value)
    stranger.flush(10)
    until(
        lambda: (
            one.log.get_counters().get("control.foreign")
            and one.log.get_counters().get("control.other term") == 2
        )
    )
    one.log.resign_term()
    until(lambda: one.reported(Lost))
    assert dict(leader(one).term.records) == {"counter": CounterRecord(5)}


def test_an_open_transaction_of_a_dead_owner_does_not_hold_up_the_next(
    config: KafkaConfig, start: Callable[..., One], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka itself would end it after a quarter of an hour: the next owner's claim does."""
    ensure(config)
    with monkeypatch.context() as patched:
        settings = {**transactions.build_term_producer_settings(config), "transaction.timeout.ms": 900_000}
        patched.setattr(transactions, "build_term_producer_settings", lambda _: settings)
        dead = TermProducer(config, 60.0)
    dead.commit_payloads([encode_message(Claim(Candidate("d", "d:1"), "n"))] * 2, "claim")
    dead._producer.begin_transaction()
    dead._producer.produce(
        build_control_topic_name(config),
        encode_message(Changes(2, (("counter", CounterRecord(99)),))),
        partition=0,
    )
    dead._producer.flush(10)
    one = leader(start("a"))
    assert dict(one.term.records) == {}
    with pytest.raises(KafkaException):
        dead._producer.commit_transaction(10)
    dead.discard()


def test_a_pause_of_the_broker_ends_no_term(kafka: Kafka, start: Callable[..., One]) -> None:
    """Longer than the patience of the others: silence of the topic is not silence of the leader.

    If the machine makes the pause so long that the client gives its message up, the next term is tried.
    """
    patient = ControlConfig(ElectionConfig(patience=3.0), QUICK.writer, jitter=0.2, probe=0.1)
    ones = [start("a", patient), start("b", patient)]
    for token in range(10):
        first = leader(*ones)
        rev, lost, began = first.term.rev, len(first.reported(Lost)), time.monotonic()
        kafka.process.pause()
        time.sleep(5.0)  # the pause itself
        kafka.process.resume()
        first.log.append_changes(rev, token, (("counter", CounterRecord(8)),))
        until(
            lambda: RecordsCommitted(rev, token) in first.events or len(first.reported(Lost)) > lost  # noqa: B023
        )
        if len(first.reported(Lost)) == lost:
            break
        assert time.monotonic() - began > TRANSACTION_MS / 1000 - 1, first.reported(Lost)[-1].why
    assert leader(*ones) is first
    assert first.term.rev == rev


def test_a_restart_of_the_broker_loses_nothing(kafka: Kafka, start: Callable[..., One]) -> None:
    """Whether the term survives depends on how fast the broker is: what was written does in any case."""
    ones = [start("a"), start("b")]
    leader(*ones).write(1, 7)
    kafka.kill()
    kafka.start()

    def writes() -> One | None:
        """Whoever leads has this written, unless it loses its term over it."""
        one = leader(*ones)
        term, token = one.term, 100 + len(one.events)
        one.log.append_changes(term.rev, token, (("paused/u", PausedRecord("u")),))
        until(
            lambda: RecordsCommitted(term.rev, token) in one.events or one.term is not term or not one.leads
        )
        return one if RecordsCommitted(term.rev, token) in one.events else None

    first = until(writes, what="a write after the restart")
    assert first.term.rev <= leader(*ones).term.rev
    leader(*ones).log.resign_term()
    until(lambda: any(isinstance(event, Lost) for event in first.events))
    assert dict(leader(*ones).term.records) == {"counter": CounterRecord(7), "paused/u": PausedRecord("u")}


@pytest.mark.parametrize("how", ["deleted", "created again"])
def test_a_lost_topic_ends_the_term_and_is_never_claimed(
    config: KafkaConfig, start: Callable[..., One], how: str
) -> None:
    """Its terms would begin again below those that agents know."""
    ones = [start("a"), start("b")]
    leader(*ones).write(1, 7)
    name = build_control_topic_name(config)
    delete_topic(config.bootstrap, name)
    if how == "created again":
        create_topic(config.bootstrap, name)
    for one in ones:
        until(lambda one=one: one.reported(ControlTopicLost), what="the loss")
    terms = [len(one.reported(Elected)) for one in ones]
    time.sleep(3 * QUICK.election.patience)  # nothing is to happen meanwhile
    assert [len(one.reported(Elected)) for one in ones] == terms
    assert [len(one.reported(ControlTopicLost)) for one in ones] == [1, 1]
    assert sum(len(one.reported(Lost)) for one in ones) == sum(terms)
    problem = ones[0].reported(ControlTopicLost)[0].problem
    assert ("is gone" if how == "deleted" else "created again") in problem.what


class Term:
    """One owner after another, without waiting: the test, and not an election, gives the writer its
    commands."""

    def __init__(self, kafka: KafkaConfig, number: int, config: WriterConfig) -> None:
        self.number = number
        self.reported: list[Claimed | WriteFailed] = []
        self.notified: list[ControlLogEvent] = []
        self.writer = ControlWriter(
            kafka,
            Candidate(f"c{number}", "x:1"),
            str(number),
            config,
            report=self.reported.append,
            notify=self.notified.append,
            discarded=lambda: None,
        )
        self.writer.start()

    def claim(self) -> int:
        self.writer.queue_claim()
        claimed = until(lambda: self.reported, what="a claim")[-1]
        assert isinstance(claimed, Claimed), claimed
        return claimed.rev


@pytest.mark.parametrize("owners", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_the_topic_stays_short_over_many_owners(config: KafkaConfig, owners: int) -> None:
    """Each claims and writes; most die without a word. A reader of what is left finds the state."""
    ensure(config)
    lock = threading.RLock()
    reader = ControlReader(config, 0.1, lock, lambda _: None)
    reader.start()
    writing = WriterConfig(beat=60.0, snapshot_after=30)
    lengths, last = [], 0
    consumer = Consumer({"bootstrap.servers": config.bootstrap, "group.id": "x"})

    def length() -> int:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(build_control_topic_name(config), 0), timeout=120, cached=False
        )
        return int(high - low)

    for number in range(owners):
        term = Term(config, number, writing)
        rev = term.claim()
        until(lambda rev=rev: reader.fold.rev == rev)
        with lock:
            fold = reader.fold
            term.writer.begin_term(rev, fold.records, fold.base, fold.end, fold.size)
        last = number
        term.writer.append_changes(
            rev, 1, (("counter", CounterRecord(number)), (f"paused/{number % 7}", PausedRecord("u")))
        )
        until(lambda rev=rev, notified=term.notified: RecordsCommitted(rev, 1) in notified)
        until(lambda number=number: reader.fold.records.get("counter") == CounterRecord(number))
        term.writer.stop(10)
        lengths.append(length())
    reader.stop(10)
    until(lambda: length() <= 40, what="the last trim")
    consumer.close()
    assert max(lengths) <= 30 + 60  # what is deleted goes a little later
    fresh = ControlReader(config, 0.1, lock, lambda _: None)
    fresh.start()
    until(lambda: fresh.complete)
    fresh.stop(10)
    assert fresh.fold.rev == reader.fold.rev
    assert fresh.fold.records["counter"] == CounterRecord(last)
    assert len(fresh.fold.records) == 8
    assert fresh.fold.base > 0
    late = ControlReader(config, 0.1, lock, lambda _: None)  # one that was paused while its place was deleted
    late.fold.end = 1
    late.start()
    until(lambda: late.complete)
    late.stop(10)
    assert (late.fold.rev, late.fold.records) == (fresh.fold.rev, fresh.fold.records)


def test_a_topic_of_several_partitions_is_refused(config: KafkaConfig) -> None:
    admin = AdminClient({"bootstrap.servers": config.bootstrap})
    admin.create_topics([NewTopic(build_control_topic_name(config), 2, 1)])[
        build_control_topic_name(config)
    ].result(60)
    with pytest.raises(ControlTopicError, match="2 partitions"):
        ensure(config)


def test_a_topic_that_would_forget_is_corrected(config: KafkaConfig) -> None:
    """As a broker makes it that creates topics by itself."""
    admin = AdminClient({"bootstrap.servers": config.bootstrap})
    new = NewTopic(
        build_control_topic_name(config), 1, 1, config={"retention.ms": "60000", "cleanup.policy": "compact"}
    )
    admin.create_topics([new])[build_control_topic_name(config)].result(60)
    ensure(config)
    resource = ConfigResource(ResourceType.TOPIC, build_control_topic_name(config))
    have = admin.describe_configs([resource])[resource].result(60)
    assert (have["retention.ms"].value, have["cleanup.policy"].value) == ("-1", "delete")


def test_without_a_broker_it_waits_and_can_be_closed() -> None:
    one = One(KafkaConfig(bootstrap=f"127.0.0.1:{ports.pick_port()}", prefix="nobody"), "a")
    with one:
        assert one.log.phase is ElectionPhase.FOLLOWING
    assert one.events == []
