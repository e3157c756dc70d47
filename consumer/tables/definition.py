"""Builds everything derived from the active table definition: target table, decoder, row function.

A unit has one table. Its definition is stored beside the progress, so a restart needs no definition
event. What is built from it here is cached per (unit, assignment) in the process.
consumer.tables.evolution decides what a new definition does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_
from itertools import repeat
from typing import Any, cast

from consumer.errors import CopyNeededError, TargetConfigError, UnitStoppedError
from consumer.ordering.model import TargetTable
from consumer.tables.column_names import adopt_spelling, omit_unwritten_columns
from consumer.tables.event_decoder import (
    DecodeEvent,
    make_event_decoder,
    make_image_converter,
    make_row_decoder,
)
from consumer.tables.key_order import are_keys_shown_alike, are_ranges_alike, has_form
from consumer.tables.router import (
    ResolvedRoute,
    TableRoute,
    build_stored_table,
    build_target_table,
    build_topic_table,
    find_duplicate_columns,
    list_unmapped_columns,
    name_columns,
    resolve_route,
    select_written_columns,
)
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import explain_missing_target, find_table_misfit
from consumer.targets.base import EventTables, UnitTarget
from consumer.targets.checks.column_fit import can_hold_all_values
from consumer.targets.checks.column_spelling import match_other_spellings
from schemas.errors import SchemaError
from schemas.findings import merge_findings
from schemas.problems import Problem
from schemas.table.model import Key, Row, Table
from schemas.table.names import NameRules
from schemas.wire.debezium import ConnectorModes, DebeziumDecoder


@dataclass(frozen=True, slots=True)
class ActiveDefinition:
    """An active definition with everything that is derived from it."""

    text: str
    """The stored JSON."""
    stored: StoredDefinition
    written: Table
    """The part of the definition that is written."""
    routed: ResolvedRoute
    expected: Table
    """`written` in target terms."""
    real: Table
    """The target table as it was read."""
    target: TargetTable
    decode: DecodeEvent
    """Decodes any event of the table. For a topic that Debezium writes, this and `decode_row` are
    Debezium's decoder (schemas.wire.debezium), and images are rows already."""
    decode_row: DecodeEvent
    """Decodes row events in today's envelope. Of a before-image it decodes only the values that identify
    the row and the unique values that the row gives up."""
    row: Callable[[Any], Row]
    """Image (a structure of columns) → target row."""
    ordered: bool = False
    """Whether source and target order the key alike."""
    shown_alike: bool = False
    """Whether the target shows each key as the source does, so that two keys are one row's only if they are
    equal."""
    narrow: tuple[str, ...] = ()
    """Columns of the target that cannot hold every value and that no statement is to change (`ignore`)."""

    @property
    def unfit(self) -> Problem | None:
        """The reason why the target refuses rows that stop the unit; None: there is none."""
        if not self.narrow:
            return None
        columns = ", ".join(self.narrow)
        return Problem(
            f"target table {self.target.schema}.{self.target.name} cannot store every value of the source's "
            f"columns ({columns}), and `schema_changes: ignore` does not alter it",
            f"alter {columns} in the target as at the source",
        )

    @property
    def source(self) -> Table:
        return self.stored.table

    @property
    def source_key(self) -> list[str]:
        """The source's key, by the names that its columns have in the target."""
        return [self.stored.get_target_name(name) for name in self.source.key.columns]

    @property
    def is_key_given(self) -> bool:
        """Return whether a key of the source gives the target's key: that may also have columns of `add:`,
        but no other column of the row.
        """
        return {*self.source_key, *self.routed.added_names}.issuperset(self.target.table.key.columns)

    def have_key_form(self, keys: Sequence[Key]) -> bool:
        """Return whether each of the target's keys `keys` has the form of a key of the source, if they are
        `shown_alike`.
        """
        types = {self.stored.get_target_name(each.name): each.type for each in self.source.columns}
        columns = [(at, types.get(name)) for at, name in enumerate(self.target.table.key.columns)]
        return all(of is None or has_form(of, key[at]) for at, of in columns for key in keys)

    def convert_keys(self, keys: Sequence[Key]) -> Sequence[Key]:
        """Convert keys of the source to keys of the target, if `is_key_given`."""
        source, target = self.source_key, self.target.table.key.columns
        if tuple(source) == target or not keys:
            return keys
        added = dict(self.routed.added)
        # by columns: a tuple made for each key takes seven times as long
        columns = dict(zip(source, zip(*keys, strict=True), strict=True))
        values = (repeat(added[name], len(keys)) if name in added else columns[name] for name in target)
        return list(zip(*values, strict=True))


