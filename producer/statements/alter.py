"""An ALTER TABLE, parsed into its actions, each with its rule (producer/statements/actions.py) and with
what it does to columns. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from producer.statements.actions import WHOLE_TYPES, ActionRule, classify_action
from producer.statements.tokens import Token, names_at


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
class AlterAction:
    """An action of an ALTER TABLE."""

    rule: ActionRule
    """Its effects on rows and on the definition."""
    tokens: tuple[Token, ...]
    columns: tuple[ColumnAction, ...] | None
    """What it does to columns; None: it may do something else to rows and values."""


@dataclass(frozen=True, slots=True)
class Alter:
    """An ALTER TABLE, parsed into its actions."""

    actions: tuple[AlterAction, ...]
    ignore: bool
    """ALTER IGNORE TABLE deletes conflicting rows."""


def parse_alter(tokens: Sequence[Token]) -> Alter:
    """Parse the tokens of an ALTER TABLE. Never raises."""
    table = next((at for at, token in enumerate(tokens) if token.upper == "TABLE"), len(tokens))
    ignore = any(token.upper == "IGNORE" for token in tokens[:table])
    pieces = _split_actions(_get_tokens_after_name(tokens[table + 1 :]))
    return Alter(tuple(map(_parse_action, pieces)), ignore)


def _parse_action(piece: Sequence[Token]) -> AlterAction:
    rule = classify_action(piece)
    return AlterAction(rule, tuple(piece), _parse_columns(piece, rule))


def _get_tokens_after_name(tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the tokens after [IF EXISTS] name."""
    at = 0
    while at < len(tokens) and tokens[at].upper in ("IF", "EXISTS"):
        at += 1
    at += 3 if at + 1 < len(tokens) and tokens[at + 1].text == "." and not tokens[at + 1].quoted else 1
    return tokens[at:]


def _split_actions(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield the pieces between commas outside of parentheses.

    The columns that ORDER BY lists are not separate actions.
    """
    depth, pieces = 0, [[]] if tokens else []  # type: tuple[int, list[list[Token]]]
    for token in tokens:
        depth += (token.upper == "(") - (token.upper == ")")
        if token.upper == "," and depth == 0:
            pieces.append([])
        else:
            pieces[-1].append(token)
    yield from _join_listed_pieces(pieces)


def _join_listed_pieces(pieces: list[list[Token]]) -> Iterator[list[Token]]:
    """Join the columns that ORDER BY lists, and the partitions that a partition action lists, to their
    action.
    """
    whole: list[Token] | None = None
    for piece in pieces:
        words = [token.upper for token in piece[:2]]
        listed = len(piece) == 1 or words[1:] in (["ASC"], ["DESC"], ["INTO"])
        if whole is not None and listed and _has_list_operand([token.upper for token in whole[:2]]):
            whole += piece
            continue
        if whole is not None:
            yield whole
        whole = list(piece)
    if whole is not None:
        yield whole


def _has_list_operand(words: list[str]) -> bool:
    return words == ["ORDER", "BY"] or words[1:] == ["PARTITION"]


# --- columns


def _skip_wait_clause(piece: Sequence[Token]) -> Sequence[Token]:
    first = piece[0].upper if piece else ""
    return piece[2:] if first == "WAIT" else piece[1:] if first == "NOWAIT" else piece


def _parse_columns(piece: Sequence[Token], rule: ActionRule) -> tuple[ColumnAction, ...] | None:
    """Return what a piece of ALTER TABLE does to columns; None: it does something else."""
    piece = _skip_wait_clause(piece)
    match rule.words:
        case "ADD":
            return _parse_added_columns(piece)
        case "ALTER" | "DROP" | "CHANGE" | "MODIFY":
            return _parse_single_action(piece, rule.words)
        case "RENAME COLUMN":
            return _parse_rename(piece)
        case "CONVERT TO":
            return (ColumnAction("convert"),)
    return () if rule.rows == "kept" and not rule.needs else None


def _parse_single_action(piece: Sequence[Token], verb: str) -> tuple[ColumnAction] | None:
    name, conditional, rest = _parse_column_name(piece[1:])
    new = name
    if verb == "CHANGE" and name is not None:
        new, _, rest = _parse_column_name(rest)
    if name is None or new is None:
        return None
    match verb:
        case "DROP":
            return (ColumnAction("drop", name, conditional=conditional),)
        case "ALTER":
            return (ColumnAction("define", name, conditional=conditional),)
    return (ColumnAction("define", name, new, conditional, _is_type_conclusive(rest)),)


def _parse_rename(piece: Sequence[Token]) -> tuple[ColumnAction] | None:
    name, conditional, rest = _parse_column_name(piece[1:])
    if name is None or not rest or rest[0].upper != "TO":
        return None
    new, _, rest = _parse_column_name(rest[1:])
    return None if new is None or rest else (ColumnAction("rename", name, new, conditional),)


def _parse_added_columns(piece: Sequence[Token]) -> tuple[ColumnAction, ...] | None:
    """Parse ADD [COLUMN] [IF NOT EXISTS] name … or ( name …, name …, INDEX … )."""
    name, conditional, rest = _parse_column_name(piece[1:])
    if name is not None:
        return (ColumnAction("add", name, conditional=conditional),)
    if not rest or rest[0].upper != "(":
        return None
    inside = rest[1 : _find_closing_parenthesis(rest)]
    found: list[ColumnAction] = []
    for item in _split_actions(inside):
        if item and item[0].upper in _NO_COLUMNS:
            if classify_action([piece[0], *item]).rows != "kept":
                return None
            continue
        name, _, _ = _parse_column_name(item)
        if name is None:
            return None
        found.append(ColumnAction("add", name, conditional=conditional))
    return tuple(found) or None


_NO_COLUMNS = frozenset(
    ["INDEX", "KEY", "UNIQUE", "PRIMARY", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"]
)


def _find_closing_parenthesis(tokens: Sequence[Token]) -> int:
    """Return the index at which the parenthesis closes that `tokens` begins with."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.upper == "(") - (token.upper == ")")
        if depth == 0:
            return at
    return len(tokens)


def _parse_column_name(tokens: Sequence[Token]) -> tuple[str | None, bool, Sequence[Token]]:
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
        "INT1", "INT2", "INT3", "INT4", "INT8", "MIDDLEINT", "FIXED", "CHARACTER", "NCHAR", "NVARCHAR",
        "NATIONAL", "LONG", "SERIAL", "GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT",
        "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "GEOMCOLLECTION",
    }
)  # fmt: skip
_FLOATS = frozenset({"FLOAT", "FLOAT4", "FLOAT8", "DOUBLE", "REAL"})


def _is_type_conclusive(type_: Sequence[Token]) -> bool:
    """Return whether the neutral type of a column declared like this describes everything that its
    values depend on.
    """
    words = [token.upper for token in type_]
    if words[:1] and words[0] in _FLOATS:  # FLOAT(5,1) rounds, which the catalog's type does not show
        head = words[: words.index(")")] if ")" in words else words
        return (words[1:2] != ["("] and words[1:3] != ["PRECISION", "("]) or "," not in head
    return bool(words) and (words[0] in WHOLE_TYPES or words[0] in _MORE_WHOLE_TYPES)
