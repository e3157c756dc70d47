"""Topics that several tables write: whether equal keys of two tables can be distinguished. Without I/O.

Kafka compares keys, and no lock covers several topics. If two tables have equal keys, the record of one
replaces the other table's row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from consumer.ordering.model import UnitState
from consumer.tables.router import ResolvedRoute, TableRoute, resolve_route
from consumer.tables.stored import decode_stored
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.table.names import TableName
from schemas.wire.records import parse_topic_origin

SHARED_TOPIC_REMEDY = (
    'add a column that distinguishes them and is in the key (add: {branch: "{source}"}; if the route '
    "has a `key`, write it there, too), or write to another topic"
)
UNUSED_TOPIC_REMEDY = (
    "if that table no longer exists, add a route that sends it to another topic, above the "
    "route that matches it now"
)


def explain_key_clash(
    table: Table, mine: ResolvedRoute, theirs: ResolvedRoute, there: Table | None = None
) -> str:
    """Return the problem of rows of `table` in the topic that `theirs` writes too; "" if there is none.

    `table`: in the source's names. `there`: their table; None if it is not known yet: it is then assumed
    to have the same key. The answer is symmetric.
    """
    formats = [each.topic for each in (mine, theirs) if each.topic is not None]
    if len(formats) < 2:
        return ""
    other = dict(theirs.added)
    distinguishing = {name for name, value in mine.added if other.get(name, value) != value}
    nameless = [each.format for each in formats if not each.names_origin]
    if nameless and not distinguishing:
        return (
            f"records of format {nameless[0]} do not contain the name of the row's table, so a TRUNCATE or "
            "copy of one table would also remove the other's rows"
        )
    sides = ((mine, table), (theirs, there or table))
    one, two = (_list_key_columns(*side) for side in sides)
    if one != two or distinguishing & one:
        return ""
    # A routing key without the key of the source's table has many rows anyway, and their records
    # distinguish them.
    if all(not one.issuperset(_list_primary(*side)) for side in sides) and "plain" not in nameless:
        return ""
    return "rows of the two tables with equal keys would have the same key in the topic"


def _list_key_columns(routed: ResolvedRoute, table: Table) -> set[str]:
    """Return the columns of a record's key, which contains them by name."""
    key = () if routed.topic is None else routed.topic.key
    return set(key or (*routed.added_names, *_list_primary(routed, table)))


def _list_primary(routed: ResolvedRoute, table: Table) -> list[str]:
    """Return the columns of the table's key by their names in the topic."""
    renames = routed.select_renames(table)
    return [renames.get(name, name) for name in table.key.columns]


def find_sharing_problem(
    table: Table,
    mine: ResolvedRoute,
    topic: str,
    writers: Mapping[str, tuple[UnitState, int]],
    routes: Iterable[TableRoute],
    *,
    table_of: Callable[[str, str], TableName | None] = lambda _source, _topic: None,
) -> Problem | None:
    """Return the unit of the pipeline with which `table` cannot share its topic, and why; None if there
    is none.

    `topic`: of this table's own unit. `writers`: see EventTables. `table_of`: returns the table of a
    source's topic, None if it is not known. Only units that were taken over are considered. Units of a
    source that the pipeline no longer has, of another prefix, or of a table that was dropped and emptied
    are ignored, because they write nothing.
    """
    every, own = tuple(routes), parse_topic_origin(topic)
    sources = {} if mine.topic is None else dict(mine.topic.kinds)
    for other, (state, offset) in sorted(writers.items()):
        origin = parse_topic_origin(other)
        if own is None or origin is None or origin[0] != own[0] or origin[1] not in sources:
            continue
        source, there = origin[1], None
        if state.definition is not None:
            stored = decode_stored(state.definition)
            there, place = stored.table, (stored.table.db, stored.table.name)
            if stored.emptied_at is not None and offset < stored.emptied_at:
                continue
        # two that begin at once have no definitions yet: one of them sees the other, which was taken
        # over before
        elif (found := table_of(source, other)) is not None:
            place = found
        else:
            continue
        if (source, *place) == (own[1], table.db, table.name):
            continue
        theirs = resolve_route(every, source, *place)
        if theirs is None or (theirs.schema, theirs.table) != (mine.schema, mine.table):
            continue
        if why := explain_key_clash(table, mine, theirs, there):
            return Problem(
                f"{source}:{'.'.join(place)} writes it, too, and {why}",
                f"{SHARED_TOPIC_REMEDY}; {UNUSED_TOPIC_REMEDY}",
            )
    return None
