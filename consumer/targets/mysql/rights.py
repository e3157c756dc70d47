"""The rights that a user lacks on MySQL, MariaDB or TDSQL: from SHOW GRANTS before a run, from an error in it; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from consumer.targets.checks.rights import ROW_RIGHTS, MissingRight, Place, Wanted
from consumer.targets.mysql.sql import bare

_NAME = r"(?:\*|`(?:[^`]|``)*`)"
_GRANT = re.compile(rf"GRANT (?P<what>.+?) ON (?:TABLE )?(?P<db>{_NAME})\.(?P<table>{_NAME}) TO ", re.I)
_ALL = frozenset({"ALL", "ALL PRIVILEGES"})
_CREATING = (*ROW_RIGHTS, "CREATE")
#: The order in which a statement names rights.
_ORDER = (*_CREATING, "ALTER", "DROP")


@dataclass(frozen=True, slots=True)
class _Grant:
    """A line of SHOW GRANTS; `db` is a LIKE pattern where `table` is None (None: everywhere)."""

    rights: frozenset[str]
    db: str | None
    table: str | None

    def gives(self, right: str, schema: str, table: str) -> bool:
        """A right on single columns counts as the right: which columns a run needs is not known here."""
        if right not in self.rights and not self.rights & _ALL:
            return False
        if self.db is None:
            return True
        if self.table is None:
            return _like(self.db, schema)
        # not told apart by case, as on servers that do not
        return self.db.casefold() == schema.casefold() and self.table.casefold() == table.casefold()


def account_of(current_user: str) -> str:
    """Return the account as GRANT names it, from CURRENT_USER() ("user@host")."""
    user, _, host = current_user.rpartition("@")
    return f"{bare(user)}@{bare(host)}"


def lacking(
    lines: Sequence[str], account: str, wanted: Wanted, there: Collection[Place]
) -> list[MissingRight]:
    """Return the rights that the lines of SHOW GRANTS do not give; `there`: the target tables that exist.

    The lines are those of a session like the run's: they hold what its active roles give, and nothing of others.
    """
    grants = [grant for line in lines if (grant := _parse(line))]
    found: list[MissingRight] = []
    for schema in wanted.schemas():
        missing = {
            table: lacks
            for table, rights in _needed(wanted, schema, there).items()
            if (lacks := _lacks(grants, schema, table, rights))
        }
        # who was given rights table by table gets these in the same way
        single = any(grant.table is not None and grant.db == schema for grant in grants)
        found += _each(schema, missing, account) if single else _together(schema, missing, account)
    return found


def blind(lines: Sequence[str], account: str, place: Place) -> Iterator[tuple[str, str]]:
    """Return what a user with these lines of SHOW GRANTS cannot see of a table, each with the statement that shows it.

    The server shows triggers to those alone who may make them, and says nothing to the others.
    """
    schema, table = place
    if not any(grant.gives("TRIGGER", *place) for line in lines if (grant := _parse(line))):
        yield "its triggers", _grant(["TRIGGER"], f"{bare(schema)}.{bare(table)}", account)
    if not sees_processes(lines):
        yield "foreign keys of other databases that refer to it", _grant(["PROCESS"], "*.*", account)


def sees_processes(lines: Sequence[str]) -> bool:
    """Tell whether a user with these lines of SHOW GRANTS may read InnoDB's own catalogue."""
    grants = [grant for line in lines if (grant := _parse(line)) and grant.db is None]
    return any(grant.rights & {"PROCESS", *_ALL} for grant in grants)


def _needed(wanted: Wanted, schema: str, there: Collection[Place]) -> dict[str, tuple[str, ...]]:
    """CREATE TABLE IF NOT EXISTS needs the right to create, also when there is nothing to do: the bookkeeping's always."""
    out: dict[str, tuple[str, ...]] = {}
    for table in wanted.in_schema(schema):
        creates = wanted.create and (schema, table) not in there
        changes = [
            right
            for right, places in (("ALTER", wanted.alter), ("DROP", wanted.drop))
            if (schema, table) in places
        ]
        out[table] = (*(_CREATING if creates else ROW_RIGHTS), *changes)
    if schema == wanted.books_schema:
        out |= {table: (*rights, "CREATE") for table, rights in wanted.books.items()}
    return out


