"""Errors of Oracle and its driver, by code: the consumer's class of each, and its remedy. Data, and no
I/O.

ORA numbers and their meanings are from the reference and from memory; `make test-oracle` is to verify
them on a server.
"""

from __future__ import annotations

import oracledb

from consumer.errors import (
    FEWER_COLUMNS,
    UNDO,
    AlreadyExistsError,
    ConsumerError,
    LockWaitError,
    RefusedError,
    TableMissingError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from schemas.io.oracle_connection import format_oracle_error, get_oracle_error_code
from schemas.io.server_errors import UNKNOWN_THERE, name_catalog_read

#: The connection is lost or unusable.
CONNECTION_LOST = frozenset({
    "DPY-1001", "DPY-4011", "DPY-6005", "DPY-6000", "ORA-00028", "ORA-01012", "ORA-01033", "ORA-01034",
    "ORA-01041", "ORA-01089", "ORA-01092", "ORA-02396", "ORA-02399", "ORA-03113", "ORA-03114", "ORA-03135",
    "ORA-12537", "ORA-12547", "ORA-12570",
})  # fmt: skip
#: A statement was given up after `call_timeout`; the outcome of a COMMIT is then unknown.
TIMED_OUT = "DPY-4024"
#: A column, or a view's column, does not exist.
UNKNOWN_COLUMN_CODE = "ORA-00904"
NAME_TAKEN = "ORA-00955"
UNIQUE = "ORA-00001"
#: Oracle reports a table that does not exist and one that this user may not see in the same way.
MISSING_TABLE = "ORA-00942"
#: A right is missing, on a table that this user may see.
DENIED = frozenset({"ORA-01031", "ORA-41900"})
_LOCK_WAIT = frozenset({"ORA-00054", "ORA-30006", TIMED_OUT})
_REFUSED = frozenset({
    "ORA-00932", "ORA-01400", "ORA-01407", "ORA-01426", "ORA-01438", "ORA-01440", "ORA-01461", "ORA-01465",
    "ORA-01704", "ORA-01722", "ORA-01801", "ORA-01830", "ORA-01839", "ORA-01841", "ORA-01847", "ORA-01858",
    "ORA-01861", "ORA-01873", "ORA-01878", "ORA-02290", "ORA-02291", "ORA-02292", "ORA-12899", "ORA-14400",
    "ORA-14402", "ORA-22835", "ORA-40441", "ORA-22295", "DPY-2016", "DPY-3002", "DPY-3013", "DPY-4000",
})  # fmt: skip
_CONFIG = frozenset({
    "ORA-00900", "ORA-00904", "ORA-00972", "ORA-01017", "ORA-01045", "ORA-01031", "ORA-01441",
    "ORA-01439", "ORA-01451", "ORA-01442", "ORA-01536", "ORA-01653", "ORA-01950", "ORA-02256", "ORA-02264",
    "ORA-02266", "ORA-02273", "ORA-02327", "ORA-02329", "ORA-02449", "ORA-12991", "ORA-12992", "ORA-12983",
    "ORA-26002", "ORA-32795", "ORA-38104", "ORA-41900", "ORA-54013", "ORA-54017", "ORA-01732", "ORA-01733",
    "ORA-01779", "ORA-16000", "ORA-00959",
    "ORA-00910", "ORA-01450", "ORA-01792", "ORA-01793",  # limits of a table
})  # fmt: skip
#: A unique index cannot be built because rows are equal in it.
_EQUAL_ROWS = frozenset({"ORA-01452", "ORA-02299", "ORA-02437"})

_GRANT = (
    "give the user the right that it lacks, `rowlock check` prints the GRANT "
    "(see `rowlock docs target-setup`)"
)
REMEDIES = {
    **dict.fromkeys(DENIED, _GRANT),
    MISSING_TABLE: "create it, or let rowlock create it (create_tables); a table that the user may not see "
    "is answered alike: `rowlock check` prints the GRANT",
    "ORA-00904": "add the column to the target table, or leave it out of the route",
    "ORA-01400": "Oracle holds an empty text as NULL: let the column take NULL in the target",
    "ORA-01407": "Oracle holds an empty text as NULL: let the column take NULL in the target",
    "ORA-01536": "ALTER USER … QUOTA UNLIMITED ON the tablespace",
    "ORA-01950": "ALTER USER … QUOTA UNLIMITED ON the tablespace",
    "ORA-01653": "add a data file to the tablespace",
    "ORA-02266": "drop the foreign key in the target, for the source already guarantees it",
    "ORA-02273": "drop the foreign key in the target, for the source already guarantees it",
    "ORA-02449": "drop the foreign key in the target, for the source already guarantees it",
    "ORA-12991": "drop the constraint of several columns in the target, and create it again afterwards",
    "ORA-32795": "make the column an ordinary one (no GENERATED ALWAYS), for its values come from the source",
    "ORA-54013": "make the virtual column an ordinary one, for its values come from the source",
    "ORA-54017": "make the virtual column an ordinary one, for its values come from the source",
    "ORA-14400": "add a partition that takes every row",
    "ORA-00910": "make the column shorter or a CLOB in the target table by hand",
    "ORA-01450": "give the target table shorter columns in this key by hand, or leave this unique index out "
    "there, for the source keeps its rows unique",
    "ORA-01792": FEWER_COLUMNS,
    "ORA-01793": "leave this unique index out of the target table by hand, for the source keeps its rows "
    "unique",
    "ORA-16000": "name the primary in the configuration, for this is a standby that is open for reads",
}


def get_error_class(code: str) -> type[ConsumerError]:
    """Return the class of an error.

    An unknown error is transient: retries are bounded, whereas a wrong "refused" would quarantine good
    rows.
    """
    kinds: tuple[tuple[frozenset[str], type[ConsumerError]], ...] = (
        (frozenset({UNIQUE}) | _EQUAL_ROWS, UniqueViolationError),
        (frozenset({NAME_TAKEN}), AlreadyExistsError),
        (_LOCK_WAIT, LockWaitError),
        (_REFUSED, RefusedError),
        (frozenset({MISSING_TABLE}), TableMissingError),
        (_CONFIG, TargetConfigError),
    )
    return next((kind for codes, kind in kinds if code in codes), TransientError)


def build_consumer_error(
    error: oracledb.Error, where: str, statement: str = "", more: int = 0
) -> ConsumerError:
    """Return the consumer's error with a message for people.

    `where`: the target; `more`: how many other rows of the array failed.
    """
    code = get_oracle_error_code(error)
    kind = get_error_class(code)
    others = f", and {more} rows beside it" if more else ""
    about = f" in {statement.split(' (', maxsplit=1)[0][:120]}" if code == MISSING_TABLE and statement else ""
    message = f"{where}: {format_oracle_error(error)} ({code or type(error).__name__}{others}){about}"
    if code == UNKNOWN_COLUMN_CODE and (read := name_catalog_read(statement)) is not None:
        return TargetConfigError(f"{message}, reading {read}", UNKNOWN_THERE)
    remedy = REMEDIES.get(code) or (UNDO if issubclass(kind, TargetConfigError) else "")
    return kind(message, remedy)


#: The classes of errors of one array, by precedence.
_WEIGHT: tuple[type[ConsumerError], ...] = (
    TransientError,
    TargetConfigError,
    UniqueViolationError,
    RefusedError,
)


def find_gravest_error(codes: list[str]) -> int:
    """Return the index of the error of an array to raise: a retry comes before a person, a person
    before a quarantine.
    """

    def rank_error(at: int) -> int:
        kind = get_error_class(codes[at])
        return next(number for number, each in enumerate(_WEIGHT) if issubclass(kind, each))

    return min(range(len(codes)), key=rank_error)
