"""A unit's settings as passed to a worker, and its table definition as prepared for the target."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import msgspec

from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import ApplyUnit
from consumer.ordering.recovery import TRIAL_INTERVAL_S
from consumer.tables.definition import ActiveDefinition, prepare_definition
from consumer.tables.router import (
    TableRoute,
    build_desired_table,
    compute_routes_fingerprint,
    resolve_route,
)
from consumer.tables.shared_tables import SharedTableReader, find_shared_table_problem
from consumer.tables.shared_topics import find_sharing_problem
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.tables.target_checks import explain_changed_route
from consumer.targets.base import EventTables, UnitTarget
from schemas.table.model import Table
from schemas.table.names import TableName
from schemas.wire.debezium import ConnectorModes

SMALL_BATCH = 500
"""Number of events up to which one transaction is cheaper than waking the lanes."""

OnDrop = Literal["keep", "empty", "drop"]
UnitAssignment = tuple[ApplyUnit, int]
TableOf = Callable[[str, str], TableName | None]
"""(source, topic) → the table of the topic's events; None if it is not known."""
DefinitionCache = MutableMapping[UnitAssignment, ActiveDefinition]
"""Active definitions by (unit, assignment, or fencing token if there is none), cached by the process.

Two pipelines may read one topic under equal numbers, so the unit is part of the key.
"""


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """A unit, with the settings that a worker needs to apply it."""

    unit: ApplyUnit
    source: str
    """The source's name in the configuration."""
    epoch: int
    """The fencing token."""
    topic_id: str
    routes: tuple[TableRoute, ...]
    lanes: int
    create_tables: bool = True
    replace: bool = True
    limits: LaneLimits = field(default_factory=LaneLimits)
    small_batch: int = SMALL_BATCH
    """Events up to which one transaction may serve all lanes."""
    assigned: int | None = None
    """The assignment, if a coordinator gave one. The active definition is cached under it."""
    real: bytes = b""
    """The target table as read for this assignment (see `encode_known_table`); empty: it is read when
    needed."""
    on_drop: OnDrop = "keep"
    """What a DROP TABLE at the source does to the target."""
    debezium: ConnectorModes | None = None
    """The settings of the Debezium connector, if Debezium writes the topic."""
    was: str | None = None
    """Why the unit was stopped before this takeover."""
    batches: bool = False
    """Whether the target takes whole batches."""
    copy_at: int | None = None
    """The offset in the topic at which the last copy of the table begins, if known."""
    table_of: TableOf | None = None
    """For a target that takes events: (source, topic) → the table of another unit."""
    sources: tuple[str, ...] = ()
    """The sources of the pipeline."""
    patient: bool = False
    """Whether long steps are carried out too, because no other unit waits for them."""
    trial_interval_s: float = TRIAL_INTERVAL_S
    """Least time in seconds from a refusal of a quarantined key to its next trial."""
    sweep_s: float = 0.0
    """Time in seconds for which an attempt, at its end, compares ranges of a key sweep with the target."""
    scratch: str = ""
    """A folder for files that only one attempt needs."""

    @property
    def place(self) -> UnitAssignment:
        """The key of the active definition in `DefinitionCache`."""
        return self.unit, self.epoch if self.assigned is None else self.assigned


def build_initial_layout(routes: tuple[TableRoute, ...], lanes: int) -> Layout:
    """Return the layout of a unit that has no definition yet."""
    return Layout(lanes=lanes, routes=compute_routes_fingerprint(routes))


