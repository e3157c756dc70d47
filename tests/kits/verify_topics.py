"""A topic and its source's table, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, cast

from consumer.ordering.model import EveryChange, RowChange, TargetTable, TopicOptions
from consumer.tables.router import ResolvedRoute, build_desired_table, build_topic_table
from consumer.targets.kafka.formats.model import Place
from consumer.targets.kafka.records import TableRecords
from consumer.targets.kafka.topics import TopicFacts
from consumer.targets.kafka.verifying.topic_reading import Record, TopicPlan, TopicReading
from rowlock.inspect.compare import Difference
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.topics.sides import TopicSides, build_written_table
from rowlock.inspect.verify import PairResult, VerifyLimits, compare_sides
from rowlock.views.target import RowsView
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Row, Table, UniqueIndex

INT, TEXT = ColumnType(kind=Kind.INT, bits=32), ColumnType(kind=Kind.VARCHAR, length=9, charset="utf8mb4")


ACCT = Table(
    db="bank",
    name="acct",
    columns=(Column(name="id", type=INT, nullable=False), Column(name="town", type=TEXT),
     Column(name="n", type=INT)),
    key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
)  # fmt: skip


SALT = "pepper"


def nothing() -> Any:
    raise AssertionError("what the topic holds is asked for")


class VerifiedTopic:
    """A source's table, the topic that it goes to as rowlock writes it, and `verify` of both."""

    def __init__(
        self,
        word: str = "rowlock",
        *,
        source: str = "b1",
        table: Table = ACCT,
        add: dict[str, str] | None = None,
        topic: list[Record] | None = None,
        partitions: int = 3,
        compacted: bool = False,
        **options: Any,
    ) -> None:
        reported = TopicOptions(format=word, kinds=((source, "mysql"),), **options)
        self.pair = TablePair(
            "p",
            source,
            table,
            "feed",
            ResolvedRoute("head", "acct", tuple((add or {}).items()), topic=reported),
        )
        self.rows: dict[int, Row] = {}
        self.topic: list[Record] = [] if topic is None else topic
        self.facts = TopicFacts("head.acct", partitions, 1_000_000, compacted)
        self.written = self._table(table)
        self.added: Row = tuple((add or {}).values())
        self.read = 0
        self.number = 0

    def _table(self, table: Table) -> TargetTable:
        return build_topic_table(
            build_desired_table(table, self.pair.routed), self.pair.routed, self.pair.source, table
        )

    # --- what happens

    def put(self, *row: Any) -> None:
        """The row comes, or changes, and is written."""
        before = self.rows.get(row[0])
        self.rows[row[0]] = row
        self.change(before, row)

    def delete(self, key: int) -> None:
        self.change(self.rows.pop(key), None)

    def change(self, before: Row | None, after: Row | None) -> None:
        self.number += 1
        change = RowChange(
            (self.number, 0), *(None if row is None else row + self.added for row in (before, after)),
            (0, 1, self.number, 0), 1, 1000,
        )  # fmt: skip
        self.emit(
            self.records().yield_records(
                EveryChange(self.written, [change]), Place((0, 1, 1, 0), 1, 1), nothing
            )
        )

    def records(self) -> TableRecords:
        return TableRecords(self.written, self.facts, SALT)

    def emit(self, records: Iterable[Any]) -> None:
        self.topic += [(each.partition, each.key, each.value) for each in records]

    def truncate(self) -> None:
        self.rows.clear()
        self.emit(
            chain(
                *self.records().yield_clear_records(
                    self.pair.routed.where, Place((0, 1, 9, 0), 1, 1), nothing
                )
            )
        )

    def define(self) -> None:
        self.emit(self.records().yield_definition_records(Place((0, 1, 9, 0), 1, 1)))

    # --- the source

    def fetch_rows(self, of: TargetTable, after: Key | None, limit: int, where: Any = None) -> list[Row]:
        keys = sorted(key for key in self.rows if after is None or key > after[0])  # type: ignore[operator]
        return [self.rows[key] for key in keys[:limit]]

    def fetch_keys(self, of: TargetTable, keys: Sequence[Key]) -> list[Row]:
        return [self.rows[key[0]] for key in keys if key[0] in self.rows]  # type: ignore[index]

    # --- verify

    def _new(self) -> Iterator[Record]:
        new, self.read = self.topic[self.read :], len(self.topic)
        return iter(new)

    def open_reading(self) -> closing[TopicReading]:
        """Read the topic from its beginning."""
        self.read = 0
        topic = build_written_table(self.pair).topic
        assert topic is not None
        return closing(TopicReading(TopicPlan(topic, self.facts, self.pair.routed.added, SALT), self._new))

    def verify(self, clock: Clock | None = None, suspects: int = 50) -> PairResult:
        clock = clock or Clock()
        limits = VerifyLimits(15, 4, suspects, clock.now, clock.sleep)
        with self.open_reading() as reading:
            sides = TopicSides(self.pair, cast(RowsView, self), reading, 4)
            return compare_sides(self.pair, sides, limits)


def found(result: PairResult) -> list[tuple[Difference, Key, tuple[str, ...]]]:
    assert result.complete
    return sorted((each.kind, each.key, each.columns) for each in result.findings)


class Clock:
    """Time that only passes while somebody sleeps. `meanwhile`: what happens then."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.at = 0.0
        self.meanwhile = meanwhile

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.meanwhile()
