"""The rendering of PostgreSQL's statements that change a table, from neutral steps and the real table.
Pure.

All of them run in one transaction, so their number does no harm. Steps that do not concern the same
column share a statement, so that the table is rewritten once. Rows that would prevent a change (values
that the new type cannot hold, NULL in a column that becomes NOT NULL) get another value; such a change
is followed by a copy of every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from consumer.errors import TargetConfigError
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    apply_alterations,
    group_steps,
)
from consumer.targets.postgres.sql import quote, render_cast
from consumer.targets.shared.column_values import (
    build_one_column_table,
    choose_fill_value,
    get_implicit_value,
    parse_default_value,
)
from consumer.targets.sql import qualify_table
from schemas.errors import SchemaError, ValueRefusedError
from schemas.table.keys import list_indexed_columns
from schemas.table.model import Column, Kind, Table, TextOf, UniqueIndex, Value
from schemas.table.typemap import render_postgres_type
from schemas.values.postgres import to_postgres

#: From this version on, the server can check whether a text is a valid value of a type.
ASKS_VALIDITY = 160000


@dataclass(frozen=True, slots=True)
class RealIndex:
    """A unique index of the real table. `constraint`: it belongs to a constraint, and is dropped with it."""

    name: str
    columns: tuple[str, ...]
    constraint: bool = True
    primary: bool = False


@dataclass(frozen=True, slots=True)
class PostgresRealTable:
    """Properties of the real table, beside its definition, that the statements depend on.

    `version`: server_version_num. `native`: VECTOR if the server has pgvector's type. `arrays`: the columns
    that are a real[] nevertheless, and stay one.
    """

    indexes: tuple[RealIndex, ...] = ()
    version: int = ASKS_VALIDITY
    native: frozenset[TextOf] = frozenset()
    arrays: frozenset[str] = frozenset()

    def list_native_types(self, column: str) -> frozenset[TextOf]:
        return frozenset() if column in self.arrays else self.native


@dataclass(slots=True)
class _Statement:
    """One ALTER TABLE. `before` and `after` are separate statements; `columns`: the columns of its
    actions.
    """

    before: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)

    def join(self, other: _Statement) -> bool:
        """Add the actions of `other` if both give the same table in any order; return whether they do.

        The server reorders the actions of a statement, so steps that concern the same column go into
        successive statements.
        """
        if other.before or self.columns & other.columns:
            return False
        self.actions += other.actions
        self.after += other.after
        self.columns |= other.columns
        return True


@dataclass(frozen=True, slots=True)
class _TableChange:
    """A change of one table, while its statements are rendered."""

    name: str
    """Quoted."""
    change: AlterTable
    real: PostgresRealTable
    ending: Table
    """The table after all steps."""
    index_name: Callable[[UniqueIndex], str]
    """Returns the name for a new unique index."""
    before: Mapping[str, str]
    """Present name of a column → its name before the first step, if that differs."""


def render_statements(
    change: AlterTable, real: PostgresRealTable, index_name: Callable[[UniqueIndex], str]
) -> Iterator[str]:
    """Yield the statements, in order. Raises TargetConfigError if PostgreSQL has no type for a column."""
    table = change.table
    whole = _TableChange(
        qualify_table(quote, table.db, table.name),
        change,
        real,
        apply_alterations(change),
        index_name,
        before={},
    )
    for renames, steps in group_steps(change):
        if renames:
            yield from _render_renames(whole.name, renames)
            earlier = {new: whole.before.get(old, old) for old, new in renames.items()}
            whole = replace(whole, before={**whole.before, **earlier})
        else:
            yield from _group_statements(whole, steps)


def _render_renames(name: str, names: Mapping[str, str]) -> Iterator[str]:
    """Yield the renames.

    A statement renames one column, so names that are swapped go through temporary names.
    """
    taken = names.keys() & set(names.values())
    between = {old: f"rowlock renames {at}" for at, old in enumerate(names) if old in taken}
    for old, other in between.items():
        yield f"ALTER TABLE {name} RENAME COLUMN {quote(old)} TO {quote(other)}"
    for old, new in names.items():
        yield f"ALTER TABLE {name} RENAME COLUMN {quote(between.get(old, old))} TO {quote(new)}"


def _group_statements(whole: _TableChange, steps: Iterable[Alteration]) -> Iterator[str]:
    """Yield statements for steps: as few as possible."""
    statement = _Statement()
    for step in steps:
        added = _Statement()
        _STEPS[type(step)](whole, step, added)
        if not statement.join(added):
            yield from _render_statement(whole.name, statement)
            statement = added
    yield from _render_statement(whole.name, statement)


def _render_statement(name: str, statement: _Statement) -> Iterator[str]:
    yield from statement.before
    if statement.actions:
        yield f"ALTER TABLE {name} {', '.join(statement.actions)}"
    if statement.after:
        yield f"ALTER TABLE {name} {', '.join(statement.after)}"


def _add_column(whole: _TableChange, step: AddColumn, out: _Statement) -> None:
    """Add a column. The server stores the default for the existing rows and rewrites none of them."""
    column, name = step.column, quote(step.column.name)
    rows, default = (
        _render_column_literal(column, choose_fill_value(step)),
        _render_column_literal(column, parse_default_value(column)),
    )
    text = f"ADD COLUMN {name} {_render_type(column, whole.real.native)}"
    if rows is not None:
        # without a value for rows (a zero date) it stays nullable
        text += f" DEFAULT {rows}{'' if column.nullable else ' NOT NULL'}"
    out.actions.append(text)
    if rows is not None and default is None:
        out.after.append(f"ALTER COLUMN {name} DROP DEFAULT")
    elif default is not None and default != rows:
        out.after.append(f"ALTER COLUMN {name} SET DEFAULT {default}")
    out.columns.add(column.name)


def _drop_column(_: _TableChange, step: DropColumn, out: _Statement) -> None:
    out.actions.append(f"DROP COLUMN {quote(step.name)}")
    out.columns.add(step.name)


def _change_column(whole: _TableChange, step: ChangeColumn, out: _Statement) -> None:
    now, desired = step.now, step.desired
    native = whole.real.list_native_types(whole.before.get(desired.name, desired.name))
    name, new = quote(desired.name), _render_type(desired, native)
    in_key = desired.name in whole.ending.key.columns
    # Rows may get the implicit value instead of NULL, but not where it would make them equal.
    filled = (
        None
        if desired.name in list_indexed_columns(whole.ending)
        else _render_column_literal(desired, get_implicit_value(desired.type))
    )
    nulls = now.nullable or not step.lossless
    required = not desired.nullable and (in_key or not nulls or filled is not None)
    if not now.nullable and not required and not in_key:
        out.actions.append(f"ALTER COLUMN {name} DROP NOT NULL")
    if is_retyped(step, native):
        if now.default is not None:  # a default of the old type may be invalid in the new one
            out.actions.append(f"ALTER COLUMN {name} DROP DEFAULT")
        value = (
            _render_kept_value(step, name, new)
            if step.lossless
            else _render_converted_value(whole, step, name, new)
        )
        if required and nulls and filled is not None:
            value = f"COALESCE({value}, {filled}::{new})"
        out.actions.append(f"ALTER COLUMN {name} TYPE {new} USING {value}")
    elif required and now.nullable and filled is not None:
        out.before.append(f"UPDATE {whole.name} SET {name} = {filled} WHERE {name} IS NULL")
    if required and now.nullable:
        out.actions.append(f"ALTER COLUMN {name} SET NOT NULL")
    out.columns.add(desired.name)


def is_retyped(step: ChangeColumn, native: frozenset[TextOf]) -> bool:
    """Return whether the column gets another type, and not only another nullability."""
    return _render_type(step.desired, native) != _find_type(step.now, native)


def _render_kept_value(step: ChangeColumn, name: str, new: str) -> str:
    """Return the expression for the same value in the new type. A bit string is padded at its front."""
    if step.now.type.kind is step.desired.type.kind is Kind.BIT:
        return f"lpad({name}::text, {step.desired.type.length}, '0')::{new}"
    return f"{name}::{new}"


_NUMBERS = frozenset({Kind.INT, Kind.YEAR, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE})
_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.ENUM, Kind.SET})
_TIMES = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
#: Kinds with similar texts: a value that is valid in the new type may be shown until the copy has
#: replaced it.
_ALIKE = (_NUMBERS | _TEXTS, _TIMES | _TEXTS)


def _render_converted_value(whole: _TableChange, step: ChangeColumn, name: str, new: str) -> str:
    """Return an expression that fails for no value, except in a key, where every row needs a value of
    its own.
    """
    if step.desired.name in whole.ending.key.columns:
        return f"{name}::text::{new}"
    kinds = {step.now.type.kind, step.desired.type.kind}
    checked = step.desired.type.text_of is not TextOf.VECTOR  # pgvector raises an error for an invalid text
    if not checked or whole.real.version < ASKS_VALIDITY or not any(kinds <= alike for alike in _ALIKE):
        return f"NULL::{new}"
    return f"CASE WHEN pg_input_is_valid({name}::text, '{new}') THEN {name}::text::{new} END"


def _add_unique(whole: _TableChange, step: AddUnique, out: _Statement) -> None:
    nulls = "" if step.index.nulls_distinct else " NULLS NOT DISTINCT"
    name = quote(whole.index_name(step.index))
    out.actions.append(f"ADD CONSTRAINT {name} UNIQUE{nulls} ({_render_columns(step.index)})")


def _drop_unique(whole: _TableChange, step: DropUnique, out: _Statement) -> None:
    for index in find_real_indexes(whole, step.index):
        _drop_index(whole, index, out)


def _drop_index(whole: _TableChange, index: RealIndex, out: _Statement) -> None:
    if index.constraint:  # it may have been dropped with a column
        out.actions.append(f"DROP CONSTRAINT IF EXISTS {quote(index.name)}")
    else:
        out.before.append(f"DROP INDEX IF EXISTS {qualify_table(quote, whole.change.table.db, index.name)}")


def find_real_indexes(whole: _TableChange, index: UniqueIndex) -> list[RealIndex]:
    """Return the real indexes over the columns of `index`; where several are, the one of its name."""
    columns = tuple(whole.before.get(column, column) for column in index.columns)
    found = [each for each in whole.real.indexes if each.columns == columns and not each.primary]
    return [each for each in found if each.name == index.name] or found


def _change_key(whole: _TableChange, step: ChangeKey, out: _Statement) -> None:
    primary = [index for index in whole.real.indexes if index.primary]
    for index in primary or find_real_indexes(whole, step.now):
        _drop_index(whole, index, out)
    out.actions.append(f"ADD PRIMARY KEY ({_render_columns(step.desired)})")


_STEPS: dict[type[Alteration], Callable[[_TableChange, Any, _Statement], None]] = {
    AddColumn: _add_column,
    DropColumn: _drop_column,
    ChangeColumn: _change_column,
    AddUnique: _add_unique,
    DropUnique: _drop_unique,
    ChangeKey: _change_key,
}


def _render_columns(index: UniqueIndex) -> str:
    return ", ".join(map(quote, index.columns))


def _render_type(column: Column, native: frozenset[TextOf]) -> str:
    try:
        return render_postgres_type(column.type, native)
    except SchemaError as error:
        raise TargetConfigError.wrap_error(f"column {column.name}", error) from error


def _find_type(column: Column, native: frozenset[TextOf]) -> str | None:
    """Return the type of a column; None for a type of a table made by hand that the type map does not
    render.
    """
    try:
        return render_postgres_type(column.type, native)
    except SchemaError:
        return None


def _render_column_literal(column: Column, value: Value) -> str | None:
    """Return the value as a literal of a statement; None: NULL, also for what PostgreSQL cannot hold (a
    zero date).
    """
    try:
        (text,) = to_postgres(build_one_column_table(column))((value,))
    except ValueRefusedError:
        return None
    return None if text is None else render_literal(text) + render_cast(column)


def render_literal(text: str) -> str:
    """Return a string literal, with "%" doubled, that is valid for any standard_conforming_strings."""
    quoted = "'" + text.replace("'", "''").replace("%", "%%") + "'"
    return "E" + quoted.replace("\\", "\\\\") if "\\" in text else quoted
