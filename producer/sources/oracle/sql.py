"""The SQL of capture on Oracle, as text. Pure.

Binds are numbered, names are quoted, and times and numbers are converted with explicit formats, so that
nothing depends on a session's NLS settings. Statements that come from Oracle's reference, and have not
run on a server yet, are tested by `make test-oracle` only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

TableName = tuple[str, str]

IDENTITY = (
    "SELECT TO_CHAR(DBID), TO_CHAR(RESETLOGS_CHANGE#), SYS_CONTEXT('USERENV', 'CON_NAME') FROM V$DATABASE"
)
SELECT_VERSION = "SELECT VERSION FROM PRODUCT_COMPONENT_VERSION WHERE PRODUCT LIKE 'Oracle%'"
INSTANCES = "SELECT COUNT(*) FROM GV$INSTANCE"
SELECT_TIME_PAIR = (
    "SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD\"T\"HH24:MI:SS.FF3'), "
    "TO_CHAR(SYSDATE - 2 / 86400, 'YYYY-MM-DD\"T\"HH24:MI:SS') FROM DUAL"
)
"""The present time in UTC, and the time two seconds ago by the server's clock, which LAST_DDL_TIME uses."""

LOGS = (
    "SELECT LOG_OWNER, MASTER, LOG_TABLE, PRIMARY_KEY, SEQUENCE, INCLUDE_NEW_VALUES, COMMIT_SCN_BASED, "
    "STAGING_LOG FROM ALL_MVIEW_LOGS"
)
"""A table and its log have the same owner."""
SELECT_TABLES = "SELECT OWNER, TABLE_NAME FROM ALL_TABLES"
_OBJECTS = (
    "SELECT OWNER, OBJECT_NAME, OBJECT_TYPE, OBJECT_ID, DATA_OBJECT_ID, TO_CHAR(LAST_DDL_TIME, "
    "'YYYY-MM-DD\"T\"HH24:MI:SS'), TIMESTAMP FROM ALL_OBJECTS WHERE OBJECT_TYPE IN ('TABLE', 'TABLE "
    "PARTITION', 'TABLE SUBPARTITION') AND"
)
_LOADS = "SELECT TABLEOBJ#, TO_CHAR(MAX(SCN)) FROM ALL_SUMDELTA WHERE TABLEOBJ# IN ({}) GROUP BY TABLEOBJ#"
_COLUMNS = (
    "SELECT OWNER, TABLE_NAME, COLUMN_NAME, DATA_TYPE, DATA_LENGTH, CHAR_LENGTH, DATA_PRECISION, "
    "DATA_SCALE, NULLABLE, VIRTUAL_COLUMN, DEFAULT_LENGTH FROM ALL_TAB_COLS WHERE HIDDEN_COLUMN = 'NO' AND"
)
_CONSTRAINTS = (
    "SELECT C.OWNER, C.TABLE_NAME, C.CONSTRAINT_NAME, C.CONSTRAINT_TYPE, P.COLUMN_NAME FROM ALL_CONSTRAINTS "
    "C JOIN ALL_CONS_COLUMNS P ON P.OWNER = C.OWNER AND P.CONSTRAINT_NAME = C.CONSTRAINT_NAME WHERE "
    "C.CONSTRAINT_TYPE IN ('P', 'U') AND C.STATUS = 'ENABLED' AND"
)
_CONSTRAINTS_END = "ORDER BY C.OWNER, C.TABLE_NAME, C.CONSTRAINT_NAME, P.POSITION"
_INDEXES = (
    "SELECT I.TABLE_OWNER, I.TABLE_NAME, I.INDEX_NAME, 'U', P.COLUMN_NAME FROM ALL_INDEXES I "
    "JOIN ALL_IND_COLUMNS P ON P.INDEX_OWNER = I.OWNER AND P.INDEX_NAME = I.INDEX_NAME "
    "WHERE I.UNIQUENESS = 'UNIQUE' AND"
)
_INDEXES_END = "ORDER BY I.TABLE_OWNER, I.TABLE_NAME, I.INDEX_NAME, P.COLUMN_POSITION"
_ROWS_ABOUT = "SELECT NUM_ROWS FROM ALL_TABLES WHERE OWNER = :1 AND TABLE_NAME = :2"
_ESTIMATE = "SELECT NUM_ROWS, AVG_ROW_LEN FROM ALL_TABLES WHERE OWNER = :1 AND TABLE_NAME = :2"

SqlStatement = tuple[str, list[object]]


def _build_name_condition(names: Sequence[TableName], owner: str, table: str) -> SqlStatement:
    """Return a condition on the columns `owner`, `table`, and its binds."""
    each = [f"({owner} = :{2 * i + 1} AND {table} = :{2 * i + 2})" for i in range(len(names))]
    return f"({' OR '.join(each)})", [part for name in names for part in name]


