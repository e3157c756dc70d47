"""Messages for errors of database servers: what was read, what the server answered, refused versions, and
the remedy.

The errors stay unchanged: every connection of schemas.io.mysql_connection notes on an error what its
statement read (`note_read`), so that any code that translates the error can name it. Statements on rows
are never named, because their texts may contain values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from schemas.problems import Problem

if TYPE_CHECKING:
    import pymysql

_NAMED_CHARACTERS = 80
_FIRST_FROM = re.compile(r"\bFROM\s+(\S+)", re.IGNORECASE)
_CATALOG = re.compile(r"(?:information_schema|performance_schema|mysql|pg_catalog|SYS)\.\w+", re.IGNORECASE)
_SETTING = re.compile(r"SHOW\b|SET\s+SESSION\b", re.IGNORECASE)

#: The remedy if a server does not know a column, view, statement or setting that rowlock uses.
UNKNOWN_THERE = (
    "use a version of the server that rowlock supports (see 'What is supported' in `rowlock docs README`)"
)


def name_catalog_read(statement: str) -> str | None:
    """Return the view that a SELECT reads first, or the beginning of another statement about the
    server.

    None if the statement is about rows.
    """
    text = " ".join(statement.split())
    if _SETTING.match(text):
        return text[:_NAMED_CHARACTERS]
    if text[:6].upper() != "SELECT":
        return None
    origin = _FIRST_FROM.search(text)
    if origin is None:
        return text[:_NAMED_CHARACTERS]
    view = _CATALOG.match(re.sub(r'[`"]', "", origin[1]))
    return view[0] if view else None


_NOTE = "reading "
#: Characters of a statement that are inspected: catalog reads are shorter, and statements on rows may
#: have millions.
_LOOKED_AT = 4000
#: The server does not know a column, a view, a statement, a setting or a function.
UNKNOWN_OBJECT_CODES = frozenset({1054, 1064, 1109, 1193, 1235, 1305})
_LOST = frozenset({1053, 1927, 2002, 2003, 2006, 2013, 2055})
_DENIED = frozenset({1044, 1142, 1143, 1227, 1370})


def note_read(error: pymysql.MySQLError, statement: str | bytes) -> None:
    """Note on an error what `statement` reads."""
    text = statement if isinstance(statement, str) else bytes(statement[:_LOOKED_AT]).decode(errors="replace")
    if (read := name_catalog_read(text[:_LOOKED_AT])) is not None:
        error.add_note(f"{_NOTE}{read}")


def get_noted_read(error: Exception) -> str | None:
    """Return what was read when `error` occurred; None: rows, or nothing."""
    notes = (note.removeprefix(_NOTE) for note in getattr(error, "__notes__", ()) if note.startswith(_NOTE))
    return next(notes, None)


def format_mysql_error(error: Exception) -> str:
    """Return "reading …: the server's message (number)"."""
    words = " ".join(str(error.args[1] if len(error.args) > 1 else error).split())
    text = f"{words} ({error.args[0] if error.args else type(error).__name__})"
    read = get_noted_read(error)
    return f"{_NOTE}{read}: {text}" if read else text


def explain_anonymous_user(message: str) -> str:
    """Return what to look for if the server refuses a log-in again; "": nothing.

    `message`: the server's, with the client's host. Of the accounts that match a client, the server takes
    the one with the most exact host: the anonymous user of a new server is before `user@'%'`.
    """
    if "@'localhost'" not in message:
        return ""
    return "; if it is right, look for an anonymous user (see `rowlock docs troubleshoot`)"


def is_access_denied(error: BaseException | None) -> bool:
    """Return whether a MySQL or MariaDB server refuses a statement because its user lacks a right."""
    return error is not None and bool(error.args) and error.args[0] in _DENIED


def choose_mysql_remedy(error: Exception) -> str:
    """Return what a person should do about an error of a source's catalog."""
    code = error.args[0] if error.args else 0
    if is_access_denied(error):
        return "`rowlock check` prints the GRANT that is missing (see `rowlock docs source-setup`)"
    if code in _LOST:
        return "see whether the server still runs, and try again"
    return UNKNOWN_THERE if code in UNKNOWN_OBJECT_CODES else "see the server's log"


