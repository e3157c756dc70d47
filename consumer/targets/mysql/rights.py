"""The rights that a user lacks on MySQL or MariaDB: from SHOW GRANTS before a run, or from an
error during it; pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from consumer.targets.checks.rights import ROW_RIGHTS, MissingRight, RequiredRights, TablePlace
from consumer.targets.mysql.sql import bare
from schemas.io.mysql_accounts import format_account

_NAME = r"(?:\*|`(?:[^`]|``)*`)"
_GRANT = re.compile(rf"GRANT (?P<what>.+?) ON (?:TABLE )?(?P<db>{_NAME})\.(?P<table>{_NAME}) TO ", re.I)
_ALL = frozenset({"ALL", "ALL PRIVILEGES"})
_CREATING = (*ROW_RIGHTS, "CREATE")
#: The order in which a statement names rights.
_ORDER = (*_CREATING, "ALTER", "DROP", "TRIGGER")


@dataclass(frozen=True, slots=True)
class _Grant:
    """A line of SHOW GRANTS; `db` is a LIKE pattern where `table` is None. `db` None: everywhere."""

    rights: frozenset[str]
    db: str | None
    table: str | None

    def gives_right(self, right: str, schema: str, table: str) -> bool:
        """Return whether the line grants a right.

        A right on single columns counts as the right: which columns a run needs is not known here.
        """
        if right not in self.rights and not self.rights & _ALL:
            return False
        if self.db is None:
            return True
        if self.table is None:
            return _does_pattern_match(self.db, schema)
        # compared without case, as on servers that do not distinguish it
        return self.db.casefold() == schema.casefold() and self.table.casefold() == table.casefold()


def parse_account(current_user: str) -> str:
    """Return the account as GRANT names it, from CURRENT_USER() ("user@host")."""
    user, _, host = current_user.rpartition("@")
    return format_account(user, host)


def find_lacking_rights(
    lines: Sequence[str], account: str, required: RequiredRights, there: Collection[TablePlace]
) -> list[MissingRight]:
    """Return the rights that the lines of SHOW GRANTS do not give; `there`: the target tables that
    exist.

    The lines are those of a session like the run's: they include the rights of its active roles, but
    not of others.
    """
    grants = [grant for line in lines if (grant := _parse_grant(line))]
    found: list[MissingRight] = []
    for schema in required.list_schemas():
        missing = {
            table: lacks
            for table, rights in _list_needed_rights(required, schema, there).items()
            if (lacks := _list_missing_rights(grants, schema, table, rights))
        }
        # a user with rights on single tables gets the missing ones in the same way
        single = any(grant.table is not None and grant.db == schema for grant in grants)
        found += (
            _list_each_missing_right(schema, missing, account)
            if single
            else _merge_missing_rights(schema, missing, account)
        )
    return found


def find_lacking_process(
    lines: Sequence[str], account: str, required: RequiredRights, there: Collection[TablePlace]
) -> list[MissingRight]:
    """Return the right PROCESS if it is missing for tables that rowlock creates: once they are there, they
    could not be checked.
    """
    created = required.create and any(place not in there for place in required.tables)
    if not created or can_see_processes(lines):
        return []
    message = f"user {account} lacks PROCESS, which shows foreign keys of other databases"
    return [MissingRight(message, _render_grant(["PROCESS"], "*.*", account))]


def find_visibility_gaps(lines: Sequence[str], account: str, place: TablePlace) -> Iterator[tuple[str, str]]:
    """Yield what a user with these lines of SHOW GRANTS cannot see of a table, each with the statement
    that shows it.

    The server shows triggers only to users that may create them, and gives others no hint.
    """
    schema, table = place
    if not any(grant.gives_right("TRIGGER", *place) for line in lines if (grant := _parse_grant(line))):
        yield "its triggers", _render_grant(["TRIGGER"], f"{bare(schema)}.{bare(table)}", account)
    if not can_see_processes(lines):
        yield "foreign keys of other databases that refer to it", _render_grant(["PROCESS"], "*.*", account)


def can_see_processes(lines: Sequence[str]) -> bool:
    """Return whether a user with these lines of SHOW GRANTS may read InnoDB's own catalog."""
    grants = [grant for line in lines if (grant := _parse_grant(line)) and grant.db is None]
    return any(grant.rights & {"PROCESS", *_ALL} for grant in grants)


def _list_needed_rights(
    required: RequiredRights, schema: str, there: Collection[TablePlace]
) -> dict[str, tuple[str, ...]]:
    """Return table → rights that are needed.

    CREATE TABLE IF NOT EXISTS needs the right to create even if the table exists; this always concerns
    the bookkeeping.
    """
    out: dict[str, tuple[str, ...]] = {}
    for table in required.list_tables_in_schema(schema):
        place = (schema, table)
        creates = required.create and place not in there
        further = (
            ("ALTER", place in required.alter),
            ("DROP", place in required.drop),
            ("TRIGGER", creates),  # without it, the table could not be checked once it is there
        )
        needed = _CREATING if creates else ROW_RIGHTS
        out[table] = (*needed, *(right for right, is_needed in further if is_needed))
    if schema == required.books_schema:
        out |= {table: (*rights, "CREATE") for table, rights in required.books.items()}
    return out


