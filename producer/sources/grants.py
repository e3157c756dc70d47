"""Privileges of a capture user, from the lines of SHOW GRANTS: those that are missing, and the objects
that the user can see. Pure.

A server silently hides what a user may not see: no trigger without TRIGGER, and no foreign key on
MariaDB with SELECT alone. So an empty result of the catalog means "there is none" only where `Grants`
proves that the user would see it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.config.model import SourceConfig
from schemas.io.mysql_accounts import format_account
from schemas.io.mysql_catalog import SYSTEM_SCHEMAS, is_selected
from schemas.table.patterns import get_literal_database

_NAME = r"(?:`(?:[^`]|``)*`|\*|[^`.\s]+)"
_LINE = re.compile(
    rf"(?P<verb>GRANT|REVOKE) (?P<what>.+?) ON (?:TABLE )?(?P<db>{_NAME})\.(?P<object>{_NAME}) (?:TO|FROM) ",
    re.IGNORECASE | re.DOTALL
)  # fmt: skip
_COLUMNS = re.compile(r"\s*\((?:[^()`]|`(?:[^`]|``)*`)*\)")
_COLUMN_GRANT = re.compile(r"(\w[\w ]*?)\s*\((?:[^()`]|`(?:[^`]|``)*`)*\)")
_ALL = frozenset({"ALL PRIVILEGES", "ALL"})
_REPLICATION_SLAVE = frozenset({"REPLICATION SLAVE", "REPLICATION REPLICA", "SUPER"})
#: Any of these on a table shows that it exists, its kind, and on MariaDB (except for SELECT) its foreign
#: keys.
TABLE_RIGHTS = frozenset(
    {
        "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER",
        "CREATE VIEW", "SHOW VIEW", "TRIGGER", "DELETE HISTORY",
    }
)  # fmt: skip


class Rights(NamedTuple):
    """A server's names of rights.

    `status`: the right to read where the log ends; any of `gives_status` suffices. `sources`: the right to
    see which servers this one replicates. `before`: what gave both before the server had rights of these
    names. `routines`: the right to see the bodies of stored routines;
    SELECT on `routines_table` suffices as well, and SELECT on everything. `routines_before`: what to grant
    on a server of a version without the right `routines`. `foreign_keys`: any of them on a table shows its
    foreign keys.
    """

    status: str
    gives_status: frozenset[str]
    sources: str
    before: str
    routines: str
    routines_table: tuple[str, str] | None
    routines_before: str
    foreign_keys: frozenset[str]

    def select_known(self, privileges: Collection[str]) -> Rights:
        """Return the names that a server knows. `privileges`: those of its GRANT, in upper case."""
        status, sources = (
            name if name in privileges else self.before for name in (self.status, self.sources)
        )
        return self._replace(status=status, sources=sources)


@dataclass(frozen=True)
class Grant:
    """A line of SHOW GRANTS. `database`: as granted (a pattern with `%` and `_`), "*" for all.

    `object`: a table, or "*".
    """

    privileges: frozenset[str]
    database: str
    object: str
    revoked: bool = False

    def covers_database(self, db: str) -> bool:
        """Return whether the grant applies to all of `db`, or to a part of it."""
        return self.database == "*" or _compile_grant_pattern(self.database).fullmatch(db) is not None


@dataclass(frozen=True)
class Grants:
    """The grants of all lines together. `columns`: tables with only some readable columns."""

    grants: tuple[Grant, ...]
    columns: frozenset[tuple[str, str]]
    account: str | None

    @classmethod
    def parse_grants(cls, lines: Iterable[str]) -> Grants:
        """Parse the lines of SHOW GRANTS (sql_mode without ANSI_QUOTES).

        Lines that only name a role are ignored.
        """
        lines = list(lines)
        found, columns = [], set()
        for line in lines:
            match = _LINE.match(line)
            if match is None:
                continue
            names = _unquote_name(match["db"]), _unquote_name(match["object"])
            whole = frozenset(
                each.strip().upper() for each in _COLUMN_GRANT.sub("", match["what"]).split(",")
            )
            found.append(Grant(whole - {""}, *names, revoked=match["verb"].upper() == "REVOKE"))
            if any(each.strip().upper() == "SELECT" for each in _COLUMN_GRANT.findall(match["what"])):
                columns.add(names)
        return cls(tuple(found), frozenset(columns), _parse_account(lines))

    def has_everywhere(self, *privileges: str) -> bool:
        """Return whether one of the `privileges` privileges is granted on the whole server, and revoked
        nowhere.
        """
        asked = frozenset(privileges) | _ALL
        taken = (each for each in self.grants if each.revoked and each.database.lower() not in SYSTEM_SCHEMAS)
        if any(asked & each.privileges for each in taken):
            return False
        return any(
            asked & each.privileges and (each.database, each.object) == ("*", "*")
            for each in self.grants
            if not each.revoked
        )

    def has_on_database(self, db: str, *privileges: str) -> bool:
        """Return whether one of the `privileges` privileges is granted on all tables of `db`."""
        asked = frozenset(privileges) | _ALL
        if any(asked & each.privileges and each.covers_database(db) for each in self.grants if each.revoked):
            return False
        return any(
            asked & each.privileges and each.covers_database(db)
            for each in self.grants
            if each.object == "*" and not each.revoked
        )

    def has_on_part(self, db: str, *privileges: str) -> bool:
        """Return whether one of the `privileges` privileges is granted on any object in `db`."""
        asked = frozenset(privileges) | _ALL
        return any(
            asked & each.privileges and each.covers_database(db) for each in self.grants if not each.revoked
        )

    def has_on_table(self, db: str, table: str, *privileges: str) -> bool:
        """Return whether one of the `privileges` privileges is granted on the table."""
        asked = frozenset(privileges) | _ALL
        exact = any(
            asked & each.privileges and (each.database, each.object) == (db, table)
            for each in self.grants
            if not each.revoked
        )
        return exact or self.has_on_database(db, *privileges)


@dataclass(frozen=True)
class CatalogVisibility:
    """The part of the catalog that a user sees.

    Only an object that the user would see can be known to be absent.
    """

    grants: Grants
    rights: Rights

    @classmethod
    def from_grants(cls, lines: Iterable[str], rights: Rights) -> CatalogVisibility:
        return cls(Grants.parse_grants(lines), rights)

    def can_see_all_tables(self) -> bool:
        """Return whether the user sees the tables and views of all databases, by name and kind."""
        return self.grants.has_everywhere(*TABLE_RIGHTS)

    def can_see_triggers(self, db: str) -> bool:
        """Return whether the user sees all triggers of `db`, with their bodies."""
        return self.grants.has_on_database(db, "TRIGGER")

    def can_see_routines(self) -> bool:
        """Return whether the user sees all stored routines of the server, with their bodies."""
        table = self.rights.routines_table
        return self.grants.has_everywhere("SELECT", self.rights.routines) or (
            table is not None and self.grants.has_on_table(*table, "SELECT")
        )

    def can_see_foreign_keys(self, db: str) -> bool:
        """Return whether the user sees all foreign keys of the tables of `db` in
        information_schema.referential_constraints.
        """
        return self.grants.has_on_database(db, *self.rights.foreign_keys)


def list_hidden_objects(
    visibility: CatalogVisibility, source: SourceConfig, privileges: Collection[str]
) -> list[tuple[str, str]]:
    """Return (effect on a change that is logged as a statement, the GRANT) for each kind of object that
    the user cannot see everywhere.

    `privileges`: the names in upper case that the server's GRANT knows, which differ between versions.
    """
    account = visibility.grants.account or f"'{source.user}'@'%'"
    found = []
    if not (visibility.grants.has_everywhere("TRIGGER") and visibility.can_see_all_tables()):
        found.append(
            (
                (
                    f"user {source.user} does not see all tables, triggers and foreign keys: a "
                    "change that any session logs as a statement (binlog_format STATEMENT or MIXED) "
                    "would stop every table of the source"
                ),
                f"GRANT TRIGGER, SHOW VIEW ON *.* TO {account};",
            )
        )
    if not visibility.can_see_routines():
        rights = visibility.rights
        what = f"{rights.routines} ON *.*" if rights.routines in privileges else rights.routines_before
        found.append(
            (
                (
                    f"user {source.user} does not see the stored routines: a change logged as a statement "
                    "that calls a function would stop every table of the source"
                ),
                f"GRANT {what} TO {account};",
            )
        )
    return found


def list_missing_grants(lines: Sequence[str], rights: Rights, source: SourceConfig) -> list[tuple[str, str]]:
    """Return (what is missing, the GRANT statement) for each privilege that `lines` do not give."""
    grants = Grants.parse_grants(lines)
    account = grants.account or f"'{source.user}'@'%'"
    missing = []
    for name, enough in (("REPLICATION SLAVE", _REPLICATION_SLAVE), (rights.status, rights.gives_status)):
        if not grants.has_everywhere(*enough):
            missing.append((f"user {source.user} lacks {name}", f"GRANT {name} ON *.* TO {account};"))
    for db in _list_plain_databases(source):
        if not grants.has_on_part(db, "SELECT"):
            missing.append(
                (
                    f"user {source.user} may not read {db}",
                    f"GRANT SELECT ON {_quote_name(db)}.* TO {account};",
                )
            )
    for db, table in sorted(grants.columns):
        if is_selected(source.tables, db, table) and not grants.has_on_table(db, table, "SELECT"):
            missing.append(
                (
                    (
                        f"user {source.user} may read only some columns of {db}.{table}, "
                        "and the server hides the others"
                    ),
                    f"GRANT SELECT ON {_quote_name(db)}.{_quote_name(table)} TO {account};",
                )
            )
    return missing


def _list_plain_databases(source: SourceConfig) -> list[str]:
    """Return the databases that are named without a wildcard. Others are judged by their visible tables."""
    names = (get_literal_database(pattern) for pattern in source.tables if not pattern.startswith("!"))
    return sorted({name for name in names if name is not None})


def _compile_grant_pattern(granted: str) -> re.Pattern[str]:
    """Return the pattern of a GRANT on databases, in which `%` and `_` are wildcards unless escaped by a
    backslash.
    """
    parts = re.findall(r"\\.|.", granted, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    return re.compile(
        "".join(wild[each] if each in wild else re.escape(each.removeprefix("\\") or each) for each in parts),
        re.DOTALL,
    )


def _parse_account(lines: Sequence[str]) -> str | None:
    for line in lines:
        match = re.search(r" TO (?:`([^`]*)`@`([^`]*)`|'([^']*)'@'([^']*)')", line)
        if match:
            user, host = (part for part in match.groups() if part is not None)
            return format_account(user, host)
    return None


def _unquote_name(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
