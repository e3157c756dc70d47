"""Topics that several tables write: whether equal keys of two of them are kept apart. Pure.

Keys are compared by Kafka, not by rowlock, and no lock reaches across topics: where two tables have equal keys, the record of one stands in
the place of the other's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consumer.ordering.model import UnitState
from consumer.tables.router import Routed, TableRoute, resolve
from consumer.tables.stored import decode_stored
from schemas.table.model import Table
from schemas.wire.records import place_of_topic

REMEDY = 'add a column that tells them apart and is in the key (add: {branch: "{source}"}; where the route has a `key`, write it there, too), or write to another topic'


def mixed(table: Table, mine: Routed, theirs: Routed) -> str:
    """Return what would go wrong with rows of `table` (in the source's names) in the topic that `theirs` writes, too; "": nothing."""
    if mine.topic is None:
        return ""
    other = dict(theirs.added)
    telling = {name for name, value in mine.added if other.get(name, value) != value}
    if not telling and not mine.topic.names_origin:
        return f"records of format {mine.topic.format} do not say whose row they are, and a TRUNCATE or copy of one takes the other's rows along"
    keys = [set(each.topic.key) for each in (mine, theirs) if each.topic is not None and each.topic.key]
    if all(telling & key for key in keys) and telling:
        return ""
    # a routing key that does not hold the key of the source's table is one of many rows anyway, which records tell apart
    many = any(not key.issuperset(table.key.columns) for key in keys)
    if many and mine.topic.format != "plain":
        return ""
    return "equal keys of both are one key in the topic"


def shared_with(
    table: Table, mine: Routed, source: str, units: Mapping[str, UnitState], routes: Iterable[TableRoute]
) -> str:
    """Return which other unit of the pipeline `table` of `source` cannot share its topic with, and why; "": none that was taken over.

    `units`: topic → state, of all of them. A topic's name ends with its source, database and table.
    """
    every = tuple(routes)
    for topic, state in sorted(units.items()):
        parts = topic.rsplit(".", 3)
        if len(parts) < 4:
            continue
        # two that begin at once have no definitions yet: one of them sees the other, which was taken over before
        db, name = place_of_topic(topic)
        if state.definition is not None:
            stored = decode_stored(state.definition)
            if stored.emptied is not None:
                continue  # its table was dropped, and its rows were deleted here; should it come again, it is what is judged
            db, name = stored.table.db, stored.table.name
        if (parts[1], db, name) == (source, table.db, table.name):
            continue
        theirs = resolve(every, parts[1], db, name)
        if theirs is None or (theirs.schema, theirs.table) != (mine.schema, mine.table):
            continue
        if why := mixed(table, mine, theirs):
            return f"{parts[1]}:{db}.{name} writes it, too, and {why}: {REMEDY}"
    return ""
