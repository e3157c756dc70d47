"""Topics of tables at a start and while capture runs: names that are stored first, and trouble that stays a
table's own (docs/adr/0034)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from producer.errors import KafkaRefusedError, TableStoppedError, TransientSourceError
from producer.kafka.topics import POSITIONS, WATERMARKS, TopicOpenings, find_unfit_topics, refuse_own
from producer.start.table_topics import TableTopics
from producer.tables import CapturedTables, TableName
from schemas.problems import Problem
from schemas.wire.records import Anchor
from schemas.wire.topic_names import OWN_TOPICS, normalize_topic
from tests.kits.start import Start, Topics, a_stop, event, table
from tests.sim.kafka import Broker

ACCT, OTHER = ("bank", "acct"), ("bank", "other")
SHARED: list[TableName] = [("bank", "a.b"), ("bank", "a_x2e_b")]


class Unfit(Topics):
    """`refused`: topic → why nothing may be written to it, whether it is there or not."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, Problem] = {}

    def open_topics(self, names: Iterable[str]) -> TopicOpenings:
        good = [name for name in names if name not in self.refused]
        opened = super().open_topics(good)
        return opened._replace(refused={name: why for name, why in self.refused.items() if name in names})


def start_of(*tables: TableName, **config: Any) -> Start:
    start = Start(**config)
    start.tables = {name: table(name[1]) for name in tables}
    return start


def names_of(start: Start) -> dict[str, str]:
    return start.claimed()[-1].topics or {}


def test_the_claim_holds_the_names_of_all_topics_before_the_first_event() -> None:
    start = start_of(("bank", "eu_acct"), ("bank", "a.b"))
    seen: list[int] = []
    start.meanwhile = lambda: seen.append(sum(len(topic.records) for topic in start.topics.topics.values()))
    start.begin()
    assert seen == [0]
    assert names_of(start) == {
        "bank.`a.b`": "rowlock.b1.bank.a_x2e_b",
        "bank.eu_acct": "rowlock.b1.bank.eu_acct",
    }
    assert len(start.sent("eu_acct")) == 1


def test_two_tables_that_kafka_takes_for_one_have_a_topic_each() -> None:
    start = start_of(("bank", "eu_acct"), ("bank_eu", "acct"), tables=["*.*"])
    start.tables["bank_eu", "acct"] = msgspec.structs.replace(table("acct"), db="bank_eu")
    start.begin()
    one, two = names_of(start).values()
    assert normalize_topic(one) != normalize_topic(two)
    assert {one, two} <= start.topics.topics.keys()


def test_a_table_keeps_its_topic_whatever_comes_later() -> None:
    start = start_of(("bank_eu", "acct"), tables=["*.*"])
    start.begin()
    before = names_of(start)
    again = Start(tables=["*.*"])
    again.topics = start.topics
    again.tables = {("bank", "eu_acct"): table("eu_acct"), **start.tables}
    again.begin()
    assert names_of(again).items() >= before.items()
    assert len(set(map(normalize_topic, names_of(again).values()))) == 2


def test_a_new_snapshot_keeps_the_names() -> None:
    start = start_of(("bank", "acct"))
    start.stored(topics={"bank.acct": "rowlock.b1.bank.acct-0123456789abcdef"})
    start.begin(new_snapshot=True)
    assert names_of(start) == {"bank.acct": "rowlock.b1.bank.acct-0123456789abcdef"}


def test_a_topic_that_a_crash_left_empty_is_used() -> None:
    start = start_of(("bank", "acct"))
    start.topics.ensure(["rowlock.b1.bank.acct"], {})
    start.begin()
    assert names_of(start) == {"bank.acct": "rowlock.b1.bank.acct"}


@pytest.mark.parametrize("value", [b"hello", b'{"op":"c"}', event((0, 3, 4, 0), source="b2")])
def test_a_topic_of_somebody_else_is_left_alone(value: bytes) -> None:
    start = start_of(ACCT)
    start.has(value)
    start.stored()
    start.begin()
    assert names_of(start)["bank.acct"].startswith("rowlock.b1.bank.acct-")
    assert [each.value() for each in start.topics.topics["rowlock.b1.bank.acct"].records] == [value]


def test_a_topic_with_events_of_a_table_is_its_own_without_a_record_that_says_so() -> None:
    start = start_of(ACCT)
    start.stored(topics={})
    start.topics.put("rowlock.b1.bank.odd", event((0, 3, 400, -1), definition=table()))
    started = start.begin()
    assert names_of(start) == {"bank.acct": "rowlock.b1.bank.odd"}
    assert started.tails.keys() == {ACCT}


def test_a_table_that_was_named_just_before_a_crash_and_is_gone_stops() -> None:
    """A process had taken it up and ended before its record had more of it than the name of its topic."""
    start = start_of(OTHER)
    start.stored(topics={"bank.acct": "rowlock.b1.bank.acct", "bank.other": "rowlock.b1.bank.other"})
    start.has(event((0, 3, 400, -1), definition=table()))
    started = start.begin()
    assert started.captured.stopped[ACCT].stop.cause == "unseen"


