"""Target tables that several units of a pipeline write: whether their rows can be distinguished.

No lock covers several topics. If a unique index has no column of `add:` in which two units differ, a row of
the one replaces a row of the other. Names and values are compared as the target compares them, or more
coarsely: two tables or values that may be equal count as equal. For topics see consumer.tables.shared_topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from consumer.ordering.fold import get_part_collation, make_value_fold
from consumer.ordering.model import UnitState
from consumer.tables.router import ResolvedRoute, TableRoute, resolve_route
from consumer.targets.base import UnitTarget
from schemas.problems import Problem
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import NameRules, TableName
from schemas.wire.records import parse_topic_origin, parse_topic_source


class UnitTable(msgspec.Struct, frozen=True):
    """The tables of a unit by its stored definition."""

    db: str = msgspec.field(name="db")
    name: str = msgspec.field(name="name")
    place: tuple[str, str] | None = msgspec.field(name="place", default=None)
    """See StoredDefinition.target_place."""


def decode_unit_tables(units: Mapping[str, UnitState], sources: Collection[str]) -> dict[str, UnitTable]:
    """Return topic → tables of the units that have a definition; the definitions' columns are not decoded.

    `sources`: of the pipeline. Units of others are left out, because they write nothing.
    """
    return {
        topic: msgspec.json.decode(state.definition, type=UnitTable)
        for topic, state in units.items()
        if state.definition is not None
        and (origin := parse_topic_origin(topic)) is not None
        and origin[1] in sources
    }


def group_by_target(
    units: Mapping[str, UnitTable], routes: Sequence[TableRoute], same: NameRules
) -> dict[TableName, dict[str, UnitTable]]:
    """Return (schema, name) of each target table → topic → unit, of the units whose routes lead there.

    `same`: how the target compares names of tables; the names are in its normal form.
    """
    found: dict[TableName, dict[str, UnitTable]] = {}
    for topic, unit in units.items():
        origin = parse_topic_origin(topic)
        routed = None if origin is None else resolve_route(routes, origin[1], unit.db, unit.name)
        if routed is not None:
            found.setdefault(same.normalize_table((routed.schema, routed.table)), {})[topic] = unit
    return found


class _KnownPlaces(NamedTuple):
    routes: Sequence[TableRoute]
    places: dict[str, TableName | None]
    """Topic → (schema, name) of its target table in the target's normal form; None: no route."""


class SharedTableReader:
    """Reads the units of a pipeline that may share a target table with another one.

    There may be thousands of units, and each asks for its sharers when it begins. So what never changes is
    remembered: the target table of a topic while the routes stay, because a topic has one table for ever. It
    can be used from any thread.
    """

    def __init__(self) -> None:
        self._known = _KnownPlaces((), {})

    def read_sharers(
        self,
        session: UnitTarget,
        pipeline: str,
        sources: Collection[str],
        routes: Sequence[TableRoute],
        place: TableName,
    ) -> dict[str, UnitTable]:
        """Return topic → tables of the units with a definition, as it is now, and a route to `place`."""
        same, known = session.table_names, self._known
        if known.routes != routes:
            known = self._known = _KnownPlaces(routes, {})
        places = known.places
        defined = [
            topic
            for topic in session.list_defined_topics(pipeline)
            if (origin := parse_topic_origin(topic)) is not None and origin[1] in sources
        ]
        new = [topic for topic in defined if topic not in places]
        for topic, unit in decode_unit_tables(session.read_unit_states(pipeline, new), sources).items():
            routed = resolve_route(routes, parse_topic_source(topic), unit.db, unit.name)
            places[topic] = None if routed is None else same.normalize_table((routed.schema, routed.table))
        at = same.normalize_table(place)
        there = [topic for topic in defined if places.get(topic) == at]
        return decode_unit_tables(session.read_unit_states(pipeline, there), sources)


def find_shared_table_problem(
    table: Table,
    mine: ResolvedRoute,
    topic: str,
    units: Mapping[str, UnitTable],
    routes: Sequence[TableRoute],
    *,
    tables: NameRules,
    columns: NameRules,
) -> Problem | None:
    """Return another unit whose rows are in `table`, the target table of the unit `topic`, and cannot be
    distinguished from this unit's rows, and why; None if there is none.

    `units`: those of the pipeline; `tables`, `columns`: how the target compares their names. A unit that
    waits for the copy into a new target table has no rows there yet: it finds the other one, which continues.
    """
    own, at = parse_topic_origin(topic), tables.normalize_table((mine.schema, mine.table))
    for other, its in sorted(units.items()):
        origin = parse_topic_origin(other)
        if other == topic or own is None or origin is None or origin[0] != own[0]:
            continue
        theirs = resolve_route(routes, origin[1], its.db, its.name)
        if theirs is None or tables.normalize_table((theirs.schema, theirs.table)) != at:
            continue
        if its.place is not None and tables.normalize_table(its.place) != at:
            continue
        if (index := find_mixing_index(table, mine, theirs, columns)) is not None:
            return Problem(
                f"target table {mine.schema}.{mine.table}: {origin[1]}:{its.db}.{its.name} writes it, "
                f"too, and {explain_mixing_index(table, index, mine, theirs, columns)}",
                MIXED_ROWS_REMEDY,
            )
    return None


MIXED_ROWS_REMEDY = (
    "route one of the two to another table, or add a column whose values differ to the "
    "routes (`add`) and put it into every unique index of the table"
)


def find_mixing_index(
    table: Table, one: ResolvedRoute, other: ResolvedRoute, same: NameRules
) -> UniqueIndex | None:
    """Return a unique index of the target table in which rows of two routes may be equal; None: in each a
    column of `add:` distinguishes them. `same`: how the target compares names of columns.
    """
    for index in (table.key, *table.unique):
        mine, theirs = (fold_added_values(table, index, each, same) for each in (one, other))
        if all(theirs.get(name, value) == value for name, value in mine.items()):
            return index
    return None


def fold_added_values(
    table: Table, index: UniqueIndex, routed: ResolvedRoute, same: NameRules
) -> dict[str, bytes]:
    """Return column → value of the columns of `add:` in a unique index of the target table, each so that two
    values that the index considers equal are equal.
    """
    added = {same.fold_name(name): value for name, value in routed.added}
    return {
        name: make_value_fold(table, part)(added[name])
        for part in index.parts
        if (name := same.fold_name(part.column)) in added
    }


def explain_mixing_index(
    table: Table, index: UniqueIndex, one: ResolvedRoute, other: ResolvedRoute, same: NameRules
) -> str:
    """Return why the unique index does not distinguish the rows of two routes."""
    theirs = {same.fold_name(name): value for name, value in other.added}
    parts = {same.fold_name(part.column): part for part in index.parts}
    values = [
        f"{value!r} and {theirs[folded]!r} may be one value of {name} there"
        + (f" ({collation})" if (collation := get_part_collation(table, parts[folded])) else "")
        for name, value in one.added
        if (folded := same.fold_name(name)) in parts and theirs.get(folded, value) != value
    ]
    return (
        f"unique index {index.name} ({', '.join(index.columns)}) contains no column that distinguishes the "
        f"two (`add`){': ' if values else ''}{', '.join(values)}: rows of the two would conflict"
    )
