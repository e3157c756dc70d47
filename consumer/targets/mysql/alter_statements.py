"""The rendering of neutral steps as one ALTER TABLE of MySQL and MariaDB. Pure.

It is one statement because each commits by itself: the table then has either its old form or the new
one, whenever a server or a worker dies. In the statement, every column has the name that it had before;
steps use the names of their turn, which are traced back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from consumer.errors import TargetConfigError
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropUnique,
    apply_alterations,
    group_steps,
)
from consumer.targets.mysql.sql import quote
from consumer.targets.mysql.values import render_literal
from consumer.targets.shared.column_values import (
    build_one_column_table,
    choose_fill_value,
    get_implicit_value,
    parse_default_value,
)
from consumer.targets.sql import qualify_table
from schemas.errors import SchemaError
from schemas.io.mysql_connection import SQL_MODE
from schemas.table.collations import Choose
from schemas.table.equality import are_wire_equal
from schemas.table.keys import list_indexed_columns
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, TextOf, UniqueIndex, Value
from schemas.table.typemap import render_mysql_type
from schemas.values.mysql import to_mysql

#: Values that the new type cannot hold become the nearest ones, NULL the implicit value: no row stops
#: the statement.
LENIENT = f"SET SESSION sql_mode = '{SQL_MODE.removeprefix('STRICT_ALL_TABLES,')}'"
#: A default of these kinds must be an expression.
_EXPRESSED = frozenset({Kind.TEXT, Kind.BLOB, Kind.JSON, Kind.GEOMETRY})
_SPELT_OUT = frozenset({Kind.TIMESTAMP, Kind.JSON})
#: Conversions from or to these fail for some values.
_APART = frozenset({Kind.JSON, Kind.GEOMETRY})


@dataclass(frozen=True, slots=True)
class MySqlRealTable:
    """Properties of the real table and its server that the statement depends on."""

    unique: Mapping[str, tuple[str, ...]]
    """Unique index → columns."""
    names: frozenset[str]
    """Names of all indexes."""
    exact: Choose
    """Chooses collations for columns of keys (schemas.table.collations)."""
    near: Choose
    """Chooses collations for other columns."""
    renames: bool = True
    """Whether the server has RENAME COLUMN (MySQL 8.0, MariaDB 10.5.2)."""
    native: frozenset[TextOf] = frozenset()
    """The server's own types for values that have a text."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the new table.

    `before`: its name before the first step, None if it is new; `changed`: its definition changes.
    """

    column: Column
    before: str | None
    changed: bool = False


@dataclass(slots=True)
class _TableChange:
    """All steps of a change together."""

    change: AlterTable
    real: MySqlRealTable
    ending: Table
    """The table after all steps."""
    columns: dict[str, _Column]
    dropped_columns: list[str] = field(default_factory=list)
    """Dropped columns, by the names they had before."""
    dropped: dict[str, None] = field(default_factory=dict)
    """Dropped indexes, by the names they had before."""
    added: list[UniqueIndex] = field(default_factory=list)
    fills: dict[str, object] = field(default_factory=dict)
    """New column → its value in existing rows."""
    key: UniqueIndex | None = None
    lenient: bool = False

    def rename_columns(self, names: dict[str, str]) -> None:
        def rename_column(each: _Column) -> _Column:
            name = names.get(each.column.name, each.column.name)
            return _Column(replace(each.column, name=name), each.before, each.changed)

        self.columns = {new.column.name: new for new in map(rename_column, self.columns.values())}
        self.fills = {names.get(name, name): fill for name, fill in self.fills.items()}

    def add_column(self, step: AddColumn) -> None:
        self.columns[step.column.name] = _Column(step.column, None)
        self.fills[step.column.name] = step.fill

    def drop_column(self, step: DropColumn) -> None:
        """Drop a column and its unique indexes.

        Otherwise the server would remove the column from its indexes, and a unique index would become
        stricter.
        """
        before = self.columns.pop(step.name).before
        if before is not None:
            self.dropped_columns.append(before)
            self.dropped |= dict.fromkeys(
                name for name, columns in self.real.unique.items() if before in columns
            )

    def change_column(self, step: ChangeColumn) -> None:
        there, desired = self.columns[step.desired.name], step.desired
        now, kinds = step.now, {step.now.type.kind, step.desired.type.kind}
        if (
            not step.lossless
            and len(kinds) == 2
            and kinds & _APART
            and desired.name not in list_indexed_columns(self.ending)
        ):
            self.drop_column(DropColumn(desired.name))
            self.add_column(AddColumn(desired))
            return
        self.columns[desired.name] = _Column(desired, there.before, changed=True)
        self.lenient |= not step.lossless or (now.nullable and not desired.nullable)

    def add_unique(self, step: AddUnique) -> None:
        self.added.append(step.index)

    def drop_unique(self, step: DropUnique) -> None:
        columns = tuple(self._find_old_name(column) for column in step.index.columns)
        found = [name for name, real in self.real.unique.items() if real == columns and name != "PRIMARY"]
        self.dropped |= dict.fromkeys([name for name in found if name == step.index.name] or found)

    def _find_old_name(self, column: str) -> str | None:
        there = self.columns.get(column)
        return there.before if there else column

    def change_key(self, step: ChangeKey) -> None:
        if "PRIMARY" in self.real.unique:
            self.dropped["PRIMARY"] = None
        else:
            self.drop_unique(DropUnique(step.now))
        self.key = step.desired
        for name, each in self.columns.items():
            if each.column.auto_increment:  # the server accepts such a column only as the first one of a key
                self.columns[name] = _Column(each.column, each.before, changed=True)


_STEPS: dict[type, Callable[[_TableChange, Any], None]] = {
    AddColumn: _TableChange.add_column,
    DropColumn: _TableChange.drop_column,
    ChangeColumn: _TableChange.change_column,
    AddUnique: _TableChange.add_unique,
    DropUnique: _TableChange.drop_unique,
    ChangeKey: _TableChange.change_key,
}


def render_statements(change: AlterTable, real: MySqlRealTable) -> Iterator[str]:
    """Yield the statement, with others before and after it where needed.

    Before it: one that makes the session lenient. After it: one that drops defaults that only the
    existing rows needed. Raises TargetConfigError if the server cannot have a column.
    """
    columns = {each.name: _Column(each, each.name) for each in change.table.columns}
    whole = _TableChange(change, real, apply_alterations(change), columns)
    for renames, steps in group_steps(change):
        whole.rename_columns(renames)
        for step in steps:
            _STEPS[type(step)](whole, step)
    actions, after = _list_actions(whole)
    name = qualify_table(quote, change.table.db, change.table.name)
    if whole.lenient:
        yield LENIENT
    if actions:
        yield f"ALTER TABLE {name} {', '.join(actions)}"
    if after:
        yield f"ALTER TABLE {name} {', '.join(after)}"


# -- actions of the statement


def _list_actions(whole: _TableChange) -> tuple[list[str], list[str]]:
    """Return the actions of the statement, and those of the statement after it."""
    actions = [_drop_index(name) for name in whole.dropped]
    actions += [f"DROP COLUMN {quote(name)}" for name in whole.dropped_columns]
    after: list[str] = []
    for name, each in whole.columns.items():
        if each.before is None:
            text, later = _render_new_column(whole, AddColumn(each.column, whole.fills[name]))
            actions.append(text)
            after += later
        elif each.changed or (each.before != name and not whole.real.renames):
            verb = "MODIFY COLUMN" if each.before == name else f"CHANGE COLUMN {quote(each.before)}"
            actions.append(f"{verb} {_render_definition(whole, each.column)}{_render_default(each.column)}")
        elif each.before != name:
            actions.append(f"RENAME COLUMN {quote(each.before)} TO {quote(name)}")
    if whole.key is not None:
        actions.append(f"ADD PRIMARY KEY ({render_index_parts(whole.key)})")
    actions += [
        f"ADD UNIQUE KEY {quote(_choose_free_name(whole, index.name))} ({render_index_parts(index)})"
        for index in whole.added
    ]
    return actions, after


def _drop_index(name: str) -> str:
    return "DROP PRIMARY KEY" if name == "PRIMARY" else f"DROP INDEX {quote(name)}"


def _render_new_column(whole: _TableChange, step: AddColumn) -> tuple[str, list[str]]:
    """Return the action that adds a column, and those that remove what only the existing rows needed."""
    column, rows, default = step.column, choose_fill_value(step), parse_default_value(step.column)
    if rows is None and not column.nullable:  # a kind without an implicit value
        column = replace(column, nullable=True)
    text = f"ADD COLUMN {_render_definition(whole, column)}"
    implicit = not column.nullable and are_wire_equal(column.type.kind, rows, get_implicit_value(column.type))
    if default is None and (rows is None or (implicit and not _is_spelt_out(column.type))):
        return text, []
    text += f" DEFAULT {_render_value(column, rows)}"
    name = quote(column.name)
    if default is None:
        # Without any default a column must be given even if it is nullable (error 1364): rows would be
        # refused as soon as it is no longer written.
        return text, [f"ALTER COLUMN {name} {'SET DEFAULT NULL' if column.nullable else 'DROP DEFAULT'}"]
    return text, [] if are_wire_equal(column.type.kind, rows, default) else [
        f"ALTER COLUMN {name} SET DEFAULT {_render_value(column, default)}"
    ]


def _is_spelt_out(type_: ColumnType) -> bool:
    """Return whether NOT NULL without a default does not give existing rows the implicit value, but the time
    of the statement, what a check of the server refuses, or, in a text column, an empty text.
    """
    return type_.kind in _SPELT_OUT or type_.text_of is not None


def _render_definition(whole: _TableChange, column: Column) -> str:
    """Return a column's definition.

    Columns of keys, and labels, distinguish all values that the source does, by the same rule as in a
    new table.
    """
    exact = column.name in list_indexed_columns(whole.ending) or column.type.members
    try:
        choose = whole.real.exact if exact else whole.real.near
        type_ = render_mysql_type(column.type, choose, whole.real.native)
    except SchemaError as error:
        place = f"{whole.change.table.db}.{whole.change.table.name}"
        raise TargetConfigError.wrap_error(f"target table {place}", error) from error
    null = "NULL" if column.nullable else "NOT NULL"
    return f"{quote(column.name)} {type_.replace('%', '%%')} {null}"


def _render_default(column: Column) -> str:
    default = parse_default_value(column)
    return "" if default is None else f" DEFAULT {_render_value(column, default)}"


def _render_value(column: Column, value: Value) -> str:
    (given,) = to_mysql(build_one_column_table(column))((value,))
    text = render_literal(given).replace("%", "%%")
    return f"({text})" if column.type.kind in _EXPRESSED and value is not None else text


def _choose_free_name(whole: _TableChange, name: str) -> str:
    """Return `name`, or a numbered one like it if a remaining index has it."""
    taken = whole.real.names - whole.dropped.keys()
    numbered = (f"{name[:60]}_{at}" for at in range(2, 1000))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def render_index_parts(index: UniqueIndex) -> str:
    """Return the columns of an index, with their prefixes."""
    return ", ".join(map(_render_index_part, index.parts))


def _render_index_part(part: IndexPart) -> str:
    return quote(part.column) + (f"({part.prefix})" if part.prefix else "")
