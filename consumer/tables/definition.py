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
from consumer.tables.event_decoder import (
    DecodeEvent,
    make_event_decoder,
    make_image_converter,
    make_row_decoder,
)
from consumer.tables.fitness import explain_missing_target as gone_message
from consumer.tables.fitness import find_table_misfit
from consumer.tables.key_order import are_ranges_alike
from consumer.tables.router import (
    ResolvedRoute,
    TableRoute,
    build_desired_table,
    build_target_table,
    build_topic_table,
    find_duplicate_columns,
    list_unmapped_columns,
    resolve_route,
    select_written_columns,
)
from consumer.tables.stored import StoredDefinition
from consumer.targets.base import EventTables, TargetTables
from consumer.targets.checks.column_fit import can_hold_all_values
from consumer.targets.checks.column_spelling import match_other_spellings
from schemas.errors import SchemaError
from schemas.findings import format_findings
from schemas.table.model import Row, Table
from schemas.table.names import NameRules
from schemas.wire.debezium import ConnectorModes, DebeziumDecoder


@dataclass(frozen=True, slots=True)
class ActiveDefinition:
    """`text`: the stored JSON. `written`: as much of the definition as is written. `wanted`: `written` in target terms.
    `real`: the target table as it was read. `row`: column structure → target row.

    `decode`: of any event of the table. `decode_row`: of row events in today's envelope, with no more of a before-image
    than what tells which row and which unique values it gives up. Of a topic that Debezium writes both are its decoder
    (schemas.wire.debezium), and images are rows already. `ordered`: source and target order the key alike.
    `narrow`: columns that the target has, and that do not hold every value there, where no statement is to change that (`ignore`).
    """

    text: str
    stored: StoredDefinition
    written: Table
    routed: ResolvedRoute
    expected: Table
    real: Table
    target: TargetTable
    decode: DecodeEvent
    decode_row: DecodeEvent
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


def prepare_definition(
    session: TargetTables,
    stored: StoredDefinition,
    *,
    source_name: str,
    routes: tuple[TableRoute, ...],
    create: bool,
    gone: bool = False,
    real: Table | None = None,
    debezium: ConnectorModes | None = None,
) -> ActiveDefinition:
    """Route a definition, create the target table where it is missing (`create`), and read the real one.

    `real`: the target table, where somebody has just read it. `debezium`: who writes the events, if not rowlock. `gone`: one that
    is missing was there before.

    Raises UnitStoppedError when the target does not fit, CopyNeededError when it has come to have a column that it lacked, and the session's
    errors.
    """
    source = stored.table
    routed = resolve_route(routes, source_name, source.db, source.name)
    if routed is None:
        raise UnitStoppedError(f"{source.db}.{source.name} of {source_name}: no route names this table")
    same = session.column_names
    if twice := find_duplicate_columns(source, routed, stored.names, same):
        raise UnitStoppedError(format_findings(twice))
    wanted = build_desired_table(source, routed, stored.names)
    if (
        real is None
        and not gone
        and (why := find_table_misfit(session, source, source_name, routes, stored.names)) is not None
    ):
        raise UnitStoppedError(why)  # of one that is in force the take-over has judged
    added = routed.added_names
    try:
        if routed.topic is not None:
            there, target = wanted, build_topic_table(wanted, routed, source_name, source)
            cast(EventTables, session).open_topic(target, create=create, gone=gone)
        else:
            lost = gone_message(routed, source, debezium=debezium is not None) if gone else None
            there = real or _read_real_table(session, wanted, create, lost)
            stored = _adopt_spelling(stored, wanted, there, same)
            wanted = build_desired_table(source, routed, stored.names)
            stored = _record_unmapped(stored, wanted, there, routed, same)
            wanted = select_written_columns(wanted, there, routed.policy)
            target = build_target_table(wanted, there, added)
    except (TargetConfigError, SchemaError) as error:
        raise UnitStoppedError(str(error)) from error
    written = _select_written(source, wanted, stored)
    decode, decode_row, row = _make_event_functions(written, target, routed, debezium)
    return ActiveDefinition(
        text=stored.encode(),
        stored=stored,
        written=written,
        routed=routed,
        expected=wanted,
        real=there,
        target=target,
        decode=decode,
        decode_row=decode_row,
        row=row,
        narrow=_list_narrow_columns(wanted, there) if routed.policy == "ignore" else (),
        ordered=routed.topic is None
        and are_ranges_alike(source, there, added),  # a topic lists keys in any order
    )


