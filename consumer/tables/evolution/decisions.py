"""Decides whether a definition event, a statement or a stop is ignored, followed, needs a copy, or stops
the unit.

A target follows a change by its own ALTER only if its rows then have the same values as the source's
rows after the statement. The source changes stored values without row events. So a change that is not
known to keep the values, or to fill them alike, needs a copy of the table.
consumer.tables.evolution.steps determines the target's steps. Without I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from consumer.tables.evolution.widening import is_lossless
from consumer.tables.router import SchemaChangePolicy
from schemas.table.fills import find_fill
from schemas.table.model import Column, ColumnType, Kind, Table, is_same_definition
from schemas.wire.event import ColumnChanges, EventEnvelope

KEPT_ROWS = "kept"
"""`EventEnvelope.effect` of a statement that kept every row and value of the table."""
DROPPED_CAUSE = "dropped"
"""Cause of the stop of a table that was dropped at the source."""
DEFINITION, STATEMENT = "definition", "statement"
"""Causes of a copy (consumer.errors.CopyNeededError): a change of the definition, or a statement with an
unknown effect."""


@dataclass(frozen=True, slots=True)
class KeepDefinition:
    """Keep the active definition.

    `completed_table`: the same definition with more details; it is stored instead of the old one.
    """

    completed_table: Table | None = None


@dataclass(frozen=True, slots=True)
class AdoptDefinition:
    """Activate the event's definition. `rewrite`: every row follows it again."""

    columns: ColumnChanges = field(default_factory=ColumnChanges)
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class NeedsCopy:
    """A copy of the table is needed: no event after this one can be applied before it begins.

    `why`: the evidence.
    """

    cause: str
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SourceTableDropped:
    """The table was dropped at the source. `why`, `remedy`: of the stop."""

    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class StopForPerson:
    """A person must decide. `why`: the evidence."""

    why: str


DefinitionVerdict = KeepDefinition | AdoptDefinition | NeedsCopy | SourceTableDropped | StopForPerson


def judge_table_event(
    active: Table | None,
    event: EventEnvelope,
    policy: SchemaChangePolicy,
    *,
    many: bool = False,
    left: Collection[str] = (),
) -> DefinitionVerdict:
    """Return the meaning of an event that is neither row, truncate nor chunk marker.

    `many`: other units write the target table too. `left`: columns that the unit no longer writes and
    the target still has.
    """
    if event.stop is not None:
        if event.stop.cause == DROPPED_CAUSE:
            return SourceTableDropped(event.stop.reason, event.stop.remedy)
        return NeedsCopy(event.stop.cause, event.stop.reason, event.stop.remedy)
    what = event.ddl or "a changed definition of the table"
    table = event.definition
    if table is None:
        return NeedsCopy(STATEMENT, f"{what}: the table's definition after this statement is unknown")
    copied = event.copy is not None and not event.copy.partial
    if copied or active is None:
        return AdoptDefinition(event.columns or ColumnChanges(), rewrite=copied and active is not None)
    if is_same_definition(active, table) and (event.ddl is None or event.effect == KEPT_ROWS):
        return KeepDefinition(None if active == table else table)
    if policy == "stop" and not is_same_definition(active, table):
        return StopForPerson(what)
    columns = _get_column_changes(event, active)
    if columns is None:
        cause = STATEMENT if is_same_definition(active, table) else DEFINITION
        return NeedsCopy(cause, f"{what}: the statement may have changed or removed rows of the table")
    case = _DefinitionPair(active, table, columns, policy, event.effect == KEPT_ROWS, many, frozenset(left))
    why = next(_yield_copy_reasons(case), None)
    return AdoptDefinition(columns) if why is None else NeedsCopy(DEFINITION, f"{what}: {why}")


def _get_column_changes(event: EventEnvelope, active: Table) -> ColumnChanges | None:
    """Return the column changes of an event; none for a statement that kept all rows and names.

    None: unknown.
    """
    if event.columns is not None:
        return event.columns
    same = event.definition is not None and set(active.column_names) == set(event.definition.column_names)
    return ColumnChanges() if event.effect == KEPT_ROWS and same else None


@dataclass(frozen=True, slots=True)
class _DefinitionPair:
    old: Table
    new: Table
    columns: ColumnChanges
    policy: SchemaChangePolicy
    kept: bool
    many: bool
    retained_columns: frozenset[str]

    @property
    def replaced(self) -> set[str]:
        """Columns that were dropped and added under one name."""
        return set(self.columns.dropped).intersection(self.columns.added)

    def get_new_name(self, name: str) -> str:
        return self.columns.renamed.get(name, name)


