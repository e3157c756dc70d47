"""A Kafka target against a broker: one commit is records and progress together, and of two owners of a unit
one writes."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from msgspec import structs
from msgspec.structs import replace as altered
from structlog.testing import capture_logs

from consumer.errors import CommitUnknownError, FencedError, TargetConfigError, UnitStoppedError
from consumer.ordering.model import EveryChange, NetChange, QuarantineEntry, TargetTable
from consumer.targets.batches import BatchCommitted, BatchFenced, RowsChange, TableCleared, TableDefined
from consumer.targets.kafka.clients import MAX_TRANSACTION_S
from consumer.targets.kafka.dialect import open_kafka
from consumer.targets.kafka.store import progress
from consumer.targets.kafka.store.state import UNKNOWN_UNIT, apply_progress_change
from consumer.targets.kafka.target import KafkaTarget
from consumer.targets.kafka.writer import UnitWriter
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import ColumnType, Kind
from tests.kits.apply import account_table
from tests.kits.kafka_attempts import remove_topic
from tests.kits.kafka_target import (
    UNIT,
    Owner,
    account,
    change,
    documents,
    make_topic,
    messages,
    table_of,
    target_config,
)
from tests.kits.waiting import until
from tests.stands.kafka_target import state_of

pytestmark = pytest.mark.timeout(240)
PLAIN: dict[str, Any] = {"format": "plain"}


@pytest.fixture
def config(kafka: Kafka, unique: str) -> KafkaTargetConfig:
    return target_config(kafka, unique)


@pytest.fixture
def owner(config: KafkaTargetConfig, unique: str) -> Owner:
    return Owner(config, table_of(unique, **PLAIN))


def owners_of(kafka: Kafka, topic: str) -> list[tuple[int, str]]:
    return [
        (key["id"], value["owner"]) for key, value in documents(messages(kafka, topic)) if value is not None
    ]


def test_a_commit_is_records_and_progress_and_readers_see_each_record_once(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    ann, bob = account(1), account(1, "bob")
    assert owner.apply(4, (None, ann), (ann, bob)) == BatchCommitted()
    assert owner.apply(5, (bob, None)) == BatchCommitted()
    found = documents(messages(kafka, f"{unique}.acct"))
    assert [(key, value and value["owner"]) for key, value in found] == [
        ({"id": 1}, "ann"),
        ({"id": 1}, "bob"),
        ({"id": 1}, None),
    ]
    rows, state = KafkaTarget(config).read_progress(UNIT)
    assert (rows, [row.offset for row in rows]) == (owner.rows, [5])
    assert state is not None
    assert KafkaTarget(config).list_unit_topics("out") == [UNIT.topic]


def test_held_entries_are_records_of_their_own_and_leave(owner: Owner, config: KafkaTargetConfig) -> None:
    entries = [QuarantineEntry(offset, 0, "s.acct", "[1]", "1", "{}", "why", 0) for offset in (4, 5, 6)]
    owner.apply(6, held=entries)
    assert KafkaTarget(config).read_quarantine(UNIT) == entries
    owner.apply(7, closed_before=5, closed=[(6, 0)], why="done")
    assert owner.target.read_quarantine(UNIT) == KafkaTarget(config).read_quarantine(UNIT) == [entries[1]]


def test_of_two_owners_the_later_one_writes(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    owner.apply(4, (None, account(1)))
    second = Owner(config, owner.table)
    assert second.epoch > owner.epoch
    assert [row.offset for row in second.rows] == [4]
    assert isinstance(owner.apply(5, (None, account(2, "zombie"))), BatchFenced)
    with capture_logs() as logs:
        assert second.apply(5, (None, account(2))) == BatchCommitted()
        with pytest.raises(FencedError):
            owner.target.begin_attempt(UNIT, owner.epoch)
        assert second.apply(6, (None, account(3))) == BatchCommitted()
    warned = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warned == [], "who can see that the unit is not his fences nobody"
    assert owners_of(kafka, f"{unique}.acct") == [(1, "ann"), (2, "ann"), (3, "ann")]


def test_an_owner_that_paused_in_its_commit_writes_nothing_when_it_comes_back(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    others: list[Owner] = []

    def another() -> None:
        if not others:
            others.append(Owner(config, owner.table))
            others[0].apply(5, (None, account(2, "successor")))

    owner.target.paused = another
    outcome = owner.apply(5, (None, account(2, "zombie")))
    assert isinstance(outcome, BatchFenced)
    assert str(others[0].epoch) in outcome.seen
    assert owners_of(kafka, f"{unique}.acct") == [(2, "successor")]


def test_a_zombie_that_begins_later_fences_the_owner_who_takes_the_id_back_loudly(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    owner.apply(4, (None, account(1)))
    UnitWriter(config, UNIT, 1000, lambda: UNKNOWN_UNIT)  # an owner that has read nothing yet
    with capture_logs() as logs:
        assert owner.apply(5, (None, account(2))) == BatchCommitted()
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == [
        "transactional id taken by another producer"
    ]
    assert owners_of(kafka, f"{unique}.acct") == [(1, "ann"), (2, "ann")]


@pytest.mark.parametrize("way", ["begin", "apply"])
def test_what_was_committed_before_a_producer_begins_is_read_behind_its_begin(
    way: str, owner: Owner, config: KafkaTargetConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look before says that the unit is ours, and it is true; a successor comes in between."""
    others: list[Owner] = []

    def later(*args: Any) -> UnitWriter:
        monkeypatch.undo()
        others.append(Owner(config, owner.table))
        return UnitWriter(*args)

    owner.target.close()
    monkeypatch.setattr(progress, "UnitWriter", later)
    if way == "begin":
        with pytest.raises(FencedError):
            owner.target.begin_attempt(UNIT, owner.epoch)
    else:
        assert isinstance(owner.apply(4, (None, account(1, "zombie"))), BatchFenced)
    assert others[0].apply(4, (None, account(1))) == BatchCommitted()


