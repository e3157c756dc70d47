"""The records that delete what the topic has of a table: which rows, in which pages, and their content:
judged by the formats' readers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

import pytest

from consumer.ordering.model import NetChange, TargetTable, TopicOptions
from consumer.tables.router import ResolvedRoute, build_desired_table, build_topic_table
from consumer.targets.kafka import records
from consumer.targets.kafka.compacted.topic_contents import StateRow, TopicContents
from consumer.targets.kafka.compacted.topic_rows import RowIdentity
from consumer.targets.kafka.formats.key_forms import ValueForm
from consumer.targets.kafka.formats.model import FormattedRecord, Place
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.records import TableRecords
from consumer.targets.kafka.topics import TopicFacts
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex
from tests.topics.forms import FORMS

INT, WORD = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")
ID = Column(name="id", type=INT, nullable=False)
Added = tuple[tuple[str, str], ...]
PLACE = Place((0, 1, 4, 0), 1, 1_000)
TELLING = ["rowlock", "debezium", "debezium-schemas", "canal-json"]


def records_of(
    word: str, *columns: Column, id_: Column = ID, name: str = "acct", added: Added = (), **options: Any
) -> TableRecords:
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    table = Table(db="bank", name=name, columns=(id_, *columns), key=key)
    routed = ResolvedRoute(
        "head", "acct", added, topic=TopicOptions(format=word, kinds=(("b1", "mysql"),), **options)
    )
    target = build_topic_table(build_desired_table(table, routed), routed, "b1", table)
    return TableRecords(target, TopicFacts("head.acct", 1, 1_000_000, compacted=True), "salt")


@dataclass
class Contents:
    """A topic with one row, as a record of `was` has it, read by the definition that is in force now."""

    was: TableRecords
    row: Row
    now: TableRecords

    def yield_all_rows(self, _where: dict[str, str]) -> Iterator[StateRow]:
        (record,) = self.was.format.build_change_records(None, self.row, PLACE)
        state = self.now.format.decode_state(record.key, record.value)
        assert state is not None
        assert state.values is not None
        yield state.values

    def emptied(self) -> Any:
        """The row as its delete says it was."""
        (page,) = self.now.yield_clear_records(None, PLACE, lambda: cast(TopicContents, self))
        deleted, tombstone = page
        assert tombstone.value is None
        return FORMS[self.now.written.format].reported(deleted.value).before


ADDED = {
    "not null": (Column(name="n", type=INT, nullable=False), {}, 0),
    "with a default": (Column(name="n", type=INT, nullable=False, default="7"), {}, 7),
    "null": (Column(name="n", type=INT), {}, None),
    "masked": (Column(name="n", type=INT, nullable=False), {"masks": (("n", "***"),)}, "***"),
    "hashed": (
        Column(name="n", type=INT, nullable=False),
        {"masks": (("n", "sha256"),)},
        hashlib.sha256(b"salt0").hexdigest(),
    ),
}


@pytest.mark.parametrize("word", TELLING)
@pytest.mark.parametrize(("column", "options", "expected"), ADDED.values(), ids=ADDED)
def test_a_column_that_a_record_is_older_than_has_what_the_source_gave_it(
    word: str, column: Column, options: dict[str, Any], expected: object
) -> None:
    """A null where the column is NOT NULL would break who reads by the schema."""
    topic = Contents(records_of(word), (1,), records_of(word, column, **options))
    form = FORMS[word]
    assert topic.emptied() == {"id": form.spell(1), "n": form.spell(expected)}


@pytest.mark.parametrize("word", ["debezium", "debezium-schemas", "canal-json"])
def test_a_value_of_an_older_type_is_not_known(word: str) -> None:
    """The default is not what was there."""
    was, now = (
        (Column(name="n", type=INT), 5) if word != "canal-json" else (Column(name="n", type=WORD), "five"),
        Column(name="n", type=WORD if word != "canal-json" else INT, default="7"),
    )
    topic = Contents(records_of(word, was[0]), (1, was[1]), records_of(word, now))
    assert topic.emptied() == {"id": FORMS[word].spell(1), "n": None}


@dataclass
class Many:
    """A topic with rows of these numbers."""

    numbers: range

    def yield_all_rows(self, _where: dict[str, str]) -> Iterator[StateRow]:
        yield from ({"id": number, "n": "x" * 50} for number in self.numbers)


@pytest.mark.parametrize(
    ("count", "rows", "size", "expected"),
    [(0, 3, 1 << 20, [0]), (2, 3, 1 << 20, [2]), (3, 3, 1 << 20, [3, 0]), (7, 3, 1 << 20, [3, 3, 1]), (3, 9, 1500, [2, 1])],  # noqa: E501
)  # fmt: skip
def test_a_table_is_emptied_row_by_row_in_pages(
    count: int, rows: int, size: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many rows, or bytes; there is one page at least, and a delete and its tombstone are of one."""
    monkeypatch.setattr(records, "CLEARED", rows)
    monkeypatch.setattr(records, "CLEARED_BYTES", size)
    made = records_of("rowlock", Column(name="n", type=WORD))
    pages = list(made.yield_clear_records(None, PLACE, lambda: cast(TopicContents, Many(range(count)))))
    assert [[each.value is None for each in page] for page in pages] == [
        [False, True] * each for each in expected
    ]
    assert [each.key for page in pages for each in page[::2]] == [
        b'{"id":%d}' % each for each in range(count)
    ]


@dataclass
class Held:
    """A topic that has these rows."""

    rows: list[dict[str, Any]]

    def yield_rows(self, keys: Sequence[Key]) -> Iterator[StateRow]:
        yield from (row for row in self.rows if (row["id"],) in keys)


