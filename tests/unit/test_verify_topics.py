"""verify of a Kafka target: what a topic's records leave is compared with the source, in every format, and
nothing is called equal that is not."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from consumer.errors import RefusedError, TargetConfigError, UnitStoppedError
from consumer.targets.kafka.formats import FORMATS
from consumer.targets.kafka.formats.model import RoutedTable
from consumer.targets.kafka.verifying.canal import decode_canal_values
from consumer.targets.kafka.verifying.reading import build_record_reader
from consumer.targets.kafka.verifying.topic_reading import PLACE
from rowlock.commands.tables import verify_lines
from rowlock.inspect import verify
from rowlock.inspect.compare import Difference
from rowlock.inspect.topics.sides import explain_unclaimed
from schemas.errors import EnvelopeError
from schemas.table.equality import are_wire_equal
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table
from tests.kits.kafka_formats import EVERYTHING, one
from tests.kits.kafka_formats import PLACE as AT
from tests.kits.schemas_strategies import TABLE, bound_rows, rows
from tests.kits.verify_topics import ACCT, INT, TEXT, Clock, VerifiedTopic, found

WORDS = sorted(FORMATS)


# --- values


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("row", bound_rows(TABLE), ids=str)
def test_values_are_read_by_what_a_format_says_and_not_by_what_wrote_them(word: str, row: Row) -> None:
    _same(word, EVERYTHING, row)


ANY_SCALE = ColumnType(kind=Kind.DECIMAL)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (ANY_SCALE, "12.50"), (ANY_SCALE, "-0.125"), (ANY_SCALE, "7"), (ColumnType(kind=Kind.DOUBLE), "NaN"),
        (ColumnType(kind=Kind.FLOAT), "-Infinity"), (ColumnType(kind=Kind.TIMESTAMP), "0000-00-00 00:00:00"),
    ],
    ids=str,
)  # fmt: skip
def test_values_that_few_columns_have_are_read_as_they_were(word: str, type_: ColumnType, value: str) -> None:
    _same(word, one(type_), (1, value))


@pytest.mark.parametrize("word", WORDS)
@settings(max_examples=60)
@given(row=rows(TABLE))
def test_every_value_that_a_format_takes_is_read_as_it_was(word: str, row: Row) -> None:
    _same(word, EVERYTHING, row)


def _same(word: str, routed: RoutedTable, row: Row) -> None:
    form, table = FORMATS[word](routed), routed.table
    try:
        (record,) = form.build_change_records(None, row, AT)
    except RefusedError:
        assert word.startswith("debezium"), "the others hold every value"
        return
    state = build_record_reader(word, table, routed.origin)(record.key, record.value)
    assert state is not None
    assert state.values is not None
    for column, value in zip(table.columns, row, strict=True):
        assert are_wire_equal(column.type.kind, state.values[column.name], value), column.name  # type: ignore[arg-type]


@pytest.mark.parametrize("word", WORDS)
def test_a_record_of_something_else_is_said(word: str) -> None:
    read = build_record_reader(word, TABLE, EVERYTHING.origin)
    for value in (b"nonsense", b"[1]", b'"x"'):
        with pytest.raises(EnvelopeError, match=r"does not have format|not a rowlock event"):
            read(b'{"id":1}', value)


# --- the state of a topic


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("tombstones", [True, False])
def test_a_topic_that_follows_is_equal_and_one_that_does_not_is_told_apart(
    word: str, tombstones: bool
) -> None:
    if word == "plain" and not tombstones:
        pytest.skip("it has no other word for a delete")
    verified = VerifiedTopic(word, tombstones=tombstones)
    verified.define()
    for key in range(11):
        verified.put(key, f"t{key}", key)
    verified.put(3, "Ulm", None)
    verified.delete(4)
    verified.put(5, None, 5)
    result = verified.verify()
    assert (result.equal, result.rows, found(result)) == (True, 10, [])
    assert verify_lines(result) == ["equal     b1:bank.acct → feed:head.acct: 10 rows"]
    verified.rows[99] = (99, "lost", 1)
    verified.rows[6] = (6, "t6", 7)
    del verified.rows[7]
    assert found(verified.verify()) == [
        (Difference.DIFFERENT, (6,), ("n",)),
        (Difference.EXTRA, (7,), ()),
        (Difference.MISSING, (99,), ()),
    ]


@pytest.mark.parametrize("word", [word for word in WORDS if word != "plain"])
def test_a_truncate_ends_the_rows_before_it(word: str) -> None:
    """Format plain has no word for that: each row is deleted."""
    verified = VerifiedTopic(word)
    for key in range(5):
        verified.put(key, "x", key)
    before = list(verified.topic)
    verified.truncate()
    verified.put(2, "y", 2)
    assert verified.verify().equal
    verified.topic[:] = before
    assert len(found(verified.verify())) == 5


@pytest.mark.parametrize("word", WORDS)
def test_sources_of_one_topic_are_told_apart_by_an_added_column(word: str) -> None:
    one = VerifiedTopic(word, add={"branch": "b1"})
    two = VerifiedTopic(word, source="b2", add={"branch": "b2"}, topic=one.topic)
    for verified in (one, two):
        for key in range(4):
            verified.put(key, verified.pair.source, key)
    assert one.verify().equal
    assert two.verify().equal
    if word != "plain":
        one.truncate()
        assert one.verify().equal
        assert two.verify().equal, "it is the other one's"
    two.rows[9] = (9, "lost", 0)
    del two.rows[1]
    assert found(two.verify()) == [(Difference.EXTRA, ("b2", 1), ()), (Difference.MISSING, ("b2", 9), ())]
    assert one.verify().equal


@pytest.mark.parametrize("word", ["rowlock", "debezium", "debezium-schemas"])
def test_a_row_under_an_older_value_of_an_added_column_is_the_tables_and_too_many(word: str) -> None:
    """Its record says whose it is: the value of the route is what it should have, and not what tells it."""
    old = VerifiedTopic(word, add={"branch": "b1"})
    new = VerifiedTopic(word, add={"branch": "north"}, topic=old.topic)
    old.put(1, "Ulm", 1)
    new.put(1, "Ulm", 1)
    assert found(new.verify()) == [(Difference.EXTRA, ("b1", 1), ())]


@pytest.mark.parametrize("word", ["rowlock", "debezium", "debezium-schemas"])
def test_tables_of_one_topic_are_told_apart_by_what_records_say(word: str) -> None:
    """Another table's column of the same name is of another type."""
    other = Table(
        db="bank", name="other", key=replace(ACCT.key, parts=(IndexPart(column="id"),)),
        columns=(Column(name="id", type=INT, nullable=False),
         Column(name="n", type=ColumnType(kind=Kind.DATE))),
    )  # fmt: skip
    one = VerifiedTopic(word)
    two = VerifiedTopic(word, table=other, topic=one.topic)
    one.put(1, "a", 1)
    two.put(2, "2026-01-01")
    two.put(3, "2026-01-01")
    two.delete(3)
    assert one.verify().equal
    assert two.verify().equal
    two.put(1, "2026-01-02")
    assert found(one.verify()) == [(Difference.MISSING, (1,), ())], "its key is another's now"
    assert two.verify().equal


