"""Statements on `rowlock_unit`, which has one row for each unit: active definition, schema change, and
cause of its stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consumer.ordering.model import ApplyUnit, UnitState
from consumer.targets.bookkeeping.tables import OF_UNIT, BookkeepingTables
from consumer.targets.sql import Fragment

NO_STATE = UnitState(None, None, None)


@dataclass(frozen=True, slots=True)
class UnitStatements:
    """Statements on the states of units."""

    tables: BookkeepingTables

    def build_select(self, unit: ApplyUnit) -> Fragment:
        since = self.tables.syntax.millis("updated_at")
        text = f"SELECT definition, ddl, stopped, {since} FROM {self.tables.qualify_name('rowlock_unit')} WHERE {OF_UNIT}"
        return text, [unit.pipeline, unit.topic]

    def select_all(self, pipeline: str, *, lock: bool = False) -> Fragment:
        """Select all units of a pipeline in the order of topics: the topic, then the columns of
        `build_select`.
        """
        since = self.tables.syntax.millis("updated_at")
        text = f"SELECT topic, definition, ddl, stopped, {since} FROM {self.tables.qualify_name('rowlock_unit')} WHERE pipeline = %s ORDER BY topic"
        return self.tables.syntax.locked(text) if lock else text, [pipeline]

    def select_topics(self, pipeline: str) -> Fragment:
        text = (
            f"SELECT topic FROM {self.tables.qualify_name('rowlock_unit')} WHERE pipeline = %s ORDER BY topic"
        )
        return text, [pipeline]

    def build_insert(self, unit: ApplyUnit) -> Fragment:
        return self.tables.build_insert("rowlock_unit", ("pipeline", "topic"), 1), [unit.pipeline, unit.topic]

    def build_update(self, unit: ApplyUnit, state: UnitState) -> Fragment:
        text = (
            f"UPDATE {self.tables.qualify_name('rowlock_unit')} SET definition = %s, ddl = %s, stopped = %s, "
            f"updated_at = {self.tables.syntax.now} WHERE {OF_UNIT}"
        )
        return text, [state.definition, state.ddl, state.stopped, unit.pipeline, unit.topic]

    def update_stopped(self, unit: ApplyUnit, message: str | None, *, still: bool = False) -> Fragment:
        """Set why a unit is stopped, or None if it is not.

        `still`: the cause is the same as before the retry, and the unit is stopped since then.
        """
        text = f"UPDATE {self.tables.qualify_name('rowlock_unit')} SET stopped = %s"
        if message is not None and not still:
            text += f", updated_at = {self.tables.syntax.now}"
        return f"{text} WHERE {OF_UNIT}", [message, unit.pipeline, unit.topic]


def parse_unit_rows(rows: Sequence[Sequence[object]]) -> UnitState | None:
    """Return the UnitState of the rows of `UnitStatements.build_select`; None if there is no row."""
    if not rows:
        return None
    definition, ddl, stopped = (None if value is None else str(value) for value in rows[0][:3])
    since = rows[0][3]
    return UnitState(definition, ddl, stopped, int(str(since)) if stopped and since is not None else None)


def parse_units_by_topic(rows: Sequence[Sequence[object]]) -> dict[str, UnitState]:
    """Return topic → UnitState of the rows of `UnitStatements.select_all`."""
    return {str(topic): parse_unit_rows([row]) or NO_STATE for topic, *row in rows}
