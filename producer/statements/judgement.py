"""Judgement of a statement: its effect on the rows and on the definition of each of its tables; pure.

What an action of ALTER TABLE does is in producer/statements/actions.py, an allow-list.

Two things cannot be told from the text. Whether a column's new definition changed stored values: what the definitions before
and after say decides (`definition` "changed"). And by what a table is partitioned: REORGANIZE says it in its own clauses
(only RANGE has VALUES LESS THAN), for the others the catalogue must prove it (`needs`).
"""

from __future__ import annotations

from dataclasses import dataclass

from producer.statements import ddl
from producer.statements.actions import Definition, Needs, Rows, action_of, behind_name, ignores, pieces
from producer.statements.conversions import optimized
from producer.statements.ddl import TableDdl
from producer.statements.tokens import Token
from schemas.table.names import TableName

_RANK: dict[Rows, int] = {"kept": 0, "unknown": 1, "emptied": 2, "replaced": 3, "gone": 4}


@dataclass(frozen=True, slots=True)
class StatementVerdict:
    """The effect of a statement on one table. `logged`: it changes rows and is logged as a statement; `why`: what leaves its reach
    unknown.
    """

    table: TableName
    rows: Rows
    definition: Definition = "kept"
    needs: Needs = ""
    logged: bool = False
    why: str = ""

    @property
    def keeps_definition(self) -> bool:
        """Tell whether the table's definition is surely the same behind it."""
        return self.definition == "kept" and self.rows in ("kept", "emptied")

    def effect(self, *, same_definition: bool) -> str | None:
        """Return "kept" if rows and values are known to be as they were."""
        return (
            "kept" if self.rows == "kept" or (self.needs == "same definition" and same_definition) else None
        )

    def stops(self, *, same_definition: bool) -> bool:
        """Tell whether the table cannot be followed: its rows are others now, or may be, and no new definition says so."""
        if self.rows == "unknown" and self.needs in ("same definition", "other definition"):
            return same_definition and self.needs == "other definition"
        return self.rows != "kept"


def judge(sql: str, db: str, *, escapes: bool = True) -> tuple[StatementVerdict, ...]:
    """Return what `sql`, executed with `db` as the current database, does to each table it names. Empty: it names none.

    Only for statements that `ddl.classify` takes for `TableDdl`, and OPTIMIZE TABLE. `escapes`: see `tokenize`.
    """
    statement, tokens = ddl.read(sql, db, escapes=escapes)
    return _judge(optimized(tokens, db) or statement, tokens)


def _worse(one: StatementVerdict, other: StatementVerdict) -> StatementVerdict:
    """Join what two actions of a statement do, or what two readings of it say."""
    changed: Definition = "changed" if "changed" in (one.definition, other.definition) else "kept"
    first, second = sorted((one, other), key=lambda each: (_RANK[each.rows], _STRICT.index(each.needs)))
    if second.rows == "unknown":  # without a need it is worse than any
        needs = (
            "" if any(each.rows == "unknown" and not each.needs for each in (one, other)) else second.needs
        )
        if first.rows == "kept" and first.needs == "no list":
            needs = ""
        return StatementVerdict(second.table, "unknown", changed, needs)
    return StatementVerdict(second.table, second.rows, changed, second.needs or first.needs)


_STRICT: tuple[Needs, ...] = ("", "no list", "same definition", "other definition")


def _judge(statement: ddl.Statement, tokens: list[Token]) -> tuple[StatementVerdict, ...]:
    if not isinstance(statement, TableDdl):
        return ()
    names = tuple(dict.fromkeys(statement.tables))
    match statement.action:
        case "truncate":
            return tuple(StatementVerdict(name, "emptied") for name in names)
        case "drop":
            return tuple(StatementVerdict(name, "gone", "changed") for name in names)
        case "create":
            return _create(names[0], tokens)
        case "rename":
            return _rename(statement.renames, tokens)
        case "repair":
            return tuple(StatementVerdict(name, "unknown") for name in names)
    return _alter(names, tokens)


def _create(name: TableName, tokens: list[Token]) -> tuple[StatementVerdict, ...]:
    words = [token.upper for token in tokens[:6]]
    if words[:3] == ["CREATE", "OR", "REPLACE"]:
        return (StatementVerdict(name, "replaced", "changed"),)
    return (StatementVerdict(name, "kept", "kept" if "EXISTS" in words else "changed"),)


def _rename(
    pairs: tuple[tuple[TableName, TableName], ...], tokens: list[Token]
) -> tuple[StatementVerdict, ...]:
    """A name that is only left is gone; one that is only taken has rows nobody has seen (`changed`); both: replaced."""
    left, taken = {old for old, _ in pairs}, {new for _, new in pairs}
    verdicts = []
    for name in dict.fromkeys(each for pair in pairs for each in pair):
        rows: Rows = "replaced" if name in left and name in taken else "gone" if name in left else "kept"
        verdicts.append(StatementVerdict(name, rows, "changed"))
    if tokens and tokens[0].upper == "ALTER" and ignores(tokens):
        return tuple(StatementVerdict(each.table, "replaced", "changed") for each in verdicts)
    return tuple(verdicts)


def _alter(names: tuple[TableName, ...], tokens: list[Token]) -> tuple[StatementVerdict, ...]:
    verb = tokens[0].upper
    if verb == "OPTIMIZE":
        return tuple(StatementVerdict(name, "kept") for name in names)
    if verb in ("CREATE", "DROP"):  # an index
        plain = verb == "CREATE" and "UNIQUE" not in [token.upper for token in tokens[:5]]
        return tuple(StatementVerdict(name, "kept", "kept" if plain else "changed") for name in names)
    if ignores(tokens):
        return tuple(StatementVerdict(name, "unknown") for name in names)
    found = [action_of(piece) for piece in pieces(behind_name(tokens))]
    if not found:
        return tuple(StatementVerdict(name, "unknown") for name in names)
    verdict = StatementVerdict(names[0], found[0].rows, found[0].definition, found[0].needs)
    for each in found[1:]:
        verdict = _worse(verdict, StatementVerdict(names[0], each.rows, each.definition, each.needs))
    columns = {each.words for each in found if each.needs in ("same definition", "other definition")}
    if verdict.needs and len(columns) > 1:  # DROP a, ADD a: an equal definition, and every value another
        verdict = StatementVerdict(names[0], verdict.rows, "changed", "other definition")
    return tuple(StatementVerdict(name, verdict.rows, verdict.definition, verdict.needs) for name in names)