def _list_missing_rights(
    grants: list[_Grant], schema: str, table: str, rights: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(
        right for right in rights if not any(grant.gives_right(right, schema, table) for grant in grants)
    )


def _merge_missing_rights(
    schema: str, missing: dict[str, tuple[str, ...]], account: str
) -> Iterator[MissingRight]:
    lacks = [right for right in _ORDER if any(right in rights for rights in missing.values())]
    if lacks:
        message = f"user {account} lacks {', '.join(lacks)} on database {schema}"
        hides = frozenset((schema, table) for table, rights in missing.items() if "SELECT" in rights)
        yield MissingRight(message, _render_grant(lacks, f"{_escape_pattern(schema)}.*", account), hides)


def _list_each_missing_right(
    schema: str, missing: dict[str, tuple[str, ...]], account: str
) -> Iterator[MissingRight]:
    for table, lacks in missing.items():
        message = f"user {account} lacks {', '.join(lacks)} on {schema}.{table}"
        hides = frozenset({(schema, table)} if "SELECT" in lacks else ())
        yield MissingRight(message, _render_grant(lacks, f"{bare(schema)}.{bare(table)}", account), hides)


def _parse_grant(line: str) -> _Grant | None:
    match = _GRANT.match(line)
    if match is None:
        return None
    what = re.sub(r"\([^)]*\)", "", match["what"])
    rights = frozenset(each.strip().upper() for each in what.split(","))
    return _Grant(rights, _parse_name(match["db"]), _parse_name(match["table"]))


def _parse_name(text: str) -> str | None:
    return None if text == "*" else text[1:-1].replace("``", "`")


def _does_pattern_match(pattern: str, schema: str) -> bool:
    """Return whether a database in a GRANT matches: "_" is any character, "%" any text, a backslash
    makes them literal.
    """
    parts = re.findall(r"\\.|.", pattern, re.S)
    one = {"_": ".", "%": ".*"}
    text = "".join(one.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(text, schema, re.I | re.S) is not None


def _escape_pattern(schema: str) -> str:
    """Return a database's name for `ON name.*`, where it is a pattern."""
    return bare(re.sub(r"([_%\\])", r"\\\1", schema))


def _render_grant(rights: Sequence[str], where: str, account: str) -> str:
    return f"GRANT {', '.join(rights)} ON {where} TO {account};"


# -- the server's messages

_TABLE = re.compile(r"^(?P<what>.+?) command denied to user .* for table (?P<place>.+)$", re.S)
_COLUMN = re.compile(
    r"^(?P<what>.+?) command denied to user .* for column '.*' in table (?P<place>.+)$", re.S
)
_ROUTINE = re.compile(r"^(?P<what>.+?) command denied to user .* for routine '(?P<db>[^.]+)\..+'$", re.S)
_DATABASE = re.compile(
    r"Access denied for user '(?P<user>.*)'@'(?P<host>[^']*)' to database '(?P<db>[^']*)'", re.S
)
_SPECIFIC = re.compile(r"you need \(at least one of\) the (?P<what>.+?) privilege\(s\)")
_LOCKING = "SELECT WITH LOCKING CLAUSE"
#: The rights that can be granted on tables; a message may name other things in this place.
_GRANTABLE = frozenset({*_ORDER, "INDEX", "REFERENCES", "TRIGGER", "LOCK TABLES"})


def grant_for(message: str, account: str, statement: str = "") -> str | None:
    """Return the GRANT that a message of a denied access asks for; None if the message does not show
    it.

    `statement`: the refused statement, because MySQL's message does not name the table's database.
    `account`: the real one, because a message names the client's host instead of the account's.
    """
    if found := _COLUMN.search(message) or _TABLE.search(message):
        return _render_table_grant(found["what"], found["place"], account, statement)
    if found := _ROUTINE.search(message):
        return _render_grant([found["what"].upper()], f"{_escape_pattern(found['db'])}.*", account)
    if found := _DATABASE.search(message):
        return _render_grant(_CREATING, f"{_escape_pattern(found['db'])}.*", account)
    if found := _SPECIFIC.search(message):
        rights = re.split(r",\s*|\s+or\s+", found["what"], flags=re.I)
        narrow = [right for right in rights if right != "SUPER"] or rights
        return _render_grant(narrow[:1], "*.*", account)
    return None


def grant_to_connect(message: str, user: str, database: str) -> str | None:
    """Return the GRANT for a user that is refused the database at log-in; None if the message does not name
    the account.

    The message is in the server's language. It names the account itself, with the host of its definition.
    """
    found = re.search(re.escape(f"'{user}'@'") + "([^']*)'", message)
    if found is None:
        return None
    return _render_grant(_CREATING, f"{_escape_pattern(database)}.*", format_account(user, found[1]))


def _render_table_grant(what: str, place: str, account: str, statement: str) -> str | None:
    rights = _parse_rights(what)
    found = _parse_place(place, statement)
    if not rights or found is None:
        return None
    schema, table = found
    if "CREATE" in rights:  # a missing table, which is seldom the only one
        return _render_grant(rights, f"{_escape_pattern(schema)}.*", account)
    return _render_grant(rights, f"{bare(schema)}.{bare(table)}", account)


def _parse_rights(what: str) -> list[str]:
    if what.upper() == _LOCKING:
        return ["SELECT", "UPDATE"]
    rights = [each.strip().upper() for each in what.split(",")]
    return rights if _GRANTABLE.issuperset(rights) else []


def _parse_place(place: str, statement: str) -> TablePlace | None:
    """Return (database, table): MariaDB's message names both, MySQL's only the table."""
    both = re.fullmatch(r"`((?:[^`]|``)+)`\.`((?:[^`]|``)+)`", place)
    if both is None:
        table = place.strip("'")
        both = re.search(r"`((?:[^`]|``)+)`\.`(" + re.escape(bare(table)[1:-1]) + ")`", statement)
    return (both[1].replace("``", "`"), both[2].replace("``", "`")) if both else None
