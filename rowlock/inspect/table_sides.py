"""A source's table beside its table in the target database, as `verify` compares them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from consumer.ordering.model import TargetTable
from consumer.tables.router import target_table, wanted_table, written_part
from consumer.tables.stored import decode_stored
from rowlock.errors import CommandError
from rowlock.inspect.compare import Shape
from rowlock.inspect.pairs import Pair
from rowlock.views.target import RowsView, TargetView, known_units, rows_with
from schemas.table.model import Key, Row
from schemas.wire.records import source_of


@dataclass(frozen=True, slots=True)
class Sides:
    """Both ends of a pair in two databases. Rows and keys are the target's: the added columns are put on and taken off here."""

    left: RowsView
    right: TargetView
    source: TargetTable
    target: TargetTable
    shape: Shape
    added: tuple[str, ...]
    where: Mapping[str, str] | None
    page: int
    source_key: tuple[int, ...]  # ordinals in the target's row of the source's key columns

    @classmethod
    def open(cls, pair: Pair, left: RowsView, right: TargetView, page: int) -> Sides:
        """Raises TargetConfigError when the target table does not fit, CommandError when it is missing."""
        names = _target_names(pair, right)
        real = right.read_table(pair.routed.schema, pair.routed.table)
        if real is None:
            raise CommandError(f"the target has no table {pair.routed.schema}.{pair.routed.table}")
        wanted = written_part(wanted_table(pair.table, pair.routed, names), real, pair.routed.policy)
        target = target_table(wanted, real, pair.routed.added_names)
        written = set(wanted.column_names)
        columns = tuple(each for each in pair.table.columns if names.get(each.name, each.name) in written)
        shown = replace(pair.table, columns=columns, unique=())
        source = target_table(shown, shown)
        values = tuple(value for _, value in pair.routed.added)
        at = shown.indexes_of(shown.key.columns)
        return cls(left, right, source, target, Shape.of(target), values, pair.routed.where, page, at)

    def source_pages(self) -> Iterator[dict[Key, Row]]:
        after: Row | None = None
        while rows := self.left.fetch_rows(self.source, self._key_of(after), self.page):
            whole = [row + self.added for row in rows]
            yield self.shape.by_key(whole)
            if len(rows) < self.page:
                return
            after = whole[-1]

    def target_pages(self) -> Iterator[dict[Key, Row]]:
        where = dict(self.where) if self.where else None
        after: Key | None = None
        while rows := self.right.fetch_rows(self.target, after, self.page, where):
            yield self.shape.by_key(rows)
            if len(rows) < self.page:
                return
            after = self.shape.key(rows[-1])

    def source_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        """Return the source's present rows that have the keys of `rows`, by target key."""
        keys = [key for row in rows if (key := self._key_of(row))]
        return self.shape.by_key(row + self.added for row in self.left.fetch_keys(self.source, keys))

    def target_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        return self.shape.by_key(rows_with(self.right, self.target, list(keys)))

    def _key_of(self, row: Row | None) -> Key | None:
        return None if row is None else tuple(row[i] for i in self.source_key)


def _target_names(pair: Pair, target: TargetView) -> Mapping[str, str]:
    """Return the columns of the source that have another name in the target, by what the unit has stored."""
    place = (pair.table.db, pair.table.name)
    for topic, state in known_units(target, pair.pipeline).items():
        stored = (
            decode_stored(state.definition) if state.definition and source_of(topic) == pair.source else None
        )
        if stored is not None and (stored.table.db, stored.table.name) == place:
            return stored.names
    return {}
