"""A source table and its target table in a database, as `verify` compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from consumer.ordering.model import ApplyUnit, TargetTable, UnitState, format_entry_key
from consumer.tables.column_names import omit_unwritten_columns
from consumer.tables.router import build_stored_table, build_target_table, select_written_columns
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.session import SqlSession
from rowlock.errors import CommandError
from rowlock.inspect.compare import TableShape
from rowlock.inspect.pairs import TablePair
from rowlock.views.target import RowsView, fetch_rows_by_key, read_known_units
from schemas.table.model import Key, Row
from schemas.wire.records import parse_topic_source


@dataclass(frozen=True, slots=True)
class TableSides:
    """Both sides of a pair in two databases. Rows and keys are the target's: added columns are appended
    and removed here.
    """

    left: RowsView
    right: SqlSession
    source: TargetTable
    target: TargetTable
    shape: TableShape
    added: tuple[str, ...]
    where: Mapping[str, str] | None
    page: int
    source_key: tuple[int, ...]  # ordinals of the source's key columns in the target's row
    keeper: ApplyUnit | None
    """The unit, if it may keep rows that the source removed (`partitions: keep`)."""

    @classmethod
    def open(cls, pair: TablePair, left: RowsView, right: SqlSession, page: int) -> TableSides:
        """Open both sides. Raises TargetConfigError if the target table does not fit, CommandError if it
        does not exist.
        """
        units = read_known_units(right, pair.pipeline)
        names = find_target_names(pair, units)
        real = right.read_table(pair.routed.schema, pair.routed.table)
        if real is None:
            raise CommandError(f"the target has no table {pair.routed.schema}.{pair.routed.table}")
        expected = select_written_columns(
            build_stored_table(StoredDefinition(pair.table, names), pair.routed), real, pair.routed.policy
        )
        target = build_target_table(expected, real, pair.routed.added_names)
        shown = replace(omit_unwritten_columns(pair.table, names, expected.column_names), unique=())
        source = build_target_table(shown, shown)
        values = tuple(value for _, value in pair.routed.added)
        at = shown.find_ordinals(shown.key.columns)
        return cls(
            left, right, source, target, TableShape.from_table(target), values, pair.routed.where, page, at,
            _find_keeper(pair, units),
        )  # fmt: skip

    def yield_source_pages(self) -> Iterator[dict[Key, Row]]:
        after: Row | None = None
        while rows := self.left.fetch_rows(self.source, self._build_key(after), self.page):
            whole = [row + self.added for row in rows]
            yield self.shape.map_by_key(whole)
            if len(rows) < self.page:
                return
            after = whole[-1]

    def yield_target_pages(self) -> Iterator[dict[Key, Row]]:
        where = dict(self.where) if self.where else None
        after: Key | None = None
        while rows := self.right.fetch_rows(self.target, after, self.page, where):
            yield self.shape.map_by_key(rows)
            if len(rows) < self.page:
                return
            after = self.shape.build_key(rows[-1])

    def fetch_source_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        """Return the source's present rows with the keys of `rows`, by target key."""
        keys = [key for row in rows if (key := self._build_key(row))]
        return self.shape.map_by_key(row + self.added for row in self.left.fetch_keys(self.source, keys))

    def fetch_target_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        return self.shape.map_by_key(fetch_rows_by_key(self.right, self.target, list(keys)))

    def find_kept_keys(self, keys: Iterable[Key]) -> set[Key]:
        """Return those of `keys` whose rows the target keeps although the source removed them."""
        if self.keeper is None:
            return set()
        texts, place = (
            {format_entry_key(key): key for key in keys},
            f"{self.target.schema}.{self.target.name}",
        )
        return {texts[text] for text in self.right.find_kept_keys(self.keeper, place, list(texts))}

    def _build_key(self, row: Row | None) -> Key | None:
        return None if row is None else tuple(row[i] for i in self.source_key)


def find_target_names(pair: TablePair, units: Mapping[str, UnitState]) -> Mapping[str, str]:
    """Return the source's columns that have another name in the target, by the unit's stored definition, or
    by the route before there is one.

    `units`: topic → state of the pipeline's units.
    """
    renames = pair.routed.select_renames(pair.table)
    found = _find_unit(pair, units)
    if found is None:
        return renames
    stored = found[1]
    new = {*pair.table.column_names}.difference(stored.table.column_names)
    return {name: there for name, there in renames.items() if name in new} | dict(stored.names)


def _find_unit(pair: TablePair, units: Mapping[str, UnitState]) -> tuple[str, StoredDefinition] | None:
    """Return the topic and the stored definition of the pair's unit; None if it has no definition yet."""
    place = (pair.table.db, pair.table.name)
    for topic, state in units.items():
        if state.definition and parse_topic_source(topic) == pair.source:
            stored = decode_stored(state.definition)
            if (stored.table.db, stored.table.name) == place:
                return topic, stored
    return None


def _find_keeper(pair: TablePair, units: Mapping[str, UnitState]) -> ApplyUnit | None:
    """Return the pair's unit if its route keeps rows that the source removed, and there may be any."""
    found = _find_unit(pair, units) if pair.routed.keeps_removed_rows else None
    return None if found is None or not found[1].has_kept_rows else ApplyUnit(pair.pipeline, found[0])