def _lacks(grants: list[_Grant], schema: str, table: str, rights: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(right for right in rights if not any(grant.gives(right, schema, table) for grant in grants))


def _together(schema: str, missing: dict[str, tuple[str, ...]], account: str) -> Iterator[MissingRight]:
    lacks = [right for right in _ORDER if any(right in rights for rights in missing.values())]
    if lacks:
        message = f"user {account} lacks {', '.join(lacks)} on database {schema}"
        hides = frozenset((schema, table) for table, rights in missing.items() if "SELECT" in rights)
        yield MissingRight(message, _grant(lacks, f"{_pattern(schema)}.*", account), hides)


def _each(schema: str, missing: dict[str, tuple[str, ...]], account: str) -> Iterator[MissingRight]:
    for table, lacks in missing.items():
        message = f"user {account} lacks {', '.join(lacks)} on {schema}.{table}"
        hides = frozenset({(schema, table)} if "SELECT" in lacks else ())
        yield MissingRight(message, _grant(lacks, f"{bare(schema)}.{bare(table)}", account), hides)


def _parse(line: str) -> _Grant | None:
    match = _GRANT.match(line)
    if match is None:
        return None
    what = re.sub(r"\([^)]*\)", "", match["what"])
    rights = frozenset(each.strip().upper() for each in what.split(","))
    return _Grant(rights, _name(match["db"]), _name(match["table"]))


def _name(text: str) -> str | None:
    return None if text == "*" else text[1:-1].replace("``", "`")


def _like(pattern: str, schema: str) -> bool:
    """Databases in GRANT are patterns: "_" is any character, "%" any text, a backslash takes that away."""
    parts = re.findall(r"\\.|.", pattern, re.S)
    one = {"_": ".", "%": ".*"}
    text = "".join(one.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(text, schema, re.I | re.S) is not None


def _pattern(schema: str) -> str:
    """Return a database's name for `ON name.*`, where it is a pattern."""
    return bare(re.sub(r"([_%\\])", r"\\\1", schema))


def _grant(rights: Sequence[str], where: str, account: str) -> str:
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
#: What tables can be granted; a message may name other things in this place.
_GRANTABLE = frozenset({*_ORDER, "INDEX", "REFERENCES", "TRIGGER", "LOCK TABLES"})


def grant_for(message: str, account: str, statement: str = "") -> str | None:
    """Return the GRANT that a message of a denied access asks for; None where it does not say.

    `statement`: what was refused: MySQL does not name the table's database, the statement does. `account`: the real one:
    a message names the host the client is on, not the account's.
    """
    if found := _COLUMN.search(message) or _TABLE.search(message):
        return _for_table(found["what"], found["place"], account, statement)
    if found := _ROUTINE.search(message):
        return _grant([found["what"].upper()], f"{_pattern(found['db'])}.*", account)
    if found := _DATABASE.search(message):
        return _grant(_CREATING, f"{_pattern(found['db'])}.*", account)
    if found := _SPECIFIC.search(message):
        rights = re.split(r",\s*|\s+or\s+", found["what"], flags=re.I)
        narrow = [right for right in rights if right != "SUPER"] or rights
        return _grant(narrow[:1], "*.*", account)
    return None


def grant_to_connect(message: str) -> str | None:
    """Return the GRANT for a user that is refused the database at log-in: here the message names the account itself."""
    found = _DATABASE.search(message)
    if found is None:
        return None
    return _grant(_CREATING, f"{_pattern(found['db'])}.*", f"{bare(found['user'])}@{bare(found['host'])}")


def _for_table(what: str, place: str, account: str, statement: str) -> str | None:
    rights = _rights(what)
    found = _place(place, statement)
    if not rights or found is None:
        return None
    schema, table = found
    if "CREATE" in rights:  # a table that is not there yet, and seldom alone
        return _grant(rights, f"{_pattern(schema)}.*", account)
    return _grant(rights, f"{bare(schema)}.{bare(table)}", account)


def _rights(what: str) -> list[str]:
    if what.upper() == _LOCKING:
        return ["SELECT", "UPDATE"]
    rights = [each.strip().upper() for each in what.split(",")]
    return rights if _GRANTABLE.issuperset(rights) else []


def _place(place: str, statement: str) -> Place | None:
    """Return (database, table): MariaDB names both, MySQL the table alone."""
    both = re.fullmatch(r"`((?:[^`]|``)+)`\.`((?:[^`]|``)+)`", place)
    if both is None:
        table = place.strip("'")
        both = re.search(r"`((?:[^`]|``)+)`\.`(" + re.escape(bare(table)[1:-1]) + ")`", statement)
    return (both[1].replace("``", "`"), both[2].replace("``", "`")) if both else None
