"""Putting a definition in force: what is left to do in the target table, and what is stored when nothing is. Pure.

A `TableChange` is planned anew whenever it is taken up, from the table as it is then; only what the first plan *chose* (names of columns) is
carried along, in the mark that a target without transactional DDL has of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.model import UnitState
from consumer.ordering.progress import Mark
from consumer.tables.evolution.index_steps import becomes_long
from consumer.tables.evolution.steps import kept_columns, names_apart, names_beside, steps
from consumer.tables.evolution.wish import Wish
from consumer.tables.router import Policy, Routed, TableRoute, given_twice, resolve, unwritten, wanted_table
from consumer.tables.stored import Stored, decode_stored
from consumer.targets.alterations import AddUnique, AlterTable, ChangeColumn
from consumer.targets.checks.column_spelling import spelled_there
from schemas.findings import refusal
from schemas.table.fills import Fill, fill_of
from schemas.table.model import Table
from schemas.table.names import Names
from schemas.wire.event import ColumnChanges
from schemas.wire.records import origin_of_topic


@dataclass(frozen=True, slots=True)
class TableChange:
    """`before`: the definition in force; `after`: the one that it becomes. `rewrite`: every row comes anew.

    `planned`: what a plan that was begun already has chosen. `settled`, `uniques`: see Wish. `emptied`: the rows of the
    unit are deleted first, because the target cannot change the table with them; all of them come anew.
    """

    before: Stored
    after: Table
    policy: Policy
    columns: ColumnChanges = field(default_factory=ColumnChanges)
    rewrite: bool = False
    planned: Stored | None = None
    settled: bool = False
    uniques: bool = True
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """`alter`: what is left to do; None: nothing. `stored`: what is in force then."""

    alter: AlterTable | None
    stored: Stored


def plan_change(
    change: TableChange, real: Table, routed: Routed, others: Sequence[Table], same: Names
) -> Planned:
    """Plan `change` for the target table `real`. `others`: what other units want of it; `same`: how the target compares names of columns.

    Raises CopyNeededError where the target's rows would not have the source's values, UnitStoppedError where no table fits all units.
    """
    before = change.before
    names = _names(change)
    if twice := given_twice(change.after, routed, names, same):
        raise UnitStoppedError(refusal(twice))
    if change.planned is None:
        spelled = spelled_there(change.after, real, names, _goes(change, others, same), same)
        _refuse_spelling(change, spelled, real)
        names |= spelled
    if change.planned is None and change.rewrite:
        names |= names_apart(real, change.after, names, same)
        wanted = wanted_table(change.after, routed, names)
        beside = names_beside(
            real, wanted, change.policy, {there: name for name, there in names.items()}, same
        )
        names |= {
            each.name: beside[at]
            for each in change.after.columns
            if (at := names.get(each.name, each.name)) in beside
        }
    wish = Wish(
        wanted=wanted_table(change.after, routed, names),
        before=wanted_table(before.table, routed, before.names),
        policy=change.policy,
        columns=_in_target_names(change, names),
        others=others,
        rewrite=change.rewrite,
        settled=change.settled,
        uniques=change.uniques,
    )
    if change.planned is None and not change.rewrite:
        _refuse_old_values(wish, before, real)
    left = {*map(wish.renamed, before.left), *kept_columns(real, wish)} - {*wish.wanted.column_names}
    lacks = unwritten(wish.wanted, real, change.policy)
    return Planned(steps(real, wish), before.followed_by(change.after, names, tuple(sorted(left)), lacks))


def _names(change: TableChange) -> dict[str, str]:
    """Columns of the new definition that have another name in the target, as they had before, or as was chosen."""
    if change.planned is not None:
        return dict(change.planned.names)
    fresh = {*change.columns.dropped}
    now = {old: change.columns.renamed.get(old, old) for old in change.before.names if old not in fresh}
    there = set(change.after.column_names)
    return {now[old]: name for old, name in change.before.names.items() if now.get(old) in there}


def _goes(change: TableChange, others: Sequence[Table], same: Names) -> set[str]:
    """Return the columns of the target that get another name or are dropped, as the policy has it. None comes or goes for a spelling that no server keeps."""
    if change.policy not in ("lenient", "evolve"):
        return set()
    written = change.before.table.column_names if change.policy == "evolve" else change.columns.renamed
    shared = {name for other in others for name in other.column_names}
    goes = {change.before.target_name(name) for name in written} - shared
    if same.keeps_spelling:
        return goes
    stay = {same.fold(name) for name in change.after.column_names}
    return {name for name in goes if same.fold(name) not in stay}


def _refuse_spelling(change: TableChange, there: Mapping[str, str], real: Table) -> None:
    """To the target the name of a new column is one that it has: what its rows have there was another column's."""
    if change.rewrite:
        return
    was = {new: old for old, new in change.columns.renamed.items()}
    known = {*change.before.table.column_names} - {*change.before.unwritten, *change.columns.added}
    for name, spelled in there.items():
        if name not in known and change.before.target_name(was.get(name, "")) != spelled:
            raise CopyNeededError(
                f"the target table {real.db}.{real.name} has a column {spelled}, which to its server is the same name as {name}, and nothing tells whether "
                "its rows have the values of the source's column, which is a new one or has a new name",
                cause="definition",
            )


