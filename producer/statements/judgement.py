"""Judges the effect of a statement on the rows and on the definition of each of its tables. Pure.

The effects of the actions of ALTER TABLE are in producer/statements/actions.py, an allow-list.

Two things do not follow from the text. Whether a column's new definition changed stored values is
decided by comparing the definitions before and after (`definition` "changed"). The table's partitioning
method follows from REORGANIZE itself (only RANGE has VALUES LESS THAN); for the other actions the
catalog must prove it (`needs`).
"""

from __future__ import annotations

from dataclasses import dataclass

from producer.statements.actions import ActionRule, Definition, Needs, RowEffect
from producer.statements.alter import Alter
from producer.statements.ddl import TableDdl
from producer.statements.statement import Statement
from schemas.table.names import TableName

_WHOLE = frozenset(
    ["", "RANGE MAXVALUE", "RANGE COLUMNS MAXVALUE", "HASH", "LINEAR HASH", "KEY", "LINEAR KEY"]
)
"""Partitioning methods with a partition for every value, as TableCatalog.find_partitioning returns them."""
_NOT_LIST = _WHOLE | {"RANGE", "RANGE COLUMNS"}
"""Partitioning methods under which other maintenance keeps every row."""
_RANK: dict[RowEffect, int] = {"kept": 0, "unknown": 1, "emptied": 2, "replaced": 3, "gone": 4}


@dataclass(frozen=True, slots=True)
class StatementVerdict:
    """The effect of a statement on one table.

    `logged`: the statement changes rows and is logged as a statement. `why`: the reason if it is unknown
    which tables it affects, or why the table cannot go on without the removed rows.
    """

    table: TableName
    rows: RowEffect
    definition: Definition = "kept"
    needs: Needs = ""
    logged: bool = False
    why: str = ""

    @property
    def keeps_definition(self) -> bool:
        """True if the table's definition is certainly unchanged after the statement."""
        return self.definition == "kept" and self.rows in ("kept", "removed", "emptied")

    def holds_under(self, method: str | None) -> bool:
        """Return whether the effect is certain for a table with this partitioning method."""
        return self.needs != "no list" or method in _NOT_LIST

    def removes_under(self, method: str | None) -> bool:
        """Return whether the statement may remove rows of a table with this partitioning method, but does
        nothing else to them.
        """
        return self.rows == "removed" or (self.needs == "place for all" and method not in _WHOLE)

    def get_effect(self, *, same_definition: bool) -> str | None:
        """Return "kept" if rows and values are known to be unchanged, otherwise None."""
        return (
            "kept" if self.rows == "kept" or (self.needs == "same definition" and same_definition) else None
        )

    def must_stop(self, *, same_definition: bool) -> bool:
        """Return whether the table must stop: its rows are or may be different, and no new definition
        shows that to readers.
        """
        if self.rows == "unknown" and self.needs in ("same definition", "other definition"):
            return same_definition and self.needs == "other definition"
        return self.rows not in ("kept", "removed")


def judge_statement(statement: Statement) -> tuple[StatementVerdict, ...]:
    """Return the effect of a statement on each table that it names; empty if it is no `TableDdl`."""
    kind = statement.kind
    if not isinstance(kind, TableDdl):
        return ()
    names = tuple(dict.fromkeys(kind.tables))
    match kind.action:
        case "truncate":
            return tuple(StatementVerdict(name, "emptied") for name in names)
        case "drop":
            return tuple(StatementVerdict(name, "gone", "changed") for name in names)
        case "create":
            return _judge_create(names[0], statement)
        case "rename":
            return _judge_rename(kind.renames, statement.alter)
        case "repair":
            return tuple(StatementVerdict(name, "unknown") for name in names)
    return _judge_alter(names, statement)


def _merge_verdicts(one: StatementVerdict, other: StatementVerdict) -> StatementVerdict:
    """Return the combined effect of two actions of a statement, or of two readings of it."""
    changed: Definition = "changed" if "changed" in (one.definition, other.definition) else "kept"
    first, second = sorted((one, other), key=lambda each: (_RANK[each.rows], _STRICT.index(each.needs)))
    if second.rows == "unknown":  # without a need it is the worst case
        needs = (
            "" if any(each.rows == "unknown" and not each.needs for each in (one, other)) else second.needs
        )
        if first.rows == "kept" and first.needs == "no list":
            needs = ""
        return StatementVerdict(second.table, "unknown", changed, needs)
    return StatementVerdict(second.table, second.rows, changed, second.needs or first.needs)