class OldestVersion(NamedTuple):
    """The oldest supported version of a product."""

    product: str
    numbers: tuple[int, ...]
    reason: str
    """What earlier versions lack, as a clause."""

    @property
    def text(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.numbers))}"


OLDEST_POSTGRES = OldestVersion(
    "PostgreSQL",
    (12,),
    "the catalog of earlier versions does not show which collations are deterministic",
)


class OldestVersions(NamedTuple):
    """The oldest supported versions of the servers of MySQL's protocol, on one side."""

    mysql: OldestVersion
    mariadb: OldestVersion


OLDEST_SOURCES = OldestVersions(
    OldestVersion(
        "MySQL", (5, 7), "earlier versions cannot wait until a transaction of the log is visible to a SELECT"
    ),
    OldestVersion("MariaDB", (10, 1), "earlier versions cannot limit the time of a statement"),
)
OLDEST_TARGETS = OldestVersions(
    OldestVersion("MySQL", (5, 7), "the indexes of earlier versions are too short for rowlock's own tables"),
    OldestVersion(
        "MariaDB", (10, 2, 2), "the indexes of earlier versions are too short for rowlock's own tables"
    ),
)


class TestedVersions(NamedTuple):
    """The versions of a product that the tests ran on."""

    product: str
    series: tuple[tuple[int, ...], ...]


#: Type in the configuration → the versions that tests run on (README, "What is supported").
TESTED_SOURCES = {
    "mysql": TestedVersions("MySQL", ((5, 7), (8, 0), (9, 7))),
    "mariadb": TestedVersions("MariaDB", ((10, 1), (10, 2), (10, 5), (10, 11), (11, 4), (11, 8))),
}
TESTED_TARGETS = {
    "mysql": TestedVersions("MySQL", ((5, 7), (8, 0), (9, 7))),
    "mariadb": TestedVersions("MariaDB", ((10, 2), (10, 5), (10, 11), (11, 4), (11, 8))),
    "postgres": TestedVersions("PostgreSQL", ((18,),)),
}

#: MariaDB before 11 shows this before its version when a client connects, for replicas of old MySQLs.
_DISGUISE = "5.5.5-"


def explain_mysql_version_refusal(version: str, oldest: OldestVersions = OLDEST_SOURCES) -> Problem | None:
    """Return why a server of MySQL's protocol is refused, by its VERSION() or handshake (see
    explain_version_refusal).
    """
    shown = version.removeprefix(_DISGUISE)
    return explain_version_refusal(shown, oldest.mariadb if "mariadb" in shown.lower() else oldest.mysql)


def explain_untested_version(tested: Mapping[str, TestedVersions], kind: str, version: str) -> Problem | None:
    """Return that rowlock was not tested with a server's version; None: it was, or the text contains no
    version.

    `tested`: TESTED_SOURCES or TESTED_TARGETS. `kind`: the type in the configuration.
    """
    if kind not in tested:
        return None
    product, series = tested[kind]
    numbers = parse_server_version(version)
    if not numbers or any(numbers[: len(each)] == each for each in series):
        return None
    shown, *expected = (".".join(map(str, each)) for each in (numbers, *series))
    known = f"{product} {', '.join(expected)}"
    return Problem(
        f"the server is {product} {shown}; rowlock was tested with {known}, not with this version",
        f"no action if your own tests pass (`rowlock verify` compares every row); otherwise use {known}",
    )


def parse_server_version(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, at most three; empty if the text contains none."""
    found = re.search(r"\d+(\.\d+)*", version.removeprefix(_DISGUISE))
    return tuple(map(int, found[0].split(".")[:3])) if found else ()


def explain_version_refusal(version: str, oldest: OldestVersion) -> Problem | None:
    """Return why a server of this version is refused ("is …, reason").

    None if it is supported, or if the text contains no version.
    """
    numbers = parse_server_version(version)
    if numbers >= oldest.numbers[: len(numbers)]:
        return None
    return Problem(
        f"is {oldest.product} {version}, which is too old: rowlock needs {oldest.text} or "
        f"later, because {oldest.reason}",
        f"upgrade it, or use a server of {oldest.text} or later (a replica of this one that logs what it "
        "replicates can be the source)",
    )