def select_objects(names: Sequence[TableName]) -> SqlStatement:
    """Return a SELECT of tables and their partitions.

    Columns: owner, name, type, OBJECT_ID, DATA_OBJECT_ID, and the times of the last DDL and of the last
    DDL that changed columns, in whole seconds.
    """
    condition, binds = _build_name_condition(names, "OWNER", "OBJECT_NAME")
    return f"{_OBJECTS} {condition}", binds


def select_direct_loads(ids: Sequence[int]) -> SqlStatement:
    """Return a SELECT of (OBJECT_ID of a table, SCN of the last direct-path load into it)."""
    return _LOADS.format(", ".join(f":{i + 1}" for i in range(len(ids)))), list(ids)


def select_columns(names: Sequence[TableName]) -> SqlStatement:
    condition, binds = _build_name_condition(names, "OWNER", "TABLE_NAME")
    return f"{_COLUMNS} {condition} ORDER BY OWNER, TABLE_NAME, COLUMN_ID", binds


def select_constraints(names: Sequence[TableName]) -> SqlStatement:
    """Return a SELECT of (owner, table, name, P or U, column), columns in their order."""
    condition, binds = _build_name_condition(names, "C.OWNER", "C.TABLE_NAME")
    return f"{_CONSTRAINTS} {condition} {_CONSTRAINTS_END}", binds


def select_indexes(names: Sequence[TableName]) -> SqlStatement:
    """Return a SELECT with the columns of `select_constraints`."""
    condition, binds = _build_name_condition(names, "I.TABLE_OWNER", "I.TABLE_NAME")
    return f"{_INDEXES} {condition} {_INDEXES_END}", binds


def select_refreshed_views(names: Sequence[TableName]) -> SqlStatement:
    """Return a SELECT of the materialized views that are refreshed from the logs of tables.

    Columns: owner of a table, table, name of the view (NULL: it is not registered here), its number.
    """
    condition, binds = _build_name_condition(names, "B.OWNER", "B.MASTER")
    return (
        "SELECT B.OWNER, B.MASTER, R.NAME, B.MVIEW_ID FROM ALL_BASE_TABLE_MVIEWS B "
        f"LEFT JOIN ALL_REGISTERED_MVIEWS R ON R.MVIEW_ID = B.MVIEW_ID WHERE {condition}"
    ), binds


def select_policies(names: Sequence[TableName]) -> SqlStatement:
    """Return a SELECT of (owner, table, name) of the row level policies that hide rows from this user;
    no row if the user is exempt from all.
    """
    condition, binds = _build_name_condition(names, "P.OBJECT_OWNER", "P.OBJECT_NAME")
    return (
        "SELECT P.OBJECT_OWNER, P.OBJECT_NAME, P.POLICY_NAME FROM ALL_POLICIES P WHERE P.ENABLE = "
        "'YES' AND P.SEL = 'YES' AND NOT EXISTS (SELECT 1 FROM SESSION_PRIVS WHERE PRIVILEGE = "
        f"'EXEMPT ACCESS POLICY') AND {condition}"
    ), binds


def select_row_estimate(name: TableName) -> SqlStatement:
    return _ROWS_ABOUT, list(name)


def select_size_estimate(name: TableName) -> SqlStatement:
    """Return a SELECT of (number of rows, bytes of a row), both from the statistics."""
    return _ESTIMATE, list(name)


# --- tables and their logs


def quote_names(*names: str) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def select_log_rows(
    log: TableName, expressions: Sequence[str], extra: Collection[str], limit: int
) -> SqlStatement:
    """Return the SELECT of the first `limit` rows of a log.

    Columns: ROWID, SEQUENCE$$, DMLTYPE$$, OLD_NEW$$, XID$$, commit SCN, then the image. `extra`: which
    of XID$$ and COMMIT_SCN the log has. The log has the alias `l`. Rows without a known commit SCN
    (NULL) come first, because they must not be skipped.
    """
    xid = 'TO_CHAR(l."XID$$")' if "XID$$" in extra else "NULL"
    scn, join, order = "0", "", 'l."SEQUENCE$$"'
    if "COMMIT_SCN" in extra:
        scn, join = "s.COMMIT_SCN", ' LEFT JOIN ALL_SUMMAP s ON s.XID = l."XID$$"'
        order = f"s.COMMIT_SCN NULLS FIRST, {order}"
    values = "".join(f", {each}" for each in expressions)
    return (
        f'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$", l."DMLTYPE$$", l."OLD_NEW$$", {xid}, {scn}{values} '
        f"FROM {quote_names(*log)} l{join} ORDER BY {order} FETCH FIRST {limit:d} ROWS ONLY"
    ), []


