"""Target tables that several units of a pipeline write: whether their rows can be distinguished. Without I/O.

No lock covers several topics. If a unique index has no column of `add:` in which two units differ, a row of
the one replaces a row of the other. For topics see consumer.tables.shared_topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from consumer.ordering.model import UnitState
from consumer.tables.router import ResolvedRoute, TableRoute, resolve_route
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.records import parse_topic_origin


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
    units: Mapping[str, UnitTable], routes: Sequence[TableRoute]
) -> dict[tuple[str, str], dict[str, UnitTable]]:
    """Return (schema, name) of each target table → topic → unit, of the units whose routes lead there."""
    found: dict[tuple[str, str], dict[str, UnitTable]] = {}
    for topic, unit in units.items():
        origin = parse_topic_origin(topic)
        routed = None if origin is None else resolve_route(routes, origin[1], unit.db, unit.name)
        if routed is not None:
            found.setdefault((routed.schema, routed.table), {})[topic] = unit
    return found


def find_shared_table_problem(
    table: Table,
    mine: ResolvedRoute,
    topic: str,
    units: Mapping[str, UnitTable],
    routes: Sequence[TableRoute],
) -> Problem | None:
    """Return another unit whose rows are in `table`, the target table of the unit `topic`, and cannot be
    distinguished from this unit's rows, and why; None if there is none.

    `units`: those of the pipeline. A unit that waits for the copy into a new target table has no rows there
    yet: it finds the other one, which continues.
    """
    own, at = parse_topic_origin(topic), (mine.schema, mine.table)
    for other, its in sorted(units.items()):
        origin = parse_topic_origin(other)
        if other == topic or own is None or origin is None or origin[0] != own[0]:
            continue
        theirs = resolve_route(routes, origin[1], its.db, its.name)
        if theirs is None or (theirs.schema, theirs.table) != at or its.place not in (None, at):
            continue
        values = dict(theirs.added)
        apart = {name for name, value in mine.added if values.get(name, value) != value}
        for index in (table.key, *table.unique):
            if apart.isdisjoint(index.columns):
                return Problem(
                    f"target table {mine.schema}.{mine.table}: {origin[1]}:{its.db}.{its.name} writes it, "
                    f"too, and unique index {index.name} ({', '.join(index.columns)}) contains no column "
                    "that distinguishes the two (`add`): rows of the two would conflict",
                    "route one of the two to another table, or add a column whose values differ to the "
                    "routes (`add`) and put it into every unique index of the table",
                )
    return None
