"""A table is copied again into a topic: what the source no longer has is deleted, also a record under a
routing key that its row no longer has.

Judged by `rowlock verify`, and by a consumer of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from consumer.attempt.reports import CopyNeed
from consumer.ordering.model import TopicOptions
from consumer.tables.router import ResolvedRoute
from consumer.targets.kafka.clients import make_admin_client
from consumer.targets.kafka.compacted import row_store, topic_contents
from consumer.targets.kafka.topics import TargetTopics
from consumer.targets.kafka.verifying.topic_reading import PLACE
from deploy.embedded.services import Kafka
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.verify import PairResult, VerifyLimits, compare_topic
from rowlock.views.target import RowsView
from schemas.config.model import KafkaTargetConfig
from tests.kits.apply import FakeSource, Values
from tests.kits.attempts import RealUnit
from tests.kits.copy import CopyOf
from tests.kits.kafka_attempts import unit_of
from tests.kits.kafka_target import documents, make_topic, messages, target_config
from tests.kits.kafka_verify import Accounts
from tests.kits.waiting import until
from tests.stands.kafka_target import Cluster
from tools.docs.partition_targets import COPY, TARGETS, TargetForm

pytestmark = pytest.mark.timeout(240)
OWNER = {"key": ("owner", "id")}
TOPIC_FORMS = [each for each in TARGETS if each.route.topic is not None]


@pytest.fixture
def config(kafka: Kafka, unique: str) -> KafkaTargetConfig:
    return target_config(kafka, unique)


@pytest.fixture
def real(config: KafkaTargetConfig, kafka: Kafka) -> Iterator[Cluster]:
    with closing(Cluster(config, kafka)) as made:
        yield made


def verified(unit: RealUnit, config: KafkaTargetConfig, **options: Any) -> PairResult:
    """What `rowlock verify` finds."""
    source = unit.source
    routed = ResolvedRoute(
        config.prefix, "acct", topic=TopicOptions(kinds=(("branch1", "mariadb"),), **options)
    )
    pair = TablePair("p", source.name, source.table, "feed", routed)
    rows = Accounts(*(tuple(row.values()) for row in source.rows.values()))
    ended(config, f"{config.prefix}.acct")
    return compare_topic(pair, cast(RowsView, rows), config, VerifyLimits(0.0, page=3))


def ended(config: KafkaTargetConfig, name: str) -> None:
    """Wait until no transaction of a topic is open: Kafka answers a commit before each partition has its
    mark, and readers wait for that."""
    topics = TargetTopics(lambda notified: make_admin_client(config, notified), config.replication)
    facts = topics.read_topic_facts(name)
    parts = [] if facts is None else list(range(facts.partitions))
    until(
        lambda: topics.read_end_offsets(name, parts) == topics.read_end_offsets(name, parts, stable=True),
        "all are ended",
    )


def filled(real: Cluster, topic: dict[str, Any]) -> RealUnit:
    """Ten rows, of which the source then changes some without capture: 1 and 2 are deleted, 3 has another
    owner, 20 is new."""
    unit = unit_of(real, topic=topic)
    source = unit.source
    unit.write([source.put(ann(source, key)) for key in range(10)])
    report = unit.apply()
    assert report.state == "ok", report
    for key in (1, 2):
        del source.rows[key]
    source.rows[3] = {**source.rows[3], "owner": "zoe"}
    source.rows[20] = ann(source, 20)
    return unit


def ann(source: FakeSource, key: int) -> Values:
    """An account that is hers, as many are."""
    return {**source.row(key, None, key), "owner": "ann"}


def copied(unit: RealUnit) -> None:
    CopyOf(unit.source, unit.topic).all()
    report = unit.apply()
    assert report.state == "ok", report


TOPICS: dict[str, dict[str, Any]] = {
    "rowlock": {},
    "rowlock, routed": OWNER,
    "many rows of a key": {"key": ("owner",)},
    "masked": {"key": ("owner", "id"), "masks": (("owner", "sha256"),)},
    "no tombstones": {"key": ("owner",), "tombstones": False},
    "debezium": OWNER | {"format": "debezium"},
    "debezium, many": {"key": ("owner",), "format": "debezium"},
    "with schemas": OWNER | {"format": "debezium-schemas"},
    "canal": {"key": ("owner",), "format": "canal-json"},
    "plain": OWNER | {"format": "plain"},
}


@pytest.mark.parametrize("form", TOPIC_FORMS, ids=[each.name for each in TOPIC_FORMS])
def test_topics_handle_removed_rows_as_documented(form: TargetForm, real: Cluster) -> None:
    """docs/reference/partition-statements.md"""
    assert form.decide("removes") == COPY
    assert form.route.topic is not None
    unit = unit_of(real, topic={"format": form.route.topic.format})
    source = unit.source
    unit.write([source.put(ann(source, key)) for key in range(4)])
    at = len(unit.topic)
    unit.write([source.remove_rows(1, 2), source.put(ann(source, 9))])
    report = unit.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(at, "rows-replaced"))


@pytest.mark.parametrize("topic", TOPICS.values(), ids=TOPICS)
def test_a_copy_leaves_what_the_source_has_and_nothing_else(
    topic: dict[str, Any], real: Cluster, config: KafkaTargetConfig, unique: str, kafka: Kafka
) -> None:
    make_topic(kafka, f"{unique}.acct", 3)
    unit = filled(real, topic)
    before = verified(unit, config, **topic)
    assert {(each.key, each.kind) for each in before.findings} == {
        ((1,), "extra"), ((2,), "extra"), ((3,), "different"), ((20,), "missing"),
    }  # fmt: skip
    copied(unit)
    after = verified(unit, config, **topic)
    assert (after.equal, after.problem, after.findings) == (True, "", [])
    unit.write([unit.source.delete(4)])
    unit.apply()
    assert verified(unit, config, **topic).equal, "it goes on"


def test_a_row_under_its_old_key_is_deleted_as_it_was(
    real: Cluster, config: KafkaTargetConfig, unique: str, kafka: Kafka
) -> None:
    unit = filled(real, OWNER)
    old = ann(unit.source, 3)
    copied(unit)
    found = documents(messages(kafka, f"{unique}.acct"))
    missing = [(key["id"], value["before"]) for key, value in found if value and value["op"] == "d"]
    assert [key for key, _ in missing] == [1, 2, 3]
    assert missing[2][1] == old
    assert verified(unit, config, **OWNER).equal


def test_a_copy_of_a_topic_that_does_not_fit_into_memory(
    real: Cluster, config: KafkaTargetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are written to a file, and its keys come in pages; each page of deletes is a commit of its
    own."""
    monkeypatch.setattr(row_store, "MAX_PENDING_ROWS", 3)
    monkeypatch.setattr(topic_contents, "ROWS_PER_PAGE", 4)
    unit = filled(real, {"key": ("owner",)})
    for key in range(4, 9):
        del unit.source.rows[key]
    copied(unit)
    assert verified(unit, config, key=("owner",)).equal
    assert real.get_connection(0)._followed._topics == {}, "what it held is let go at the end"


