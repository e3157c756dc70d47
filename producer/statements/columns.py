"""The column actions of statements on a table, and their combined effect on each column. Pure.

The definitions before and after cannot distinguish a renamed column from one that was dropped while
another was added. The statement can. `parse_column_actions` reads it. `compute_column_changes` compares
the actions with the two definitions and returns a result only where they agree. Names are those of the
definitions, however the statement spells them (the servers compare column names in any case).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace

from producer.statements import ddl
from producer.statements.actions import (
    WHOLE_TYPES,
    classify_action,
    get_tokens_after_name,
    is_alter_ignore,
    split_actions,
)
from producer.statements.ddl import TableDdl
from producer.statements.tokens import Token, names_at
from schemas.table.collations import own_name
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.wire.event import ColumnChanges


@dataclass(frozen=True, slots=True)
class ColumnAction:
    """An action on the column `name`. `new`: its name afterwards. `conditional`: IF [NOT] EXISTS.

    `sure`: the definitions describe everything that the column's values depend on (not so for
    FLOAT(5,1)).
    """

    what: Literal["add", "drop", "rename", "define", "convert"]
    name: str = ""
    new: str = ""
    conditional: bool = False
    sure: bool = True


@dataclass(frozen=True, slots=True)
class _TrackedColumn:
    """A column after some statements. `origin`: its name before them; None: they added it."""

    origin: str | None
    defined: bool = False
    sure: bool = True


def compute_column_changes(
    statements: Iterable[Sequence[ColumnAction]], before: Table, after: Table
) -> ColumnChanges | None:
    """Return the effect of consecutive statements on the columns of `before`.

    None: a part of it is unknown.

    They have led from `before` to `after`. If the names or types of `after` contradict them, nothing is
    known.
    """
    columns = {_fold_name(name): _TrackedColumn(name) for name in before.column_names}
    spelled = {_fold_name(name): name for name in after.column_names}
    if len(columns) < len(before.columns) or len(spelled) < len(after.columns):
        return None  # the server distinguishes names that are equal here: "ß" and "ẞ"
    converted = False
    for statement in statements:
        followed = _apply_actions(columns, statement)
        if followed is None:
            return None
        columns = followed
        converted = converted or any(action.what == "convert" for action in statement)
    if spelled.keys() != columns.keys():
        return None
    now = {spelled[name]: columns[name] for name in spelled}
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
    return not any(_is_computed_from(column, retyped) for column in after.columns)


def _is_same_type(was: ColumnType, now: ColumnType) -> bool:
    """Return whether two types are the same. Older topics have other names of the same collations."""
    if was == now:
        return True
    if was.collation is None or own_name(was.collation) != now.collation:
        return False
    return replace(was, collation=now.collation) == now


def _is_computed_from(column: Column, names: set[str]) -> bool:
    if not column.generated or not names:
        return False
    expression = column.expression
    return expression is None or any(f"`{name.replace('`', '``')}`" in expression.lower() for name in names)


# --- parsing


def parse_column_actions(sql: str, db: str, *, escapes: bool = True) -> tuple[ColumnAction, ...] | None:
    """Return the column actions of a statement on one table that has no other effect on rows and values.

    None: it may have one.

    Supports ALTER TABLE, CREATE INDEX and DROP INDEX. `escapes`: see `tokenize_sql`.
    """
    statement, tokens = ddl.classify_with_tokens(sql, db, escapes=escapes)
    if not isinstance(statement, TableDdl) or statement.action != "alter" or len(set(statement.tables)) != 1:
        return None
    if tokens[0].upper in ("CREATE", "DROP"):  # an index
        return ()
    if is_alter_ignore(tokens):
        return None
    found = [
        _parse_piece_actions(_skip_wait_clause(piece))
        for piece in split_actions(get_tokens_after_name(tokens))
    ]
    known = [actions for actions in found if actions is not None]
    return tuple(each for actions in known for each in actions) if known and known == found else None


def _skip_wait_clause(piece: list[Token]) -> list[Token]:
    first = piece[0].upper if piece else ""
    return piece[2:] if first == "WAIT" else piece[1:] if first == "NOWAIT" else piece


def _parse_piece_actions(piece: list[Token]) -> list[ColumnAction] | None:
    """Return the column actions of one piece of ALTER TABLE; None: it does something else."""
    action = classify_action(piece)
    match action.words:
        case "ADD":
            return _parse_added_columns(piece)
        case "ALTER" | "DROP" | "CHANGE" | "MODIFY":
            one = _parse_single_action(piece, action.words)
            return None if one is None else [one]
        case "RENAME COLUMN":
            one = _parse_rename(piece)
            return None if one is None else [one]
        case "CONVERT TO":
            return [ColumnAction("convert")]
    return [] if action.rows == "kept" and not action.needs else None


def _parse_single_action(piece: list[Token], verb: str) -> ColumnAction | None:
    name, conditional, rest = _parse_column_name(piece[1:])
    if name is None:
        return None
    if verb == "DROP":
        return ColumnAction("drop", name, conditional=conditional)
    if verb == "ALTER":
        return ColumnAction("define", name, conditional=conditional)
    if verb == "MODIFY":
        return ColumnAction("define", name, name, conditional, _is_type_conclusive(rest))
    new, _, rest = _parse_column_name(rest)
    return None if new is None else ColumnAction("define", name, new, conditional, _is_type_conclusive(rest))


def _parse_rename(piece: list[Token]) -> ColumnAction | None:
    name, conditional, rest = _parse_column_name(piece[1:])
    if name is None or not rest or rest[0].upper != "TO":
        return None
    new, _, rest = _parse_column_name(rest[1:])
    return None if new is None or rest else ColumnAction("rename", name, new, conditional)


def _parse_added_columns(piece: list[Token]) -> list[ColumnAction] | None:
    """Parse ADD [COLUMN] [IF NOT EXISTS] name … or ( name …, name …, INDEX … )."""
    name, conditional, rest = _parse_column_name(piece[1:])
    if name is not None:
        return [ColumnAction("add", name, conditional=conditional)]
    if not rest or not _is_sign(rest[0], "("):
        return None
    inside = rest[1 : _find_closing_parenthesis(rest)]
    found: list[ColumnAction] = []
    for item in split_actions(inside):
        if item[0].upper in _NO_COLUMNS:
            if classify_action([piece[0], *item]).rows != "kept":
                return None
            continue
        name, _, _ = _parse_column_name(item)
        if name is None:
            return None
        found.append(ColumnAction("add", name, conditional=conditional))
    return found or None


_NO_COLUMNS = frozenset(
    ["INDEX", "KEY", "UNIQUE", "PRIMARY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"]
)


def _find_closing_parenthesis(tokens: list[Token]) -> int:
    """Return the index at which the parenthesis closes that `tokens` begins with."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += _is_sign(token, "(") - _is_sign(token, ")")
        if depth == 0:
            return at
    return len(tokens)