def select_log_places(log: TableName, limit: int) -> SqlStatement:
    """Return the SELECT of ROWID and SEQUENCE$$ of at most `limit` rows of a log."""
    return (
        (
            f'SELECT ROWIDTOCHAR(l.ROWID), l."SEQUENCE$$" FROM {quote_names(*log)} l '
            f"FETCH FIRST {limit:d} ROWS ONLY"
        ),
        [],
    )


def select_log_count(log: TableName, limit: int) -> SqlStatement:
    """Return the SELECT that counts a log's rows up to a limit."""
    return (
        f"SELECT COUNT(*) FROM (SELECT 1 AS N FROM {quote_names(*log)} l FETCH FIRST {limit:d} ROWS ONLY) n",
        [],
    )


def select_log_end(log: TableName) -> SqlStatement:
    return f'SELECT MAX(l."SEQUENCE$$") FROM {quote_names(*log)} l', []


def select_log_until(log: TableName, end: int) -> SqlStatement:
    """Return the SELECT of one row of a log with a number up to `end`."""
    return f'SELECT 1 FROM {quote_names(*log)} l WHERE l."SEQUENCE$$" <= :1 FETCH FIRST 1 ROWS ONLY', [end]


def delete_places(log: TableName) -> str:
    """Return the DELETE of one row of a log by ROWID and SEQUENCE$$, to be executed for many rows."""
    return f'DELETE FROM {quote_names(*log)} WHERE ROWID = :1 AND "SEQUENCE$$" = :2'


def select_no_row(table: TableName) -> SqlStatement:
    """Return a SELECT of no row, which tests the user's right to read."""
    return f"SELECT COUNT(*) FROM {quote_names(*table)} WHERE 1 = :1", [0]


def delete_no_row(log: TableName) -> str:
    """Return a DELETE of no row (its bind is 0), which tests the user's right to delete."""
    return f"DELETE FROM {quote_names(*log)} WHERE 1 = :1"


def build_chunk_select(
    table: TableName,
    expressions: Sequence[str],
    keys: Sequence[tuple[str, str]],
    limit: int,
    where: str | None,
    *,
    has_lower_bound: bool,
) -> str:
    """Return the SELECT of a chunk of a table in key order; the table has the alias `l`.

    `keys`: name of each key column, and the expression of its bind (with `{}` for the bind).
    `has_lower_bound`: select the rows after a key; its values are bound once for each comparison
    (`build_chunk_binds`). `where`: a complete condition that the rows must meet.
    """
    conditions = [f"({where}\n)"] if where is not None else []
    if has_lower_bound:
        conditions.append(_build_key_condition(keys))
    test = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    order = ", ".join(f"l.{quote_names(name)}" for name, _ in keys)
    return (
        f"SELECT {', '.join(expressions)} FROM {quote_names(*table)} l{test} ORDER BY {order} "
        f"FETCH FIRST {limit:d} ROWS ONLY"
    )


def select_rows_by_keys(
    table: TableName, expressions: Sequence[str], keys: Sequence[tuple[str, str]], count: int
) -> str:
    """Return the SELECT of the rows of a table (alias `l`) with one of `count` keys, each bound in the
    order of its columns.
    """
    number, alternatives = 0, []
    for _ in range(count):
        parts = []
        for name, bind in keys:
            number += 1
            parts.append(f"l.{quote_names(name)} = {bind.format(f':{number}')}")
        alternatives.append(f"({' AND '.join(parts)})")
    return f"SELECT {', '.join(expressions)} FROM {quote_names(*table)} l WHERE {' OR '.join(alternatives)}"


def select_log_rows_by_keys(
    log: TableName, expressions: Sequence[str], keys: Sequence[tuple[str, str]], count: int
) -> str:
    """Return the SELECT of all rows of a log with one of `count` keys, with the columns of
    `select_log_rows`, without transactions.
    """
    own = [
        "ROWIDTOCHAR(l.ROWID)",
        *(f"l.{quote_names(each)}" for each in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$")),
    ]
    return select_rows_by_keys(log, [*own, "NULL", "0", *expressions], keys, count)


def _build_key_condition(keys: Sequence[tuple[str, str]]) -> str:
    """Return a condition for the keys after a key.

    The values of the first columns are bound once for each later column.
    """
    number, alternatives = 0, []
    for last in range(len(keys)):
        parts = []
        for i, (name, bind) in enumerate(keys[: last + 1]):
            number += 1
            parts.append(f"l.{quote_names(name)} {'>' if i == last else '='} {bind.format(f':{number}')}")
        alternatives.append(f"({' AND '.join(parts)})")
    return f"({' OR '.join(alternatives)})"


def build_chunk_binds(key: Sequence[object]) -> list[object]:
    """Return the binds of `build_chunk_select` for the rows after a key."""
    return [value for last in range(len(key)) for value in key[: last + 1]]
