"""The column actions of statements on a table, and their combined effect on each column. Pure.

The definitions before and after cannot distinguish a renamed column from one that was dropped while
another was added. The statement can. `list_column_actions` returns its actions. `compute_column_changes`
compares them with the two definitions and returns a result only where they agree. Names are those of the
definitions, however the statement spells them (the servers compare column names in any case).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from producer.statements.alter import ColumnAction
from producer.statements.ddl import TableDdl
from producer.statements.statement import Statement
from schemas.table.collations import own_name
from schemas.table.model import ColumnType, Kind, Table, is_same_definition
from schemas.wire.event import ColumnChanges


@dataclass(frozen=True, slots=True)
class _TrackedColumn:
    """A column after some statements. `origin`: its name before them; None: they added it."""

    origin: str | None
    defined: bool = False
    sure: bool = True


def compute_column_changes(
    statements: Iterable[Statement], before: Table, after: Table
) -> ColumnChanges | None:
    """Return the effect of consecutive statements on the columns of `before`.

    None: a part of it is unknown.

    They have led from `before` to `after`. If the names or types of `after` contradict them, nothing is
    known. Columns that are not published are none of the result: one that is published from now on has
    values that no event had, so nothing is known either.
    """
    columns = {_fold_name(name): _TrackedColumn(name) for name in before.logged_names}
    spelled = {_fold_name(name): name for name in after.logged_names}
    if len(columns) < len(before.logged_names) or len(spelled) < len(after.logged_names):
        return None  # the server distinguishes names that are equal here: "ß" and "ẞ"
    converted = False
    for statement in statements:
        actions = list_column_actions(statement)
        followed = None if actions is None else _apply_actions(columns, actions)
        if actions is None or followed is None:
            return None
        columns = followed
        converted = converted or any(action.what == "convert" for action in actions)
    if spelled.keys() != columns.keys():
        return None
    logged = {spelled[name]: columns[name] for name in spelled}
    now = {name: logged[name] for name in after.column_names}
    unpublished = set(_list_left_out(before))
    if any(each.origin in unpublished for each in now.values()):
        return None
    redefined = [
        name for name in _list_left_out(after) if converted or logged[name].defined or not logged[name].sure
    ]
    if has_computed_column(after, redefined):
        return None
    if not _is_outcome_known(before, after, now, converted=converted):
        return None
    kept = {each.origin: name for name, each in now.items() if each.origin is not None}
    return ColumnChanges(
        renamed={old: name for old, name in kept.items() if old != name},
        added=tuple(name for name, each in now.items() if each.origin is None),
        dropped=tuple(name for name in before.column_names if name not in kept),
        modified=tuple(name for name in kept.values() if now[name].defined),
        converted=converted,
    )


def is_left_out_only(changes: ColumnChanges | None, before: Table, after: Table) -> bool:
    """Return whether statements with these changes concerned only columns that are not published: each
    published value is as it was.
    """
    is_any = bool(before.left_out or after.left_out)
    return is_any and changes == ColumnChanges() and is_same_definition(before, after)


def is_computed_from_left_out(table: Table) -> bool:
    """Return whether a published column may be computed from one that is not published."""
    return has_computed_column(table, _list_left_out(table))


def _list_left_out(table: Table) -> list[str]:
    return [each.name for each in table.left_out]


def list_column_actions(statement: Statement) -> tuple[ColumnAction, ...] | None:
    """Return the column actions of a statement on one table that has no other effect on rows and values.

    None: it may have one.

    Supports ALTER TABLE, CREATE INDEX and DROP INDEX.
    """
    kind, alter = statement.kind, statement.alter
    if not isinstance(kind, TableDdl) or kind.action != "alter" or len(set(kind.tables)) != 1:
        return None
    if alter is None:
        return (
            () if statement.tokens and statement.tokens[0].upper in ("CREATE", "DROP") else None
        )  # an index
    if alter.ignore or not alter.actions:
        return None
    found: list[ColumnAction] = []
    for action in alter.actions:
        if action.columns is None:
            return None
        found += action.columns
    return tuple(found)


def _fold_name(name: str) -> str:
    """Return a column's name in the form in which the servers compare it."""
    return name.lower()


def _apply_actions(
    columns: Mapping[str, _TrackedColumn], statement: Sequence[ColumnAction]
) -> dict[str, _TrackedColumn] | None:
    """Return the columns after a statement, which names the columns before it.

    None: its actions do not fit together.
    """
    moved: dict[str, str | None] = {}  # the new names of columns that it names; None: dropped
    made: dict[str, _TrackedColumn] = {}
    for action in (each for each in statement if each.what not in ("add", "convert")):
        name, new = _fold_name(action.name), _fold_name(action.new or action.name)
        if name not in columns and name not in made:
            if action.conditional:
                continue
            return None
        if (
            name in moved or name not in columns
        ):  # RENAME a TO b, ALTER b SET DEFAULT …: about one column, or unknown
            name = moved.get(name) or name
            if action.what != "define" or action.new or name not in made:
                return None
            made[name] = _TrackedColumn(made[name].origin, defined=True, sure=made[name].sure and action.sure)
            continue
        moved[name] = None if action.what == "drop" else new
        if action.what != "drop":
            was = columns[name]
            if new in made:
                return None
            made[new] = _TrackedColumn(
                was.origin, was.defined or action.what == "define", was.sure and action.sure
            )
    for action in (each for each in statement if each.what == "add"):
        name = _fold_name(action.name)
        if action.conditional and name in columns:
            continue
        if name in made or (name in columns and name not in moved):
            return None
        made[name] = _TrackedColumn(None)
    stay = {name: each for name, each in columns.items() if name not in moved}
    return None if stay.keys() & made.keys() else stay | made


def _is_outcome_known(
    before: Table, after: Table, now: Mapping[str, _TrackedColumn], *, converted: bool
) -> bool:
    """Return whether the definitions match the statements, and determine the effect on all values.

    They do not for a column that numbers its rows, for the default of an added TIMESTAMP (which depends
    on a session's time zone), and for a value that is computed from a column with a changed type.
    """
    retyped = set[str]()
    for column in after.columns:
        each = now[column.name]
        if each.origin is None:
            if column.auto_increment or (column.type.kind is Kind.TIMESTAMP and column.default is not None):
                return False
            continue
        was = before.get_column(each.origin)
        if not each.sure or (column.auto_increment and not was.auto_increment):
            return False
        if not _is_same_type(was.type, column.type):
            if not each.defined and not (converted and was.type.charset is not None):
                return False
            retyped |= {_fold_name(was.name), _fold_name(column.name)}
    return not has_computed_column(after, retyped)


def _is_same_type(was: ColumnType, now: ColumnType) -> bool:
    """Return whether two types are the same. Older topics have other names of the same collations."""
    if was == now:
        return True
    if was.collation is None or own_name(was.collation) != now.collation:
        return False
    return replace(was, collation=now.collation) == now


def has_computed_column(table: Table, names: Collection[str]) -> bool:
    """Return whether a generated column may be computed from one of the columns `names`."""
    quoted = [f"`{_fold_name(name).replace('`', '``')}`" for name in names]
    return bool(names) and any(
        column.expression is None or any(name in column.expression.lower() for name in quoted)
        for column in table.columns
        if column.generated
    )
