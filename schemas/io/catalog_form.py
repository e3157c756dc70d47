"""The form of a server's catalog: the columns of information_schema that only some versions of MySQL and
MariaDB have, and the names of what the others have instead.

Columns are asked for, because forks have the version number of one server and the catalog of another. Only
what no column shows follows from the version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from schemas.io.server_errors import parse_server_version
from schemas.table.collations import own_name

#: Returns VERSION(), and "table.column" of those below that the server has, joined by commas.
READ_FORM = """
SELECT VERSION(), GROUP_CONCAT(LOWER(CONCAT(table_name, '.', column_name)))
FROM information_schema.columns WHERE table_schema = 'information_schema'
AND table_name IN ('COLUMNS', 'STATISTICS', 'COLLATION_CHARACTER_SET_APPLICABILITY')
AND column_name IN ('SRS_ID', 'GENERATION_EXPRESSION', 'EXPRESSION', 'FULL_COLLATION_NAME', 'ID')"""

_ABSENT = "NULL"
_APPLICABILITY = "collation_character_set_applicability"
_QUOTED_DEFAULTS = (10, 2, 7)


class CatalogForm(NamedTuple):
    """The SQL expressions and meanings in which the catalogs of servers differ."""

    srs_id: str
    """Of columns: since MySQL 8.0.3."""
    generation_expression: str
    """Of columns: since MySQL 5.7.6 and MariaDB 10.2.5."""
    index_expression: str
    """Of statistics: since MySQL 8.0.13, the first version that has such indexes."""
    collation_name: str
    """The column of collation_character_set_applicability with full names, which MariaDB has since 10.10."""
    charset_ids: str
    """The view that shows the id of each collation."""
    has_quoted_defaults: bool
    """Whether defaults are shown as SQL literals: MariaDB since 10.2.7."""
    own_name: Callable[[str], str]
    """Returns the server's meaning of a collation's name."""

    @property
    def shows_computations(self) -> bool:
        """True if the catalog has the expressions of generated columns."""
        return self.generation_expression != _ABSENT


def build_catalog_form(version: str, shown: Collection[str]) -> CatalogForm:
    """Return the form of the server with this VERSION(). `shown`: see READ_FORM. Pure."""
    is_mariadb = "mariadb" in version.lower()

    def choose(column: str, other: str = _ABSENT) -> str:
        return column.partition(".")[2] if column in shown else other

    return CatalogForm(
        srs_id=choose("columns.srs_id"),
        generation_expression=choose("columns.generation_expression"),
        index_expression=choose("statistics.expression"),
        collation_name=choose(f"{_APPLICABILITY}.full_collation_name", "collation_name"),
        charset_ids=_APPLICABILITY if f"{_APPLICABILITY}.id" in shown else "collations",
        has_quoted_defaults=is_mariadb and parse_server_version(version) >= _QUOTED_DEFAULTS,
        own_name=own_name if is_mariadb else str,
    )