def shared_system() -> Start:
    """A system of an older version that has captured two tables into one topic."""
    start = start_of(*SHARED, OTHER)
    one, two = (
        event((0, 3, 400, at), name=name, definition=table(name)) for at, (_, name) in enumerate(SHARED)
    )
    start.has(one, two, name="a.b")
    anchors = {"bank.`a.b`": Anchor(definition=0, end=1), "bank.a_x2e_b": Anchor(definition=1, end=1)}
    start.stored(anchors=anchors, snapshot_done=("bank.`a.b`", "bank.a_x2e_b"))
    return start


def test_two_tables_of_one_topic_get_topics_of_their_own_and_wait_for_a_copy() -> None:
    start = shared_system()
    started = start.begin()
    (claim,) = start.claimed()
    topics = claim.topics or {}
    assert "rowlock.b1.bank.a_x2e_b" not in topics.values()
    assert len(set(map(normalize_topic, topics.values()))) == 3
    assert {name: (stop.cause, stop.remedy) for name, stop in claim.stops.items()} == {
        "bank.`a.b`": ("topic", "rowlock copy 'bank.`a.b`'"),
        "bank.a_x2e_b": ("topic", "rowlock copy bank.a_x2e_b"),
    }
    assert claim.anchors == {}
    assert claim.snapshot_done == ()
    assert started.captured.unsaid == set(SHARED), "their topics are to say it"
    assert OTHER in started.captured.tables
    assert start.sent("a.b") == [], "nothing more goes there"


def test_a_crash_after_the_claim_does_not_forget_what_was_shared() -> None:
    start = shared_system()
    start.begin()
    again = start_of(*SHARED, OTHER)
    again.topics = start.topics
    started = again.begin()
    assert started.captured.stopped.keys() == set(SHARED)
    assert names_of(again) == names_of(start)


@pytest.mark.parametrize("there", [True, False])
def test_a_new_table_without_a_usable_topic_is_left_out_and_the_others_go_on(there: bool) -> None:
    start = start_of(ACCT, OTHER)
    start.topics = topics = Unfit()
    start.topics.ensure(["rowlock.b1.position"], {})
    if there:
        topics.ensure(["rowlock.b1.bank.acct"], {})
    topics.refused = {
        "rowlock.b1.bank.acct": Problem("topic rowlock.b1.bank.acct has 3 partitions", "delete it")
    }
    started = start.begin()
    assert started.errors == {ACCT: Problem("topic rowlock.b1.bank.acct has 3 partitions", "delete it")}
    assert started.captured.tables.keys() == {OTHER}
    assert not started.captured.stopped
    assert len(start.sent("other")) == 1
    assert not there or start.sent() == []


@pytest.mark.parametrize("there", [True, False])
def test_a_captured_table_without_a_usable_topic_stops_and_the_others_go_on(there: bool) -> None:
    start = start_of(ACCT, OTHER)
    start.topics = topics = Unfit()
    start.topics.ensure(["rowlock.b1.position"], {})
    start.stored(anchors={"bank.acct": Anchor(definition=0, end=0)})
    if there:
        start.has(event((0, 3, 400, -1), definition=table()))
    topics.refused = {
        "rowlock.b1.bank.acct": Problem("topic rowlock.b1.bank.acct is compacted", "set the policy")
    }
    started = start.begin()
    stop = started.captured.stopped[ACCT].stop
    assert (stop.cause, stop.reason, stop.remedy) == (
        "topic", "topic rowlock.b1.bank.acct is compacted", "set the policy",
    )  # fmt: skip
    assert (ACCT in started.captured.unsaid) == there, "a topic that is not there says nothing"
    assert ACCT not in started.errors
    assert OTHER in started.captured.tables


def test_an_earlier_stop_of_a_table_without_a_topic_is_kept() -> None:
    start = start_of(ACCT)
    start.topics = topics = Unfit()
    start.topics.ensure(["rowlock.b1.position"], {})
    start.stored(stops={"bank.acct": a_stop()})
    topics.refused = {"rowlock.b1.bank.acct": Problem("it cannot be made", "allow it")}
    started = start.begin()
    assert started.captured.list_stops() == {"bank.acct": a_stop()}


# --- while capture runs


class Maker(Broker):
    """`did`: what happened, in its order. `taken`: topics that others make before ours."""

    def __init__(self, *taken: str) -> None:
        super().__init__()
        self.did: list[str] = []
        self._others = list(taken)

    def save(self) -> None:
        self.did.append("stored")

    def open_topics(self, names: Iterable[str]) -> TopicOpenings:
        if self._others:
            self.ensure([self._others.pop(0)], {})
        opened = super().open_topics(names)
        self.did += [f"made {name}" for name in opened.created] + [f"refused {name}" for name in opened.taken]
        return opened


def open_in(maker: Maker, name: TableName) -> str:
    topics = TableTopics(CapturedTables("rowlock", "b1"), maker, maker, maker.save)
    return topics.open_topic(name).name


def test_a_name_is_stored_before_its_topic_is_made() -> None:
    maker = Maker()
    assert open_in(maker, ACCT) == "rowlock.b1.bank.acct"
    assert maker.did == ["stored", "made rowlock.b1.bank.acct"]