def _in_target_names(change: TableChange, names: Mapping[str, str]) -> ColumnChanges:
    """Return what the statement says of columns, in the target's names; one that keeps its name there is not renamed."""
    old, said = change.before.names, change.columns
    return msgspec.structs.replace(
        said,
        renamed={a: b for a, b in said.renamed.items() if a not in old and b not in names},
        added=tuple(names.get(name, name) for name in said.added),
        dropped=tuple(old.get(name, name) for name in said.dropped),
    )


def _refuse_old_values(wish: Wish, before: Stored, real: Table) -> None:
    """A column that is new at the source, or was written nowhere, and is there in the target has values of which nobody knows that they are right."""
    if wish.policy == "stop":
        return
    for name in _new_names(wish, before, real):
        if name in real.column_names and not _empty_there(wish, before, real, name):
            raise CopyNeededError(
                f"the target table {real.db}.{real.name} has a column {name} already, and nothing tells whether its rows have the values "
                "of the source's column, which is a new one or has a new name",
                cause="definition",
            )


def _new_names(wish: Wish, before: Stored, real: Table) -> list[str]:
    """Columns that the unit did not write, and writes from now on where the target has them by itself."""
    columns = wish.columns
    if wish.policy == "ignore":  # no column ever goes there, or gets another name
        unwritten = {*map(wish.renamed, before.unwritten)}
        return [*columns.added, *columns.renamed.values(), *unwritten.intersection(wish.wanted.column_names)]
    goes = {*columns.dropped, *columns.renamed}
    renamed = [new for old, new in columns.renamed.items() if old in real.column_names]  # else it was already
    return [name for name in (*columns.added, *renamed) if name not in goes]


def _empty_there(wish: Wish, before: Stored, real: Table, name: str) -> bool:
    """Tell whether a column has NULL in every row of this unit, and shall have: other units brought it, and this one never wrote it."""
    there, fresh = real.column(name), name not in {*before.left, *before.unwritten}
    default = there.default is not None or there.default_expression is not None
    empty = there.nullable and not default and name in wish.columns.added
    return wish.shared(name) and fresh and empty and fill_of(wish.wanted.column(name)) == Fill(None)


# --- other units of one target table


def sharers(
    units: Mapping[str, UnitState], topic: str, routes: Sequence[TableRoute], place: tuple[str, str]
) -> dict[str, Table]:
    """Return topic → what it wants of the target table `place`, of the other units of a pipeline that write it.

    `topic`: of this unit.
    """
    own = origin_of_topic(topic)
    found: dict[str, Table] = {}
    for other, state in units.items():
        origin = origin_of_topic(other)
        if other == topic or state.definition is None or own is None or origin is None or origin[0] != own[0]:
            continue
        stored = decode_stored(state.definition)
        routed = resolve(routes, origin[1], stored.table.db, stored.table.name)
        if routed is not None and (routed.schema, routed.table) == place:
            found[other] = wanted_table(stored.table, routed, stored.names)
    return found


# --- the mark


class ChangeMark(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of `UnitState.ddl` while statements run that commit by themselves. `connection`: over which they run.

    `at`: the event, (offset, position, gen, commit ms). `after`: what is stored when all is done; None: the table is dropped.
    """

    connection: int = msgspec.field(name="connection")
    at: Mark = msgspec.field(name="at")
    after: str | None = msgspec.field(name="after")
    policy: Policy = msgspec.field(name="policy", default="lenient")
    columns: ColumnChanges = msgspec.field(name="columns", default=ColumnChanges())
    rewrite: bool = msgspec.field(name="rewrite", default=False)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    def change(self, before: Stored, after: str) -> TableChange:
        """Return the change to take up again. `after`: as of the mark."""
        planned = decode_stored(after)
        return TableChange(before, planned.table, self.policy, self.columns, self.rewrite, planned)


def mark_of(change: TableChange, planned: Planned, at: Mark, connection: int) -> ChangeMark:
    """Return the mark of a change that begins."""
    return ChangeMark(connection, at, planned.stored.encode(), change.policy, change.columns, change.rewrite)


def decode_mark(text: str) -> ChangeMark | None:
    """Parse `UnitState.ddl`; None: it is none of this version."""
    try:
        return msgspec.json.decode(text, type=ChangeMark)
    except msgspec.MsgspecError:
        return None


def refused(change: TableChange, planned: Planned) -> TableChange | None:
    """Return what else to try when the target refuses the statements because of its rows; None: nothing.

    A unique index that cannot be built, or that a changed column cannot have, is left out first. Rows that all come anew make room at last.
    """
    alter = planned.alter
    if alter is not None and change.uniques and _of_uniques(alter):
        return replace(change, uniques=False)
    if alter is not None and change.rewrite and not change.emptied:
        return replace(change, emptied=True, uniques=True)
    return None


def _of_uniques(alter: AlterTable) -> bool:
    """Tell whether the steps may be refused because of a unique index."""
    return any(
        isinstance(step, AddUnique)
        or (
            isinstance(step, ChangeColumn)
            and bool(alter.table.unique)
            and becomes_long(step.now, step.wanted)
        )
        for step in alter.steps
    )
