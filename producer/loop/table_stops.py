"""Selects the tables that are captured, and stops single ones while capture runs: a stop is recorded at its
cause, sent to the table's topic, and shown in watermarks.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from producer.errors import TableStoppedError
from producer.ports import Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.sources.changes import LogMoment
from producer.start.repeated_events import send_stop
from producer.start.started import StartedCapture
from producer.stops import StopCause, StoppedTable, find_stop_position
from producer.tables import TableName, format_table_name
from schemas.io.mysql_catalog import is_selected
from schemas.problems import Problem
from schemas.table.names import NameRules
from schemas.table.online_ddl import NO_TOOLS, ToolNames, find_tool_tables
from schemas.wire.position import STOP_ROW, parse_binlog_file_number
from schemas.wire.records import TableStop


class TableChoice:
    """Selects tables by the configuration's patterns (`tables`) and by their state.

    Tables of `tools` for a known table are not selected.
    """

    def __init__(
        self, tables: Sequence[str], names: NameRules, started: StartedCapture, tools: ToolNames = NO_TOOLS
    ) -> None:
        self._tools = tools
        self._patterns = names.fold_patterns(tables)
        self._names = names
        self._captured = started.captured
        self._left_out = started.errors
        self._late = started.late

    def is_selected(self, db: str, table: str) -> bool:
        """Return whether the configuration selects the table, and it is not a tool's table."""
        return is_selected(self._patterns, db, table) and not self._is_tool_table((db, table))

    def _is_tool_table(self, name: TableName) -> bool:
        known = (self._captured.known, self._left_out, self._late)
        return any(find_tool_tables([name], self._tools, self._patterns, tables) for tables in known)

    def is_captured(self, db: str, table: str) -> bool:
        """Return whether rows of the table are published, as far as this is known before its first row."""
        name = self._names.normalize_table((db, table))
        state = self._captured.tables.get(name)
        if state is not None:
            return state.ignored is None
        return (
            name not in self._left_out
            and name not in self._captured.stopped
            and name not in self._late
            and self.is_selected(*name)
        )


_log = structlog.get_logger("capture")


class TableStops:
    """Stops tables by the rules of producer/stops.py."""

    def __init__(
        self, started: StartedCapture, ports: Ports, choice: TableChoice, snapshots: SnapshotScheduler
    ) -> None:
        self._started = started
        self._captured = started.captured
        self._epoch = started.context.epoch
        self._names = ports.names
        self._choice = choice
        self._snapshots = snapshots
        self._writer = ports.writer
        self._now_ms = ports.clock.now_ms

    @property
    def unsaid(self) -> bool:
        """True if there is a stop that its topic does not have yet."""
        return bool(self._captured.unsaid)

    def stop_tables(self, error: TableStoppedError, at: LogMoment) -> None:
        """Publish no more events of the tables from `at` on.

        Their topics get the stop at the end of the transaction there.
        """
        cause = StopCause(self._epoch, at.file, parse_binlog_file_number(at.file), at.pos, at.ts_ms)
        for part in error.parts:
            names = part.tables if part.tables is not None else self._captured.known
            for place, name in enumerate(sorted({self._names.normalize_table(each) for each in names})):
                if name not in self._captured.stopped and not self._was_begun_after(name, cause):
                    self._stop_table(name, part, cause, place)

    def _was_begun_after(self, name: TableName, cause: StopCause) -> bool:
        """Return whether an earlier start added the table after the cause."""
        begins = self._started.begins.get(name)
        return begins is not None and (cause.epoch, cause.file_number, cause.pos) < begins[:3]

    def _stop_table(self, name: TableName, error: TableStoppedError, cause: StopCause, number: int) -> None:
        source = self._captured.source
        if name not in self._captured.known:  # no event of it was ever published
            self._started.errors[name] = error.problem
            _log.error("table skipped", source=source, table=format_table_name(name), reason=str(error))
            return
        stop = cause.build_table_stop(name, error)
        self._captured.stop_table(name, StoppedTable(stop, place=cause.build_stop_position(number)))
        self._snapshots.tables.forget_table(name)
        self._started.copies.handle_table_stop(
            format_table_name(name), stop.cause, stop.reason, self._now_ms()
        )
        self._started.late.pop(name, None)
        _log.error(
            "table stopped", source=source, table=format_table_name(name), cause=stop.cause,
            reason=stop.reason, remedy=stop.remedy, file=stop.file, pos=stop.pos,
        )  # fmt: skip

    def send_pending_stops(self, file: str, pos: int) -> bool:
        """Send the stops that their topics do not have yet, if they have a place.

        Return whether any was sent.
        """
        number = parse_binlog_file_number(file)
        sent = False
        for name in sorted(self._captured.unsaid):
            stopped, topic = self._captured.stopped[name], self._captured.get_topic(name)
            topic.raise_ceiling_to_tail()
            here = (self._epoch, number, pos, self._snapshots.sender.reserve_row(topic))
            position = find_stop_position(
                stopped.place, topic.ceiling, (self._epoch, number, pos - 1, STOP_ROW), here
            )
            if position is None:
                continue
            if position == here:
                self._snapshots.sender.take_row(topic)
            stopped.position = position
            self._captured.unsaid.discard(name)
            self.send_table_stop(name)
            sent = True
        return sent

    def send_table_stop(self, name: TableName) -> None:
        """Send the stop of a table at its place."""
        send_stop(self._writer, self._started.context, self._captured, name, self._started.record)

    def select_visible_stops(self) -> dict[str, TableStop]:
        """Return the stops of selected tables; a stop of any other table needs no action."""
        return {
            format_table_name(name): stopped.stop
            for name, stopped in sorted(self._captured.stopped.items())
            if self._choice.is_selected(*name)
        }

    def explain_left_out_tables(self) -> dict[str, Problem]:
        """Return why tables without published events are not captured."""
        return {format_table_name(name): problem for name, problem in sorted(self._started.errors.items())}
