"""The rendering of Oracle's names and statements. Pure.

A name without upper-case letters is written in upper case, as the server stores names that people write
without quotation marks; any other name is written as it is. `restore_spelling` is the reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from consumer.errors import TargetConfigError
from consumer.ordering.model import TargetTable
from consumer.targets.sql import qualify_table
from schemas.table.model import UniqueIndex
from schemas.table.names import NameRules
from schemas.table.oracle_ddl import is_lob, render_oracle_type

IDENTIFIER_BYTES = 128
LOCK_WAIT_S = 10
_LOCKING = " FOR UPDATE WAIT "


def normalize_name(name: str) -> str:
    """Return the name as it is in the data dictionary."""
    return name.upper() if name == name.lower() else name


class OracleNames(NameRules):
    """The comparison of Oracle's names of schemas, tables and columns: two are the same if `fold_name`
    returns one text for both.

    The data dictionary contains only that text, not the spelling of the statement.
    """

    def fold_name(self, text: str) -> str:
        return normalize_name(text)


ORACLE_NAMES: NameRules = OracleNames(folds=True, keeps_spelling=False)


def restore_spelling(name: str, place: str) -> str:
    """Return rowlock's spelling of a name of the data dictionary, for a table called `place` in the
    route.

    It is lower case, like in most sources; if the route writes the table in upper case, so are its
    columns.
    """
    shouted = place == place.upper() and place != place.lower()
    return name.lower() if name == name.upper() and not shouted else name


def quote_bare(name: str) -> str:
    """Quote an identifier in a finished statement. Raises TargetConfigError if Oracle allows no such name."""
    if '"' in name or "\0" in name or not name:
        raise TargetConfigError(
            f"Oracle has no empty names and none with a quotation mark or a NUL character: {name!r}",
            "give the table or column another name at the source",
        )
    return f'"{normalize_name(name)}"'


def quote_identifier(name: str) -> str:
    """Quote an identifier in a text with `%s` placeholders."""
    return quote_bare(name).replace("%", "%%")


def explain_name(name: str) -> str:
    """Return why Oracle cannot have a name; "": it can."""
    if name and len(name.encode()) <= IDENTIFIER_BYTES and '"' not in name and "\0" not in name:
        return ""
    return f"Oracle has names of 1 to {IDENTIFIER_BYTES} bytes without quotation marks, and {name!r} is none"


def explain_column_name(name: str) -> str:
    """Return why Oracle cannot have a column of this name; "": it can."""
    if normalize_name(name) == "ROWID":
        return "every table of Oracle has a pseudocolumn ROWID"
    return explain_name(name)


def render_locking_select(select: str) -> str:
    return f"{select}{_LOCKING}{LOCK_WAIT_S}"


def render_lock_wait(text: str, seconds: float) -> str:
    """Return a text of `render_locking_select` that waits for `seconds`, at least one."""
    select, mark, _ = text.rpartition(_LOCKING)
    return f"{select}{mark}{max(1, round(seconds))}" if mark else text


def render_page(select: str, order: str, rows: int) -> str:
    return f"{select} ORDER BY {order} FETCH FIRST {rows:d} ROWS ONLY"


def render_create(name: str, body: str) -> str:
    """Return CREATE TABLE, which fails if the name is taken; OracleLink.execute then checks whether it
    is a table.
    """
    return f"CREATE TABLE {name} ({body})"


def render_insert(name: str, columns: Sequence[str], rows: int) -> str:
    """Return the INSERT of one row, however many `rows`.

    The link binds an array to it, because only Oracle 23ai has VALUES with many rows.
    """
    return f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"


@lru_cache(maxsize=2048)
def number_marks(text: str) -> tuple[str, int]:
    """Return the text with the driver's placeholders (:1, :2, …), and how many there are."""
    parts = text.split("%s")
    out = [parts[0].replace("%%", "%")]
    for at, part in enumerate(parts[1:], 1):
        out.append(f":{at}{part.replace('%%', '%')}")
    return "".join(out), len(parts) - 1


@dataclass(frozen=True)
class OraclePlan:
    """The statements of one table, with the driver's placeholders.

    `upsert`: MERGE; None where `update` and `insert` are used instead, because a LOB can be bound only
    in VALUES and SET.
    """

    name: str
    table_name: str  # "schema.name", for messages
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    delete: str
    insert: str
    upsert: str | None
    update: str
    unique: tuple[UniqueIndex, ...]
    others_at: tuple[int, ...]


def build_oracle_plan(table: TargetTable) -> OraclePlan:
    """Return all statements for `table`. `update` takes the other columns, then those of the key."""
    name = qualify_table(quote_bare, table.schema, table.name)
    columns = [quote_bare(column) for column in table.table.column_names]
    key = [quote_bare(column) for column in table.table.key.columns]
    others = [at for at, column in enumerate(columns) if column not in key]
    written = set(table.table.column_names)
    listed, marks = ", ".join(columns), ", ".join(f":{at}" for at in range(1, len(columns) + 1))
    sets = ", ".join(f"{columns[at]} = :{number}" for number, at in enumerate(others, 1))
    lobs = any(is_lob(render_oracle_type(column.type)) for column in table.table.columns)
    return OraclePlan(
        name=name,
        table_name=f"{table.schema}.{table.name}",
        columns=tuple(columns),
        key_columns=tuple(key),
        delete=f"DELETE FROM {name} WHERE {_render_equality(key, 1)}",
        insert=f"INSERT INTO {name} ({listed}) VALUES ({marks})",
        upsert=None if lobs else _render_merge(name, columns, key),
        update=f"UPDATE {name} SET {sets or f'{key[0]} = {key[0]}'} WHERE "
        f"{_render_equality(key, len(others) + 1)}",
        unique=tuple(index for index in table.table.unique if written.issuperset(index.columns)),
        others_at=tuple(others),
    )


def _render_equality(columns: Sequence[str], start: int) -> str:
    return " AND ".join(f"{column} = :{number}" for number, column in enumerate(columns, start))


def _render_merge(name: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Return a MERGE that takes the key, the other columns, then all columns.

    A value that is bound in the USING clause would only have the driver's type. No column of the ON
    clause is assigned (ORA-38104).
    """
    others = [column for column in columns if column not in key]
    same = " AND ".join(f"t.{column} = :{number}" for number, column in enumerate(key, 1))
    sets = ", ".join(f"t.{column} = :{number}" for number, column in enumerate(others, len(key) + 1))
    matched = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
    values = ", ".join(f":{number}" for number in range(len(columns) + 1, 2 * len(columns) + 1))
    return (
        f"MERGE INTO {name} t USING dual ON ({same}){matched} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )
