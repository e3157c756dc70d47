"""The records of a table: how it is emptied row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from consumer.ordering.model import TopicOptions
from consumer.tables.router import Routed, topic_table, wanted_table
from consumer.targets.kafka import records
from consumer.targets.kafka.compacted.topic_contents import StateRow, TopicContents
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.records import TableRecords
from consumer.targets.kafka.topics import TopicFacts
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

INT, WORD = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")
ID = Column(name="id", type=INT, nullable=False)
Added = tuple[tuple[str, str], ...]
PLACE = Place((0, 1, 4, 0), 1, 1_000)


def records_of(
    word: str, *columns: Column, id_: Column = ID, name: str = "acct", added: Added = (), **options: Any
) -> TableRecords:
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    table = Table(db="bank", name=name, columns=(id_, *columns), key=key)
    routed = Routed(
        "head", "acct", added, topic=TopicOptions(format=word, kinds=(("b1", "mysql"),), **options)
    )
    target = topic_table(wanted_table(table, routed), routed, "b1", table)
    return TableRecords(target, TopicFacts("head.acct", 1, 1_000_000, compacted=True), "salt")


@dataclass
class Many:
    """A topic with rows of these numbers."""

    numbers: range

    def all(self, _where: dict[str, str]) -> Iterator[StateRow]:
        yield from ({"id": number, "n": "x" * 50} for number in self.numbers)


@pytest.mark.parametrize(
    ("count", "rows", "size", "wanted"),
    [(0, 3, 1 << 20, [0]), (2, 3, 1 << 20, [2]), (3, 3, 1 << 20, [3, 0]), (7, 3, 1 << 20, [3, 3, 1]), (3, 9, 1500, [2, 1])],
)  # fmt: skip
def test_a_table_is_emptied_row_by_row_in_pages(
    count: int, rows: int, size: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many rows, or bytes; there is one page at least, and a delete and its tombstone are of one."""
    monkeypatch.setattr(records, "CLEARED", rows)
    monkeypatch.setattr(records, "CLEARED_BYTES", size)
    made = records_of("rowlock", Column(name="n", type=WORD))
    pages = list(made.cleared(None, PLACE, lambda: cast(TopicContents, Many(range(count)))))
    assert [[each.value is None for each in page] for page in pages] == [
        [False, True] * each for each in wanted
    ]
    assert [each.key for page in pages for each in page[::2]] == [
        b'{"id":%d}' % each for each in range(count)
    ]
