"""Shadow tables of gh-ost and pt-online-schema-change, judged when they replace a captured table. Pure.

The tools guarantee that the shadow has the table's rows at the swap. The table's definition then changes
as the shadow's statements describe, as by an ALTER TABLE, and captured rows stay right if these
statements keep every row and value. The tools copy columns by their names and skip rows that the shadow
rejects (INSERT IGNORE). So additions to the shadow must not reject a row, and no column may be renamed.
Any other shadow is a table with other rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from producer.binlog_format.log_event import LoggedStatement
from producer.statements.columns import (
    compute_column_changes,
    is_left_out_only,
    list_column_actions,
)
from producer.statements.ddl import SchemaDrop, TableDdl, TriggerCreation
from producer.statements.judgement import StatementVerdict, judge_statement
from producer.statements.statement import Statement, parse_statement
from producer.statements.tokens import names_at
from schemas.table.model import ColumnType, Kind, Table, is_same_definition
from schemas.table.names import EXACT, NameRules, TableName
from schemas.table.online_ddl import ToolNames
from schemas.wire.event import ColumnChanges
from schemas.wire.position import LogPoint
from schemas.wire.records import ShadowTable

ShadowMove = Literal["", "away", "swap", "half"]
"""The meaning of a RENAME for a table: none, the first part of a swap, a swap, or one side of a swap
only.
"""
_LONGEST = 65_536  # characters of statements that are kept for one shadow


class SwapResult(NamedTuple):
    """The result of a swap.

    `refused`: "" if the table keeps its rows and values, except as its definition describes; otherwise
    the reason why not.
    """

    refused: str = ""
    columns: ColumnChanges | None = None
    effect: str | None = None


class ShadowTables:
    """The shadow tables of captured tables.

    Statements must be noted in the log's order. Noting a statement a second time has no effect.
    """

    def __init__(
        self, tools: ToolNames, names: NameRules = EXACT, stored: Iterable[ShadowTable] = ()
    ) -> None:
        self._tools = tools
        self._names = names
        self._shadows = {(each.db, each.name): each for each in stored}

    def note_statement(self, statement: Statement, at: LogPoint, captured: Collection[TableName]) -> None:
        """Note a statement that starts at `at`. `captured`: the tables with shadows that are tracked."""
        kind, same = statement.kind, self._names.normalize_table
        if isinstance(kind, SchemaDrop):
            for name in [each for each in self._shadows if each[0] == self._names.fold_name(kind.db)]:
                self._end_shadow(name, at)
        if isinstance(kind, TriggerCreation):
            self._note_trigger(same(kind.table), at, kind)
        if not isinstance(kind, TableDdl):
            return
        for name in dict.fromkeys(map(same, kind.tables)):
            known = self._shadows.get(name)
            leaves = kind.action == "drop" or name in [same(old) for old, _ in kind.renames]
            if known is None or (known.over and at > known.at):
                if not leaves:
                    self._begin_shadow(name, statement, at, captured)
            elif leaves:
                self._end_shadow(name, at)
            elif at > known.at:
                self._goes_on(name, known, statement, at)
            self._note_table_statement(name, statement, at, kind)

    def _note_trigger(self, table: TableName, at: LogPoint, trigger: TriggerCreation) -> None:
        """Note a trigger of the table that keeps a shadow up to date."""
        words = {self._names.fold_name(word) for word in trigger.words}
        for name, known in self._list_shadows(table):
            if not known.over and at > known.at and name[1] in words:
                self._shadows[name] = replace(known, at=at, triggers=(*known.triggers, trigger.event))

    def _note_table_statement(
        self, table: TableName, statement: Statement, at: LogPoint, kind: TableDdl
    ) -> None:
        """Note a statement on the table itself while a tool builds its shadow, which does not get that
        change.
        """
        if kind.action == "rename" or not self._list_shadows(table):
            return
        mine = [
            each for each in judge_statement(statement) if self._names.normalize_table(each.table) == table
        ]
        if kind.action == "alter" and all(each.rows == "kept" and each.keeps_definition for each in mine):
            return
        for name, known in self._list_shadows(table):
            if not known.over and at > known.at:
                why = f"{table[0]}.{table[1]} itself was changed meanwhile: {statement.sql[:200]}"
                self._shadows[name] = replace(known, at=at, statements=(), unknown=why)

    def _begin_shadow(
        self, name: TableName, statement: Statement, at: LogPoint, captured: Collection[TableName]
    ) -> None:
        table = self._tools.find_shadowed_table(name, captured)
        if table is None:
            return
        unknown = "its CREATE TABLE was not seen"
        if isinstance(statement.kind, TableDdl) and statement.kind.action == "create":
            unknown = _explain_unlike_form(statement, table, self._names)
        self._shadows[name] = ShadowTable(db=name[0], name=name[1], table=table[1], at=at, unknown=unknown)

    def _goes_on(self, name: TableName, known: ShadowTable, statement: Statement, at: LogPoint) -> None:
        unknown = known.unknown or _explain_lost_rows(statement)
        texts = () if unknown else (*known.statements, statement.sql)
        if sum(map(len, texts)) > _LONGEST:
            unknown, texts = "its statements are too long to keep", ()
        self._shadows[name] = replace(known, at=at, statements=texts, unknown=unknown)

    def _end_shadow(self, name: TableName, at: LogPoint) -> None:
        known = self._shadows[name]
        if at > known.at:
            self._shadows[name] = replace(known, at=at, over=True)

    # --- the swap

    def classify_move(
        self, table: TableName, statement: TableDdl, at: LogPoint
    ) -> tuple[ShadowMove, TableName | None]:
        """Return the meaning of a RENAME for `table`, and the shadow that replaces it.

        The statement must have been noted.
        """
        same = self._names.normalize_table
        left = [same(new) for old, new in statement.renames if same(old) == table]
        came = [same(old) for old, new in statement.renames if same(new) == table]
        away = self._is_moved_away(table)
        if len(left) > 1 or len(came) > 1:  # a chain of renames, which no tool uses
            return "", None
        shadow = came[0] if came and self._tools.is_shadow(came[0], table) else None
        trash = bool(left) and self._tools.is_trash(left[0], table)
        if left and not came:
            return self._classify_departure(table, at) if trash else ("", None)
        if shadow is not None and (trash or (away and not left)):
            return "swap", shadow
        if away or shadow is not None or trash:
            self._come_back(table)
            return "half", None
        return "", None

    def _classify_departure(self, table: TableName, at: LogPoint) -> tuple[ShadowMove, TableName | None]:
        """Note that the table got its trash name: its shadow will follow, if it has one."""
        for name, known in self._list_shadows(table):
            if known.away and at <= known.at:
                return "away", name
            if not known.over and at > known.at:
                self._shadows[name] = replace(known, at=at, away=True)
                return "away", name
        return "", None

    def _come_back(self, table: TableName) -> None:
        for name, known in self._list_shadows(table):
            self._shadows[name] = replace(known, away=False)

    def _list_shadows(self, table: TableName) -> list[tuple[TableName, ShadowTable]]:
        return [(name, each) for name, each in self._shadows.items() if (each.db, each.table) == table]

    def _is_moved_away(self, table: TableName) -> bool:
        return any(known.away for _, known in self._list_shadows(table))

    def is_away(self, table: TableName) -> bool:
        """True if the table was renamed for its shadow, which has not replaced it yet."""
        return any(known.away and not known.over for _, known in self._list_shadows(table))

    def judge_swap(self, shadow: TableName, at: LogPoint, before: Table, after: Table) -> SwapResult:
        """Return the effect on a table of its replacement by `shadow`, by the statement at `at`."""
        known = self._shadows.get(shadow)
        if known is None or known.at != at:
            return SwapResult("no statement of its shadow table was seen")
        if known.unknown:
            return SwapResult(known.unknown)
        missing = {"INSERT", "UPDATE", "DELETE"} - set(known.triggers)
        if missing and self._tools.needs_triggers(shadow, (known.db, known.table)):
            return SwapResult("no triggers kept it up to date, so it is not pt-online-schema-change's")
        return judge_shadow_statements(known.statements, known.db, before, after)

    def list_stored_shadows(self, point: LogPoint) -> tuple[ShadowTable, ...]:
        """Return the shadows that a position record at `point` needs. Forget those that ended before."""
        self._shadows = {
            name: each for name, each in self._shadows.items() if not (each.over and each.at < point)
        }
        return tuple(self._shadows.values())


def judge_shadow_statements(statements: Sequence[str], db: str, before: Table, after: Table) -> SwapResult:
    """Return the effect of a shadow's statements on the table."""
    parsed = [parse_statement(LoggedStatement(db, sql)) for sql in statements]
    columns = compute_column_changes(parsed, before, after)
    if columns is None:
        return SwapResult("its statements do not show what happened to each column")
    if columns.renamed:
        return SwapResult(
            f"it renamed {', '.join(columns.renamed)}, and it is unknown whether the tool copied the values"
        )
    if replaced := sorted(set(columns.added) & set(columns.dropped)):
        return SwapResult(
            f"{', '.join(replaced)} was dropped and added again, but the tool copies the old values"
        )
    if refusal := _refuses_rows(before, after):
        return SwapResult(refusal)
    if is_left_out_only(columns, before, after):
        return SwapResult("", columns, "kept")
    same = is_same_definition(before, after)
    verdicts: list[StatementVerdict] = [verdict for each in parsed for verdict in judge_statement(each)]
    if any(each.must_stop(same_definition=same) for each in verdicts):
        return SwapResult("its statements may have changed values")
    kept = all(each.get_effect(same_definition=same) == "kept" for each in verdicts)
    return SwapResult("", columns, "kept" if kept else None)


