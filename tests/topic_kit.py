"""Topics of tests: whose they are, where every table has its usual name."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.table.names import TableName
from schemas.wire.records import unescaped
from schemas.wire.topic_names import OWN_TOPICS


def usual_tables(topics: Iterable[str]) -> dict[str, TableName]:
    """Return topic → table, as the records of capture name them."""
    found = {}
    for topic in topics:
        parts = topic.rsplit(".", 2)
        if topic.count(".") >= 3 and parts[-1] not in OWN_TOPICS:
            found[topic] = unescaped(parts[1]), unescaped(parts[2])
    return found
