"""Oracle's table changes: the conversion of neutral steps to statements that commit one by one.

One statement changes one thing, so a change is a series of statements. If it is interrupted between
two, the rest is computed again from the table as it is (consumer.tables.evolution.steps). A change that
would have an intermediate state which is neither the old table nor on the way to the new one is refused
before its first statement, with the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer.errors import TargetConfigError
from consumer.targets.alterations import (
    AddColumn,
    AddUnique,
    Alteration,
    AlterTable,
    ChangeColumn,
    ChangeKey,
    DropColumn,
    DropTable,
    DropUnique,
    RenameColumn,
    apply_alterations,
    list_new_names,
    require_same_columns,
)
from consumer.targets.oracle.catalog import (
    build_index_name,
    list_expression_columns,
    render_type,
    render_unique_index,
    takes_null,
)
from consumer.targets.oracle.connection import ORACLE_CALL_TIMEOUT_S
from consumer.targets.oracle.sql import (
    explain_column_name,
    normalize_name,
    quote_identifier,
    restore_spelling,
)
from consumer.targets.oracle.values import to_oracle
from consumer.targets.shared.column_values import choose_fill_value
from consumer.targets.shared.name_limits import require_column_names
from consumer.targets.sql import qualify_table
from schemas.errors import SchemaError, ValueRefusedError
from schemas.table.model import Column, Table, UniqueIndex
from schemas.table.oracle_ddl import EMPTY_IS_NULL, render_oracle_type

if TYPE_CHECKING:
    from consumer.targets.oracle.connection import OracleLink

#: Seconds that a statement may take that goes through all rows.
STATEMENT_S = 7 * 24 * 3600
_COLUMNS = (
    "SELECT column_name FROM SYS.ALL_TAB_COLS WHERE owner = %s AND table_name = %s AND hidden_column = 'NO'"
)
_INDEXES = """
SELECT i.index_name, c.constraint_name FROM SYS.ALL_INDEXES i
LEFT JOIN SYS.ALL_CONSTRAINTS c ON c.index_owner = i.owner AND c.index_name = i.index_name
  AND c.constraint_type = 'U'