@pytest.mark.parametrize("word", ["plain", "canal-json"])
def test_where_nobody_can_tell_whose_rows_are_there_nothing_is_compared(word: str) -> None:
    one, two = VerifiedTopic(word), VerifiedTopic(word, source="b2")
    assert "b2:bank.acct also goes to the topic: nothing was compared" in explain_unclaimed(
        one.pair, [one.pair, two.pair]
    )
    assert explain_unclaimed(one.pair, [one.pair]) == ""
    apart = VerifiedTopic(word, add={"b": "1"}), VerifiedTopic(word, source="b2", add={"b": "2"})
    assert explain_unclaimed(apart[0].pair, [each.pair for each in apart]) == ""
    part = VerifiedTopic(word, add={"b": "1"})
    assert "nothing was compared" in explain_unclaimed(part.pair, [part.pair, two.pair]), (
        "whose columns may hold anything"
    )
    named = VerifiedTopic("rowlock"), VerifiedTopic("rowlock", source="b2")
    assert explain_unclaimed(named[0].pair, [each.pair for each in named]) == ""


# --- routes


@pytest.mark.parametrize("word", WORDS)
def test_filter_columns_and_masks_are_applied_to_the_source(word: str) -> None:
    verified = VerifiedTopic(
        word, columns=("id", "town"), where=(("n", ("1", None)),), masks=(("town", "sha256"),)
    )
    verified.put(1, "Ulm", 1)
    verified.put(2, "Bonn", 2)
    verified.put(3, None, None)
    verified.put(4, "Köln", 1)
    verified.put(4, "Köln", 5)
    result = verified.verify()
    assert (result.equal, result.rows) == (True, 2)
    verified.rows[1] = (1, "Bonn", 1)
    verified.rows[2] = (2, "Bonn", 1)
    verified.rows[3] = (3, None, 3)
    assert found(verified.verify()) == [
        (Difference.DIFFERENT, (1,), ("town",)),
        (Difference.EXTRA, (3,), ()),
        (Difference.MISSING, (2,), ()),
    ]
    hidden = VerifiedTopic(word, masks=(("town", "***"),))
    hidden.put(1, "Ulm", 1)
    hidden.rows[1] = (1, "Bonn", 1)
    assert hidden.verify().equal, "nobody sees that"
    hidden.rows[1] = (1, None, 1)
    assert found(hidden.verify()) == [(Difference.DIFFERENT, (1,), ("town",))]