def _is_sign(token: Token, sign: str) -> bool:
    return token.text == sign and not token.quoted and not token.string


def _parse_column_name(tokens: list[Token]) -> tuple[str | None, bool, list[Token]]:
    """Return (name, whether IF [NOT] EXISTS precedes it, the rest) after [COLUMN].

    The name is None if it contains dots.
    """
    at = 1 if tokens and tokens[0].upper == "COLUMN" else 0
    conditional = [token.upper for token in tokens[at : at + 2]] in (["IF", "EXISTS"], ["IF", "NOT"])
    while conditional and at < len(tokens) and tokens[at].upper in ("IF", "NOT", "EXISTS"):
        at += 1
    name, end = names_at(tokens, at)
    if name is None or name[0]:
        return None, conditional, tokens[at:]
    return name[1], conditional, tokens[end:]


_MORE_WHOLE_TYPES = frozenset(
    {
        "INT1", "INT2", "INT3", "INT4", "INT8", "MIDDLEINT", "FIXED", "CHARACTER", "NCHAR", "NVARCHAR", "NATIONAL", "LONG", "SERIAL",
        "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION",
        "GEOMCOLLECTION",
    }
)  # fmt: skip
_FLOATS = frozenset({"FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL"})


def _is_type_conclusive(type_: list[Token]) -> bool:
    """Return whether the neutral type of a column declared like this describes everything that its
    values depend on.
    """
    words = [token.upper for token in type_]
    if words[:1] and words[0] in _FLOATS:  # FLOAT(5,1) rounds, which the catalog's type does not show
        head = words[: words.index(")")] if ")" in words else words
        return (words[1:2] != ["("] and words[1:3] != ["PRECISION", "("]) or "," not in head
    return bool(words) and (words[0] in WHOLE_TYPES or words[0] in _MORE_WHOLE_TYPES)
