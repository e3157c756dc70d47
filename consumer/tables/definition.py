"""Builds everything derived from the active table definition: target table, decoder, row function (design.md §4 and §6).

A unit has one table. Its definition is stored beside the progress, so a restart needs no definition event; what is
made of it here is cached per (topic, epoch) in the worker process. What a new definition does is decided elsewhere
(consumer.tables.evolution).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as with_
from typing import Any, cast

from msgspec.structs import replace

from consumer.errors import CopyNeededError, TargetConfigError, UnitStoppedError
from consumer.ordering.model import TargetTable
from consumer.tables.event_decoder import Decode, event_decoder, image_row, row_decoder
from consumer.tables.fitness import gone as gone_message
from consumer.tables.fitness import misfit
from consumer.tables.key_order import ranges_alike
from consumer.tables.router import (
    Routed,
    TableRoute,
    given_twice,
    resolve,
    target_table,
    topic_table,
    unwritten,
    wanted_table,
    written_part,
)
from consumer.tables.stored import Stored
from consumer.targets.base import EventTables, TargetTables
from consumer.targets.checks.column_fit import fits
from consumer.targets.checks.column_spelling import spelled_there
from schemas.errors import SchemaError
from schemas.findings import refusal
from schemas.table.model import Row, Table
from schemas.table.names import Names
from schemas.wire.debezium import Decoder, Modes


@dataclass(frozen=True, slots=True)
class InForce:
    """`text`: the stored JSON. `written`: as much of the definition as is written. `wanted`: `written` in target terms.
    `real`: the target table as it was read. `row`: column structure → target row.

    `decode`: of any event of the table. `decode_row`: of row events in today's envelope, with no more of a before-image
    than what tells which row and which unique values it gives up. Of a topic that Debezium writes both are its decoder
    (schemas.wire.debezium), and images are rows already. `ordered`: source and target order the key alike.
    `narrow`: columns that the target has, and that do not hold every value there, where no statement is to change that (`ignore`).
    """

    text: str
    stored: Stored
    written: Table
    routed: Routed
    wanted: Table
    real: Table
    target: TargetTable
    decode: Decode
    decode_row: Decode
    row: Callable[[Any], Row]
    ordered: bool = False
    narrow: tuple[str, ...] = ()

    @property
    def unfit(self) -> str:
        """Return why the target refuses rows that are to stop the unit ("…seen…: remedy"); "": none is."""
        if not self.narrow:
            return ""
        columns = ", ".join(self.narrow)
        return (
            f"its table {self.target.schema}.{self.target.name} does not hold every value that the source's columns have ({columns}), which "
            f"`schema_changes: ignore` leaves as it is: alter {columns} in the target as at the source"
        )

    @property
    def source(self) -> Table:
        return self.stored.table


def prepare(
    session: TargetTables,
    stored: Stored,
    *,
    source_name: str,
    routes: tuple[TableRoute, ...],
    create: bool,
    gone: bool = False,
    real: Table | None = None,
    debezium: Modes | None = None,
) -> InForce:
    """Route a definition, create the target table where it is missing (`create`), and read the real one.

    `real`: the target table, where somebody has just read it. `debezium`: who writes the events, if not rowlock. `gone`: one that
    is missing was there before.

    Raises UnitStoppedError when the target does not fit, CopyNeededError when it has come to have a column that it lacked, and the session's
    errors.
    """
    source = stored.table
    routed = resolve(routes, source_name, source.db, source.name)
    if routed is None:
        raise UnitStoppedError(f"{source.db}.{source.name} of {source_name}: no route names this table")
    same = session.column_names
    if twice := given_twice(source, routed, stored.names, same):
        raise UnitStoppedError(refusal(twice))
    wanted = wanted_table(source, routed, stored.names)
    if (
        real is None
        and not gone
        and (why := misfit(session, source, source_name, routes, stored.names)) is not None
    ):
        raise UnitStoppedError(why)  # of one that is in force the take-over has judged
    added = routed.added_names
    try:
        if routed.topic is not None:
            there, target = wanted, topic_table(wanted, routed, source_name, source)
            cast(EventTables, session).open_topic(target, create=create, gone=gone)
        else:
            lost = gone_message(routed, source, debezium=debezium is not None) if gone else None
            there = real or _real_table(session, wanted, create, lost)
            stored = _spelled(stored, wanted, there, same)
            wanted = wanted_table(source, routed, stored.names)
            stored = _left_out(stored, wanted, there, routed, same)
            wanted = written_part(wanted, there, routed.policy)
            target = target_table(wanted, there, added)
    except (TargetConfigError, SchemaError) as error:
        raise UnitStoppedError(str(error)) from error
    written = _written(source, wanted, stored)
    decode, decode_row, row = _events_of(written, target, routed, debezium)
    return InForce(
        text=stored.encode(),
        stored=stored,
        written=written,
        routed=routed,
        wanted=wanted,
        real=there,
        target=target,
        decode=decode,
        decode_row=decode_row,
        row=row,
        narrow=_narrow(wanted, there) if routed.policy == "ignore" else (),
        ordered=routed.topic is None
        and ranges_alike(source, there, added),  # a topic lists keys in any order
    )


def _spelled(stored: Stored, wanted: Table, there: Table, same: Names) -> Stored:
    """Return `stored` with the names that the target has for columns that its server takes for those of `wanted`."""
    spelled = spelled_there(wanted, there, {}, (), same)
    if not spelled:
        return stored
    now = {name: stored.target_name(name) for name in stored.table.column_names}
    names = {name: spelled.get(at, at) for name, at in now.items()}
    return with_(stored, names={name: at for name, at in names.items() if at != name})


def _left_out(stored: Stored, wanted: Table, there: Table, routed: Routed, same: Names) -> Stored:
    """Return `stored` with the columns that are written nowhere. Raises CopyNeededError: one of them was so, and is there now, with nothing of
    what its rows were given meanwhile."""
    both = {*map(same.fold, {*there.column_names}.intersection(wanted.column_names))}
    come = [name for name in stored.unwritten if same.fold(name) in both]
    if come:
        raise CopyNeededError(
            f"the target table {there.db}.{there.name} lacked the column {come[0]} and has it now: its rows do not have the values of the "
            "source's column",
            cause="definition",
        )
    return with_(stored, unwritten=unwritten(wanted, there, routed.policy))


def _narrow(wanted: Table, there: Table) -> tuple[str, ...]:
    real = {each.name: each for each in there.columns}
    return tuple(
        each.name
        for each in wanted.columns
        if (column := real.get(each.name)) is not None
        and (not fits(each.type, column.type) or (each.nullable and not column.nullable))
    )


def _written(source: Table, wanted: Table, stored: Stored) -> Table:
    """Return `source` with the columns alone that stand in `wanted`."""
    there = set(wanted.column_names)
    columns = tuple(each for each in source.columns if stored.target_name(each.name) in there)
    return source if len(columns) == len(source.columns) else replace(source, columns=columns)


def _events_of(
    source: Table, target: TargetTable, routed: Routed, debezium: Modes | None
) -> tuple[Decode, Decode, Callable[[Any], Row]]:
    if debezium is None:
        fast = row_decoder(source, ordering_columns(target))
        return event_decoder(source), fast, image_row(source, routed.added)
    decode = Decoder(source, debezium)
    values: Row = tuple(value for _, value in routed.added)
    return decode, decode, lambda row: row + values


def ordering_columns(target: TargetTable) -> frozenset[str]:
    """Return the columns of the target's key and unique indexes: all that is ever asked of a before-image, but where it is written itself."""
    if target.topic is not None:
        return frozenset(target.table.column_names)
    ordinals = {*target.key_at, *(at for index in target.unique_at for at in index)}
    return frozenset(target.table.columns[at].name for at in ordinals)