@pytest.mark.parametrize("word", [word for word in WORDS if word != "plain"])
@pytest.mark.parametrize("tombstones", [True, False])
def test_a_routing_key_of_many_rows_keeps_each_of_them(word: str, tombstones: bool) -> None:
    verified = VerifiedTopic(word, key=("town",), tombstones=tombstones)
    for key in range(8):
        verified.put(key, "Ulm", key)
    verified.delete(3)
    verified.put(4, "Bonn", 4)
    verified.put(5, "Ulm", 50)
    assert verified.verify().equal
    del verified.rows[5]
    assert found(verified.verify()) == [(Difference.EXTRA, (5,), ())]


@pytest.mark.parametrize("word", [word for word in WORDS if word != "plain"])
@pytest.mark.parametrize("tombstones", [True, False])
def test_a_primary_key_that_moves_under_one_routing_key_leaves_nothing_behind(
    word: str, tombstones: bool
) -> None:
    verified = VerifiedTopic(word, key=("town",), tombstones=tombstones)
    verified.put(1, "Ulm", 1)
    verified.put(3, "Ulm", 3)
    before, verified.rows[2] = verified.rows.pop(1), (2, "Ulm", 1)
    verified.change(before, verified.rows[2])
    assert len(verified.topic) == 4, (
        "a delete and a create, and no null value, which would take the other rows of the key along"
    )
    assert verified.verify().equal


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("key", [("town",), ("town", "id")])
def test_a_row_that_stands_under_another_key_too_is_a_difference(word: str, key: tuple[str, ...]) -> None:
    if word == "plain" and key == ("town",):
        pytest.skip("not compared")
    verified = VerifiedTopic(word, key=key)
    for each in range(4):
        verified.put(each, "Ulm", each)
    verified.rows[2] = (2, "Bonn", 2)
    verified.change(None, verified.rows[2])  # read again; its place was not known
    ((kind, row, columns),) = found(verified.verify())
    assert (kind, row, columns[0]) == (Difference.DIFFERENT, (2,), PLACE)
    verified.topic.pop()
    assert found(verified.verify()) == [(Difference.DIFFERENT, (2,), ("town",))], (
        "only the older one is there"
    )


@pytest.mark.parametrize("word", WORDS)
def test_a_record_in_another_partition_or_under_a_key_that_is_not_its_rows_is_a_difference(word: str) -> None:
    verified = VerifiedTopic(word)
    verified.put(1, "Ulm", 1)
    verified.put(2, "Ulm", 2)
    (at, key, value), other = verified.topic
    verified.topic[:] = [((at + 1) % 3, key, value), other]
    assert found(verified.verify()) == [(Difference.DIFFERENT, (1,), (PLACE,))]
    text = (key or b"").replace(b"1", b"9") if word != "debezium-schemas" else (key or b"")[:-3] + b"9}}"
    at = verified.records()._partition(text, 3)
    verified.topic[:] = [(at, text, value), other]
    assert found(verified.verify()) == [(Difference.DIFFERENT, (1,), (PLACE,))]


@pytest.mark.parametrize(
    ("options", "facts", "reported"),
    [
        (
            {"word": "plain", "key": ("town",)},
            {},
            "does not show which of a key's rows was deleted, so nothing was compared",
        ),
        (
            {"word": "rowlock", "key": ("town",)},
            {"compacted": True},
            "it keeps the last one, so nothing was compared",
        ),
    ],
)
def test_where_a_key_is_many_rows_and_nobody_can_tell_them_apart_nothing_is_compared(
    options: dict[str, Any], facts: dict[str, Any], reported: str
) -> None:
    with pytest.raises(TargetConfigError, match=reported):
        VerifiedTopic(**options, **facts).verify()
    VerifiedTopic(**(options | {"key": ("town", "id")}), **facts).verify()


# --- definitions, and what is under way


