"""The rendering of SQL fragments that all dialects share, and the description of a dialect's syntax for
that. Pure.

A text never contains a value: a value is `%s` and a percent sign `%%`, whatever placeholders the driver
has; the dialect's connection converts them. Fragments come with their parameters in the order of the
placeholders. Identifiers are quoted only here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from consumer.ordering.model import TargetTable
from schemas.table.model import Kind, Table

Params = list[object]
Fragment = tuple[str, Params]
Quote = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Syntax:
    """A dialect's syntax where databases differ.

    No field has a default, so that a new dialect must define each.
    """

    quote: Quote
    types: Mapping[str, str]
    """Kind of a bookkeeping column → its type with NOT NULL and default.

    The kinds: "name" (up to 100 characters, compared exactly), "topic" (up to 249), "int" (32 bits),
    "big" (64 bits), "text" (any length), "text?" (the same, or NULL), "now" (a time with milliseconds,
    by default the present one), "id" (a number that the database assigns).
    """
    now: str
    """The present time with milliseconds."""
    millis: Callable[[str], str]
    """An expression of a column of kind "now" → its milliseconds since 1970."""
    create: Callable[[str, str], str]
    """(quoted name, columns and keys) → the statement that creates a table unless it exists."""
    locked: Callable[[str], str]
    """SELECT → the same, locking its rows, in the order in which it returns them, to the end of the
    transaction.
    """
    page: Callable[[str, str, int], str]
    """(SELECT, columns, n) → the first n rows in the order of the columns."""
    insert: Callable[[str, Sequence[str], int], str]
    """(quoted name, columns, n) → the statement that inserts n rows, with a placeholder for each value,
    row by row.
    """


def quote_with(mark: str, *, formatted: bool = True) -> Quote:
    """Return a function that quotes an identifier with `mark`.

    `formatted`: double "%", for texts with `%s` placeholders.
    """

    def quote(name: str) -> str:
        quoted = mark + name.replace(mark, mark * 2) + mark
        return quoted.replace("%", "%%") if formatted else quoted

    return quote


def qualify_table(quote: Quote, schema: str, name: str) -> str:
    return f"{quote(schema)}.{quote(name)}"


def render_placeholders(count: int) -> str:
    return "(" + ", ".join(["%s"] * count) + ")"


def render_row_placeholders(columns: int, rows: int) -> str:
    """Return "(%s, …), (%s, …)": the body of a VALUES list."""
    return ", ".join([render_placeholders(columns)] * rows)


def render_after_key(columns: Sequence[str], key: Sequence[object]) -> Fragment:
    """Return the predicate "key > given", column by column.

    It is spelled out because not every optimizer uses an index for a row comparison; the redundant
    `first >= value` is what those optimizers use.
    """
    params: Params = []
    text = _render_after(columns, key, params)
    if len(columns) == 1:
        return text, params
    return f"({columns[0]} >= %s AND {text})", [key[0], *params]


def render_up_to_key(columns: Sequence[str], key: Sequence[object]) -> Fragment:
    """Return the predicate "key <= given", column by column, which optimizers turn into the end of an
    index range.
    """
    params: Params = []
    text = _render_up_to(columns, key, params)
    if len(columns) == 1:
        return text, params
    return f"({columns[0]} <= %s AND {text})", [key[0], *params]


def _render_up_to(columns: Sequence[str], key: Sequence[object], params: Params) -> str:
    """Return "(a < x OR (a = x AND (b < y OR … b <= y)))", appending its parameters to `params`."""
    if len(columns) == 1:
        params.append(key[0])
        return f"{columns[0]} <= %s"
    params.extend((key[0], key[0]))
    rest = _render_up_to(columns[1:], key[1:], params)
    return f"({columns[0]} < %s OR ({columns[0]} = %s AND {rest}))"


def _render_after(columns: Sequence[str], key: Sequence[object], params: Params) -> str:
    """Return "(a > x OR (a = x AND (b > y …)))", appending its parameters to `params`."""
    if len(columns) == 1:
        params.append(key[0])
        return f"{columns[0]} > %s"
    params.extend((key[0], key[0]))
    rest = _render_after(columns[1:], key[1:], params)
    return f"({columns[0]} > %s OR ({columns[0]} = %s AND {rest}))"


def render_keys_in(columns: Sequence[str], keys: Sequence[Sequence[object]]) -> Fragment:
    """Return the predicate "key is one of `keys`" in the form that every optimizer turns into index
    ranges.

    Columns with one value in all keys (for example an added column) become `c = v`; if one column is
    left it becomes an IN list, several become an OR of ANDs.
    """
    constant = [at for at in range(len(columns)) if all(key[at] == keys[0][at] for key in keys)]
    varying = [at for at in range(len(columns)) if at not in constant]
    parts = [f"{columns[at]} = %s" for at in constant]
    params: Params = [keys[0][at] for at in constant]
    if len(varying) == 1:
        at = varying[0]
        parts.append(f"{columns[at]} IN {render_placeholders(len(keys))}")
        params.extend(key[at] for key in keys)
    elif varying:
        one = "(" + " AND ".join(f"{columns[at]} = %s" for at in varying) + ")"
        parts.append("(" + " OR ".join([one] * len(keys)) + ")")
        params.extend(key[at] for key in keys for at in varying)
    return " AND ".join(parts), params


def list_multiform_key_columns(table: Table) -> list[str]:
    """Return the key's columns in which a database may consider different values equal (by case, accent
    or scale).
    """
    return [name for name in table.key.columns if table.get_column(name).type.kind is not Kind.INT]


def join_conditions(fragments: Sequence[Fragment]) -> Fragment:
    """Return " WHERE a AND b" with all parameters, or "" for no fragment."""
    if not fragments:
        return "", []
    params = [param for _, values in fragments for param in values]
    return " WHERE " + " AND ".join(text for text, _ in fragments), params


P = TypeVar("P")
#: Tables kept per connection; the least recently used one is evicted first.
MAX_CACHED_TABLES = 256


class TableCache(Generic[P]):
    """A cache of at most MAX_CACHED_TABLES prepared tables; it calls its second argument with each
    evicted one.
    """

    def __init__(
        self, make: Callable[[TargetTable], P], on_removed: Callable[[P], None] = lambda _: None
    ) -> None:
        self._make = make
        self._on_removed = on_removed
        self._kept: OrderedDict[int, tuple[TargetTable, P]] = OrderedDict()

    def get(self, table: TargetTable) -> P:
        found = self._kept.get(id(table))
        if found is None:  # the kept reference prevents the reuse of the table's identity
            found = self._kept[id(table)] = (table, self._make(table))
            if len(self._kept) > MAX_CACHED_TABLES:
                self._on_removed(self._kept.popitem(last=False)[1][1])
        else:
            self._kept.move_to_end(id(table))
        return found[1]

    def forget_table(self, schema: str, name: str) -> None:
        """Evict what was made for a table, for every definition of it."""
        for number, (table, made) in list(self._kept.items()):
            if (table.schema, table.name) == (schema, name):
                del self._kept[number]
                self._on_removed(made)