@pytest.mark.parametrize("form", ["rowlock", "plain", "debezium", "canal-json"])
def test_a_row_that_changes_outside_the_filter_during_a_copy_is_gone(
    form: str, real: Cluster, config: KafkaTargetConfig
) -> None:
    """The topic has it from before. The chunk does not show it, for it changes meanwhile, and of the change
    itself both images are left out."""
    topic = {"where": (("owner", ("ann",)),), "format": form}
    unit = unit_of(real, topic=topic)
    source = unit.source
    unit.write([source.put(ann(source, key)) for key in range(4)])
    assert unit.apply().state == "ok"
    source.rows[2] = {**source.rows[2], "owner": "zoe"}  # while nobody captures it
    assert [each.key for each in verified(unit, config, **topic).findings] == [(2,)]
    copy = CopyOf(source, unit.topic)
    copy.begin()
    unit.write([source.put({**source.rows[2], "owner": "bob"})])
    while not copy.done:
        copy.emit()
    assert unit.apply().state == "ok"
    assert verified(unit, config, **topic).equal


LEFT_OUT: dict[str, dict[str, Any]] = {
    "rowlock": {},
    "rowlock, no tombstones": {"tombstones": False},
    "debezium": {"format": "debezium"},
    "with schemas": {"format": "debezium-schemas"},
    "canal": {"format": "canal-json"},
    "plain": {"format": "plain"},
}


@pytest.mark.parametrize("topic", LEFT_OUT.values(), ids=LEFT_OUT)
def test_nothing_is_written_of_rows_that_the_filter_leaves_out(
    topic: dict[str, Any], real: Cluster, config: KafkaTargetConfig, kafka: Kafka, unique: str
) -> None:
    """Many rows have one key, and some of them are outside: a delete of one of those would take the others
    along, and show it to everybody.

    By a snapshot, live, by a copy of some rows and by one of all.
    """
    topic = {"key": ("owner",), "where": (("note", ("open",)),), **topic}
    unit = unit_of(real, topic=topic)
    source = unit.source
    accounts = {key: {**ann(source, key), "note": "open" if key % 2 else "shut"} for key in range(1, 7)}
    unit.write([source.put(row, "r") for row in accounts.values()])

    def notified(more: int) -> list[Any]:
        """As many records of rows have come, and no reader sees that there are others."""
        assert unit.apply().state == "ok"
        found = [each for each in messages(kafka, f"{unique}.acct") if each.key() is not None]
        new, seen[0] = found[seen[0] :], len(found)
        assert [b"shut" in (each.value() or b"") for each in new] == [False] * more
        if topic.get("format") != "plain":  # nobody can tell its rows apart
            assert verified(unit, config, **topic).equal
        return [each.value() for each in new]

    seen = [0]
    assert None not in notified(3)
    unit.write(
        [source.put({**accounts[2], "version": 9}), source.put({**accounts[4], "id": 8}), source.delete(6)]
    )
    assert notified(0) == []
    some = CopyOf(source, unit.topic, partial=True)
    some.all()
    assert None not in notified(3)
    whole = CopyOf(source, unit.topic, id="copy-2")
    whole.all()
    assert None not in notified(3)
    source.rows[3] = {**source.rows[3], "note": "shut"}  # while nobody captures it
    source.rows[2] = {**source.rows[2], "note": "open"}
    again = CopyOf(source, unit.topic, id="copy-3")
    again.all()
    missing = 1 + (topic.get("format") != "plain" and topic.get("tombstones", True))
    assert len(notified(3 + missing)) == 3 + missing, "what is outside by now is deleted at the end"


def test_what_stands_twice_is_seen(real: Cluster, config: KafkaTargetConfig) -> None:
    unit = filled(real, OWNER)
    unit.source.rows = {3: unit.source.rows[3]}
    copy = CopyOf(unit.source, unit.topic)
    copy.begin()
    row = copy._snapshot(unit.source.event("r", None, unit.source.rows[3]))
    unit.write([row])
    assert unit.apply().state == "ok"
    (twice,) = [each for each in verified(unit, config, **OWNER).findings if each.key == (3,)]
    assert twice.columns[0] == PLACE