def _adopt_spelling(
    stored: StoredDefinition, wanted: Table, there: Table, same: NameRules
) -> StoredDefinition:
    """Return `stored` with the names that the target has for columns that its server takes for those of `wanted`."""
    spelled = match_other_spellings(wanted, there, {}, (), same)
    if not spelled:
        return stored
    now = {name: stored.get_target_name(name) for name in stored.table.column_names}
    names = {name: spelled.get(at, at) for name, at in now.items()}
    return with_(stored, names={name: at for name, at in names.items() if at != name})


def _record_unmapped(
    stored: StoredDefinition, wanted: Table, there: Table, routed: ResolvedRoute, same: NameRules
) -> StoredDefinition:
    """Return `stored` with the columns that are written nowhere. Raises CopyNeededError: one of them was so, and is there now, with nothing of
    what its rows were given meanwhile."""
    both = {*map(same.fold_name, {*there.column_names}.intersection(wanted.column_names))}
    come = [name for name in stored.unmapped_columns if same.fold_name(name) in both]
    if come:
        raise CopyNeededError(
            f"the target table {there.db}.{there.name} lacked the column {come[0]} and has it now: its rows do not have the values of the "
            "source's column",
            cause="definition",
        )
    return with_(stored, unmapped_columns=list_unmapped_columns(wanted, there, routed.policy))


def _list_narrow_columns(wanted: Table, there: Table) -> tuple[str, ...]:
    real = {each.name: each for each in there.columns}
    return tuple(
        each.name
        for each in wanted.columns
        if (column := real.get(each.name)) is not None
        and (not can_hold_all_values(each.type, column.type) or (each.nullable and not column.nullable))
    )


def _select_written(source: Table, wanted: Table, stored: StoredDefinition) -> Table:
    """Return `source` with the columns alone that stand in `wanted`."""
    there = set(wanted.column_names)
    columns = tuple(each for each in source.columns if stored.get_target_name(each.name) in there)
    return source if len(columns) == len(source.columns) else replace(source, columns=columns)


def _make_event_functions(
    source: Table, target: TargetTable, routed: ResolvedRoute, debezium: ConnectorModes | None
) -> tuple[DecodeEvent, DecodeEvent, Callable[[Any], Row]]:
    if debezium is None:
        fast = make_row_decoder(source, list_ordering_columns(target))
        return make_event_decoder(source), fast, make_image_converter(source, routed.added)
    decode = DebeziumDecoder(source, debezium)
    values: Row = tuple(value for _, value in routed.added)
    return decode, decode, lambda row: row + values


def list_ordering_columns(target: TargetTable) -> frozenset[str]:
    """Return the columns of the target's key and unique indexes: all that is ever asked of a before-image, but where it is written itself."""
    if target.topic is not None:
        return frozenset(target.table.column_names)
    ordinals = {*target.key_at, *(at for index in target.unique_at for at in index)}
    return frozenset(target.table.columns[at].name for at in ordinals)


def route_definition(
    stored: StoredDefinition, source_name: str, routes: tuple[TableRoute, ...]
) -> Table | None:
    """Return what a definition is to be in the target; None: no route names it."""
    table = stored.table
    routed = resolve_route(routes, source_name, table.db, table.name)
    return None if routed is None else build_desired_table(table, routed, stored.names)


def read_real(
    session: TargetTables, stored: StoredDefinition, source_name: str, routes: tuple[TableRoute, ...]
) -> Table | None:
    """Return the target table of a definition as it is now; None: it is missing, or no route names it."""
    wanted = route_definition(stored, source_name, routes)
    return None if wanted is None else session.read_table(wanted.db, wanted.name)


def _read_real_table(session: TargetTables, wanted: Table, create: bool, gone: str | None) -> Table:
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
