"""A unit as a worker gets it, and its table definition as prepared for the target."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

import msgspec

from consumer.errors import UnitStoppedError
from consumer.ordering.lanes.limits import LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import ApplyUnit
from consumer.tables.definition import ActiveDefinition, prepare_definition
from consumer.tables.router import TableRoute, compute_routes_fingerprint, resolve_route
from consumer.tables.shared_topics import find_sharing_problem
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.base import EventTables, TargetTables
from schemas.table.model import Table
from schemas.table.names import TableName
from schemas.wire.debezium import ConnectorModes

SMALL_BATCH = 500
"""Events up to which one transaction is cheaper than waking the lanes."""

OnDrop = Literal["keep", "empty", "drop"]
UnitAssignment = tuple[ApplyUnit, int]
TableOf = Callable[[str, str], TableName | None]
"""(source, topic) → the table whose events the topic holds; None: it is not known."""
DefinitionCache = MutableMapping[UnitAssignment, ActiveDefinition]
"""Definitions in force by (unit, epoch or assignment), kept by the process. Two pipelines may read one topic, under equal numbers."""


@dataclass(frozen=True, slots=True)
class UnitSpec:
    """A unit, with the settings that a worker applies it by. `source`: its name in the configuration.

    `assigned`: the coordinator's epoch, where there is one: what is known of the target table is kept through it.
    `real`: that table as it was read for this assignment (see `known_table`); empty: whoever needs it reads it. `on_drop`: what DROP
    TABLE at the source does.
    `small_batch`: events up to which one transaction may do for all lanes. `debezium`: how its connector is set, where
    Debezium writes the topic. `was`: what it was stopped by before this takeover. `batches`: the target takes whole batches.
    `copy_at`: where in the topic the last copy of the table begins, as far as is known. `patient`: what takes long is done, too: no other
    unit waits for it. `table_of`: where the target takes events: (source, topic) → the table of another unit. `scratch`: a folder for what is of use to one attempt only.
    """

    unit: ApplyUnit
    source: str
    epoch: int
    topic_id: str
    routes: tuple[TableRoute, ...]
    lanes: int
    create_tables: bool = True
    replace: bool = True
    limits: LaneLimits = field(default_factory=LaneLimits)
    small_batch: int = SMALL_BATCH
    assigned: int | None = None
    real: bytes = b""
    on_drop: OnDrop = "keep"
    debezium: ConnectorModes | None = None
    was: str | None = None
    batches: bool = False
    copy_at: int | None = None
    table_of: TableOf | None = None
    patient: bool = False
    scratch: str = ""

    @property
    def place(self) -> UnitAssignment:
        """The key of the definition in force in `DefinitionCache`."""
        return self.unit, self.epoch if self.assigned is None else self.assigned


def build_initial_layout(routes: tuple[TableRoute, ...], lanes: int) -> Layout:
    """Return the layout of a unit that has no definition yet."""
    return Layout(lanes=lanes, routes=compute_routes_fingerprint(routes))


def resolve_definition(
    spec: UnitSpec, session: TargetTables, stored: StoredDefinition, *, first: bool = False
) -> ActiveDefinition:
    """Return what a definition comes to in the target as it is now.

    `first`: nothing of the unit has been applied yet, so that the target table may have to be made. Later one that is
    missing has been dropped with its rows: an empty one in its place would pass for the whole.
    Raises UnitStoppedError: the target does not fit, or another unit's rows would be mixed with these in a topic.
    """
    _keep_apart(spec, session, stored)
    found = prepare_definition(
        session,
        stored,
        source_name=spec.source,
        routes=spec.routes,
        create=spec.create_tables and first,
        gone=not first,
        real=_decode_known_table(spec, stored),
        debezium=spec.debezium,
    )
    if not first and found.target.topic is not None:
        lost = cast(EventTables, session).records_lost(spec.unit, found.target)
        if lost is not None:
            raise UnitStoppedError(lost)
    # a target of whole batches lists its keys, all of them: compared range by range, those of later chunks would go (ADR 26)
    return replace(found, ordered=False) if spec.batches else found


def _keep_apart(spec: UnitSpec, session: TargetTables, stored: StoredDefinition) -> None:
    table = stored.table
    routed = resolve_route(spec.routes, spec.source, table.db, table.name)
    if routed is None or routed.topic is None:
        return
    topic = f"{routed.schema}.{routed.table}"
    others = cast(EventTables, session).find_topic_writers(spec.unit, topic)
    if why := find_sharing_problem(
        table, routed, spec.unit.topic, others, spec.routes, table_of=spec.table_of or _find_no_table
    ):
        raise UnitStoppedError(f"topic {topic}: {why}")


def _find_no_table(_source: str, _topic: str) -> None:
    return None


class _KnownTable(msgspec.Struct):
    of: str | None = msgspec.field(name="of")
    table: Table = msgspec.field(name="table")


def encode_known_table(text: str | None, table: Table) -> bytes:
    """Return what `UnitSpec.real` has. `text`: the stored definition beside which `table` was read: it says nothing of what another one
    comes to; None: any."""
    return msgspec.json.encode(_KnownTable(text, table))


def _decode_known_table(spec: UnitSpec, stored: StoredDefinition) -> Table | None:
    if not spec.real:
        return None
    known = msgspec.json.decode(spec.real, type=_KnownTable)
    return known.table if known.of in (None, stored.encode()) else None


def load_active_definition(
    spec: UnitSpec, session: TargetTables, text: str, tables: DefinitionCache
) -> ActiveDefinition:
    """Return what the stored definition `text` comes to, from `tables` where it is known."""
    cached = tables.get(spec.place)
    if cached is None or cached.text != text:
        cached = tables[spec.place] = resolve_definition(spec, session, decode_stored(text))
    return cached