def _yield_copy_reasons(case: _DefinitionPair) -> Iterator[str]:
    """Yield the reasons why an ALTER of the target cannot give its rows the source's values."""
    yield from _yield_name_reasons(case)
    yield from _yield_rename_reasons(case)
    yield from _yield_key_reasons(case)
    new = {column.name: column for column in case.new.columns}
    dropped = set(case.columns.dropped)
    for old in case.old.columns:
        if old.name not in dropped:
            column = new[case.get_new_name(old.name)]
            yield from _yield_value_reasons(old, column)
            if column.name in case.columns.modified and not case.kept:
                yield from _yield_rounding_reasons(old, column)
    for name in case.columns.added:
        yield from _yield_added_reasons(case, new[name])


def _yield_name_reasons(case: _DefinitionPair) -> Iterator[str]:
    """Yield a reason if the statement does not explain the new names: a definition in between is missing."""
    stay = [case.get_new_name(name) for name in case.old.column_names if name not in case.columns.dropped]
    if sorted([*stay, *case.columns.added]) != sorted(case.new.column_names):
        yield ("its column changes do not explain the new columns: a definition between the two is missing")


def _yield_rename_reasons(case: _DefinitionPair) -> Iterator[str]:
    """Yield a reason if a column takes another one's name: after an interruption, the two could not be
    distinguished.
    """
    taken = [new for new in case.columns.renamed.values() if new in case.old.column_names]
    if taken:
        yield f"a column was renamed to {taken[0]}, which was the name of another column"
    if case.many and case.columns.renamed:
        old, new = next(iter(case.columns.renamed.items()))
        yield (
            f"column {old} was renamed to {new}, but other sources write the same target table and "
            f"still name it {old}"
        )


def is_key_form_changed(before: Table, after: Table, columns: ColumnChanges) -> bool:
    """Return whether a row's key may have another JSON form under `after`: other columns, another order, or
    another type than a longer one of the same kind.
    """
    old = [columns.renamed.get(name, name) for name in before.key.columns]
    if old != list(after.key.columns):
        return True
    types = [
        (before.get_column(name).type, after.get_column(new).type)
        for name, new in zip(before.key.columns, old, strict=True)
    ]
    return any(_ignore_size(one) != _ignore_size(other) for one, other in types)


def _ignore_size(type_: ColumnType) -> ColumnType:
    """Return the type without the size that does not show in its values' JSON form."""
    if type_.kind is Kind.INT:
        return replace(type_, bits=0)
    return replace(type_, length=0) if type_.kind in (Kind.VARCHAR, Kind.VARBINARY) else type_


def _yield_key_reasons(case: _DefinitionPair) -> Iterator[str]:
    old = [(case.get_new_name(part.column), part.prefix) for part in case.old.key.parts]
    if sorted(old, key=str) != sorted(((part.column, part.prefix) for part in case.new.key.parts), key=str):
        yield "the key of the table changes"


def _yield_value_reasons(old: Column, new: Column) -> Iterator[str]:
    if old.generated or new.generated:
        known = old.generated and new.generated and old.expression == new.expression is not None
        if not known or old.type != new.type:
            yield f"the source recomputes the generated column {new.name}"
        return
    if not is_lossless(old.type, new.type):
        yield f"the values of column {new.name} change with its type"
    if old.nullable and not new.nullable:
        yield (f"column {new.name} became NOT NULL, so its NULLs were replaced by other values at the source")
    if new.auto_increment and not old.auto_increment:
        yield (
            f"column {new.name} became AUTO_INCREMENT, so its zeros were replaced by other values at "
            "the source"
        )


def _yield_rounding_reasons(old: Column, new: Column) -> Iterator[str]:
    """Yield a reason for FLOAT(M,D), which rounds: the model does not contain M and D."""
    if new.type.kind in (Kind.FLOAT, Kind.DOUBLE) and old.type.kind is new.type.kind:
        yield f"the values of column {new.name} may be rounded"


def _yield_added_reasons(case: _DefinitionPair, column: Column) -> Iterator[str]:
    if case.policy == "ignore" and column.name not in case.replaced:
        return  # the target does not get the column
    fill = find_fill(column)
    if fill is None:
        yield f"only the source knows the values of the existing rows in the new column {column.name}"
    elif case.many and fill.value is not None:
        yield (
            f"the default of the new column {column.name} applies to the rows of this source only, but "
            "other sources write the same target table"
        )
    if column.name in case.retained_columns or (column.name in case.replaced and case.policy != "evolve"):
        yield (f"the target already has a column {column.name} with values of an earlier column of that name")
    elif case.many and column.name in case.replaced:
        yield (
            f"column {column.name} was dropped and added at this source, but not at the other sources "
            "that write the same target table"
        )
