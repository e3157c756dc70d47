"""Names that a target's server cannot have: the error names the key of the route that gives another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from consumer.errors import TargetConfigError

ExplainName = Callable[[str], str]
"""A name → why the server cannot have it; "": it can."""


def require_table_names(place: str, names: Iterable[str], explain: ExplainName) -> None:
    """Raise TargetConfigError for names of schemas and tables that the server cannot have."""
    for name in names:
        if why := explain(name):
            raise TargetConfigError(
                f"target table {place}: {why}",
                "give the table another name by a route of its own (`to`), or leave it out",
            )


def require_column_names(place: str, names: Iterable[str], explain: ExplainName) -> None:
    """Raise TargetConfigError for names of columns that the server cannot have."""
    for name in names:
        if why := explain(name):
            raise TargetConfigError(
                f"target table {place}: column {name}: {why}",
                "give the column another name in the route (rename: {columns: {COLUMN: NAME}}), or leave the "
                "table out",
            )
