"""A route's filter, columns and masks: what of a change is written to a topic."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from consumer.errors import TargetConfigError
from consumer.ordering.model import TopicOptions
from consumer.targets.kafka.shaping import RowShaper
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex

TABLE = Table(
    db="head",
    name="acct",
    columns=(
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
        Column(name="status", type=ColumnType(kind=Kind.VARCHAR, length=9)),
        Column(name="pan", type=ColumnType(kind=Kind.INT, bits=64), default="1"),
        Column(name="name", type=ColumnType(kind=Kind.VARCHAR, length=9)),
    ),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
    unique=(
        UniqueIndex(name="p", parts=(IndexPart(column="pan"),)),
        UniqueIndex(name="n", parts=(IndexPart(column="name"),)),
    ),
)
OPEN: Row = (1, "open", 42, "lucy")
SHUT: Row = (1, "shut", 42, "lucy")
OPEN_ONLY = (("status", ("open", "held")),)


def test_without_settings_everything_stays() -> None:
    shaping = RowShaper(TABLE, TopicOptions())
    assert shaping.table == TABLE
    assert shaping.reshape_change(OPEN, SHUT) == (OPEN, SHUT)
    assert shaping.reshape_change(None, SHUT) == (None, SHUT)
    assert shaping.reshape_row(OPEN) == OPEN


@pytest.mark.parametrize(
    ("before", "after", "written"),
    [
        (OPEN, OPEN, (OPEN, OPEN)),
        (OPEN, SHUT, (OPEN, None)),
        (SHUT, OPEN, (None, OPEN)),
        (SHUT, SHUT, None),
        (None, OPEN, (None, OPEN)),
        (None, SHUT, None),
        (OPEN, None, (OPEN, None)),
        (SHUT, None, None),
    ],
)
def test_a_row_that_leaves_is_deleted_and_one_that_enters_is_created(
    before: Any, after: Any, written: Any
) -> None:
    assert RowShaper(TABLE, TopicOptions(where=OPEN_ONLY)).reshape_change(before, after) == written


def test_a_filter_compares_texts_and_every_column_of_it_counts() -> None:
    shaping = RowShaper(TABLE, TopicOptions(where=(*OPEN_ONLY, ("pan", ("42", None)))))
    assert shaping.reshape_row(OPEN) == OPEN
    assert shaping.reshape_row((1, "open", None, "x")) == (1, "open", None, "x")
    assert shaping.reshape_row((1, "open", 4, "x")) is None
    assert shaping.reshape_row((1, None, 42, "x")) is None
    assert shaping.reshape_row((1, "Open", 42, "x")) is None


def test_columns_are_chosen_in_the_tables_order_and_the_filter_sees_all() -> None:
    shaping = RowShaper(TABLE, TopicOptions(columns=("name", "id"), where=OPEN_ONLY))
    assert shaping.table.column_names == ("id", "name")
    assert [index.name for index in shaping.table.unique] == ["n"]
    assert shaping.reshape_change(SHUT, OPEN) == (None, (1, "lucy"))


def test_masks() -> None:
    shaping = RowShaper(TABLE, TopicOptions(masks=(("pan", "sha256"), ("name", "***"))), "salt")
    hidden = hashlib.sha256(b"salt42").hexdigest()
    assert shaping.reshape_row(OPEN) == (1, "open", hidden, "***")
    assert shaping.reshape_row((1, None, "9007199254740993", None)) == (
        1, None, hashlib.sha256(b"salt9007199254740993").hexdigest(), None,
    )  # fmt: skip
    assert shaping.reshape_row((1, None, None, "")) == (1, None, None, "***")
    pan, name = shaping.table.columns[2:]
    assert [(each.type.kind, each.type.length, each.default) for each in (pan, name)] == [
        (Kind.VARCHAR, 64, None), (Kind.VARCHAR, 3, None),
    ]  # fmt: skip
    assert shaping.table.unique == ()
    assert RowShaper(TABLE, TopicOptions(masks=(("pan", "sha256"),)), "other").reshape_row(
        OPEN
    ) != shaping.reshape_row(OPEN)


def test_a_key_may_be_hashed() -> None:
    shaping = RowShaper(TABLE, TopicOptions(key=("name",), masks=(("id", "sha256"), ("name", "sha256"))))
    written = shaping.reshape_row(OPEN)
    assert written is not None
    assert written[0] == hashlib.sha256(b"1").hexdigest()


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (TopicOptions(columns=("id", "nmae")), "no column nmae, which `columns`"),
        (TopicOptions(where=(("nmae", ("x",)),)), "no column nmae, which `where`"),
        (TopicOptions(masks=(("nmae", "x"),)), "no column nmae, which `masks`"),
        (TopicOptions(key=("nmae",)), "no column nmae, which `key`"),
        (TopicOptions(columns=("name",)), r"omits key columns \(id\)"),
        (TopicOptions(columns=("id", "name"), key=("pan",)), r"omits key columns \(pan\)"),
        (TopicOptions(masks=(("id", "***"),)), "column id is of the key"),
        (TopicOptions(key=("name",), masks=(("name", "***"),)), "column name is of the key"),
    ],
)
def test_what_cannot_work_is_refused(options: TopicOptions, reported: str) -> None:
    with pytest.raises(TargetConfigError, match=rf"^head\.acct.*{reported}"):
        RowShaper(TABLE, options)


_STATUS = st.sampled_from(["open", "held", "shut", None])


@given(st.lists(st.tuples(st.integers(1, 3), st.none() | _STATUS, st.booleans()), max_size=30))
def test_the_topic_holds_what_the_filter_lets_through(steps: list[tuple[int, str | None, bool]]) -> None:
    """Whatever happens to rows, what was written adds up to the source's rows behind the same shaping."""
    shaping = RowShaper(
        TABLE, TopicOptions(columns=("id", "name"), where=OPEN_ONLY, masks=(("name", "sha256"),))
    )
    source: dict[int, Row] = {}
    topic: dict[object, Row] = {}
    for at, (key, status, missing) in enumerate(steps):
        before = source.pop(key, None)
        after: Row | None = None if missing else (key, status, at, f"n{at}")
        if after is not None:
            source[key] = after
        written = shaping.reshape_change(before, after) if before or after else None
        if written is None:
            continue
        old, new = written
        if old is not None:
            assert topic.pop(old[0]) == old
        if new is not None:
            topic[new[0]] = new
    assert topic == {key: shaped for key, row in source.items() if (shaped := shaping.reshape_row(row))}


@pytest.mark.parametrize(("values", "known"), [(("3", None), True), (("a,b",), False), (("3", ""), False)])
def test_a_filter_of_a_column_of_numbers_names_numbers(values: tuple[str | None, ...], known: bool) -> None:
    """By labels it would let no row through, without a word."""
    labels = ColumnType(kind=Kind.SET_NUMBER, members=("a", "b", ""))
    table = structs.replace(TABLE, columns=(*TABLE.columns, Column(name="s", type=labels)))
    options = TopicOptions(where=(("s", values),))
    if known:
        assert RowShaper(table, options).reshape_row((*OPEN, 3)) == (*OPEN, 3)
        return
    with pytest.raises(
        TargetConfigError, match=r"compares column s with labels.*write the numbers \(SELECT s\+0\)"
    ):
        RowShaper(table, options)