def test_a_later_assignment_is_not_taken_over(owner: Owner, config: KafkaTargetConfig) -> None:
    later = Owner(config, owner.table, assigned=(owner.epoch >> 16) + 2)
    with pytest.raises(FencedError, match="assigned to another process"):
        owner.target.take_over(UNIT, "id", "{}", 1, assigned=owner.epoch >> 16)
    assert later.apply(4, (None, account(1))) == BatchCommitted()


def test_a_transaction_of_a_dead_owner_is_ended_by_its_successor(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    owner.apply(4, (None, account(1)))
    hung(owner)
    began = time.monotonic()
    second = Owner(config, owner.table)
    assert time.monotonic() - began < MAX_TRANSACTION_S * 0.9, "its end was not awaited"
    assert [row.offset for row in second.rows] == [4]
    second.apply(5, (None, account(2, "successor")))
    assert owners_of(kafka, f"{unique}.acct") == [(1, "ann"), (2, "successor")]
    assert len(messages(kafka, f"{unique}.acct", committed=False)) == 3, "it had begun"


def hung(owner: Owner) -> None:
    """Leave the transaction of a row open, as a process does that is killed."""
    writer = owner.target._writers[UNIT]
    change = owner.progress(5)
    records = list(
        owner.target._yield_change_records(UNIT, [owner._change(5, (None, account(2, "dead")))], change)
    )
    writer._producer.begin_transaction()
    known = owner.target._progress.build_records(
        UNIT, writer.known, apply_progress_change(writer.known, change, None)
    )
    for record in [*records, *known]:
        writer._produce_record(record)
    assert writer._producer.flush(10) == 0


def lost_answer(
    monkeypatch: pytest.MonkeyPatch,
    writer: UnitWriter,
    *,
    happens: bool,
    reported: int = KafkaError._TIMED_OUT,
) -> None:
    """The answer of the next commit is lost, behind or in front of what Kafka does."""
    real: Any = writer._producer

    class Losing:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def commit_transaction(self, *_: object) -> None:
            if happens:
                real.commit_transaction(10)
            raise KafkaException(KafkaError(reported))

        def abort_transaction(self, *_: object) -> None: ...

    monkeypatch.setattr(writer, "_producer", Losing())


@pytest.mark.parametrize("happens", [True, False])
def test_behind_a_commit_of_unknown_outcome_the_progress_topic_decides(
    happens: bool, owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str,
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    owner.apply(4, (None, account(1)))
    before, expected = owner.rows, owner.progress(5).rows
    lost_answer(monkeypatch, owner.target._writers[UNIT], happens=happens)
    with pytest.raises(CommitUnknownError):
        owner.apply(5, (None, account(2)))
    rows, _ = KafkaTarget(config).read_progress(UNIT)
    assert rows == list(expected if happens else before)
    owner.rows = rows
    assert owner.apply(6, (None, account(3))) == BatchCommitted()
    assert [key for key, _ in owners_of(kafka, f"{unique}.acct")] == ([1, 2, 3] if happens else [1, 3])


@pytest.mark.parametrize("happens", [True, False])
def test_who_is_fenced_in_his_commit_finds_out_whether_it_happened(
    happens: bool, owner: Owner, kafka: Kafka, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.apply(4, (None, account(1)))
    lost_answer(monkeypatch, owner.target._writers[UNIT], happens=happens, reported=KafkaError._FENCED)
    assert owner.apply(5, (None, account(2))) == BatchCommitted()
    assert owner.apply(6, (None, account(3))) == BatchCommitted()
    assert [key for key, _ in owners_of(kafka, f"{unique}.acct")] == [1, 2, 3], "once"


@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize(
    ("what", "expected"), [("sweep", ["c", "d", None]), ("retry", ["c", "u"]), ("truncate", ["c", "t"])]
)
def test_who_is_fenced_in_a_commit_that_moves_no_offset_writes_its_records_once(
    what: str, expected: list[str | None], happens: bool, kafka: Kafka, config: KafkaTargetConfig,
    unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """A copy's sweep, a retry of the quarantine and a TRUNCATE leave the offsets as they are: those do not
    show whether it happened."""
    owner = Owner(config, table_of(unique))
    owner.apply(4, (None, account(1)), held=[QuarantineEntry(4, 0, "s.acct", "[1]", "1", "{}", "refused", 7)])
    cases: dict[str, tuple[RowsChange, dict[str, Any]]] = {
        "sweep": (NetChange(owner.table, deletes=[(1,)]), {}),
        "retry": (NetChange(owner.table, snapshot=[account(1, "bob")]),
         {"closed": [(4, 0)], "why": "by hand"}),
        "truncate": (TableCleared(owner.table, None), {}),
    }  # fmt: skip
    made, more = cases[what]
    lost_answer(monkeypatch, owner.target._writers[UNIT], happens=happens, reported=KafkaError._FENCED)
    assert owner.apply(4, made, **more) == BatchCommitted()
    ops = [value and value["op"] for _, value in documents(messages(kafka, f"{unique}.acct"))]
    assert ops == expected, "once"
    assert len(owner.target.read_quarantine(UNIT)) == (what != "retry")
    if what == "retry":
        assert len(messages(kafka, f"{unique}.rowlock_quarantine_closed")) == 1
    assert owner.apply(5, (None, account(2))) == BatchCommitted()


def test_a_record_above_the_limit_of_the_topic_stops_the_unit_with_the_limit_named(
    kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    make_topic(kafka, f"{unique}.acct", max_message_bytes="20000")
    owner = Owner(config, table_of(unique, **PLAIN))
    small = [(None, account(key, note="x" * 5000)) for key in range(12)]  # more than one batch may have
    assert owner.apply(4, *small) == BatchCommitted()
    with pytest.raises(
        UnitStoppedError, match=r"record of 2\d{4} bytes is above its max.message.bytes of 20000"
    ):
        owner.apply(5, (None, account(99, note="x" * 20000)))
    assert owner.apply(5, (None, account(98))) == BatchCommitted()
    assert len(messages(kafka, f"{unique}.acct")) == 13


def test_another_number_of_partitions_is_refused(
    kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    make_topic(kafka, f"{unique}.acct", 3)
    owner = Owner(config, table_of(unique, **PLAIN))
    with pytest.raises(TargetConfigError, match="has 3 partitions, but its route sets 4"):
        owner.target.open_topic(table_of(unique, partitions=4), create=True)
    owner.apply(4, *((None, account(key)) for key in range(30)))
    assert {each.partition() for each in messages(kafka, f"{unique}.acct")} == {0, 1, 2}


@pytest.mark.parametrize("other", [{"format": "rowlock"}, {"format": "plain", "key": ("owner",)}])
def test_another_format_or_key_stops_the_unit(other: dict[str, Any], owner: Owner, unique: str) -> None:
    owner.apply(4, (None, account(1)))
    owner.table = table_of(unique, **other)
    with pytest.raises(UnitStoppedError, match="set the route back"):
        owner.apply(5, (None, account(2)))


def test_an_altered_key_column_or_another_added_value_stops_the_unit_and_nothing_is_written(
    owner: Owner, kafka: Kafka, unique: str
) -> None:
    owner.table = table_of(unique, (("branch", "b1"),))
    owner.apply(4, (None, (*account(1), "b1")))
    before = len(messages(kafka, f"{unique}.acct"))
    owner.table = table_of(unique, (("branch", "north"),))
    with pytest.raises(UnitStoppedError, match="the columns of `add` were"):
        owner.apply(5, (None, (*account(2), "north")))
    owner.table = with_id(
        table_of(unique, (("branch", "b1"),)), ColumnType(kind=Kind.DECIMAL, precision=22, scale=2)
    )
    with pytest.raises(
        UnitStoppedError, match="key column id was written as number, now as decimal with 2 digits"
    ):
        owner.apply(5, (None, ("2.00", *account(2)[1:], "b1")))
    assert len(messages(kafka, f"{unique}.acct")) == before


def with_id(target: TargetTable, type_: ColumnType) -> TargetTable:
    return with_type(target, "id", type_)


def with_type(target: TargetTable, name: str, type_: ColumnType) -> TargetTable:
    assert target.topic is not None
    table = altered(
        target.table,
        columns=tuple(
            altered(each, type=type_) if each.name == name else each for each in target.table.columns
        ),
    )
    return replace(target, table=table, topic=replace(target.topic, whole=table))


@pytest.mark.parametrize("again", [True, False])
def test_a_topic_that_is_deleted_while_its_unit_runs_stops_it(
    again: bool, owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    """Whether it is made again or not: the rows that were written to it are lost, and the next commit, and
    the next start, report it."""
    owner.apply(4, (None, account(1)))
    remove_topic(kafka, f"{unique}.acct")
    if again:
        make_again(owner, kafka, f"{unique}.acct")
    reported = "was deleted and created again" if again else "was deleted, and its records are lost"
    with pytest.raises(
        UnitStoppedError,
        match=rf"topic {unique}\.acct of the target {reported}.* then rowlock copy bank\.acct",
    ):
        owner.apply(5, (None, account(2)))
    other = KafkaTarget(config)
    assert reported in str(other.records_lost(UNIT, owner.table))
    with closing(other):
        other.open_topic(owner.table, create=False, existed=True)
    if again:
        assert messages(kafka, f"{unique}.acct") == []
    assert KafkaTarget(config).read_progress(UNIT)[0] == owner.rows, "its progress stays"


def test_a_topic_that_is_made_again_is_accepted_where_every_row_comes_anew(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    owner.apply(4, (None, account(1)))
    remove_topic(kafka, f"{unique}.acct")
    make_again(owner, kafka, f"{unique}.acct", 3)
    with pytest.raises(UnitStoppedError, match="was deleted and created again"):
        owner.apply(5, TableDefined(owner.table, account_table()))
    assert owner.apply(5, TableDefined(owner.table, account_table(), anew=True)) == BatchCommitted()
    second = Owner(config, owner.table)  # a client that knows the partitions of now
    assert second.target.records_lost(UNIT, owner.table) is None
    assert second.apply(6, *((None, account(key)) for key in range(9))) == BatchCommitted()
    assert {each.partition() for each in messages(kafka, f"{unique}.acct")} == {0, 1, 2}
    assert second.apply(7, (None, account(9))) == BatchCommitted()


def test_a_topic_that_is_given_more_partitions_stops_a_unit_that_runs_and_one_that_starts(
    owner: Owner, kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    owner.apply(4, (None, account(1)))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(f"{unique}.acct", 3)])[f"{unique}.acct"].result(60)
    until(
        lambda: owner.target._topics.find_topic_identity(f"{unique}.acct").partitions == 3,
        what="3 partitions",
    )  # type: ignore[union-attr]
    for anew in (False, True):
        with pytest.raises(
            UnitStoppedError, match=r"had 1 partitions and has 3.* start over .* with another topic"
        ):
            owner.apply(
                5,
                TableDefined(owner.table, account_table(), anew=anew),
                EveryChange(owner.table, [change(5, None, account(2))]),
            )
    assert "had 1 partitions and has 3" in str(KafkaTarget(config).records_lost(UNIT, owner.table))
    assert len(messages(kafka, f"{unique}.acct")) == 1


def make_again(owner: Owner, kafka: Kafka, name: str, partitions: int = 1) -> None:
    make_topic(kafka, name, partitions)
    until(lambda: owner.target._topics.find_topic_identity(name), what="the topic is shown")


OLDER: dict[str, tuple[ColumnType, Any, ColumnType]] = {
    "debezium": (ColumnType(kind=Kind.DATETIME, fsp=3), "2026-01-02 03:04:05.678",
     ColumnType(kind=Kind.DATETIME, fsp=6)),
    "debezium-schemas": (ColumnType(kind=Kind.DECIMAL, precision=9, scale=2), "1.50",
     ColumnType(kind=Kind.DECIMAL, precision=11, scale=4)),
    "canal-json": (
        ColumnType(kind=Kind.ENUM, members=("a", "b"), charset="utf8mb4"), "a",
        ColumnType(kind=Kind.ENUM, members=("b", "a"), charset="utf8mb4"),
    ),
    "rowlock": (
        ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4"), "YQ==",
        ColumnType(kind=Kind.VARBINARY, length=9),
    ),
}  # fmt: skip


@pytest.mark.parametrize("word", OLDER)
def test_a_delete_of_a_row_whose_value_was_written_in_another_form_leaves_it_out(
    word: str, owner: Owner, kafka: Kafka, unique: str
) -> None:
    """A worker that begins anew knows it, too: what the value was by its type of then is no value of the type
    of now."""
    old, was, new = OLDER[word]
    owner.table = with_type(table_of(unique, format=word), "opened", old)
    for key in (1, 2):
        owner.apply(3 + key, (None, opened(key, was)))
    owner.table = with_type(table_of(unique, format=word), "opened", new)
    owner.apply(6, TableDefined(owner.table, account_table()))
    owner.apply(6, NetChange(owner.table, deletes=[(1,)]))
    second = Owner(owner.target._config, owner.table)
    second.apply(7, NetChange(owner.table, deletes=[(2,)]))
    befores = [
        image
        for _, value in documents(messages(kafka, f"{unique}.acct"))
        if (image := deleted_image(word, value)) is not None
    ]
    assert [(int(each["id"]), each["owner"], each["opened"]) for each in befores] == [
        (1, "ann", None),
        (2, "ann", None),
    ]


def opened(key: int, value: Any) -> Any:
    row = list(account(key))
    row[5] = value
    return tuple(row)


def deleted_image(word: str, value: Any) -> Any:
    if value is None:
        return None
    if word == "canal-json":
        return value["data"][0] if value["type"] == "DELETE" else None
    event = value.get("payload", value)
    return event["before"] if event["op"] == "d" else None


def test_a_topic_that_is_missing_is_made_only_where_that_is_allowed(owner: Owner, unique: str) -> None:
    elsewhere = table_of(f"{unique}x")
    with pytest.raises(TargetConfigError, match="create it, or set `create_tables: true`"):
        owner.target.open_topic(elsewhere, create=False)
    owner.target.open_topic(elsewhere, create=True)
    owner.target.open_topic(elsewhere, create=False)


def test_a_mask_of_the_primary_key_is_refused(owner: Owner, unique: str) -> None:
    with pytest.raises(TargetConfigError, match="id belongs to the primary key"):
        owner.target.open_topic(table_of(unique, masks=(("id", "sha256"),)), create=True)


def test_a_truncate_is_a_record_in_each_partition_or_a_delete_of_each_row_of_the_source(
    kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    make_topic(kafka, f"{unique}.acct", 3)
    branch = (("branch", "b1"),)
    owner = Owner(config, table_of(unique, branch))
    owner.apply(4, (None, (*account(1), "b1")), (None, (*account(2), "b1")))
    owner.apply(5, TableCleared(owner.table, {"branch": "b1"}))
    found = documents(messages(kafka, f"{unique}.acct"))
    assert [value["op"] for key, value in found if key is None] == ["t"] * 3
    assert list(owner.target.yield_keys(UNIT, owner.table, dict(branch))) == []


def test_a_truncate_of_a_compacted_topic_deletes_the_rows_of_its_source(
    kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    make_topic(kafka, f"{unique}.acct", 2, cleanup_policy="compact")
    owner = Owner(config, table_of(unique, (("branch", "b1"),)))
    owner.apply(4, (None, (*account(1), "b1")), (None, (*account(2), "b1")), (None, (*account(3), "b2")))
    owner.apply(5, TableDefined(owner.table, account_table()), TableCleared(owner.table, {"branch": "b1"}))
    found = documents(messages(kafka, f"{unique}.acct"))
    assert sorted(value["before"]["id"] for _, value in found if value and value["op"] == "d") == [1, 2]
    assert sum(value is None for _, value in found) == 2, "and their tombstones"
    assert [list(page) for page in owner.target.yield_keys(UNIT, owner.table, None)] == [[("b2", 3)]]


def test_the_rows_of_another_source_in_the_topic_are_not_the_units(owner: Owner, unique: str) -> None:
    mine = table_of(unique)
    assert mine.topic is not None
    theirs = replace(mine, topic=replace(mine.topic, source="b2"))
    owner.table = mine
    both = [EveryChange(each, [change(4, None, account(key))]) for key, each in ((1, mine), (2, theirs))]
    owner.apply(4, *both)
    assert [list(page) for page in owner.target.yield_keys(UNIT, mine, None)] == [[(1,)]]


def test_rows_that_a_copy_shows_to_be_gone_are_deleted_by_what_the_topic_has_of_them(
    owner: Owner, kafka: Kafka, unique: str
) -> None:
    owner.apply(4, (None, account(1)), (None, account(2)))
    owner.apply(4, NetChange(owner.table, deletes=[(1,)]))
    assert [(k["id"], v is None) for k, v in documents(messages(kafka, f"{unique}.acct"))] == [
        (1, False),
        (2, False),
        (1, True),
    ]


def test_a_definition_is_told_to_every_partition(
    kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    make_topic(kafka, f"{unique}.acct", 2)
    owner = Owner(config, table_of(unique, columns=("id", "owner")))
    owner.apply(4, TableDefined(owner.table, account_table()))
    found = documents(messages(kafka, f"{unique}.acct"))
    assert [(key, value["op"]) for key, value in found] == [(None, "m"), (None, "m")]
    names = [column["name"] for column in found[0][1]["definition"]["columns"]]
    assert names == ["id", "owner"], "in the target's terms"


def test_a_changed_routing_key_is_a_delete_and_a_create_in_one_commit(
    kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    owner = Owner(config, table_of(unique, key=("owner",)))
    owner.apply(4, (None, account(1)))
    owner.apply(5, (account(1), account(1, "bob")))
    found = [
        (key["owner"], value and value["op"]) for key, value in documents(messages(kafka, f"{unique}.acct"))
    ]
    assert found == [("ann", "c"), ("ann", "d"), ("ann", None), ("bob", "c")]


def test_what_stopped_a_unit_stands_there_until_it_is_taken_over(
    owner: Owner, config: KafkaTargetConfig
) -> None:
    owner.target.stop_unit(UNIT, owner.epoch - 1, "not ours")
    owner.target.stop_unit(UNIT, owner.epoch, "a person must look")
    _, state = KafkaTarget(config).read_progress(UNIT)
    assert state is not None
    assert (state.stopped, bool(state.since_ms)) == ("a person must look", True)
    second = Owner(config, owner.table)
    assert second.state == structs.replace(state, since_ms=None)
    assert second.target.read_progress(UNIT)[1] == structs.replace(state, stopped=None)


def test_a_progress_topic_that_forgets_is_refused(
    kafka: Kafka, unique: str, config: KafkaTargetConfig
) -> None:
    make_topic(kafka, f"{unique}.rowlock_progress")
    with pytest.raises(TargetConfigError, match=r"set its cleanup\.policy to compact"):
        KafkaTarget(config).ensure_bookkeeping()


def test_who_only_looks_at_a_target_makes_no_topic_there(config: KafkaTargetConfig, kafka: Kafka) -> None:
    with closing(open_kafka(config, "")) as looked:
        assert (looked.list_unit_topics("out"), looked.read_progress(UNIT), looked.read_quarantine(UNIT)) == (
            [],
            ([], None),
            [],
        )
    assert (
        f"{config.prefix}.rowlock_progress"
        not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=15).topics
    )
    make_topic(kafka, f"{config.prefix}.rowlock_progress", 2)
    with pytest.raises(TargetConfigError, match="has 2 partitions and must have one"):
        open_kafka(config, "")


@pytest.mark.parametrize(("status", "left"), [("open", [(1, "bob")]), ("gone", [])])
def test_a_row_that_is_written_from_the_quarantine_takes_the_place_of_what_the_topic_has_of_it(
    status: str, left: list[tuple[int, str]], kafka: Kafka, config: KafkaTargetConfig, unique: str
) -> None:
    """Under another routing key, or outside the filter by now, though the change that moved it was never
    written."""
    options: dict[str, Any] = {"key": ("owner",), "where": (("note", ("open",)),)}
    owner = Owner(config, table_of(unique, **options))
    owner.apply(4, (None, account(1, "ann", "open")))
    owner.apply(5, NetChange(owner.table, snapshot=[account(1, "bob", status)]))
    assert [(row["id"], row["owner"]) for row in state_of(kafka, f"{unique}.acct")] == left


def test_what_leaves_the_quarantine_is_in_its_history(owner: Owner, kafka: Kafka, unique: str) -> None:
    make_topic(kafka, f"{unique}.rowlock_quarantine_closed", max_message_bytes="2000")
    small, large = (
        QuarantineEntry(offset, 0, "s.acct", "[1]", "1", text, "refused", 7)
        for offset, text in ((4, "{}"), (5, "x" * 2000))
    )
    owner.apply(6, held=[small, large])
    owner.apply(7, closed_before=5, why="emptied")
    owner.apply(8, closed=[(5, 0)], why="by hand")
    found = documents(messages(kafka, f"{unique}.rowlock_quarantine_closed"))
    assert [key for key, _ in found] == [["out", UNIT.topic, 4, 0], ["out", UNIT.topic, 5, 0]]
    assert [(value["event"], value["error"], value["closed"]) for _, value in found] == [
        ("{}", "refused", "emptied"),
        ("", "refused", "by hand"),
    ]
    assert owner.target.read_quarantine(UNIT) == []
