"""The errors of PostgreSQL, by SQLSTATE: the consumer's class of each, and its remedy. Data, and no I/O."""

from __future__ import annotations

import re

import psycopg

from consumer.errors import (
    FEWER_COLUMNS,
    UNDO,
    AlreadyExistsError,
    ConsumerError,
    LockWaitError,
    MissingGrantError,
    RefusedError,
    RowTooLargeError,
    ServerSilentError,
    TableMissingError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.targets.postgres.rights import grant_for
from consumer.targets.silence import is_silence
from schemas.config.model import TargetConfig
from schemas.config.secrets import add_secret_place
from schemas.io.certificates import explain_refused_certificate
from schemas.io.refused_logins import CORRECT_LOGIN
from schemas.io.server_errors import UNKNOWN_THERE, name_catalog_read

#: Of a table or of an index.
TOO_MANY_COLUMNS = "54011"
#: Also of an index entry.
ROW_TOO_LARGE = "54000"
#: SQLSTATE (class of two characters, or whole) → error; the whole code takes precedence over its class.
ERRORS: dict[str, type[ConsumerError]] = {
    "23505": UniqueViolationError,
    "22": RefusedError,
    "23": RefusedError,
    "54": RefusedError,
    ROW_TOO_LARGE: RowTooLargeError,
    TOO_MANY_COLUMNS: TargetConfigError,
    "44": RefusedError,  # WITH CHECK OPTION of a view
    "P0001": RefusedError,  # a trigger's RAISE EXCEPTION
    "55000": TargetConfigError,  # a relation that is not a writable table
    "55P03": LockWaitError,
    "2BP01": TargetConfigError,  # an object depends on what is to be dropped
    # also while another process creates the same
    **dict.fromkeys(("42P06", "42P07", "42710"), AlreadyExistsError),
    "42P01": TableMissingError,
    "42": TargetConfigError,  # missing column or grant
    "28": TargetConfigError,
    "3D": TargetConfigError,
    "3F": TargetConfigError,
    "0A": TargetConfigError,
}  # fmt: skip
DENIED = "42501"
LOGIN_REFUSED = "28P01"
#: The server does not know a column, a function, a setting or a statement.
_UNKNOWN = frozenset({"42703", "42883", "42704", "42601"})
#: Another session changed the table, so a prepared statement of the driver has the table's earlier
#: form: SQLSTATE and the server's function, because the message is in the language of `lc_messages`.
_STALE_PLAN = ("0A000", "RevalidateCachedQuery")
_WITH_VALUES = frozenset({"22", "23", "44"})
REMEDIES = {
    DENIED: "give the user the right that it lacks, `rowlock check` prints the GRANT "
    "(see `rowlock docs target-setup`)",
    "42P01": "create it, or let rowlock create it (create_tables)",
    "428C9": "make the column an ordinary one (no GENERATED ALWAYS), for its values come from the source",
    "2BP01": "drop what depends on it in the target, and create it again afterwards",
    "42703": "add the column to the target table, or leave it out of the route",
    "42P10": "the target table needs a primary key or unique index over exactly these columns",
    "42704": UNKNOWN_THERE,  # on connecting: a setting of rowlock's session
    TOO_MANY_COLUMNS: FEWER_COLUMNS,
    ROW_TOO_LARGE: "shorten the row's values at the source, or drop this index in the target; "
    "`rowlock quarantine retry` then writes the row",
    LOGIN_REFUSED: CORRECT_LOGIN,
    "28000": "let this user in (the server's pg_hba.conf), or correct the user in the configuration",
    "3D000": "create the database, or correct its name in the configuration",
    "3F000": "create the schema (`rowlock check` prints the statement), or correct its name in the route",
}


def get_error_class(error: psycopg.Error, state: str) -> type[ConsumerError]:
    """Return the consumer's class of an error.

    An unknown error is transient: retries are bounded, whereas a wrong "refused" would quarantine good
    rows.
    """
    if not state and is_silence(error):
        return ServerSilentError
    known = ERRORS.get(state) or ERRORS.get(state[:2])
    return known or (RefusedError if isinstance(error, psycopg.DataError) else TransientError)


def describe_server_error(error: psycopg.Error, state: str) -> str:
    """Return the server's message in one line, without the statement.

    For a refused row, DETAIL is left out, because it contains the row's values.
    """
    primary, detail = error.diag.message_primary, error.diag.message_detail
    if primary is None:
        return "; ".join(dict.fromkeys(_split_connect_error(str(error))))
    whole = primary if detail is None or state[:2] in _WITH_VALUES else f"{primary} ({detail})"
    return " ".join(whole.split())


def _split_connect_error(text: str) -> list[str]:
    """Return the lines of an error of libpq: one for each attempt, with TLS and without, at each address."""
    lines = text.removeprefix("connection failed: ").splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


_NOT_CONNECTED = "start the server, or correct host, port, user, password, database and tls of the target"
#: Login failures have no SQLSTATE in libpq; their messages are not translated if lc_messages is C.
_LOGIN = {
    # of a password, LDAP, PAM, …
    "authentication failed": LOGIN_REFUSED,
    "no pg_hba.conf entry": "28000",
    "permission denied for database": DENIED,
    'role ".*" does not exist': "28000",
    'database ".*" does not exist': "3D000",
    "unrecognized configuration parameter": "42704",
}


_UNKNOWN_ROLE = re.compile(r'role ".*" does not exist')
"""The refusal of a user by a server that asks this user for no password."""


def parse_sqlstate(message: str) -> str:
    return next((state for text, state in _LOGIN.items() if re.search(text, message)), "")


def is_refused_password(error: Exception) -> bool:
    """Return whether an error of connecting refuses user or password."""
    refused = parse_sqlstate(str(error)) == LOGIN_REFUSED or _UNKNOWN_ROLE.search(str(error)) is not None
    return isinstance(error, psycopg.Error) and refused


def is_stale_plan(error: psycopg.Error) -> bool:
    return (error.sqlstate, error.diag.source_function) == _STALE_PLAN


def build_consumer_error(error: psycopg.Error, where: str, user: str, hint: str = "") -> ConsumerError:
    """Return the consumer's error with a message for people.

    `where`: the target; `hint`: a text with the qualified names of the tables in use.
    """
    state = error.sqlstate or parse_sqlstate(str(error))
    kind = TransientError if is_stale_plan(error) else get_error_class(error, state)
    read = name_catalog_read(hint)
    about = f"reading {read}: " if read else ""
    message = f"{where}: {about}{describe_server_error(error, state)} ({state or type(error).__name__})"
    if state == DENIED and (grant := grant_for(str(error), user, hint)):
        return MissingGrantError(message, grant)
    if read and state in _UNKNOWN:
        return TargetConfigError(message, UNKNOWN_THERE)
    remedy = REMEDIES.get(state, UNDO if issubclass(kind, TargetConfigError) else "")
    return kind(message, remedy)


def build_connect_error(error: psycopg.Error, where: str, target: TargetConfig) -> ConsumerError:
    """Return the consumer's error of a connection that was not made. It always has a remedy."""
    if (remedy := explain_refused_certificate(error)) is not None:
        message = f"{where}: a certificate is refused: {describe_server_error(error, '')}"
        return TargetConfigError(message, remedy)
    found = build_consumer_error(error, where, target.user)
    if isinstance(found, MissingGrantError):
        return found
    remedy = add_secret_place(found.problem.remedy or _NOT_CONNECTED, target.password)
    return type(found)(found.problem.what, remedy)