def wanted_of(stored: Stored, source_name: str, routes: tuple[TableRoute, ...]) -> Table | None:
    """Return what a definition is to be in the target; None: no route names it."""
    table = stored.table
    routed = resolve(routes, source_name, table.db, table.name)
    return None if routed is None else wanted_table(table, routed, stored.names)


def read_real(
    session: TargetTables, stored: Stored, source_name: str, routes: tuple[TableRoute, ...]
) -> Table | None:
    """Return the target table of a definition as it is now; None: it is missing, or no route names it."""
    wanted = wanted_of(stored, source_name, routes)
    return None if wanted is None else session.read_table(wanted.db, wanted.name)


def _real_table(session: TargetTables, wanted: Table, create: bool, gone: str | None) -> Table:
    """`gone`: what to say of one that is missing, and was there before."""
    real = session.read_table(wanted.db, wanted.name)
    if real is None and gone:
        raise TargetConfigError(gone)
    if real is None and create:
        session.create_table(wanted)
        real = session.read_table(wanted.db, wanted.name)
    if real is None:
        remedy = "" if create else "create it, or set `create_tables: true`; "
        remedy += "if it is there and the target's user does not see it, `rowlock check` prints the GRANT"
        raise TargetConfigError(f"{wanted.db}.{wanted.name}: the target has no such table: {remedy}")
    return real