def test_a_name_that_another_process_takes_first_is_replaced_and_stored_again() -> None:
    maker = Maker("rowlock.b1_bank.acct")
    topic = open_in(maker, ACCT)
    assert topic.startswith("rowlock.b1.bank.acct-")
    assert maker.did == ["stored", "refused rowlock.b1.bank.acct", "stored", f"made {topic}"]


def test_a_name_is_replaced_also_where_the_other_topic_cannot_be_seen() -> None:
    maker = Maker("rowlock.b1_bank.acct")
    hidden: Any = SimpleNamespace(
        count_partitions=dict,
        open_topics=maker.open_topics,
        get_bounds=maker.get_bounds,
        read_all=maker.read_all,
    )
    topics = TableTopics(CapturedTables("rowlock", "b1"), hidden, hidden, maker.save)
    assert topics.open_topic(ACCT).name.startswith("rowlock.b1.bank.acct-")


def test_a_topic_that_can_never_be_made_stops_its_table() -> None:
    class Refusing(Maker):
        def open_topics(self, names: Iterable[str]) -> TopicOpenings:
            return TopicOpenings(
                set(), {name: Problem(f"Kafka refuses {name}", "allow it") for name in names}, set()
            )

    with pytest.raises(TableStoppedError, match=r"Kafka refuses rowlock\.b1\.bank\.acct: allow it") as stop:
        open_in(Refusing(), ACCT)
    assert (stop.value.cause, stop.value.tables) == ("topic", frozenset([ACCT]))


def test_a_topic_is_looked_at_once() -> None:
    maker = Maker()
    topics = TableTopics(CapturedTables("rowlock", "b1"), maker, maker, maker.save)
    assert topics.open_topic(ACCT) is topics.open_topic(ACCT)
    assert len(maker.did) == 2


def test_what_a_predecessor_wrote_to_a_topic_since_the_start_is_read_by_another_start() -> None:
    """Else a definition of this process would stand behind events that it knows nothing of."""
    maker = Maker()
    captured = CapturedTables("rowlock", "b1")
    topics = TableTopics(captured, maker, maker, maker.save)
    topics.find_unowned_topics()
    maker.append("rowlock.b1.bank.acct", b"{}", event((0, 3, 400, -1), definition=table()))
    with pytest.raises(TransientSourceError, match="capture restarts, and continues after these events"):
        topics.open_topic(ACCT)
    captured.get_topic(ACCT).end = 1
    assert topics.open_topic(ACCT).name == "rowlock.b1.bank.acct"


def test_a_topic_that_somebody_else_writes_to_stops_its_table() -> None:
    maker = Maker()
    topics = TableTopics(CapturedTables("rowlock", "b1"), maker, maker, maker.save)
    topics.find_unowned_topics()
    topics.captured.get_topic(ACCT)
    maker.append("rowlock.b1.bank.acct", b"", b"hello")
    with pytest.raises(TableStoppedError, match="holds records that capture did not write"):
        topics.open_topic(ACCT)


# --- settings


@pytest.mark.parametrize(
    ("partitions", "policy", "seen"),
    [
        (1, "delete", None),
        (1, "", None),
        (1, "compact", "cleanup.policy=compact"),
        (1, "compact,delete", "cleanup.policy=compact,delete"),
        (3, "delete", "has 3 partitions"),
        (3, "compact", "has 3 partitions"),
    ],
)
def test_a_table_s_topic_has_one_partition_and_is_never_compacted(
    partitions: int, policy: str, seen: str | None
) -> None:
    found = find_unfit_topics({"t": partitions}, {"t": policy})
    assert (seen in found["t"].what and found["t"].remedy) if seen else found == {}


def test_a_policy_that_may_not_be_read_is_no_trouble_of_the_table() -> None:
    assert find_unfit_topics({"t": 1}, {}) == {}


@pytest.mark.parametrize(
    ("settings", "policy", "seen"),
    [
        (POSITIONS, "compact", None),
        (POSITIONS, "delete", "position would be deleted"),
        (POSITIONS, "compact,delete", "position would be deleted"),
        (POSITIONS, "", "position would be deleted"),
        (WATERMARKS, "delete", None),
        (WATERMARKS, "compact", "records that are needed"),
        (WATERMARKS, "compact,delete", "records that are needed"),
    ],
)
def test_an_own_topic_of_another_policy_refuses_the_source(
    settings: dict[str, str], policy: str, seen: str | None
) -> None:
    if seen is None:
        refuse_own({"t": 1}, {"t": policy}, settings)
        return
    with pytest.raises(KafkaRefusedError, match=seen):
        refuse_own({"t": 1}, {"t": policy}, settings)


def test_an_own_topic_of_several_partitions_refuses_the_source() -> None:
    with pytest.raises(KafkaRefusedError, match=r"t \(2\)"):
        refuse_own({"t": 2}, {}, POSITIONS)


def test_no_source_is_named_like_an_own_topic() -> None:
    from schemas.config import checks

    assert checks._RESERVED_SOURCES == OWN_TOPICS
