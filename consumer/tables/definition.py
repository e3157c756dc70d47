"""Builds everything derived from the active table definition: target table, decoder, row function (design.md §4 and §6).

A unit has one table. Its definition is stored beside the progress, so a restart needs no definition event; what is
made of it here is cached per (topic, epoch) in the worker process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from consumer.errors import COPY, CopyNeededError, TargetConfigError, UnitStoppedError
from consumer.ordering.model import TargetTable
from consumer.tables.event_decoder import Decode, event_decoder, image_row, row_decoder
from consumer.tables.fitness import gone as gone_message
from consumer.tables.fitness import misfit
from consumer.tables.key_order import ranges_alike
from consumer.tables.router import Routed, TableRoute, resolve, target_table, wanted_table
from consumer.targets.base import TargetTables
from schemas.errors import SchemaError
from schemas.findings import START_OVER
from schemas.table.model import Row, Table, same_definition
from schemas.wire.codec import decode_table, encode_table
from schemas.wire.debezium import Decoder, Modes
from schemas.wire.event import Event


@dataclass(frozen=True, slots=True)
class InForce:
    """`text`: the stored JSON. `wanted`: the source's model in target terms. `row`: column structure → target row.

    `decode`: of any event of the table. `decode_row`: of row events in today's envelope, with no more of a before-image
    than what tells which row and which unique values it gives up. Of a topic that Debezium writes both are its decoder
    (schemas.wire.debezium), and images are rows already. `ordered`: source and target order the key alike.
    """

    text: str
    source: Table
    routed: Routed
    wanted: Table
    target: TargetTable
    decode: Decode
    decode_row: Decode
    row: Callable[[Any], Row]
    ordered: bool = False


def prepare(
    session: TargetTables,
    source: Table,
    *,
    source_name: str,
    routes: tuple[TableRoute, ...],
    create: bool,
    gone: bool = False,
    real: Table | None = None,
    debezium: Modes | None = None,
) -> InForce:
    """Route `source`, create the target table where it is missing (`create`), and read the real one.

    `real`: the target table, where somebody has just read it. `debezium`: who writes the events, if not rowlock. `gone`: one that
    is missing was there before.

    Raises UnitStoppedError when the target does not fit, and the session's errors.
    """
    routed = resolve(routes, source_name, source.db, source.name)
    if routed is None:
        raise UnitStoppedError(f"{source.db}.{source.name} of {source_name}: no route names this table")
    wanted = wanted_table(source, routed)
    if real is None and not gone and (why := misfit(session, source, source_name, routes)) is not None:
        raise UnitStoppedError(why)  # of one that is in force the take-over has judged
    added = tuple(name for name, _ in routed.added)
    try:
        there = real or _real_table(session, wanted, create, gone)
        target = target_table(wanted, there, added)
    except (TargetConfigError, SchemaError) as error:
        raise UnitStoppedError(str(error)) from error
    decode, decode_row, row = _events_of(source, target, routed, debezium)
    return InForce(
        text=encode_table(source).decode(),
        source=source,
        routed=routed,
        wanted=wanted,
        target=target,
        decode=decode,
        decode_row=decode_row,
        row=row,
        ordered=ranges_alike(source, there, added),
    )


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
    """Return the columns of the target's key and unique indexes: all that is ever asked of a before-image."""
    ordinals = {*target.key_at, *(at for index in target.unique_at for at in index)}
    return frozenset(target.table.columns[at].name for at in ordinals)


def wanted_of(source: Table, source_name: str, routes: tuple[TableRoute, ...]) -> Table | None:
    """Return what `source` is to be in the target; None: no route names it."""
    routed = resolve(routes, source_name, source.db, source.name)
    return None if routed is None else wanted_table(source, routed)


def read_real(
    session: TargetTables, source: Table, source_name: str, routes: tuple[TableRoute, ...]
) -> Table | None:
    """Return the target table of `source` as it is now; None: it is missing, or no route names it."""
    wanted = wanted_of(source, source_name, routes)
    return None if wanted is None else session.read_table(wanted.db, wanted.name)


def _real_table(session: TargetTables, wanted: Table, create: bool, gone: bool) -> Table:
    real = session.read_table(wanted.db, wanted.name)
    if real is None and gone:
        raise TargetConfigError(gone_message(f"{wanted.db}.{wanted.name}"))
    if real is None and create:
        session.create_table(wanted)
        real = session.read_table(wanted.db, wanted.name)
    if real is None:
        remedy = "" if create else "create it, or set `create_tables: true`; "
        remedy += "if it is there and the target's user does not see it, `rowlock check` prints the GRANT"
        raise TargetConfigError(f"{wanted.db}.{wanted.name}: the target has no such table: {remedy}")
    return real


def stored_table(text: str) -> Table:
    """Parse `UnitState.definition`."""
    return decode_table(text)


def definition_change(in_force: Table | None, event: Event, place: str) -> Table | None:
    """Return the table that becomes the definition in force, None when nothing changes.

    Raises CopyNeededError for what this version does not replay: a stop of the table, any DDL that alters a table already
    in force, and a statement that leaves the definition as it is but is not said to have kept the rows.
    """
    table = f"{event.source.db}.{event.source.table}"
    if event.stop is not None:
        first = before_a_copy(event.stop.remedy)
        raise CopyNeededError(
            f"{place}: {event.stop.reason}", cause=event.stop.cause, table=table, first=first
        )
    if event.definition is None:
        raise CopyNeededError(
            f"{place}: {event.ddl or 'a statement'}: {_STOP}", cause="statement", table=table
        )
    if in_force is None:
        return event.definition
    if same_definition(in_force, event.definition):
        if event.ddl is None or event.effect == KEPT:
            return None if event.definition == in_force else event.definition
        raise CopyNeededError(
            f"{place}: {event.ddl}: nothing says that it kept the table's rows, nothing behind it was applied",
            cause="statement", table=table,
        )  # fmt: skip
    what = event.ddl or "another definition of the table"
    raise CopyNeededError(f"{place}: {what}: {_STOP}", cause="definition", table=table)


def before_a_copy(remedy: str) -> str:
    """Return what a person must do, by the remedy of a stop, before a copy helps; "": nothing. Older topics say to start over."""
    for copy in (START_OVER, COPY):
        remedy = remedy.partition(copy)[0]
    return remedy.strip(" ,:;").removesuffix("then").removesuffix("and").strip(" ,:;")


KEPT = "kept"
"""`Event.effect` of a statement that kept every row and value of the table."""
_STOP = "this version does not replay changes of a table's definition, nothing behind it was applied"
