"""Looks at units' target tables: before a start, in front of what a unit waits for, and while it runs. Nothing is written."""

from __future__ import annotations

from consumer.attempt.spec import encode_known_table
from consumer.errors import CopyNeededError
from consumer.ordering.model import ApplyUnit
from consumer.spark.pipeline import PipelineSettings
from consumer.tables.definition import read_real, route_definition
from consumer.tables.fitness import describe_lost_rows, explain_changed_table, find_table_misfit
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.targets.base import UnitTarget
from consumer.units.unit import UnitRef


class TargetProbe:
    """It remembers which units' tables did not fit when they were prepared: their start looks again, and refuses."""

    def __init__(self, pipeline: PipelineSettings) -> None:
        self._pipeline = pipeline
        self._misfits: set[tuple[str, int]] = set()

    def forget_unit(self, topic: str, assignment: int) -> None:
        self._misfits.discard((topic, assignment))

    def was_misfit(self, unit: UnitRef) -> bool:
        return (unit.topic, unit.assignment) in self._misfits

    def read_real_table(self, session: UnitTarget, unit: UnitRef) -> bytes:
        """Return the target table that the unit's stored definition leads to, as JSON; empty when there is none yet."""
        _, state = session.read_progress(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None or state.ddl is not None:
            return b""  # there is none, or it is being changed: who takes the unit over goes on with that
        if self.find_misfit(session, unit, state.definition) is not None:
            self._misfits.add((unit.topic, unit.assignment))
        real = read_real(session, decode_stored(state.definition), unit.source, self._pipeline.routes)
        return b"" if real is None else encode_known_table(state.definition, real)

    def find_misfit(self, session: UnitTarget, unit: UnitRef, definition: str | None) -> str | None:
        """Return why the target table must not be written as it is now; None: it fits, or has no definition yet."""
        if definition is None:
            return None
        stored = decode_stored(definition)
        return find_table_misfit(session, stored.table, unit.source, self._pipeline.routes, stored.names)

    def find_lost_rows(self, unit: UnitRef, definition: str | None, after: int) -> CopyNeededError | None:
        """Return why a unit waits for a copy whose definition says that its rows are lost; None: it says no such thing. `after`: see there."""
        stored = None if definition is None else decode_stored(definition)
        return (
            self._build_lost_rows_error(stored, unit.source, after)
            if stored is not None and stored.rows_missing
            else None
        )

    def _build_lost_rows_error(
        self, stored: StoredDefinition, source: str, after: int | None = None
    ) -> CopyNeededError:
        wanted, table = route_definition(stored, source, self._pipeline.routes), stored.table
        place = f"{table.db}.{table.name}" if wanted is None else f"{wanted.db}.{wanted.name}"
        debezium = source in self._pipeline.debezium
        return CopyNeededError(
            describe_lost_rows(place),
            cause="definition",
            table=(table.db, table.name),
            after=after,
            debezium=debezium,
        )

    def probe_stopped(self, session: UnitTarget, unit: UnitRef) -> tuple[object, bytes]:
        """Return all that may matter of the target to a unit that waits, and the target table as JSON (empty: there is none)."""
        _, state = session.read_progress(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None:
            return state and state.ddl, b""
        wanted = route_definition(decode_stored(state.definition), unit.source, self._pipeline.routes)
        about = (state.definition, state.ddl)  # what it is stopped by every try writes anew
        if wanted is None:
            return about, b""
        real = session.read_table(wanted.db, wanted.name)
        if real is None:
            return about, b""
        text = encode_known_table(state.definition, real)
        return (about, text, session.read_surroundings(wanted.db, wanted.name)), text

    def explain_unfit(self, session: UnitTarget, unit: UnitRef) -> str | None:
        """Return why the target table of a unit that runs does not fit any more, in full; None: it does, or has no definition yet."""
        _, state = session.read_progress(ApplyUnit(self._pipeline.name, unit.topic), lanes=False)
        if state is None or state.definition is None or state.ddl is not None:
            return None
        stored = decode_stored(state.definition)
        if stored.rows_missing:
            return str(self._build_lost_rows_error(stored, unit.source))
        debezium = unit.source in self._pipeline.debezium
        return explain_changed_table(
            session, stored.table, unit.source, self._pipeline.routes, stored.names, debezium=debezium
        )
