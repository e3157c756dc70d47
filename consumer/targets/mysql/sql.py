"""The rendering of MySQL's statements for one target table: multi-row statements on single tables.
Pure.

They use no multi-table DELETE and no temporary tables (proxies such as TDSQL's refuse both), and no
REPLACE (it silently deletes rows of other keys).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from consumer.ordering.model import TargetTable
from consumer.targets.sql import list_multiform_key_columns, qualify_table, quote_with
from schemas.table.model import NUMBERED, UniqueIndex

quote = quote_with("`")
#: For finished statements, which contain their values.
bare = quote_with("`", formatted=False)

#: Rows in one statement at most, and about how many bytes, as far as the packet limit allows.
MAX_ROWS = 5000
STATEMENT_BYTES = 1 << 20


@dataclass(frozen=True)
class MySqlPlan:
    """The statements of one table, without values."""

    name: str
    table_name: str  # "schema.name", for messages
    key_columns: tuple[str, ...]
    insert: str
    on_duplicate: str
    unique: tuple[UniqueIndex, ...]


def build_mysql_plan(table: TargetTable) -> MySqlPlan:
    name = qualify_table(bare, table.schema, table.name)
    columns = [bare(column) for column in table.table.column_names]
    key = tuple(bare(column) for column in table.table.key.columns)
    written = set(table.table.column_names)
    numbered = [column for column in table.table.columns if column.type.kind in NUMBERED.values()]
    by_number = {bare(column.name) for column in numbered}
    forms = _render_key_forms(
        key, [bare(column) for column in list_multiform_key_columns(table.table)], by_number
    )
    others = [f"{column} = {_render_new(column, by_number)}" for column in columns if column not in key]
    return MySqlPlan(
        name=name,
        table_name=f"{table.schema}.{table.name}",
        key_columns=key,
        insert=f"INSERT INTO {name} ({', '.join(columns)}) VALUES ",
        on_duplicate=_on_duplicate(key, forms + others),
        unique=tuple(index for index in table.table.unique if written.issuperset(index.columns)),
    )


def _on_duplicate(key: Sequence[str], sets: Sequence[str]) -> str:
    """Return the clause, which never assigns another key.

    If the conflict were with a row of another key, that row would get our key, and the count of keys
    after the statement (mysql/apply.py) would not detect it.
    """
    return f" ON DUPLICATE KEY UPDATE {', '.join(sets) or f'{key[0]} = {key[0]}'}"


def _render_key_forms(key: Sequence[str], columns: Sequence[str], by_number: Collection[str]) -> list[str]:
    """Return assignments of key columns that apply if the server considers the row's key the same,
    perhaps in another form.

    The condition stays true once an earlier column is assigned.
    """
    same = " AND ".join(
        f"{_render_old(column, by_number)} = {_render_new(column, by_number)}" for column in key
    )
    return [
        f"{column} = IF({same}, {_render_new(column, by_number)}, {_render_old(column, by_number)})"
        for column in columns
    ]


def _render_new(column: str, by_number: Collection[str]) -> str:
    """Return the new value of a column.

    The servers copy ENUM and SET by their text, which is ambiguous if a label is empty.
    """
    return f"CAST(VALUES({column}) AS UNSIGNED)" if column in by_number else f"VALUES({column})"


def _render_old(column: str, by_number: Collection[str]) -> str:
    return f"CAST({column} AS UNSIGNED)" if column in by_number else column


def measure_bytes(text: str) -> int:
    """Return the length of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def split_chunks(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of chunks of at most MAX_ROWS items and `limit` bytes together (at least one
    item).
    """
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and (total + size > limit or at - start >= MAX_ROWS):
            yield start, at
            start, total = at, 0
        total += size + 1
    if start < len(sizes):
        yield start, len(sizes)


def render_key_predicate(key_columns: Sequence[str], keys: Sequence[Sequence[str]]) -> str:
    """Return the predicate "key is one of `keys`" for escaped literals (see targets/sql.py,
    render_keys_in, for its form).
    """
    constant = [at for at in range(len(key_columns)) if all(key[at] == keys[0][at] for key in keys)]
    varying = [at for at in range(len(key_columns)) if at not in constant]
    parts = [f"{key_columns[at]} = {keys[0][at]}" for at in constant]
    if len(varying) == 1:
        parts.append(f"{key_columns[varying[0]]} IN ({','.join([key[varying[0]] for key in keys])})")
    elif varying:
        parts.append("(" + " OR ".join([_render_one_key(key_columns, key, varying) for key in keys]) + ")")
    return " AND ".join(parts)


def _render_one_key(columns: Sequence[str], key: Sequence[str], at: Sequence[int]) -> str:
    return "(" + " AND ".join([f"{columns[i]} = {key[i]}" for i in at]) + ")"
