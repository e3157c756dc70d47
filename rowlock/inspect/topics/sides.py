"""A source table and its topic, as `verify` compares them (rowlock/inspect/verify.py): the rows of both
are digests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec.structs import replace

from consumer.ordering.model import TargetTable
from consumer.tables.router import build_desired_table, build_target_table, build_topic_table
from consumer.targets.batches import EventReading
from rowlock.inspect.compare import TableShape
from rowlock.inspect.pairs import TablePair
from rowlock.views.target import RowsView
from schemas.table.model import Key, Kind, Row


class TopicSides:
    """Both sides of a pair. `left`: its source; `reading`: its topic."""

    def __init__(self, pair: TablePair, left: RowsView, reading: EventReading, page: int) -> None:
        self._left, self._reading, self.page = left, reading, page
        bare = replace(pair.table, unique=())
        self._source: TargetTable = build_target_table(bare, bare)
        self._added: Row = tuple(value for _, value in pair.routed.added)
        names = pair.routed.select_renames(pair.table)
        self._source_key = tuple(
            reading.primary.index(names.get(name, name)) for name in pair.table.key.columns
        )
        kinds = (Kind.VARCHAR,) * len(reading.names)
        self.shape = TableShape(reading.names, kinds, tuple(range(len(reading.primary))))

    def yield_source_pages(self) -> Iterator[dict[Key, Row]]:
        """Yield the rows that pass the filter."""
        after: Key | None = None
        while rows := self._left.fetch_rows(self._source, after, self.page):
            yield self._build_expected_rows(rows)
            if len(rows) < self.page:
                return
            after = tuple(rows[-1][i] for i in self._source.key_at)

    def yield_target_pages(self) -> Iterator[Mapping[Key, Row]]:
        self._reading.follow_topic()
        yield from self._reading.read_pages(self.page)

    def fetch_source_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        keys = [tuple(row[i] for i in self._source_key) for row in rows]
        return self._build_expected_rows(self._left.fetch_keys(self._source, keys)) if keys else {}

    def fetch_target_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        self._reading.follow_topic()
        return dict(self._reading.read_rows(keys))

    def find_kept_keys(self, _keys: Iterable[Key]) -> Collection[Key]:
        """Return nothing: no topic keeps rows that the source removed."""
        return ()

    def _build_expected_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        return dict(
            each for row in rows if (each := self._reading.build_expected_row(row + self._added)) is not None
        )


def build_written_table(pair: TablePair) -> TargetTable:
    """Return a pair's table as it is written to its topic."""
    return build_topic_table(
        build_desired_table(pair.table, pair.routed), pair.routed, pair.source, pair.table
    )


def explain_unclaimed(pair: TablePair, others: Iterable[TablePair]) -> str:
    """Return why the records of a topic cannot be assigned to their tables; "": they can. `others`:
    pairs with the same target.
    """
    topic = pair.routed.topic
    if topic is None or topic.names_origin:
        return ""
    mine = dict(pair.routed.added)
    for other in others:
        theirs = dict(other.routed.added)
        if _build_target_place(other) != _build_target_place(pair) or _build_source_place(
            other
        ) == _build_source_place(pair):
            continue
        if all(theirs.get(name, value) == value for name, value in mine.items()):
            return (
                f"records of format {topic.format} do not name their table, and "
                f"{other.source}:{other.table.db}.{other.table.name} also goes to the topic: "
                "nothing was compared; distinguish them by a column of the route (`add`), or "
                "use format rowlock or debezium"
            )
    return ""


def _build_target_place(pair: TablePair) -> tuple[str, str, str]:
    return pair.target, pair.routed.schema, pair.routed.table


def _build_source_place(pair: TablePair) -> tuple[str, str, str, str]:
    return pair.pipeline, pair.source, pair.table.db, pair.table.name
