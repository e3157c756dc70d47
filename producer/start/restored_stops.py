"""Restores the stops of tables at a start: those in the record and the topics, and those of tables that
can no longer be captured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from producer.definitions.requests import DefinitionPlace, UnprovenDefinition
from producer.errors import TableStoppedError
from producer.ports import EventWriter
from producer.sources.protocols import DefinitionProver, SourceTables
from producer.sources.survey import MISSING, ExaminedTable
from producer.start.lost_topics import build_lost_events_stop
from producer.start.repeated_events import send_stop
from producer.start.started import StartedCapture
from producer.start.table_topics import build_topic_stop
from producer.start.topic_recovery import TableTail, TopicFindings
from producer.stops import (
    StopCause,
    StoppedTable,
    build_ambiguous_label_stop,
    build_columns_stop,
    find_stop_at_start,
    merge_table_stops,
)
from producer.tables import CapturedTables, TableName, format_table_name
from schemas.clock import read_clock_ms
from schemas.config.model import SourceConfig
from schemas.io.mysql_catalog import is_selected
from schemas.problems import Problem
from schemas.table.left_out import LeftOutColumns
from schemas.table.online_ddl import find_tool_tables
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import StoredPosition, TableStop

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class FormerStops:
    """Restores stops, and repeats them in the topics."""

    tables: SourceTables
    definitions: DefinitionProver
    config: SourceConfig
    writer: EventWriter
    captured: CapturedTables

    def take_over_stops(
        self,
        started: StartedCapture,
        names: list[TableName],
        former: list[TableName],
        found: dict[str, TopicFindings],
        unusable: Mapping[TableName, Problem],
    ) -> None:
        """Stop tables that were stopped before, or that were captured and cannot be any more; repeat the
        stops that topics contain.

        `unusable`: tables with topics that must not be written, and why.
        """
        record = started.record
        tails = {
            name: tail
            for name in [*names, *former]
            if (tail := found[self.captured.assign_topic_name(name)].tables.get(name)) is not None
        }
        lost_events = _merge_lost_events({} if started.fresh else found)
        recorded = {*record.anchors, *record.stops}
        concerned = {*names, *former, *unusable}
        self.captured.known.update(tails, (n for n in concerned if format_table_name(n) in recorded))
        known_stops = (
            {}
            if started.fresh
            else {format_table_name(n): t.stop.stop for n, t in tails.items() if t.stop is not None}
        )
        before = merge_table_stops(_select_open_stops(record, tails), known_stops)
        surveyed = self.tables.examine_tables([name for name in names if name in self.captured.known])
        names_rule = self.tables.names  # once: this queries the source
        patterns = names_rule.fold_patterns(self.config.tables)
        left_out = LeftOutColumns(self.config.left_out_columns, names_rule)
        of_a_tool = find_tool_tables(
            self.captured.known, self.config.online_ddl.names, patterns, {*names, *self.captured.known}
        )
        missing = [
            name
            for name in self.captured.known
            if is_selected(patterns, *name)
            and surveyed.get(name, MISSING) == MISSING
            and format_table_name(name) not in before
        ]
        changed_later = self._select_changed_later(record, missing)
        cause = StopCause(
            record.epoch, record.file, parse_binlog_file_number(record.file), record.pos, read_clock_ms()
        )
        for name, tail in tails.items():
            if (begun := tail.find_last_copy(record.first_era)) is not None and format_table_name(
                name
            ) not in before:
                started.copies.recover_copy(
                    format_table_name(name), begun, read_clock_ms(), altered=tail.was_altered()
                )
        for name in sorted(self.captured.known):
            selected = is_selected(patterns, *name) and name not in of_a_tool
            stop = before.get(format_table_name(name))
            if stop is None and name in unusable:
                stop = cause.build_table_stop(name, build_topic_stop([name], unusable[name]))
            if stop is None:
                shown = surveyed.get(name, MISSING)
                stop = self._stop_absent_table(
                    cause, name, shown, selected=selected, exists=shown != MISSING or name in changed_later
                )
            if (lost := lost_events.get(name)) is not None:
                started.copies.forget_begin(format_table_name(name))
                stop = stop or self._log_stop(cause, name, build_lost_events_stop(name, lost))
            if stop is None:
                stop = self._stop_unfit_definition(cause, name, tails.get(name), left_out)
            if stop is None:
                continue
            tail = None if started.fresh else tails.get(name)
            mark = tail.stop if tail is not None else None
            stopped = StoppedTable(stop, mark.position, mark.offset) if mark else StoppedTable(stop)
            self.captured.stop_table(name, stopped)
            started.errors.pop(name, None)
            if not self.captured.names.has_topic(name):
                self.captured.unsaid.discard(name)  # it has no topic for the stop
            started.copies.handle_table_stop(
                format_table_name(name), stop.cause, stop.reason, read_clock_ms()
            )
            if stopped.position is not None:
                send_stop(self.writer, started.context, self.captured, name, record)

    def _select_changed_later(self, record: StoredPosition, names: list[TableName]) -> set[TableName]:
        """Return the tables with a later statement in the log, such as a DROP: it decides about them when
        capture reads it.
        """
        if not names:
            return set()
        place = DefinitionPlace(record.file, record.pos, beginning=True)
        proofs = self.definitions.prove_definitions(place, names)
        return {name for name, proof in proofs.items() if isinstance(proof, UnprovenDefinition)}

    def _stop_absent_table(
        self, cause: StopCause, name: TableName, now: ExaminedTable, *, selected: bool, exists: bool
    ) -> TableStop | None:
        error = find_stop_at_start(name, selected=selected, exists=exists, unfit=now.problem)
        return None if error is None else self._log_stop(cause, name, error)

    def _stop_unfit_definition(
        self, cause: StopCause, name: TableName, tail: TableTail | None, left_out: LeftOutColumns
    ) -> TableStop | None:
        """Return a stop if a definition has ambiguous labels, or other columns than the configuration wants:
        the active one, or a later one of the topic that the log has yet to reach.
        """
        state = self.captured.tables.get(name)
        if state is None:
            return None
        later = [table for at, table in tail.definitions.items() if at > state.defined_at] if tail else []
        errors = (
            build_ambiguous_label_stop(table) or build_columns_stop(name, table, left_out)
            for table in (state.table, *later)
        )
        error = next((each for each in errors if each is not None), None)
        return None if error is None else self._log_stop(cause, name, error)

    def _log_stop(self, cause: StopCause, name: TableName, error: TableStoppedError) -> TableStop:
        _log.error(
            "table stopped",
            source=self.captured.source,
            table=format_table_name(name),
            cause=error.cause,
            reason=str(error),
        )
        return cause.build_table_stop(name, error)


def _merge_lost_events(found: dict[str, TopicFindings]) -> dict[TableName, str]:
    """Return the tables whose topics have lost events, and the reasons."""
    return {name: reason for each in found.values() for name, reason in each.lost.items()}


def _select_open_stops(record: StoredPosition, tails: dict[TableName, TableTail]) -> dict[str, TableStop]:
    """Return the record's stops, except those ended by a copy that began in a topic since the record was
    written.
    """
    stops = dict(record.stops)
    here = (record.epoch, parse_binlog_file_number(record.file), record.pos)
    for name, tail in tails.items():
        anchor = record.anchors.get(format_table_name(name))
        if (
            tail.find_open_stop(
                stops.get(format_table_name(name)), here, anchor.end if anchor is not None else -1
            )
            is None
        ):
            stops.pop(format_table_name(name), None)
    return stops