@pytest.mark.parametrize("word", WORDS)
def test_a_record_older_than_a_column_has_the_value_that_the_definition_gives_it(word: str) -> None:
    older = VerifiedTopic(word)
    older.put(1, "Ulm", 1)
    for column, value, equal in (
        (Column(name="v", type=TEXT), None, True),
        (Column(name="v", type=TEXT, default="new"), "new", True),
        (Column(name="v", type=TEXT, default="new"), "old", False),
        (Column(name="v", type=TEXT, default_expression="uuid()"), None, False),
    ):
        wider = VerifiedTopic(word, table=replace(ACCT, columns=(*ACCT.columns, column)), topic=older.topic)
        wider.rows[1] = (1, "Ulm", 1, value)
        assert wider.verify().equal is equal, column


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (ColumnType(kind=Kind.DECIMAL, precision=12, scale=0), "1"),
        (TEXT, "1"),
        (ColumnType(kind=Kind.FLOAT), 1.5),
        (ColumnType(kind=Kind.GEOMETRY), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("old", [1, None])
def test_a_record_older_than_a_columns_type_differs_and_stops_nothing(
    word: str, type_: ColumnType, value: Any, old: int | None
) -> None:
    """A NULL is one in every type. What is there of an older type is never called equal, not even to the
    default of a column that is not there."""
    older = VerifiedTopic(word)
    older.put(1, "Ulm", old)
    older.put(2, "Bonn", 2)
    column = Column(name="n", type=type_)
    now = VerifiedTopic(word, table=replace(ACCT, columns=(*ACCT.columns[:2], column)), topic=older.topic)
    now.rows[1] = (1, "Ulm", None if old is None else value)
    now.change((2, "Bonn", None), None)
    expected = [] if old is None else [(Difference.DIFFERENT, (1,), ("n",))]
    assert found(now.verify()) == expected
    now.change(None, now.rows[1])
    assert now.verify().equal, "the newer record counts"


@pytest.mark.parametrize("word", ["debezium", "debezium-schemas"])
def test_a_key_of_an_older_type_is_an_error_that_says_so(word: str) -> None:
    older = VerifiedTopic(word)
    older.put(1, "Ulm", 1)
    columns = (Column(name="id", type=TEXT, nullable=False), *ACCT.columns[1:])
    with pytest.raises(UnitStoppedError, match=r"column id: .*type was changed"):
        VerifiedTopic(word, table=replace(ACCT, columns=columns), topic=older.topic).verify()


@pytest.mark.parametrize("word", WORDS)
def test_what_arrives_while_it_waits_is_equal(word: str) -> None:
    verified = VerifiedTopic(word)
    for key in range(9):
        verified.put(key, "Ulm", key)
    late = list(verified.topic)
    del verified.topic[4:]

    def arrive() -> None:
        verified.topic += late[len(verified.topic) : len(verified.topic) + 2]

    result = verified.verify(Clock(arrive))
    assert (result.equal, result.rows) == (True, 9)
    del verified.topic[4:]
    assert len(found(verified.verify())) == 5


def test_a_row_that_changes_faster_than_the_topic_follows_is_equal_once_it_shows_a_version_of_it() -> None:
    verified = VerifiedTopic()
    verified.put(1, "a", 1)
    verified.rows[1] = (1, "a", 2)

    def follow() -> None:
        now = verified.rows[1]
        verified.change(None, now)
        verified.rows[1] = (1, "a", now[2] + 1)  # type: ignore[operator]

    assert verified.verify(Clock(follow)).equal
    verified.topic.clear()
    verified.change(None, (1, "a", 0))
    result = verified.verify(Clock(lambda: verified.rows.update({1: (1, "a", verified.rows[1][2] + 1)})))  # type: ignore[operator]
    assert [(each.columns, each.moving) for each in result.findings] == [(("n",), True)]


def test_many_differences_end_it_and_are_never_called_equal() -> None:
    verified = VerifiedTopic()
    verified.rows = {key: (key, "x", 1) for key in range(30)}
    result = verified.verify(suspects=5)
    assert (result.equal, result.complete, result.more, len(result.findings)) == (False, False, True, 5)


def test_a_topic_that_cannot_be_read_to_its_end_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    verified = VerifiedTopic()
    verified.rows = {key: (key, "x", 1) for key in range(30)}

    def fail(_: float) -> None:
        raise UnitStoppedError("a record is not readable", "copy the table")

    monkeypatch.setattr(verify, "open_reading", lambda *_: verified.open_reading())
    limits = verify.VerifyLimits(15, 4, 5, Clock().now, fail)
    result = verify.compare_topic(verified.pair, cast(Any, verified), cast(Any, None), limits)
    assert (result.equal, result.complete, result.rows) == (False, False, 8)
    assert "a record is not readable" in result.problem


def test_a_message_of_canals_has_one_row() -> None:
    """rowlock writes one row a message: a message with more, or none, is of another program, and is not read
    as its first row."""
    one, types = {"id": "1"}, {"id": "int"}
    assert decode_canal_values({"data": [one], "mysqlType": types}, {"id"}) == {"id": 1}
    for several in ([one, {"id": "2"}], []):
        with pytest.raises(ValueError, match="unpack"):
            decode_canal_values({"data": several, "mysqlType": types}, {"id"})
