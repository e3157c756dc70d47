"""The errors of MySQL and MariaDB, by number: the consumer's class of each, and its remedy.

Data, and no I/O.
"""

from __future__ import annotations

import re

import pymysql

from consumer.errors import (
    FEWER_COLUMNS,
    UNDO,
    ConsumerError,
    LockWaitError,
    MissingGrantError,
    RefusedError,
    RowTooLargeError,
    ServerSilentError,
    TableMissingError,
    TableTooLargeError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.targets.mysql.rights import grant_for
from consumer.targets.silence import is_silence
from schemas.io.server_errors import UNKNOWN_OBJECT_CODES, UNKNOWN_THERE, get_noted_read

CONNECTION_LOST = frozenset(
    {0, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)
#: Errors during COMMIT after which only the progress row shows the outcome.
COMMIT_UNKNOWN = CONNECTION_LOST | {1180, 1317, 3024}
_UNIQUE = frozenset({1062, 1169, 1586})
#: 1095: KILL of another user's connection.
_CONFIG = frozenset({
    1044, 1045, 1049, 1054, 1064, 1095, 1109, 1142, 1143, 1227, 1305, 1370, 1698, 1103, 1115, 1273,
    3730, 3118, 4151,
    1031, 1036, 1288, 1348, 1471, 1906, 3105,  # views, tables that cannot be written, generated columns
    1488, 1503, 1553, 1828, 1829, 1832, 1833, 1834, 3108, 3780, 3837, 3855,
    3959,  # what uses a column or index that would change
    1059, 1069, 1070, 1071, 1074, 1117, 1170, 1425, 1426, 1439, 1709,  # limits of a table
    3775,  # an expression as DEFAULT of a new column, which GTIDs did not allow in early versions of 8.0
})  # fmt: skip
_REFUSED = frozenset({
    1048, 1138, 1136, 1153, 1216, 1217, 1263, 1264, 1265, 1267, 1270, 1271, 1292, 1300, 1364, 1365,
    1366, 1367, 1406, 1411, 1416, 1441, 1451, 1452, 1526, 1644, 1690, 1748, 3032, 3036,
    1713, 3037, 3140, 3141, 3143, 3146, 3156, 3617, 3643, 3819, 3854, 3903, 3988, 4025, 4078,
})  # fmt: skip
#: The row that a statement writes takes too much of a page, or every row of the table that it defines may.
_ROW_TOO_LARGE = 1118
_DEFINES_TABLE = re.compile(r"\s*(?:CREATE|ALTER)\s")
#: In MariaDB's message of a table that cannot be created (error 1005).
_TOO_MANY_COLUMNS = "errno: 185 "
_MISSING = frozenset({1146})
_LOCK_WAIT = frozenset({1205})
#: Deadlock, changed since read, read-only server (failover), disk full, too many connections, interrupted.
_TRANSIENT = frozenset({1020, 1021, 1040, 1114, 1203, 1213, 1226, 1290, 1317, 1836, 3024, 3572})
_CLASSES: dict[str, type[ConsumerError]] = {"22": RefusedError, "23": RefusedError, "42": TargetConfigError}
#: The user may not use the database, or it does not exist and the user may not know that.
DATABASE_REFUSED = 1044
#: A right is missing, on a database, table, column or routine, or a right of the server.
DENIED = frozenset({DATABASE_REFUSED, 1142, 1143, 1227, 1370})
#: Its text would reveal values of a row.
_ENTRY = re.compile(r"Duplicate entry '.*' for key")
REMEDIES = {
    **dict.fromkeys(
        DENIED,
        "give the user the right that it lacks, `rowlock check` prints the GRANT "
        "(see `rowlock docs target-setup`)",
    ),
    **dict.fromkeys(
        (3108, 3837),
        (
            "drop the generated column or the index in the target that is computed from this column, "
            "and create it again afterwards"
        ),
    ),
    3959: "drop the check constraint in the target, and create it again afterwards",
    **dict.fromkeys(
        (1488, 1503, 3855),
        (
            "partition the target table by key columns that the source neither renames nor drops, or remove "
            "its partitioning"
        ),
    ),
    **dict.fromkeys(
        (1553, 1828, 1829, 1832, 1833, 1834, 3730, 3780),
        "drop the foreign key in the target, for the source already guarantees it",
    ),
    1049: "create the database, or correct its name in the configuration",
    1146: "create the table, or let rowlock create it (create_tables)",
    **dict.fromkeys(
        (1906, 3105), "make the generated column an ordinary one, for its values come from the source"
    ),
    1054: "add the column to the target table, or leave it out of the route",
    1153: "raise max_allowed_packet of the target",
    **dict.fromkeys(
        (1069, 1070, 1071, 1170, 1709),
        "give the target table shorter columns in this key by hand, or leave this unique index out there, "
        "for the source keeps its rows unique",
    ),
    **dict.fromkeys(
        (1074, _ROW_TOO_LARGE),
        "make the longest columns of the target table TEXT or BLOB by hand; `rowlock quarantine retry` then "
        "writes rows that were refused",
    ),
    1117: FEWER_COLUMNS,
    1713: "drop indexes over long columns in the target; `rowlock quarantine retry` then writes the row",
}


def get_error_code(error: pymysql.MySQLError) -> int:
    """Return the error number; 0 for the driver's own "connection is closed"."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


#: MariaDB's message when an expression of the table uses a column that is to be dropped.
_USED = re.compile(r"Unknown column .* in '(?:GENERATED ALWAYS AS|CHECK|DEFAULT)'")


def find_remedy(code: int, message: str) -> str | None:
    """Return what a person should do about an error; None: no specific remedy is known."""
    if _USED.search(message):
        return (
            "drop what uses the column in the target (generated column, check constraint, default), "
            "and create it again afterwards"
        )
    return REMEDIES.get(code)


def _find_meaning(error: pymysql.MySQLError) -> int:
    """Return the error number. For a table that MariaDB cannot create, it is that of the reason if known."""
    code = get_error_code(error)
    return 1117 if code == 1005 and _TOO_MANY_COLUMNS in str(error) else code


def get_error_class(error: pymysql.MySQLError, statement: str = "") -> type[ConsumerError]:
    """Return the consumer's class by error number, else by SQLSTATE class.

    A limit that a table's definition exceeds is no fault of a row: no row may be quarantined for it, nor
    deleted so that a statement succeeds. An unknown error is transient: retries are bounded, whereas a wrong
    "refused" would quarantine good rows.
    """
    code = _find_meaning(error)
    if code == _ROW_TOO_LARGE:
        return TableTooLargeError if _DEFINES_TABLE.match(statement) else RowTooLargeError
    if code in CONNECTION_LOST and is_silence(error):
        return ServerSilentError
    kinds: tuple[tuple[frozenset[int], type[ConsumerError]], ...] = (
        (_UNIQUE, UniqueViolationError),
        (_REFUSED, RefusedError),
        (_MISSING, TableMissingError),
        (_CONFIG, TargetConfigError),
        (_LOCK_WAIT, LockWaitError),
        (_TRANSIENT | CONNECTION_LOST, TransientError),
    )
    by_class = _CLASSES.get(str(getattr(error, "sqlstate", None))[:2], TransientError)
    return next((kind for codes, kind in kinds if code in codes), by_class)


def build_consumer_error(
    error: pymysql.MySQLError, where: str, account: str, statement: str = ""
) -> ConsumerError:
    """Return the consumer's error with a message for people.

    `where`: the target; `account`: the user as the server knows it.
    """
    code = get_error_code(error)
    text = error.args[-1] if error.args else error
    message_text = _ENTRY.sub("Duplicate entry for key", " ".join(str(text).split()))
    read = get_noted_read(error)
    about = f"reading {read}: " if read else ""
    message = f"{where}: {about}{message_text} ({code or type(error).__name__})"
    if code in DENIED and (grant := grant_for(str(text), account, statement)):
        return MissingGrantError(message, grant)
    if read and code in UNKNOWN_OBJECT_CODES:
        return TargetConfigError(message, UNKNOWN_THERE)
    kind = get_error_class(error, statement)
    remedy = find_remedy(_find_meaning(error), message_text) or (
        UNDO if issubclass(kind, TargetConfigError) else ""
    )
    return kind(message, remedy)
