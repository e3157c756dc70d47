"""Objects through which a statement affects other tables than those it names: views, triggers, routines
and foreign keys of the source.

They are read in bulk with the user's privileges. `SourceObjects.visibility` describes for which objects a
missing entry proves that there is none; where the user cannot see, a missing entry must be taken as
"unknown".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from producer.sources.catalog import Catalog
from producer.sources.grants import CatalogVisibility
from producer.sources.table_catalog import TableName
from schemas.io.mysql_catalog import SYSTEM_SCHEMAS

_SYSTEM = ", ".join(f"'{name}'" for name in sorted(SYSTEM_SCHEMAS))
_TABLES = f"""
SELECT table_schema AS db, table_name AS name, table_type AS kind FROM information_schema.tables
WHERE table_schema NOT IN ({_SYSTEM})"""
_TRIGGERS = f"""
SELECT event_object_schema AS db, event_object_table AS name, trigger_schema AS own, action_statement AS body
FROM information_schema.triggers WHERE event_object_schema NOT IN ({_SYSTEM})"""
_VIEWS = f"""
SELECT table_schema AS db, table_name AS name, view_definition AS body FROM information_schema.views
WHERE table_schema NOT IN ({_SYSTEM})"""
_ROUTINES = f"""
SELECT routine_schema AS db, routine_name AS name, IF(routine_body = 'EXTERNAL', NULL,
  routine_definition) AS body
FROM information_schema.routines WHERE routine_schema NOT IN ({_SYSTEM})"""
_KEYS = f"""
SELECT constraint_schema AS db, table_name AS name, unique_constraint_schema AS parent_db,
  referenced_table_name AS parent
FROM information_schema.referential_constraints WHERE constraint_schema NOT IN ({_SYSTEM})
AND (delete_rule NOT IN ('NO ACTION', 'RESTRICT') OR update_rule NOT IN ('NO ACTION', 'RESTRICT'))"""


@dataclass(frozen=True)
class SourceObjects:
    """The objects of the server that the user sees.

    `kinds`: table or view → "table" or "view". `triggers`: table → (schema, body) of each. `views`: view
    → its SELECT, None: hidden. `routines`: procedure or function → its body, None: hidden, or not SQL.
    `cascades`: parent → the children with rows that change with its own (ON DELETE/UPDATE CASCADE, SET NULL
    …).
    """

    visibility: CatalogVisibility
    kinds: dict[TableName, str] = field(default_factory=dict)
    triggers: dict[TableName, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    views: dict[TableName, str | None] = field(default_factory=dict)
    routines: dict[TableName, str | None] = field(default_factory=dict)
    cascades: dict[TableName, frozenset[TableName]] = field(default_factory=dict)


def read_objects(catalog: Catalog) -> SourceObjects:
    """Read what the user sees of the whole server, in six queries. Raises pymysql errors.

    The result is not one snapshot: a caller that relies on it must prove that no statement changed it
    meanwhile, as for definitions.
    """
    query = catalog.session.run_query
    triggers: dict[TableName, list[tuple[str, str]]] = defaultdict(list)
    for row in query(_TRIGGERS):
        triggers[row["db"], row["name"]].append((row["own"], str(row["body"])))
    cascades: dict[TableName, set[TableName]] = defaultdict(set)
    for row in query(_KEYS):
        cascades[row["parent_db"], row["parent"]].add((row["db"], row["name"]))
    return SourceObjects(
        visibility=CatalogVisibility.from_grants(
            catalog.server.read_grants(), catalog.session.flavour.rights
        ),
        kinds={(row["db"], row["name"]): _normalize_kind(row["kind"]) for row in query(_TABLES)},
        triggers={name: tuple(found) for name, found in triggers.items()},
        views={(row["db"], row["name"]): row["body"] or None for row in query(_VIEWS)},
        routines=_join_bodies(query(_ROUTINES)),
        cascades={parent: frozenset(children) for parent, children in cascades.items()},
    )


def _join_bodies(rows: Iterable[Mapping[str, Any]]) -> dict[TableName, str | None]:
    """Join the bodies of one name: a procedure and a function may share it, and a package has two.

    None: one is hidden.
    """
    found: dict[TableName, str | None] = {}
    for row in rows:
        name, body = (row["db"], row["name"]), row["body"] or None
        before = found.get(name, "")
        found[name] = None if body is None or before is None else f"{before};\n{body}"
    return found


def _normalize_kind(shown: str) -> str:
    return "view" if "VIEW" in shown.upper() else "table"
