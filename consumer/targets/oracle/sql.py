"""Names and statements of Oracle, rendered purely.

Names: a name without upper-case letters is written in upper case, as the server keeps what people write without quotation marks; any
other name is written as it is. `spelled` is the way back.
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
    """Return the name as it is in the server's catalogue."""
    return name.upper() if name == name.lower() else name


class ColumnNames(NameRules):
    """Names of columns as Oracle compares them: two are the same if `named` returns one text for both. Its catalogue shows that text alone, not what was written."""

    def fold_name(self, text: str) -> str:
        return normalize_name(text)


COLUMN_NAMES: NameRules = ColumnNames(folds=True, keeps_spelling=False)


def restore_spelling(name: str, place: str) -> str:
    """Return a name of the catalogue as rowlock says it, for a table that is called `place` in the route.

    In lower case, as most sources have it. Where the route writes the table in upper case, so are its columns.
    """
    shouted = place == place.upper() and place != place.lower()
    return name.lower() if name == name.upper() and not shouted else name


def quote_bare(name: str) -> str:
    """Quote an identifier in a finished statement. Raises TargetConfigError: Oracle has no such name."""
    if '"' in name or "\0" in name or not name:
        raise TargetConfigError(
            f"Oracle has no names with quotation marks, and none without a character, and {name!r} is one: give it another at the source"
        )
    return f'"{normalize_name(name)}"'


def quote_identifier(name: str) -> str:
    """Quote an identifier in a text in which values are put for `%s`."""
    return quote_bare(name).replace("%", "%%")


def require_fit(place: str, *names: str) -> None:
    """Raise TargetConfigError for names that Oracle cannot have."""
    for name in names:
        if len(name.encode()) > IDENTIFIER_BYTES or '"' in name or "\0" in name or not name:
            raise TargetConfigError(
                f"target table {place}: Oracle has names of 1 to {IDENTIFIER_BYTES} bytes without quotation marks, and {name!r} is none: "
                "shorten the table's name by a route of its own (`to`), a column's at the source, or leave the table out"
            )


def render_locking_select(select: str) -> str:
    return f"{select}{_LOCKING}{LOCK_WAIT_S}"


def render_lock_wait(text: str, seconds: float) -> str:
    """Return a text of `locked` that waits for `seconds`; at least one."""
    select, mark, _ = text.rpartition(_LOCKING)
    return f"{select}{mark}{max(1, round(seconds))}" if mark else text


def render_page(select: str, order: str, rows: int) -> str:
    return f"{select} ORDER BY {order} FETCH FIRST {rows:d} ROWS ONLY"


def render_create(name: str, body: str) -> str:
    """Fails where the name is taken; the link asks then whether it is the table's (OracleLink.execute)."""
    return f"CREATE TABLE {name} ({body})"


def render_insert(name: str, columns: Sequence[str], rows: int) -> str:
    """One row's statement, however many `rows`: the link binds an array to it, for VALUES of many rows are Oracle 23ai's."""
    return f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"


@lru_cache(maxsize=2048)
def number_marks(text: str) -> tuple[str, int]:
    """Return the text with the driver's marks (:1, :2, …), and how many there are."""
    parts = text.split("%s")
    out = [parts[0].replace("%%", "%")]
    for at, part in enumerate(parts[1:], 1):
        out.append(f":{at}{part.replace('%%', '%')}")
    return "".join(out), len(parts) - 1


@dataclass(frozen=True)
class OraclePlan:
    """Statements of one table, with the driver's marks. `upsert`: MERGE; None where `update` and `insert` do its work: a bound LOB
    stands in VALUES and SET alone."""

    name: str
    table_name: str  # "schema.name", for people
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    delete: str
    insert: str
    upsert: str | None
    update: str
    unique: tuple[UniqueIndex, ...]
    others_at: tuple[int, ...]


def build_oracle_plan(table: TargetTable) -> OraclePlan:
    """Render everything for `table`. `update` takes the other columns, then the key's."""
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
        update=f"UPDATE {name} SET {sets or f'{key[0]} = {key[0]}'} WHERE {_render_equality(key, len(others) + 1)}",
        unique=tuple(index for index in table.table.unique if written.issuperset(index.columns)),
        others_at=tuple(others),
    )


def _render_equality(columns: Sequence[str], start: int) -> str:
    return " AND ".join(f"{column} = :{number}" for number, column in enumerate(columns, start))


def _render_merge(name: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Takes the key, the other columns, then all columns: a value bound into the USING clause would have no type but the driver's. No
    column of the ON clause is assigned (ORA-38104)."""
    others = [column for column in columns if column not in key]
    same = " AND ".join(f"t.{column} = :{number}" for number, column in enumerate(key, 1))
    sets = ", ".join(f"t.{column} = :{number}" for number, column in enumerate(others, len(key) + 1))
    matched = f" WHEN MATCHED THEN UPDATE SET {sets}" if sets else ""
    values = ", ".join(f":{number}" for number in range(len(columns) + 1, 2 * len(columns) + 1))
    return (
        f"MERGE INTO {name} t USING dual ON ({same}){matched} "
        f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )
