"""A source's table beside its topic, as `verify` compares them (rowlock/inspect/verify.py): rows of both are digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from consumer.ordering.model import TargetTable
from consumer.tables.router import target_table, topic_table, wanted_table
from consumer.targets.batches import EventReading
from rowlock.inspect.compare import Shape
from rowlock.inspect.pairs import Pair
from rowlock.views.target import RowsView
from schemas.table.model import Key, Kind, Row


class TopicSides:
    """Both ends of a pair. `left`: its source; `reading`: its topic."""

    def __init__(self, pair: Pair, left: RowsView, reading: EventReading, page: int) -> None:
        self._left, self._reading, self.page = left, reading, page
        bare = replace(pair.table, unique=())
        self._source: TargetTable = target_table(bare, bare)
        self._added: Row = tuple(value for _, value in pair.routed.added)
        self._source_key = tuple(reading.primary.index(name) for name in pair.table.key.columns)
        kinds = (Kind.VARCHAR,) * len(reading.names)
        self.shape = Shape(reading.names, kinds, tuple(range(len(reading.primary))))

    def source_pages(self) -> Iterator[dict[Key, Row]]:
        """Yield the rows that the filter lets through."""
        after: Key | None = None
        while rows := self._left.fetch_rows(self._source, after, self.page):
            yield self._expected(rows)
            if len(rows) < self.page:
                return
            after = tuple(rows[-1][i] for i in self._source.key_at)

    def target_pages(self) -> Iterator[Mapping[Key, Row]]:
        self._reading.follow()
        yield from self._reading.pages(self.page)

    def source_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        keys = [tuple(row[i] for i in self._source_key) for row in rows]
        return self._expected(self._left.fetch_keys(self._source, keys)) if keys else {}

    def target_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        self._reading.follow()
        return dict(self._reading.rows(keys))

    def _expected(self, rows: Iterable[Row]) -> dict[Key, Row]:
        return dict(each for row in rows if (each := self._reading.expected(row + self._added)) is not None)


def written_table(pair: Pair) -> TargetTable:
    """Return a pair's table as it is written to its topic."""
    return topic_table(wanted_table(pair.table, pair.routed), pair.routed, pair.source, pair.table)


def unclaimed(pair: Pair, others: Iterable[Pair]) -> str:
    """Return why records do not tell whose rows they are; "": they do. `others`: pairs that write to the same target."""
    topic = pair.routed.topic
    if topic is None or topic.names_origin:
        return ""
    mine = dict(pair.routed.added)
    for other in others:
        theirs = dict(other.routed.added)
        if _to(other) != _to(pair) or _from(other) == _from(pair):
            continue
        if all(theirs.get(name, value) == value for name, value in mine.items()):
            return (
                f"records of format {topic.format} do not say which table they are of, and {other.source}:{other.table.db}.{other.table.name} "
                "goes to the topic, too: nothing was compared; tell them apart by a column of the route (`add`), or take format rowlock or debezium"
            )
    return ""


def _to(pair: Pair) -> tuple[str, str, str]:
    return pair.target, pair.routed.schema, pair.routed.table


def _from(pair: Pair) -> tuple[str, str, str, str]:
    return pair.pipeline, pair.source, pair.table.db, pair.table.name
