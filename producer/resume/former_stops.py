"""Stops of tables that a start takes over: those of the record and of the topics, and of tables that can no longer be captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from producer.errors import TableStoppedError
from producer.ports import EventWriter
from producer.resume.repeats import now_ms, send_stop
from producer.resume.started import Started
from producer.resume.table_topics import topic_stop
from producer.resume.topic_recovery import Tail, TopicTails
from producer.source import SourceTables
from producer.sources.survey import MISSING, Surveyed
from producer.stops import Cause, Stopped, ambiguous_labels, lost_at_start, merged
from producer.tables import Captured, TableName, dotted
from schemas.config.model import SourceConfig
from schemas.io.mysql_catalog import is_selected
from schemas.table.online_ddl import of_tools
from schemas.wire.position import binlog_file_number
from schemas.wire.records import StoredPosition, TableStop

_log = structlog.get_logger("capture")


@dataclass(slots=True)
class FormerStops:
    """The parts that it takes, and the taking over."""

    tables: SourceTables
    config: SourceConfig
    writer: EventWriter
    captured: Captured

    def take(
        self,
        started: Started,
        names: list[TableName],
        former: list[TableName],
        found: dict[str, TopicTails],
        unusable: Mapping[TableName, str],
    ) -> None:
        """Stop what was stopped before, and what was captured and cannot be any more; repeat what topics say of it.

        `unusable`: tables whose topics may not be written, and why."""
        record = started.record
        tails = {
            name: tail
            for name in [*names, *former]
            if (tail := found[self.captured.topic_of(name)].tables.get(name)) is not None
        }
        recorded = {*record.anchors, *record.stops}
        concerned = {*names, *former, *unusable}
        self.captured.known = set(tails) | {name for name in concerned if dotted(name) in recorded}
        said = {} if started.fresh else {dotted(n): t.stop for n, t in tails.items() if t.stop is not None}
        before = merged(_not_ended(record, tails), said)
        surveyed = self.tables.survey([name for name in names if name in self.captured.known])
        patterns = self.tables.names.patterns(self.config.tables)  # once: the source is asked
        of_a_tool = of_tools(
            self.captured.known, self.config.online_ddl.names, patterns, {*names, *self.captured.known}
        )
        cause = Cause(record.epoch, record.file, binlog_file_number(record.file), record.pos, now_ms())
        for name, tail in tails.items():
            if (begun := tail.begun_in(record.epoch)) is not None and dotted(name) not in before:
                started.copies.found(dotted(name), begun, now_ms(), altered=tail.altered())
        for name in sorted(self.captured.known):
            selected = is_selected(patterns, *name) and name not in of_a_tool
            stop = before.get(dotted(name))
            if stop is None and name in unusable:
                stop = cause.stop(name, topic_stop([name], unusable[name]))
            if stop is None:
                stop = self._lost(cause, name, surveyed.get(name), selected=selected)
            if stop is None:
                stop = self._labels(cause, name, tails.get(name))
            if stop is None:
                continue
            tail = None if started.fresh else tails.get(name)
            stopped = Stopped(stop, tail.stop_position, tail.stop_offset) if tail else Stopped(stop)
            self.captured.stop(name, stopped)
            started.errors.pop(name, None)
            if not self.captured.names.has_topic(name):
                self.captured.unsaid.discard(name)  # it has no topic to say it in
            started.copies.stopped(dotted(name), stop.cause, stop.reason, now_ms())
            if stopped.position is not None:
                send_stop(self.writer, started.context, self.captured, name, record)

    def _lost(
        self, cause: Cause, name: TableName, now: Surveyed | None, *, selected: bool
    ) -> TableStop | None:
        exists = now is not None and now != MISSING
        error = lost_at_start(name, selected=selected, exists=exists, unfit=now.reason if now else None)
        return None if error is None else self._logged_stop(cause, name, error)

    def _labels(self, cause: Cause, name: TableName, tail: Tail | None) -> TableStop | None:
        """Return a stop if the definition in force is one of labels that are ambiguous, or one that the topic has of what the log is still to bring."""
        state = self.captured.tables.get(name)
        if state is None:
            return None
        later = [table for at, table in tail.definitions.items() if at > state.defined_at] if tail else []
        errors = (ambiguous_labels(table) for table in (state.table, *later))
        error = next((each for each in errors if each is not None), None)
        return None if error is None else self._logged_stop(cause, name, error)

    def _logged_stop(self, cause: Cause, name: TableName, error: TableStoppedError) -> TableStop:
        _log.error(
            "table stopped",
            source=self.captured.source,
            table=dotted(name),
            cause=error.cause,
            reason=str(error),
        )
        return cause.stop(name, error)


def _not_ended(record: StoredPosition, tails: dict[TableName, Tail]) -> dict[str, TableStop]:
    """Return the record's stops that no copy has ended which began in a topic since the record was written."""
    stops = dict(record.stops)
    here = (record.epoch, binlog_file_number(record.file), record.pos)
    for name, tail in tails.items():
        anchor = record.anchors.get(dotted(name))
        if tail.ended(stops.get(dotted(name)), here, anchor.end if anchor is not None else -1) is None:
            stops.pop(dotted(name), None)
    return stops
