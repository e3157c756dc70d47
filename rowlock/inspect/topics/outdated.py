"""Messages about rows in a topic of the target that an earlier route has written and that have not been
rewritten. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.findings import START_OVER, format_copy_remedy


def explain_outdated(options: Sequence[str]) -> str:
    """Return the state of the rows, given the changed options of the route."""
    left = {
        "where": "rows that the filter let in are missing and those that it leaves out are still there",
        "columns": "rows have the columns that were chosen before",
        "masks": "values that should be hidden are still there",
    }
    differences = "; ".join(left[name] for name in sorted(options))
    return (
        f"`{'`, `'.join(sorted(options))}` of the route changed, and until its rows are written again the "
        f"topic is as before: {differences}"
    )


def explain_rewrite(db: str, table: str, *, debezium: bool) -> str:
    """Return the remedy for a table of the source. `debezium`: whether Debezium writes the source's
    topics.
    """
    if debezium:
        return f"{START_OVER} with another topic"
    return (
        f"{format_copy_remedy(db, table)}, which writes all rows and deletes those that the filter leaves out"
    )
