"""The way in which a unit's records are written is kept: a definition, mask or added value that would give
rows other keys is noticed, and no other is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
import structlog
from msgspec.structs import replace

from consumer.errors import TransientError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, EveryChange, RowChange, TopicOptions
from consumer.tables.router import ResolvedRoute, build_desired_table, build_topic_table
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.records import TableRecords
from consumer.targets.kafka.scheme_checks import add_reshape_offsets, require_one_scheme
from consumer.targets.kafka.store.state import RecordScheme
from consumer.targets.kafka.target import log_reshaped_topic
from consumer.targets.kafka.topics import TopicFacts
from schemas.findings import START_OVER
from schemas.table.model import Column, ColumnType, IndexPart, Table, UniqueIndex
from tests.kits.kafka_forms import INT, NOTE, SCHEMAS, TYPES, WORDS, decimal, id_of, integer, nothing

UNIT = ApplyUnit("p", "t")


def records_of(
    word: str, column: Column, *, add: tuple[tuple[str, str], ...] = (), salt: str = "", **options: Any
) -> TableRecords:
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column=column.name),))
    table = Table(db="bank", name="acct", columns=(column, NOTE), key=key)
    routed = ResolvedRoute(
        "head", "acct", add, topic=TopicOptions(format=word, kinds=(("b1", "mysql"),), **options)
    )
    target = build_topic_table(build_desired_table(table, routed), routed, "b1", table)
    return TableRecords(target, TopicFacts("head.acct", 1, 1_000_000, compacted=False), salt)


def key_of(records: TableRecords, *row: Any) -> bytes | None:
    change = RowChange((1, 0), None, row, (0, 1, 1, 0), 1, 1000)
    (made,) = records.yield_records(EveryChange(None, [change]), Place((0, 1, 1, 0), 1, 1), nothing)  # type: ignore[arg-type]
    return made.key


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(("old", "was", "new", "now", "others"), TYPES)
def test_a_definition_is_noticed_where_it_changes_the_bytes_of_keys_and_nowhere_else(
    word: str, old: ColumnType, was: Any, new: ColumnType, now: Any, others: tuple[str, ...]
) -> None:
    before, after = records_of(word, id_of(old)), records_of(word, id_of(new))
    same = key_of(before, was, "x") == key_of(after, now, "x")
    assert same == (word not in others), "the table of this test is right"
    assert (before.written.list_incompatibilities(after.written) == []) == same


@pytest.mark.parametrize("facts", [{"default": "7"}, {"nullable": True}])
@pytest.mark.parametrize("word", WORDS)
def test_the_schema_in_a_key_has_defaults_and_whether_it_may_be_null(
    word: str, facts: dict[str, Any]
) -> None:
    before, after = records_of(word, id_of(INT)), records_of(word, id_of(INT, **facts))
    same = key_of(before, 5, "x") == key_of(after, 5, "x")
    assert same == (word not in SCHEMAS)
    assert (before.written.list_incompatibilities(after.written) == []) == same


@pytest.mark.parametrize("word", WORDS)
def test_a_column_that_is_not_of_the_key_may_change(word: str) -> None:
    (one, two) = (records_of(word, id_of(INT), masks=masks) for masks in ((), (("note", "sha256"),)))
    assert one.written.list_incompatibilities(two.written) == []


@pytest.mark.parametrize("word", WORDS)
def test_masks_and_the_salt_of_a_routing_key_are_noticed_and_the_salt_is_not_kept(word: str) -> None:
    hashed: dict[str, Any] = {"key": ("note", "id"), "masks": (("note", "sha256"),)}
    ways = [
        records_of(word, id_of(INT), key=("note", "id")),
        records_of(word, id_of(INT), **hashed),
        records_of(word, id_of(INT), salt="pepper", **hashed),
        records_of(word, id_of(INT), salt="chili", **hashed),
    ]
    assert len({key_of(way, 5, "x") for way in ways}) == len(ways)
    for was, now in pairwise(way.written for way in ways):
        (reported,) = was.list_incompatibilities(now)
        assert reported.startswith("key column note was written as ")
        assert "sha256 of text" in reported
    assert b"pepper" not in msgspec.json.encode(ways[2].written)


def test_what_is_hashed_depends_on_the_form_of_the_column_before() -> None:
    """A sha256 is text whatever it is of: the column itself tells."""
    names: dict[str, Any] = {"key": ("note", "id"), "masks": (("note", "sha256"),)}
    found = []
    for scale in (2, 2, 4):
        hidden = Column(name="note", type=decimal(12, scale))
        table = Table(
            db="bank",
            name="acct",
            columns=(id_of(INT), hidden),
            key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
        )
        routed = ResolvedRoute("head", "acct", topic=TopicOptions(**names))
        target = build_topic_table(build_desired_table(table, routed), routed, "b1", table)
        found.append(TableRecords(target, TopicFacts("head.acct", 1, 1000, compacted=False)).written)
    assert found[0].list_incompatibilities(found[1]) == []
    assert len(found[1].list_incompatibilities(found[2])) == 1


@pytest.mark.parametrize("word", WORDS)
def test_a_changed_value_of_an_added_column_is_noticed(word: str) -> None:
    one, two = (records_of(word, id_of(INT), add=(("branch", each),)).written for each in ("b1", "north"))
    assert one.list_incompatibilities(one) == []
    assert one.list_incompatibilities(two) == [
        "the columns of `add` were {'branch': 'b1'}, now {'branch': 'north'}"
    ]


def test_a_unit_stops_with_what_differs_and_what_to_do() -> None:
    was, now = (records_of("plain", id_of(decimal(12, scale))).written for scale in (2, 4))
    with pytest.raises(UnitStoppedError) as found:
        require_one_scheme(UNIT, was, [now])
    assert (
        "key column id was written as decimal with 2 digits after the point, now as decimal with 4 digits" in str(found.value)  # noqa: E501
    )  # fmt: skip
    assert f"{START_OVER} with another topic" in str(found.value)
    assert require_one_scheme(UNIT, was, [was]) == was
    assert require_one_scheme(UNIT, None, [now]) == now
    assert require_one_scheme(UNIT, was, []) == was
    with pytest.raises(
        UnitStoppedError,
        match=r": format was plain, now rowlock; partitions was 1, now 2: ",
    ):
        require_one_scheme(UNIT, was, [replace(was, format="rowlock", partitions=2)])


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"where": (("note", ("b", "a")),)}, []),
        ({"where": (("note", ("a",)),)}, ["where"]),
        ({"where": (("note", ("a", "b", None)),)}, ["where"]),
        ({"masks": (("note", "x"),)}, ["masks"]),
        ({"columns": ("id",)}, ["columns"]),
        ({"columns": ("id", "note"), "where": ()}, ["columns", "where"]),
    ],
)
def test_another_filter_or_mask_is_told_once_and_stops_nothing(
    options: dict[str, Any], changed: list[str]
) -> None:
    of: dict[str, Any] = {"where": (("note", ("a", "b")),)}
    was, now = (records_of("plain", id_of(INT), **each).written for each in (of, of | options))
    with structlog.testing.capture_logs() as reported:
        assert require_one_scheme(UNIT, was, [now]) == now
        log_reshaped_topic(UNIT, replace(was, shape=None), now)  # an older rowlock's
        for before in (None, was, now):
            log_reshaped_topic(UNIT, before, now)
    assert [each["changed"] for each in reported] == ([changed] if changed else [])
    assert all("rowlock copy" in each["remedy"] for each in reported)


def test_an_option_that_changed_is_kept_until_a_copy_from_behind_it_ends() -> None:
    was, now = (
        records_of("plain", id_of(INT), where=(("note", (word,)),)).written for word in ("open", "shut")
    )
    masked = records_of("plain", id_of(INT), where=(("note", ("shut",)),), masks=(("note", "x"),)).written
    assert add_reshape_offsets(None, now, 4).outdated == ()
    assert add_reshape_offsets(was, was, 4).outdated == ()
    first = add_reshape_offsets(was, now, 4)
    assert first.outdated == (("where", 4),)
    both = add_reshape_offsets(first, masked, 9)
    assert both.outdated == (("masks", 9), ("where", 4))
    assert add_reshape_offsets(both, was, 12).outdated == (("masks", 12), ("where", 12)), (
        "rows of in between stay"
    )
    for copied, left in (4, both.outdated), (5, (("masks", 9),)), (9, (("masks", 9),)), (10, ()):
        assert add_reshape_offsets(both, masked, 20, copied=copied).outdated == left
    assert add_reshape_offsets(was, now, 4, copied=2).outdated == (("where", 4),), (
        "the copy's first rows are of before"
    )


def test_another_salt_is_another_mask_only_where_one_hashes() -> None:
    for mask, changed in ("sha256", ["masks"]), ("x", []):
        one, two = (
            records_of("plain", id_of(INT), salt=salt, masks=(("note", mask),)).written for salt in "ab"
        )
        assert one.list_reshaped_options(two) == changed


def test_of_what_an_older_rowlock_wrote_nothing_more_is_compared_and_a_commit_completes_it() -> None:
    was, now = (records_of("plain", id_of(each), add=(("b", "1"),)).written for each in (INT, decimal(12, 2)))
    raw = msgspec.json.decode(msgspec.json.encode(was))
    older = msgspec.json.decode(
        msgspec.json.encode(
            {name: value for name, value in raw.items() if name not in ("forms", "added", "shape")}
        ),
        type=RecordScheme,
    )
    assert older.list_incompatibilities(now) == []
    assert len(older.list_incompatibilities(replace(now, topic="other"))) == 1
    assert msgspec.json.decode(msgspec.json.encode(was), type=RecordScheme) == was


def test_a_topic_that_is_made_again_behind_a_look_is_looked_at_once_more() -> None:
    was, now = (replace(records_of("plain", id_of(INT)).written, topic_id=each) for each in ("a", "b"))
    with pytest.raises(TransientError, match="is currently being recreated"):
        require_one_scheme(UNIT, was, [now])
    assert require_one_scheme(UNIT, replace(was, topic_id=""), [now]) == now, (
        "an older rowlock did not know it"
    )


def test_a_definition_in_the_middle_of_a_commit_is_noticed() -> None:
    """The rows before it and those behind it would be one transaction."""
    number, wider, other = (
        records_of("plain", id_of(each)).written for each in (INT, integer(64), decimal(12, 2))
    )
    assert require_one_scheme(UNIT, None, []) is None
    assert require_one_scheme(UNIT, None, [number, wider]) == wider
    with pytest.raises(UnitStoppedError, match="key column id was written as number, now as decimal"):
        require_one_scheme(UNIT, None, [number, other, other])
