"""Pure rendering of the SQL fragments that all dialects share, and what a dialect says of its own SQL for that.

No value is ever part of a text: a value is `%s`, a percent sign `%%`, whatever the driver's own marks are: the dialect's
connection sends its driver what it wants. Fragments come with their parameters in the order of the marks. Identifiers are
quoted here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.table.model import Kind, Table

Params = list[object]
Fragment = tuple[str, Params]
Quote = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Syntax:
    """A dialect's syntax where databases differ. No field has a default: who adds a dialect looks at each.

    `types`: kind of a bookkeeping column → its type, NOT NULL and default included: "name" (up to 100 characters, compared
    exactly), "topic" (up to 249), "int" (32 bits), "big" (64 bits), "text" (any length), "text?" (the same, or NULL), "now" (a time
    with milliseconds, by default the present one), "id" (a number that the database gives).
    `now`: the present time with milliseconds. `millis`: an expression of a column of type "now" → its milliseconds since 1970.
    """

    quote: Quote
    types: Mapping[str, str]
    now: str
    millis: Callable[[str], str]
    create: Callable[[str, str], str]
    """(quoted name, columns and keys) → the statement that makes a table unless it is there."""
    locked: Callable[[str], str]
    """SELECT → the same, which locks its rows, in the order in which it returns them, to the end of the transaction."""
    page: Callable[[str, str, int], str]
    """(SELECT, columns, n) → the first n rows in the order of the columns."""
    insert: Callable[[str, Sequence[str], int], str]
    """(quoted name, columns, n) → the statement that inserts n rows, a mark for each value, row by row."""


def quote_with(mark: str, *, formatted: bool = True) -> Quote:
    """Return a function that quotes an identifier with `mark`.

    `formatted`: "%" is doubled, for texts in which values are put for `%s`.
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

    Spelt out instead of a row comparison, which not every optimizer uses an index for; the redundant
    `first >= value` is what those use.
    """
    params: Params = []
    text = _render_after(columns, key, params)
    if len(columns) == 1:
        return text, params
    return f"({columns[0]} >= %s AND {text})", [key[0], *params]


def render_up_to_key(columns: Sequence[str], key: Sequence[object]) -> Fragment:
    """Return the predicate "key <= given", column by column, in the form that optimizers turn into the end of an index range."""
    params: Params = []
    text = _render_up_to(columns, key, params)
    if len(columns) == 1:
        return text, params
    return f"({columns[0]} <= %s AND {text})", [key[0], *params]


def _render_up_to(columns: Sequence[str], key: Sequence[object], params: Params) -> str:
    """Render "(a < x OR (a = x AND (b < y OR … b <= y)))", putting parameters into `params`."""
    if len(columns) == 1:
        params.append(key[0])
        return f"{columns[0]} <= %s"
    params.extend((key[0], key[0]))
    rest = _render_up_to(columns[1:], key[1:], params)
    return f"({columns[0]} < %s OR ({columns[0]} = %s AND {rest}))"


def _render_after(columns: Sequence[str], key: Sequence[object], params: Params) -> str:
    """Render "(a > x OR (a = x AND (b > y …)))", putting parameters into `params`."""
    if len(columns) == 1:
        params.append(key[0])
        return f"{columns[0]} > %s"
    params.extend((key[0], key[0]))
    rest = _render_after(columns[1:], key[1:], params)
    return f"({columns[0]} > %s OR ({columns[0]} = %s AND {rest}))"


def render_keys_in(columns: Sequence[str], keys: Sequence[Sequence[object]]) -> Fragment:
    """Return the predicate "key is one of `keys`" in the form that every optimizer turns into index ranges.

    Columns with one value in all keys (an added column, say) become `c = v`; one column left gives an IN list,
    more of them an OR of ANDs.
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
    """Return the columns of the key of which a database may hold two values equal that are not the same (a case, an accent, a scale)."""
    return [name for name in table.key.columns if table.get_column(name).type.kind is not Kind.INT]


def join_conditions(fragments: Sequence[Fragment]) -> Fragment:
    """Return " WHERE a AND b" with all parameters, or "" for no fragment."""
    if not fragments:
        return "", []
    params = [param for _, values in fragments for param in values]
    return " WHERE " + " AND ".join(text for text, _ in fragments), params
