"""Checks units' target tables: before a unit starts, while it is stopped, and while it runs.

Nothing is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from consumer.attempt.spec import encode_known_table
from consumer.errors import CopyNeededError
from consumer.ordering.model import ApplyUnit
from consumer.slots.pipeline import PipelineSettings
from consumer.tables.definition import read_real, route_definition
from consumer.tables.router import resolve_route
from consumer.tables.shared_tables import (
    UnitTable,
    decode_unit_tables,
    find_shared_table_problem,
    group_by_target,
)
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.tables.target_checks import (
    describe_lost_rows,
    explain_changed_route,
    explain_changed_table,
    find_table_misfit,
)
from consumer.targets.base import UnitTarget
from consumer.units.unit import UnitRef
from schemas.problems import Problem

UNITS_MAX_AGE_S = 30.0
"""The tables of all units of the pipeline are read again after this time, because there may be thousands."""


class TargetProbe:
    """Checks the target tables of one pipeline's units.

    It remembers the units with tables that did not fit at their preparation: their takeover checks again,
    and stops them.
    """

    def __init__(self, pipeline: PipelineSettings) -> None:
        self._pipeline = pipeline
        self._misfits: set[tuple[str, int]] = set()
        self._units: Mapping[tuple[str, str], Mapping[str, UnitTable]] = {}  # by target table
        self._units_read_at = -math.inf

    def forget_unit(self, topic: str, assignment: int) -> None:
        self._misfits.discard((topic, assignment))

    def was_misfit(self, unit: UnitRef) -> bool:
        return (unit.topic, unit.assignment) in self._misfits

    def read_real_table(self, session: UnitTarget, unit: UnitRef) -> bytes:
        """Return the target table of the unit's stored definition, as JSON; empty if there is none yet."""
        _, state = session.read_progress(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None or state.ddl is not None:
            return b""  # no definition, or a schema change is unfinished: the takeover continues it
        if self.find_misfit(session, unit, state.definition) is not None:
            self._misfits.add((unit.topic, unit.assignment))
        real = read_real(session, decode_stored(state.definition), unit.source, self._pipeline.routes)
        return b"" if real is None else encode_known_table(state.definition, real)

    def find_misfit(self, session: UnitTarget, unit: UnitRef, definition: str | None) -> Problem | None:
        """Return why the target table must not be written as it is now; None if it fits or has no
        definition yet.
        """
        if definition is None:
            return None
        stored = decode_stored(definition)
        if (mixed := self._find_mixed_rows(session, unit, stored)) is not None:
            return mixed
        if self._explain_changed_route(stored, unit):
            return None  # the table is judged by the new names when its copy begins
        return find_table_misfit(session, stored, unit.source, self._pipeline.routes)

    def _find_mixed_rows(
        self, session: UnitTarget, unit: UnitRef, stored: StoredDefinition
    ) -> Problem | None:
        """Return the problem of a target table with rows of another unit that cannot be distinguished."""
        table, routes = stored.table, self._pipeline.routes
        routed = resolve_route(routes, unit.source, table.db, table.name)
        if routed is None or routed.topic is not None:
            return None
        if time.monotonic() - self._units_read_at >= UNITS_MAX_AGE_S:
            units = decode_unit_tables(
                session.read_unit_states(self._pipeline.name), self._pipeline.config.sources
            )
            self._units = group_by_target(units, routes, session.table_names)
            self._units_read_at = time.monotonic()
        place = session.table_names.normalize_table((routed.schema, routed.table))
        sharers = self._units.get(place, {})
        if sharers.keys() <= {unit.topic}:
            return None
        real = session.read_table(routed.schema, routed.table)
        if real is None:
            return None
        return find_shared_table_problem(
            real,
            routed,
            unit.topic,
            sharers,
            routes,
            tables=session.table_names,
            columns=session.column_names,
        )

    def find_needed_copy(self, unit: UnitRef, definition: str | None, after: int) -> CopyNeededError | None:
        """Return the error of a unit whose target table lacks rows or names of columns; None otherwise.

        `after`: see CopyNeededError.
        """
        if definition is None:
            return None
        stored = decode_stored(definition)
        if stored.rows_missing:
            return self._build_lost_rows_error(stored, unit.source, after)
        why = self._explain_changed_route(stored, unit)
        return self._build_copy_error(why, stored, unit.source, after) if why else None

    def _explain_changed_route(self, stored: StoredDefinition, unit: UnitRef) -> str:
        table = stored.table
        return explain_changed_route(
            stored, resolve_route(self._pipeline.routes, unit.source, table.db, table.name)
        )

    def _build_lost_rows_error(
        self, stored: StoredDefinition, source: str, after: int | None = None
    ) -> CopyNeededError:
        routed, table = route_definition(stored, source, self._pipeline.routes), stored.table
        place = f"{table.db}.{table.name}" if routed is None else f"{routed.db}.{routed.name}"
        return self._build_copy_error(describe_lost_rows(place), stored, source, after)

    def _build_copy_error(
        self, why: str, stored: StoredDefinition, source: str, after: int | None
    ) -> CopyNeededError:
        table, debezium = stored.table, source in self._pipeline.debezium
        return CopyNeededError(
            why,
            cause="definition",
            table=(table.db, table.name),
            after=after,
            debezium=debezium,
        )

    def probe_stopped(self, session: UnitTarget, unit: UnitRef) -> tuple[object, bytes]:
        """Return everything in the target on which a stopped unit depends, and the target table as JSON.

        The JSON is empty if there is no target table.
        """
        _, state = session.read_progress(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None:
            return state and state.ddl, b""
        routed = route_definition(decode_stored(state.definition), unit.source, self._pipeline.routes)
        about = (state.definition, state.ddl)  # without the stop's reason, which every retry writes again
        if routed is None:
            return about, b""
        real = session.read_table(routed.db, routed.name)
        if real is None:
            return about, b""
        text = encode_known_table(state.definition, real)
        return (about, text, session.read_surroundings(routed.db, routed.name)), text

    def explain_unfit(self, session: UnitTarget, unit: UnitRef) -> Problem | None:
        """Return why the target table of a running unit no longer fits, in full; None if it fits or has
        no definition yet.
        """
        _, state = session.read_progress(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None or state.ddl is not None:
            return None
        stored = decode_stored(state.definition)
        if stored.rows_missing:
            return self._build_lost_rows_error(stored, unit.source).problem
        if (mixed := self._find_mixed_rows(session, unit, stored)) is not None:
            return mixed
        debezium = unit.source in self._pipeline.debezium
        return explain_changed_table(session, stored, unit.source, self._pipeline.routes, debezium=debezium)