def prepare_definition(
    session: UnitTarget,
    stored: StoredDefinition,
    *,
    source_name: str,
    routes: tuple[TableRoute, ...],
    create: bool,
    existed: bool = False,
    real: Table | None = None,
    debezium: ConnectorModes | None = None,
) -> ActiveDefinition:
    """Route a definition, create the target table if it is missing and `create` is set, and read the
    real one.

    `real`: the target table, if it was just read. `debezium`: the connector's settings, if Debezium
    writes the events. `existed`: the target table has existed, so a missing one is an error. Raises
    UnitStoppedError if the target does not fit, CopyNeededError if the target has a column now that it
    lacked before, and the session's errors.
    """
    source = stored.table
    routed = resolve_route(routes, source_name, source.db, source.name)
    if routed is None:
        raise UnitStoppedError(
            f"{source.db}.{source.name} of {source_name}: no route of the pipeline names this table"
        )
    stored, same = name_columns(stored, routed), session.column_names
    if twice := find_duplicate_columns(stored, routed, same):
        raise UnitStoppedError.from_problem(merge_findings(twice))
    expected = build_stored_table(stored, routed)
    if (
        real is None
        and not existed
        and (misfit := find_table_misfit(session, stored, source_name, routes)) is not None
    ):
        raise UnitStoppedError.from_problem(
            misfit
        )  # the takeover has checked the table of an active definition
    added = routed.added_names
    try:
        if routed.topic is not None:
            there, target = expected, build_topic_table(expected, routed, source_name, source)
            cast(EventTables, session).open_topic(target, create=create, existed=existed)
        else:
            missing_error = (
                explain_missing_target(routed, source, debezium=debezium is not None) if existed else None
            )
            there = real or _read_real_table(session, expected, create, missing_error)
            spelled = match_other_spellings(expected, there, {}, (), same)
            names = adopt_spelling(stored.names, source.column_names, spelled, stored.route_names)
            stored = with_(stored, names=names)
            expected = build_stored_table(stored, routed)
            stored = _record_unmapped(stored, expected, there, routed, same)
            expected = select_written_columns(expected, there, routed.policy)
            target = with_(build_target_table(expected, there, added), has_kept_rows=stored.has_kept_rows)
    except (TargetConfigError, SchemaError) as error:
        raise UnitStoppedError.from_problem(error.problem) from error
    renamed = source.with_renamed_columns(stored.names)
    ordered = routed.topic is None and are_ranges_alike(
        renamed, there, added
    )  # a topic lists keys in any order
    written = omit_unwritten_columns(source, stored.names, expected.column_names)
    decode, decode_row, row = _make_event_functions(written, stored.names, target, routed, debezium)
    return ActiveDefinition(
        text=stored.encode(),
        stored=stored,
        written=written,
        routed=routed,
        expected=expected,
        real=there,
        target=target,
        decode=decode,
        decode_row=decode_row,
        row=row,
        narrow=_list_narrow_columns(expected, there) if routed.policy == "ignore" else (),
        ordered=ordered,
        shown_alike=ordered and are_keys_shown_alike(renamed, there),
    )


def _record_unmapped(
    stored: StoredDefinition, expected: Table, there: Table, routed: ResolvedRoute, same: NameRules
) -> StoredDefinition:
    """Return `stored` with the columns that are not written.

    Raises CopyNeededError if such a column exists in the target now: its rows lack the values of the
    time between.
    """
    both = {*map(same.fold_name, {*there.column_names}.intersection(expected.column_names))}
    come = [name for name in stored.unmapped_columns if same.fold_name(name) in both]
    if come:
        raise CopyNeededError(
            f"column {come[0]} was added to target table {there.db}.{there.name} after rows had been "
            "written: these rows do not have the source's values in it",
            cause="definition",
        )
    return with_(stored, unmapped_columns=list_unmapped_columns(expected, there, routed.policy))


def _list_narrow_columns(expected: Table, there: Table) -> tuple[str, ...]:
    real = {each.name: each for each in there.columns}
    return tuple(
        each.name
        for each in expected.columns
        if (column := real.get(each.name)) is not None
        and (not can_hold_all_values(each.type, column.type) or (each.nullable and not column.nullable))
    )


def _make_event_functions(
    source: Table,
    names: Mapping[str, str],
    target: TargetTable,
    routed: ResolvedRoute,
    debezium: ConnectorModes | None,
) -> tuple[DecodeEvent, DecodeEvent, Callable[[Any], Row]]:
    if debezium is None:
        ordering = list_ordering_columns(target)
        fast = make_row_decoder(
            source, {name for name in source.column_names if names.get(name, name) in ordering}
        )
        return make_event_decoder(source), fast, make_image_converter(source, routed.added)
    decode = DebeziumDecoder(source, debezium)
    values: Row = tuple(value for _, value in routed.added)
    return decode, decode, lambda row: row + values


def list_ordering_columns(target: TargetTable) -> frozenset[str]:
    """Return the columns of the target's key and unique indexes.

    No other values of a before-image are used, unless before-images are written, as to a topic.
    """
    if target.topic is not None:
        return frozenset(target.table.column_names)
    ordinals = {*target.key_at, *(at for index in target.unique_at for at in index)}
    return frozenset(target.table.columns[at].name for at in ordinals)


def route_definition(
    stored: StoredDefinition, source_name: str, routes: tuple[TableRoute, ...]
) -> Table | None:
    """Return the target table that a definition requires; None if no route matches."""
    table = stored.table
    routed = resolve_route(routes, source_name, table.db, table.name)
    return None if routed is None else build_stored_table(stored, routed)


def read_real(
    session: UnitTarget, stored: StoredDefinition, source_name: str, routes: tuple[TableRoute, ...]
) -> Table | None:
    """Return the present target table of a definition; None if it is missing or no route matches."""
    routed = route_definition(stored, source_name, routes)
    return None if routed is None else session.read_table(routed.db, routed.name)


def _read_real_table(
    session: UnitTarget, expected: Table, create: bool, missing_error: Problem | None
) -> Table:
    """Read the target table, and create it if needed.

    `missing_error`: the problem of a missing table that has existed.
    """
    real = session.read_table(expected.db, expected.name)
    if real is None and missing_error:
        raise TargetConfigError.from_problem(missing_error)
    if real is None and create:
        session.create_table(expected)
        real = session.read_table(expected.db, expected.name)
    if real is None:
        remedy = "" if create else "create it, or set `create_tables: true`; "
        remedy += (
            "if the table exists, the target's user lacks a right on it: `rowlock check` prints the GRANT"
        )
        raise TargetConfigError(f"{expected.db}.{expected.name}: the target has no such table", remedy)
    return real
