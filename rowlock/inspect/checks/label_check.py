"""Check of rows of ENUM and SET columns with an empty label that versions before 0.1.0 have written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from consumer.tables.stored import StoredDefinition
from rowlock.inspect.checks.debezium_check import UNNAMED_LABEL_REMEDY
from schemas.findings import Finding, add_exclusion, format_copy_remedy
from schemas.table.model import list_ambiguous_columns
from schemas.table.names import format_table_text


def yield_ambiguous_row_findings(
    units: Iterable[StoredDefinition], debezium: Collection[tuple[str, str]] = ()
) -> Iterator[Finding]:
    """Yield a warning for each unit with rows in the target that were written as ambiguous label texts.

    `units`: the units' definitions in the target. `debezium`: (database, name) of the tables with topics that
    Debezium writes.
    """
    for table in (each.table for each in units):
        place = (table.db, table.name)
        copy_remedy = f"start capture, which copies the table (repair: stop: {format_copy_remedy(*place)})"
        if columns := list_ambiguous_columns(table):
            yield Finding(
                "warning",
                f"table {format_table_text(*place)}",
                f"column {', '.join(columns)} has an empty label, and the target's rows were written as "
                "labels, which can mean two values: some may be wrong",
                add_exclusion(UNNAMED_LABEL_REMEDY, *place) if place in debezium else copy_remedy,
            )
