"""Values that were written when their column was of another type: read only where they are the same ones in
today's, and left out else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.errors import TargetConfigError, TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, EveryChange, RowChange, TargetTable, TargetTopic, TopicOptions
from consumer.tables.router import ResolvedRoute, build_desired_table, build_topic_table
from consumer.targets.kafka.compacted.topic_contents import TopicContents
from consumer.targets.kafka.formats.key_forms import ValueForm
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.records import OpenedTopics, TableRecords
from consumer.targets.kafka.scheme_checks import (
    add_form_ages,
    choose_compared_scheme,
    explain_misplaced_records,
    list_older_columns,
)
from consumer.targets.kafka.store.state import KnownUnit, RecordScheme
from consumer.targets.kafka.target import KafkaTarget
from consumer.targets.kafka.topics import TopicFacts, TopicIdentity
from consumer.targets.kafka.writer import Outgoing
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.typemap import MYSQL_CATALOG
from tests.kits.kafka_forms import DEBEZIUM, INT, TYPES, WORDS, id_of, integer, labels, nothing, text, type_of

FACTS = TopicFacts("head.acct", 2, 1_000_000, compacted=False, id="one")


def records_of(
    word: str, *columns: Column, id_: ColumnType = INT, source: str = "b1", **options: Any
) -> TableRecords:
    return TableRecords(table_of(word, *columns, id_=id_, source=source, **options), FACTS, "salt")


def table_of(
    word: str = "plain", *columns: Column, id_: ColumnType = INT, source: str = "b1", **options: Any
) -> TargetTable:
    primary = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    table = Table(db="bank", name="acct", columns=(id_of(id_), *columns), key=primary)
    routed = ResolvedRoute(
        "head", "acct", topic=TopicOptions(format=word, kinds=((source, "mysql"),), **options)
    )
    return build_topic_table(build_desired_table(table, routed), routed, source, table)


def value(type_: ColumnType) -> Column:
    return Column(name="value", type=type_)


def record(records: TableRecords, *row: Any) -> Outgoing:
    change = RowChange((1, 0), None, row, (0, 1, 1, 0), 1, 1000)
    (made,) = records.yield_records(EveryChange(None, [change]), Place((0, 1, 1, 0), 1, 1), nothing)  # type: ignore[arg-type]
    return made


def forms(written: RecordScheme) -> dict[str, ValueForm]:
    return {each.column: each for each in written.values or ()}


def since(was: TableRecords, now: TableRecords) -> tuple[int, ...]:
    return forms(add_form_ages(was.written, now.written, lambda: {0: 5, 1: 7}))["value"].since


MORE: list[tuple[ColumnType, Any, ColumnType, Any]] = [
    (text(), "YQ==", type_of(Kind.VARBINARY, length=9), None),
    (integer(64, unsigned=True), "18446744073709551615", integer(64), "18446744073709551615"),
    (integer(64), 5, integer(64, unsigned=True), 5),
    (labels(Kind.ENUM, "a", "b"), "b", labels(Kind.ENUM, "b", "a", "c"), "b"),
    (type_of(Kind.DATE), "2020-01-02", INT, None),
    (text(), "AABBCCDD-0000-4000-8000-000000000000", ColumnType(**MYSQL_CATALOG["uuid"]), None),
]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("old", "was", "new", "now"), [*((a, b, c, d) for a, b, c, d, _ in TYPES), *MORE])
def test_what_is_read_of_an_older_record_is_what_the_row_has_by_its_new_type(
    word: str, old: ColumnType, was: Any, new: ColumnType, now: Any
) -> None:
    before, after = records_of(word, value(old)), records_of(word, value(new))
    made = record(before, 1, was)
    if since(before, after):
        return
    state = after.format.decode_state(made.key, made.value)
    assert state is not None
    assert state.values == {"id": 1, "value": now}


@pytest.mark.parametrize("word", WORDS)
def test_the_same_column_keeps_its_values(word: str) -> None:
    one = records_of(word, value(labels(Kind.ENUM, "a", "b")))
    assert since(one, one) == ()
    more = records_of(word, value(labels(Kind.ENUM, "a", "b", "c")))
    assert since(one, more) == ()
    if word in DEBEZIUM:
        wider = records_of(word, value(integer(64, unsigned=True)))
        assert since(records_of(word, value(INT)), wider) == ()


def test_since_is_kept_until_the_form_changes_again_and_a_column_that_comes_back_is_another_one() -> None:
    first, second = (records_of("plain", value(each)).written for each in (INT, text()))
    none = records_of("plain").written
    changed = add_form_ages(first, second, lambda: {0: 5, 1: 7})
    assert forms(changed)["value"].since == (5, 7)
    assert forms(changed)["id"].since == ()
    assert add_form_ages(changed, second, nothing) == changed, "nothing is asked for where nothing changes"
    assert forms(add_form_ages(changed, first, lambda: {0: 8, 1: 9}))["value"].since == (8, 9)
    dropped = add_form_ages(first, none, nothing)
    assert forms(add_form_ages(dropped, first, lambda: {0: 8, 1: 9}))["value"].since == (8, 9)
    assert add_form_ages(None, first, nothing) == first
    assert add_form_ages(replace(first, values=None), second, nothing) == second, (
        "an older rowlock did not write it"
    )


def test_a_mask_is_of_the_form() -> None:
    """What is hashed now stands in older records as it was, and is not said once more."""
    plain = records_of("rowlock", value(text())).written
    masked = records_of("rowlock", value(text()), masks=(("value", "sha256"),)).written
    other = records_of("rowlock", value(text()), masks=(("value", "***"),)).written
    salted = TableRecords(masked_table(), FACTS, "pepper").written
    assert len({forms(each)["value"].form for each in (plain, masked, other, salted)}) == 4
    assert "***" not in str(other.values)


def masked_table() -> TargetTable:
    table = Table(
        db="bank",
        name="acct",
        columns=(id_of(INT), value(text())),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    )
    routed = ResolvedRoute(
        "head", "acct", topic=TopicOptions(kinds=(("b1", "mysql"),), masks=(("value", "sha256"),))
    )
    return build_topic_table(build_desired_table(table, routed), routed, "b1", table)


def test_a_key_of_large_numbers_goes_on_as_one_with_a_sign() -> None:
    """No other type could hold one that was too large for it."""
    (one, two) = (records_of("debezium", id_=integer(64, unsigned=each)).written for each in (True, False))
    assert forms(add_form_ages(one, two, nothing))["id"].since == ()


def test_the_columns_of_a_record_by_its_place() -> None:
    values = (ValueForm("a", "text"), ValueForm("b", "text", (), (5, 7)))
    assert [list_older_columns(values, *at) for at in ((0, 4), (0, 5), (1, 6), (1, 7))] == [
        {"b"},
        set(),
        {"b"},
        set(),
    ]


class Message:
    def __init__(self, offset: int, made: Outgoing) -> None:
        self._offset, self._made = offset, made

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._made.key

    def value(self) -> bytes | None:
        return self._made.value


class Reader:
    def __init__(self, *made: Outgoing) -> None:
        self._messages = [Message(at, each) for at, each in enumerate(made)]

    def to_end(self) -> list[Message]:
        found, self._messages = self._messages, []
        return found

    def close(self) -> None: ...


def contents(records: TableRecords, written: RecordScheme, *made: Outgoing) -> TopicContents:
    return TopicContents(
        Reader(*made),  # type: ignore[arg-type]
        records.format,
        records.identity,
        records.apart,
        written.values or (),
    )


@pytest.mark.parametrize("word", DEBEZIUM)
def test_a_row_that_was_written_before_has_nothing_where_its_value_would_be_another_one(word: str) -> None:
    """Milliseconds would be read as microseconds."""
    old, new = (records_of(word, value(type_of(Kind.DATETIME, fsp=each))) for each in (3, 6))
    made = [record(old, 1, "2026-01-02 03:04:05.678"), record(new, 2, "2026-01-02 03:04:05.678901")]
    with_age = add_form_ages(old.written, new.written, lambda: {0: 1, 1: 0})
    topic = contents(new, with_age, *made)
    assert sorted(topic.yield_rows([(1,), (2,)]), key=str) == [
        {"id": 1, "value": None},
        {"id": 2, "value": "2026-01-02 03:04:05.678901"},
    ]
    topic.close()


def test_contents_that_were_not_read_to_their_end_are_read_again() -> None:
    """A part of the rows would be taken for all of them."""

    class Lost:
        def to_end(self) -> Iterator[Any]:
            raise TransientError("Kafka does not answer")
            yield

        def close(self) -> None: ...

    new = records_of("plain", value(INT))
    topic = contents(new, new.written)
    topic._reader = Lost()  # type: ignore[assignment]
    with pytest.raises(TransientError):
        list(topic.yield_rows([(1,)]))
    assert topic.broken
    topic.close()


def test_a_column_of_the_primary_key_in_another_form_stops_what_reads_the_topic() -> None:
    old, new = keyed(3), keyed(6)
    with_age = add_form_ages(old.written, new.written, lambda: {0: 1, 1: 0})
    theirs = contents(new, with_age, record(keyed(3, "b2"), 1, "2026-01-02 03:04:05.678"))
    assert list(theirs.yield_keys(("id", "value"), {})) == [], "another source's is none of ours"
    theirs.close()
    topic = contents(new, with_age, record(old, 1, "2026-01-02 03:04:05.678"))
    with pytest.raises(
        UnitStoppedError, match="key column value has a value of another type or mask in a record"
    ):
        list(topic.yield_rows([(1, "2026-01-02 03:04:05.678000")]))
    assert topic.broken
    topic.close()


def keyed(fsp: int, source: str = "b1") -> TableRecords:
    """The routing key is a part of the primary one."""
    primary = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"), IndexPart(column="value")))
    column = replace(value(type_of(Kind.DATETIME, fsp=fsp)), nullable=False)
    table = Table(db="bank", name="acct", columns=(id_of(INT), column), key=primary)
    routed = ResolvedRoute(
        "head", "acct", topic=TopicOptions(format="rowlock", kinds=((source, "mysql"),), key=("id",))
    )
    return TableRecords(
        build_topic_table(build_desired_table(table, routed), routed, source, table), FACTS, "salt"
    )


def test_numbers_that_were_too_large_for_a_sign_are_not_read_as_negative() -> None:
    old, new = (records_of("debezium", value(each)) for each in (integer(64, unsigned=True), integer(64)))
    assert since(old, new) == (5, 7)
    made = record(old, 1, "18446744073709551615")
    state = new.format.decode_state(made.key, made.value)
    assert state is not None
    assert state.values == {"id": 1, "value": -1}, "as it would be read"


# --- the topic itself

TOPIC = TargetTopic(
    "head.acct",
    TopicOptions(),
    "b1",
    "mysql",
    "bank",
    "acct",
    Table(
        db="bank",
        name="acct",
        columns=(id_of(INT),),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    ),
)


@pytest.mark.parametrize(
    ("seen", "reported"),
    [
        (TopicIdentity("one", 2), None),
        (TopicIdentity("", 2), None),
        (None, "was deleted, and its records are lost"),
        (TopicIdentity("two", 2), r"was deleted and created again \(its id was one and is two\)"),
        (TopicIdentity("two", 3), "was deleted and created again"),
        (TopicIdentity("one", 3), "had 2 partitions and has 3"),
    ],
)
def test_a_topic_that_is_not_the_one_that_was_written_to_is_told_with_the_remedy(
    seen: TopicIdentity | None, reported: str | None
) -> None:
    written = records_of("plain").written
    why = explain_misplaced_records(written, seen, TOPIC)
    if reported is None:
        assert why is None
    else:
        assert why is not None
        assert re.search(reported, why.what)
        again = "start over" if "partitions and" in why.what else "then rowlock copy bank.acct"
        assert again in why.remedy
    assert (explain_misplaced_records(written, seen, TOPIC, anew=True) is None) == (
        seen is not None and (seen.id == "two" or reported is None)
    )
    assert explain_misplaced_records(None, seen, TOPIC) is None
    assert explain_misplaced_records(replace(written, topic="elsewhere"), seen, TOPIC) is None
    assert explain_misplaced_records(replace(written, topic_id=""), TopicIdentity("two", 2), TOPIC) is None


def test_what_was_written_counts_no_more_where_every_row_comes_anew_in_a_topic_that_was_made_again() -> None:
    was = records_of("plain").written
    same, other = [was], [replace(was, topic_id="two", partitions=9)]
    assert [
        choose_compared_scheme(was, each, anew=anew) for each in (same, other) for anew in (False, True)
    ] == [was, was, was, None]
    assert choose_compared_scheme(replace(was, topic_id=""), other, anew=True) is not None, (
        "nobody knows which it was"
    )
    assert choose_compared_scheme(None, other, anew=True) is None


def test_a_missing_topic_is_reported_when_its_table_is_needed() -> None:
    """It was deleted after its table had been opened."""
    topics: Any = SimpleNamespace(read_topic_facts=lambda _name: None)
    with pytest.raises(TargetConfigError, match=r"the target has no topic head\.acct"):
        OpenedTopics(topics, "salt").get_opened_topic(table_of())


def test_changes_are_written_by_the_scheme_of_their_topic() -> None:
    topics: Any = SimpleNamespace(
        read_topic_facts=lambda _name: FACTS, find_topic_identity=lambda *_: TopicIdentity("one", 2)
    )
    target = object.__new__(KafkaTarget)
    target._tables = OpenedTopics(topics, "salt")
    target._get_known_unit = lambda _unit: KnownUnit(None)  # type: ignore[method-assign]
    table = table_of()
    [scheme] = target._list_schemes(ApplyUnit("p", "t"), [EveryChange(table, [])])
    assert scheme == target._tables.get_opened_topic(table)[0].written
