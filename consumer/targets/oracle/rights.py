"""The rights that a user lacks in Oracle, from the data dictionary before a run; pure.

The owner of a schema needs only the privileges to create; in other schemas rights are granted table by
table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from consumer.targets.checks.rights import ROW_RIGHTS, MissingRight, RequiredRights, TablePlace
from consumer.targets.oracle.sql import normalize_name, quote_bare

#: The privileges to create the bookkeeping tables: two of them number their rows by a sequence
#: (GENERATED AS IDENTITY).
_CREATING = ("CREATE TABLE", "CREATE SEQUENCE")


@dataclass(frozen=True, slots=True)
class OracleRights:
    """Rights of a user, by the data dictionary's names."""

    user: str
    privileges: frozenset[str]
    """System privileges."""
    tables: frozenset[TablePlace]
    """Tables that the user can see."""
    granted: Mapping[TablePlace, frozenset[str]]
    """Rights on tables that the user does not own."""

    def gives_right(self, right: str, place: TablePlace) -> bool:
        return (
            place[0] == self.user
            or right in self.granted.get(place, ())
            or f"{right} ANY TABLE" in self.privileges
        )


def find_lacking_rights(has: OracleRights, required: RequiredRights) -> list[MissingRight]:
    """Return the rights that a run needs (`required`) and the user lacks, each with the statement that
    gives it.
    """
    tables = [(normalize_name(schema), normalize_name(table)) for schema, table in required.tables]
    missing = [*_find_bookkeeping_rights(has, required)]
    if required.create:
        missing += _find_create_rights(has, [place for place in tables if place not in has.tables])
    missing += _find_row_rights(has, [place for place in tables if place in has.tables])
    for right, places in (("ALTER", required.alter), ("DROP", required.drop)):
        missing += _find_change_rights(
            has, right, [(normalize_name(schema), normalize_name(table)) for schema, table in sorted(places)]
        )
    return missing


def _find_bookkeeping_rights(has: OracleRights, required: RequiredRights) -> Iterator[MissingRight]:
    schema = normalize_name(required.books_schema)
    there = all((schema, normalize_name(name)) in has.tables for name in required.books)
    lacks = [right for right in _CREATING if right not in has.privileges]
    if lacks and not there:
        message = (
            f"user {has.user} lacks {' and '.join(lacks)}, and rowlock's bookkeeping tables are not all there"
        )
        yield MissingRight(message, f"GRANT {', '.join(lacks)} TO {quote_bare(has.user)};")


def _find_create_rights(has: OracleRights, places: list[TablePlace]) -> Iterator[MissingRight]:
    own = [place for place in places if place[0] == has.user]
    if own and "CREATE TABLE" not in has.privileges:
        message = f"user {has.user} lacks CREATE TABLE, and tables are missing ({_join_names(own)})"
        yield MissingRight(message, f"GRANT CREATE TABLE TO {quote_bare(has.user)};")
    others = [place for place in places if place[0] != has.user]
    lacks = [right for right in ("CREATE ANY TABLE", "CREATE ANY INDEX") if right not in has.privileges]
    if others and lacks:
        message = (
            f"user {has.user} may not create tables of other schemas, or does not see "
            f"them ({_join_names(others)})"
        )
        yield MissingRight(message, f"GRANT {', '.join(lacks)} TO {quote_bare(has.user)};", frozenset(others))


def _find_row_rights(has: OracleRights, places: list[TablePlace]) -> Iterator[MissingRight]:
    for place in places:
        if lacks := [right for right in ROW_RIGHTS if not has.gives_right(right, place)]:
            message = f"user {has.user} lacks {', '.join(lacks)} on {place[0]}.{place[1]}"
            yield MissingRight(
                message, f"GRANT {', '.join(lacks)} ON {_quote_place(place)} TO {quote_bare(has.user)};"
            )


def _find_change_rights(has: OracleRights, right: str, places: list[TablePlace]) -> Iterator[MissingRight]:
    """Yield the rights that are missing to change tables.

    Only the owner may drop a table without the privilege for any table.
    """
    for place in places:
        if place in has.tables and not has.gives_right(right, place):
            statement = (
                f"GRANT ALTER ON {_quote_place(place)} TO {quote_bare(has.user)};"
                if right == "ALTER"
                else f"GRANT DROP ANY TABLE TO {quote_bare(has.user)};"
            )
            yield MissingRight(f"user {has.user} lacks {right} on {place[0]}.{place[1]}", statement)


def _join_names(places: list[TablePlace]) -> str:
    return ", ".join(f"{schema}.{table}" for schema, table in places)


def _quote_place(place: TablePlace) -> str:
    return f"{quote_bare(place[0])}.{quote_bare(place[1])}"