@pytest.mark.parametrize(
    ("there", "now", "written"),
    [
        ({"id": 1, "n": "open"}, (1, "open"), [(b'{"id":1}', False)]),
        ({"id": 1, "n": "open"}, (1, "closed"), [(b'{"id":1}', False), (b'{"id":1}', True)]),
        (None, (1, "open"), [(b'{"id":1}', False)]),
        (None, (1, "closed"), []),
    ],
)
def test_net_change_deletes_a_row_that_the_filter_excludes_by_now(
    there: dict[str, Any] | None, now: Row, written: list[tuple[bytes, bool]]
) -> None:
    made = records_of("rowlock", Column(name="n", type=WORD), where=(("n", ("open",)),))
    contents = cast(TopicContents, Held([] if there is None else [there]))
    net = NetChange(cast(TargetTable, None), updates=[now])
    found = made.yield_records(net, PLACE, lambda: contents)
    assert [(each.key, each.value is None) for each in found] == written


@pytest.mark.parametrize(
    ("word", "key", "identity"),
    [
        ("rowlock", (), (False, True)),
        ("rowlock", ("n", "id"), (False, True)),
        ("rowlock", ("n",), (True, True)),
        ("plain", (), (False, False)),
    ],
)
def test_identity_of_rows_follows_from_routing_key_and_format(
    word: str, key: tuple[str, ...], identity: tuple[bool, bool]
) -> None:
    found = records_of(word, Column(name="n", type=WORD, nullable=False), key=key).identity
    assert (found.many, found.deletes) == identity


@dataclass
class Message:
    record: FormattedRecord

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value


@dataclass
class Reader:
    """Reads a topic once."""

    records: list[FormattedRecord]

    def to_end(self) -> Iterator[Message]:
        while self.records:
            yield Message(self.records.pop(0))

    def close(self) -> None: ...


@pytest.mark.parametrize("key", [("t", "id"), ("t",)], ids=str)
@pytest.mark.parametrize("word", ["canal-json", "plain"])
def test_records_of_another_table_are_not_read_by_the_types_of_this_one(
    word: str, key: tuple[str, ...]
) -> None:
    """Two tables of one topic, distinguished by an added column of the key: their own keys are of other
    types. Neither format names the table."""
    mine = records_of(word, name="a", added=(("t", "a"),), key=key)
    theirs = records_of(
        word, name="b", added=(("t", "b"),), key=key, id_=Column(name="id", type=WORD, nullable=False)
    )
    written = [
        *mine.format.build_change_records(None, (1, "a"), PLACE),
        *theirs.format.build_change_records(None, ("x1", "b"), PLACE),
        *theirs.format.build_change_records(("x1", "b"), None, PLACE),
        *theirs.format.build_change_records(None, ("x2", "b"), PLACE),
        *mine.format.build_change_records(None, (2, "a"), PLACE),
    ]
    with closing(contents(mine, written)) as rows:
        (page,) = mine.yield_clear_records({"t": "a"}, PLACE, lambda: rows)
    missing = [each for each in page if each.value is None]
    assert [json.loads(each.key or b"")["t"] for each in missing] == ["a"] * 2


def contents(of: TableRecords, written: list[FormattedRecord], *values: ValueForm) -> TopicContents:
    return TopicContents(cast(CommittedReader, Reader(written)), of.format, of.identity, of.apart, values)


@pytest.mark.parametrize("word", TELLING)
def test_a_value_in_a_form_of_before_is_not_known(word: str) -> None:
    """It would be read as something else, and the default is not what was there."""
    made = records_of(word, Column(name="n", type=INT, default="7"))
    written = made.format.build_change_records(None, (1, 5), PLACE)
    with closing(contents(made, written, ValueForm("n", "number", since=(1,)))) as rows:
        (page,) = made.yield_clear_records(None, PLACE, lambda: rows)
    assert FORMS[word].reported(page[0].value).before == {"id": FORMS[word].spell(1), "n": None}


@pytest.mark.parametrize("where", [{}, {"town": "y"}], ids=str)
def test_rows_are_asked_for_by_the_first_of_the_columns_that_tell_them_apart(where: dict[str, str]) -> None:
    made = records_of("rowlock", Column(name="town", type=WORD), key=("town",))
    rows_ = [(1, "x"), (2, "y"), (2, "z")]
    written = [record for row in rows_ for record in made.format.build_change_records(None, row, PLACE)]
    with closing(contents(made, written)) as rows:
        (keys,) = rows.yield_keys(["id"], where)
        assert keys == ([(2,)] if where else [(1,), (2,)])
        found = sorted((row["id"], row["town"]) for row in rows.yield_rows(keys))  # type: ignore[type-var]
        assert found == (rows_[1:] if where else rows_)
        whole = [row["town"] for row in rows.yield_all_rows(where)]
        assert sorted(map(str, whole)) == (["y"] if where else ["x", "y", "z"])


@pytest.mark.parametrize(
    ("origin", "values", "own"),
    [
        (("b1", "bank", "acct"), {"id": 1, "t": "b"}, True),  # of an older value of the added column
        (("b2", "bank", "acct"), {"id": 1, "t": "a"}, False),
        (None, {"id": 1, "t": "a"}, True),
        (None, {"id": 1, "t": "b"}, False),
        (("b1", "bank", "acct"), {"t": "a"}, False),
    ],
)
def test_a_row_is_of_a_table_by_what_its_record_says_of_that(
    origin: tuple[str, str, str] | None, values: dict[str, object], own: bool
) -> None:
    identity = RowIdentity(("b1", "bank", "acct"), (("t", "a"),), ("id",), many=False)
    assert identity.owns_row(origin, values) is own