WHERE i.table_owner = %s AND i.table_name = %s AND i.uniqueness = 'UNIQUE'"""
_BY_HAND = (
    "change the target table by hand as the source's is, or drop it and let `rowlock copy` fill it again"
)


class OracleAlterer:
    """Changes tables of Oracle; see `consumer.targets.dialect_components.TableAlterer`."""

    transactional = False

    def __init__(self, link: OracleLink) -> None:
        self._link = link

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        table = change.table
        at: list[object] = [normalize_name(table.db), normalize_name(table.name)]
        there = [restore_spelling(str(row[0]), table.name) for row in self._link.execute(_COLUMNS, at)]
        if isinstance(change, DropTable):
            if there:
                yield f"DROP TABLE {qualify_table(quote_identifier, table.db, table.name)}"
            return
        require_same_columns(table, there)
        require_column_names(f"{table.db}.{table.name}", list_new_names(change), explain_column_name)
        constraints = {
            str(index): None if constraint is None else str(constraint)
            for index, constraint in self._link.execute(_INDEXES, at)
        }
        yield from render_statements(change, constraints)

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        return normalize_name(build_index_name(table.name, index.name))

    @contextmanager
    def extend_lock_wait(self, lock_wait_s: float) -> Iterator[None]:
        link = self._link
        link.execute(f"ALTER SESSION SET DDL_LOCK_TIMEOUT = {max(1, round(lock_wait_s))}", [])
        link.raw.call_timeout = STATEMENT_S * 1000
        try:
            yield
        finally:
            if link.ping():
                link.raw.call_timeout = ORACLE_CALL_TIMEOUT_S * 1000


@dataclass(frozen=True, slots=True)
class _TableChange:
    """A change of one table, while its statements are rendered."""

    name: str
    """Quoted."""
    ending: Table
    """The table after all steps."""
    constraints: dict[str, str | None]
    """Real unique index → its constraint, or None if it has none."""
    dropped: set[str] = field(default_factory=set)
    """Real indexes that were dropped already."""


def render_statements(change: AlterTable, constraints: dict[str, str | None]) -> Iterator[str]:
    """Yield the statements of a change, in order.

    Raises TargetConfigError before the first one if the change is not possible.
    """
    table, ending = change.table, apply_alterations(change)
    _require_possible(change)
    whole = _TableChange(qualify_table(quote_identifier, table.db, table.name), ending, constraints)
    rebuilt = [index for index in table.unique if _is_blocking_index(change, index)]
    texts = [text for index in rebuilt for text in _render_drop_index(whole, index)]
    texts += [text for step in change.steps for text in _render_step(whole, change, step)]
    there = {index.name: index for index in ending.unique}
    for name in (index.name for index in rebuilt if index.name in there):
        texts.append(render_unique_index(ending, there[name], name))
    yield from texts


def _is_blocking_index(change: AlterTable, index: UniqueIndex) -> bool:
    """Return whether an index must be dropped and created again.

    Oracle neither renames nor changes a column that an index has in an expression (ORA-54032,
    ORA-54033).
    """
    if not list_expression_columns(change.table, index):
        return False
    touched = {step.old for step in change.steps if isinstance(step, RenameColumn)}
    names = {step.new: step.old for step in change.steps if isinstance(step, RenameColumn)}
    touched |= {
        names.get(step.desired.name, step.desired.name)
        for step in change.steps
        if isinstance(step, ChangeColumn)
    }
    return not touched.isdisjoint(index.columns)


def _require_possible(change: AlterTable) -> None:
    names = set(change.table.column_names)
    for step in change.steps:
        if isinstance(step, ChangeKey):
            raise _build_refusal(
                change.table, "its primary key would change, and between two statements it would have none"
            )
        if isinstance(step, RenameColumn):
            if step.new in names:
                raise _build_refusal(
                    change.table, f"columns swap names ({step.old} becomes {step.new}, which exists already)"
                )
            names = (names - {step.old}) | {step.new}
        if isinstance(step, ChangeColumn) and not _can_modify_in_place(step):
            now, desired = _describe_column(step.now), _describe_column(step.desired)
            raise _build_refusal(
                change.table,
                (
                    f"column {step.desired.name} must change from {now} to {desired}, which Oracle allows "
                    "only for empty columns"
                ),
            )


def _build_refusal(table: Table, why: str) -> TargetConfigError:
    return TargetConfigError(
        f"target table {table.db}.{table.name} is not changed as the source's was: {why}", _BY_HAND
    )


def _describe_column(column: Column) -> str:
    try:
        return render_oracle_type(column.type)
    except SchemaError:
        return str(column.type.kind)


def _can_modify_in_place(step: ChangeColumn) -> bool:
    """Return whether MODIFY works although rows exist: it needs the same type, with as much room or more."""
    now, desired = _describe_column(step.now), _describe_column(step.desired)
    if now == desired:
        return True
    return step.lossless and now.partition("(")[0] == desired.partition("(")[0]


def _render_step(whole: _TableChange, change: AlterTable, step: Alteration) -> Iterator[str]:
    name = whole.name
    if isinstance(step, AddColumn):
        yield from _render_add_column(whole, step)
    elif isinstance(step, DropColumn):
        for index in change.table.unique:
            if step.name in index.columns:
                yield from _render_drop_index(whole, index)
        yield f"ALTER TABLE {name} DROP ({quote_identifier(step.name)}) CASCADE CONSTRAINTS"
    elif isinstance(step, RenameColumn):
        yield f"ALTER TABLE {name} RENAME COLUMN {quote_identifier(step.old)} TO {quote_identifier(step.new)}"
    elif isinstance(step, ChangeColumn):
        yield from _render_change_column(whole, step)
    elif isinstance(step, DropUnique):
        yield from _render_drop_index(whole, step.index)
    elif isinstance(step, AddUnique):
        yield render_unique_index(whole.ending, step.index)


def _render_add_column(whole: _TableChange, step: AddColumn) -> Iterator[str]:
    """Yield the statements that add a column.

    Oracle stores the default of a NOT NULL column apart from the rows. The default is removed
    afterwards, because the source gives every value.
    """
    column = step.column
    value = _render_column_literal(column, choose_fill_value(step))
    null = "" if takes_null(whole.ending, column) or value is None else " NOT NULL"
    default = "" if value is None else f" DEFAULT {value}"
    name = quote_identifier(column.name)
    yield f"ALTER TABLE {whole.name} ADD ({name} {render_type(whole.ending, column)}{default}{null})"
    if value is not None:
        yield f"ALTER TABLE {whole.name} MODIFY ({name} DEFAULT NULL)"


def _render_change_column(whole: _TableChange, step: ChangeColumn) -> Iterator[str]:
    """Yield MODIFY. It contains a clause for NULL only where that changes (ORA-01451, ORA-01442)."""
    name, parts = quote_identifier(step.desired.name), []
    if _describe_column(step.now) != _describe_column(step.desired):
        parts.append(render_type(whole.ending, step.desired))
    if takes_null(whole.ending, step.desired) and not step.now.nullable:
        parts.append("NULL")
    if parts:
        yield f"ALTER TABLE {whole.name} MODIFY ({name} {' '.join(parts)})"


def _render_drop_index(whole: _TableChange, index: UniqueIndex) -> Iterator[str]:
    """Yield the statement that drops an index, or its constraint together with the index."""
    real = (
        index.name
        if index.name in whole.constraints
        else normalize_name(build_index_name(whole.ending.name, index.name))
    )
    if real in whole.dropped:
        return
    whole.dropped.add(real)
    constraint = whole.constraints.get(real)
    if constraint is not None:
        yield f"ALTER TABLE {whole.name} DROP CONSTRAINT {quote_identifier(constraint)}"
    else:
        yield f"DROP INDEX {qualify_table(quote_identifier, whole.ending.db, real)}"


def _render_column_literal(column: Column, value: object) -> str | None:
    """Return the value as a literal of a statement; None: NULL, also for what Oracle cannot store (a
    zero date, "").
    """
    alone = Table(db="", name="", columns=(column,), key=UniqueIndex(name="", parts=()))
    try:
        (given,) = to_oracle(alone)((value,))
    except ValueRefusedError:
        return None
    if given is None or (given == "" and column.type.kind in EMPTY_IS_NULL):
        return None
    return render_literal(given, render_oracle_type(column.type))


def render_literal(value: object, type_: str) -> str:
    """Return a literal for a value of the driver, with "%" doubled."""
    if isinstance(value, bytes):
        return f"HEXTORAW('{value.hex()}')"
    if type_ == "DATE":
        return f"DATE '{str(value)[:10]}'"
    if type_.startswith("TIMESTAMP"):
        return f"TIMESTAMP '{value}'"
    if type_.startswith("INTERVAL"):
        return f"NUMTODSINTERVAL({value.total_seconds()}, 'SECOND')"  # type: ignore[attr-defined]
    if type_.startswith("BINARY_"):  # a bare literal is a NUMBER, which cannot hold 5e-324 or 1.7e308
        return f"CAST('{value}' AS {type_})"
    if isinstance(value, str):
        quoted = value.replace("'", "''").replace("%", "%%")
        return f"'{quoted}'"
    return str(value)