def resolve_definition(
    spec: UnitSpec,
    session: UnitTarget,
    stored: StoredDefinition,
    *,
    first: bool = False,
    sharers: SharedTableReader | None = None,
) -> ActiveDefinition:
    """Return the active definition that results from a stored one and the present target table.

    `first`: no event of the unit has been applied yet, so the target table may have to be created. A
    table that is missing later was dropped with its rows: an empty table in its place would look
    complete. `sharers`: what the process remembers of other units. Raises UnitStoppedError if the target
    does not fit, or if another unit's rows would be mixed with these.
    """
    _keep_apart(spec, session, stored, sharers or SharedTableReader(), first=first)
    found = prepare_definition(
        session,
        stored,
        source_name=spec.source,
        routes=spec.routes,
        create=spec.create_tables and first,
        existed=not first,
        real=_decode_known_table(spec, stored),
        debezium=spec.debezium,
    )
    if not first and found.target.topic is not None:
        lost = cast(EventTables, session).records_lost(spec.unit, found.target)
        if lost is not None:
            raise UnitStoppedError.from_problem(lost)
    # A whole-batch target lists all its keys: a comparison by range would delete the rows of later
    # chunks (docs/adr/0026-applying-a-copy.md).
    return replace(found, ordered=False) if spec.batches else found


def _keep_apart(
    spec: UnitSpec,
    session: UnitTarget,
    stored: StoredDefinition,
    sharers: SharedTableReader,
    *,
    first: bool,
) -> None:
    """Raise UnitStoppedError if another unit's rows would be mixed with these. Of a table, the process checks
    that itself once it has rows of the unit.
    """
    table = stored.table
    routed = resolve_route(spec.routes, spec.source, table.db, table.name)
    if routed is None:
        return
    if routed.topic is None:
        if first and spec.sources:
            place = (routed.schema, routed.table)
            units = sharers.read_sharers(session, spec.unit.pipeline, spec.sources, spec.routes, place)
            if units.keys() <= {spec.unit.topic}:
                return
            there = session.read_table(routed.schema, routed.table) or build_desired_table(table, routed)
            mixed = find_shared_table_problem(
                there,
                routed,
                spec.unit.topic,
                units,
                spec.routes,
                tables=session.table_names,
                columns=session.column_names,
            )
            if mixed is not None:
                raise UnitStoppedError.from_problem(mixed)
        return
    topic = f"{routed.schema}.{routed.table}"
    others = cast(EventTables, session).find_topic_writers(spec.unit, topic)
    if problem := find_sharing_problem(
        table, routed, spec.unit.topic, others, spec.routes, table_of=spec.table_of or _find_no_table
    ):
        raise UnitStoppedError(f"topic {topic}: {problem.what}", problem.remedy)


def _find_no_table(_source: str, _topic: str) -> None:
    return None


class _KnownTable(msgspec.Struct):
    of: str | None = msgspec.field(name="of")
    table: Table = msgspec.field(name="table")


def encode_known_table(text: str | None, table: Table) -> bytes:
    """Return the value of `UnitSpec.real`.

    `text`: the stored definition for which `table` was read; `table` is not used for another definition.
    None: for any.
    """
    return msgspec.json.encode(_KnownTable(text, table))


def _decode_known_table(spec: UnitSpec, stored: StoredDefinition) -> Table | None:
    if not spec.real:
        return None
    known = msgspec.json.decode(spec.real, type=_KnownTable)
    return known.table if known.of in (None, stored.encode()) else None


def load_active_definition(
    spec: UnitSpec, session: UnitTarget, text: str, tables: DefinitionCache
) -> ActiveDefinition:
    """Return the active definition of the stored definition `text`, from `tables` if it is cached."""
    cached = tables.get(spec.place)
    if cached is not None and cached.text == text:
        return cached
    stored = decode_stored(text)
    if cached is not None and replace(cached.stored, sweep_since=stored.sweep_since) == stored:
        cached = tables[spec.place] = replace(cached, stored=stored, text=text)
        return cached
    routed = resolve_route(spec.routes, spec.source, stored.table.db, stored.table.name)
    if why := explain_changed_route(stored, routed):
        raise CopyNeededError(why, cause="definition")
    cached = tables[spec.place] = resolve_definition(spec, session, stored)
    return cached