def _refuses_rows(before: Table, after: Table) -> str:
    """Return why the new form may reject rows of the old one, which the tools would skip.

    "": it does not.
    """
    known = {index.parts for index in (before.key, *before.unique)}
    for index in (after.key, *after.unique):
        if index.parts not in known:
            return f"unique index {index.name} is new, and the tool skips rows with equal values in it"
        for name in index.columns:
            was, now = before.get_column(name), after.get_column(name)
            if not _is_as_distinctive(was.type, now.type) or (was.nullable and not now.nullable):
                return (
                    f"column {name} of unique index {index.name} changed so that different values may become "
                    "equal, and the tool skips such rows"
                )
    return ""


def _is_as_distinctive(was: ColumnType, now: ColumnType) -> bool:
    """Return whether values that differ in one type certainly differ in the other."""
    if was == now:
        return True
    if was.kind is not now.kind:
        return False
    if was.kind is Kind.INT:
        return now.bits > was.bits if now.unsigned != was.unsigned else now.bits >= was.bits
    longer = now.length >= was.length and now.precision >= was.precision and now.fsp >= was.fsp
    return longer and replace(now, length=was.length, precision=was.precision, fsp=was.fsp) == was


# --- single statements


def _explain_unlike_form(statement: Statement, table: TableName, names: NameRules) -> str:
    """Return why a CREATE TABLE may not create the table's own form; "": it does.

    pt-online-schema-change lists the columns; the definition after the swap must show that they are the
    table's.
    """
    tokens = statement.tokens
    words = [token.upper for token in tokens]
    if words[:2] != ["CREATE", "TABLE"] or words[2:3] == ["IF"] or "SELECT" in words:
        return "it was not made by a plain CREATE TABLE"
    _, end = names_at(tokens, 2)
    if words[end : end + 1] != ["LIKE"]:
        return ""
    like, _ = names_at(tokens, end + 1)
    found = None if like is None else names.normalize_table((like[0] or statement.query.db, like[1]))
    return "" if found == table else "it was created by CREATE TABLE … LIKE another table"


_MAY_REFUSE = frozenset({"CHECK", "REFERENCES", "FOREIGN", "PARTITION", "UNIQUE", "IGNORE"})


def _explain_lost_rows(statement: Statement) -> str:
    """Return why a statement on a shadow may lose rows of its table; "": it does not."""
    sql = statement.sql
    if list_column_actions(statement) is None:
        return f"it is unknown whether this keeps rows: {sql[:200]}"
    if not statement.query.escapes and "\\" in sql:
        return "one of its statements holds a backslash, under NO_BACKSLASH_ESCAPES"
    if not _MAY_REFUSE.isdisjoint(token.upper for token in statement.tokens):
        return f"the tool skips rows that the new table rejects: {sql[:200]}"
    return ""