_STRICT: tuple[Needs, ...] = ("", "no list", "same definition", "other definition")


def _judge_create(name: TableName, statement: Statement) -> tuple[StatementVerdict, ...]:
    words = [token.upper for token in statement.tokens[:6]]
    if words[:3] == ["CREATE", "OR", "REPLACE"]:
        return (StatementVerdict(name, "replaced", "changed"),)
    return (StatementVerdict(name, "kept", "kept" if "EXISTS" in words else "changed"),)


def _judge_rename(
    pairs: tuple[tuple[TableName, TableName], ...], alter: Alter | None
) -> tuple[StatementVerdict, ...]:
    """Judge a rename by its pairs of names.

    A name that is only left is dropped, one that is only taken has rows that capture has not seen
    (`changed`), and one that is both is replaced.
    """
    left, taken = {old for old, _ in pairs}, {new for _, new in pairs}
    verdicts = []
    for name in dict.fromkeys(each for pair in pairs for each in pair):
        rows: RowEffect = "replaced" if name in left and name in taken else "gone" if name in left else "kept"
        verdicts.append(StatementVerdict(name, rows, "changed"))
    if alter is not None and alter.ignore:
        return tuple(StatementVerdict(each.table, "replaced", "changed") for each in verdicts)
    return tuple(verdicts)


def _judge_alter(names: tuple[TableName, ...], statement: Statement) -> tuple[StatementVerdict, ...]:
    words, alter = [token.upper for token in statement.tokens[:5]], statement.alter
    if alter is None and words[0] == "OPTIMIZE":
        return tuple(StatementVerdict(name, "kept") for name in names)
    if alter is None:  # an index
        # MariaDB: CREATE OR REPLACE INDEX drops the index of that name first, which may be unique.
        plain = words[0] == "CREATE" and not {"UNIQUE", "REPLACE"}.intersection(words)
        return tuple(StatementVerdict(name, "kept", "kept" if plain else "changed") for name in names)
    if alter.ignore or not alter.actions:
        return tuple(StatementVerdict(name, "unknown") for name in names)
    found = [action.rule for action in alter.actions]
    if len(found) == 1 and found[0].rows == "removed":
        return _judge_removal(names)
    if len(found) > 1:
        found = [_join_action(each) for each in found]
    verdict = StatementVerdict(names[0], found[0].rows, found[0].definition, found[0].needs)
    for each in found[1:]:
        verdict = _merge_verdicts(verdict, StatementVerdict(names[0], each.rows, each.definition, each.needs))
    columns = {each.words for each in found if each.needs in ("same definition", "other definition")}
    if verdict.needs and len(columns) > 1:  # DROP a, ADD a: equal, and all values differ
        verdict = StatementVerdict(names[0], verdict.rows, "changed", "other definition")
    first, *others = (
        StatementVerdict(name, verdict.rows, verdict.definition, verdict.needs) for name in names
    )
    if "CONVERT TABLE" in {each.words for each in found}:  # it is a partition from now on
        others = [StatementVerdict(each.table, "gone", "changed") for each in others]
    return first, *others


def _join_action(rule: ActionRule) -> ActionRule:
    """Return the effects of an action together with others. No server allows that today for one that may
    remove rows, so what remains is not known to be followed.
    """
    if rule.needs == "place for all":
        return rule._replace(rows="unknown", needs="")
    return rule._replace(rows="emptied") if rule.rows == "removed" else rule


def _judge_removal(names: tuple[TableName, ...]) -> tuple[StatementVerdict, ...]:
    """Judge an ALTER that only removes rows. The other table of CONVERT PARTITION … TO TABLE gets them."""
    first, *others = names
    return (StatementVerdict(first, "removed"), *(StatementVerdict(name, "replaced") for name in others))
