"""Stops of single tables while capture runs: noted at their cause, said in the topics, shown in watermarks."""

from __future__ import annotations

import structlog

from producer.errors import TableStoppedError
from producer.loop.choice import TableChoice
from producer.ports import Ports
from producer.resume.repeats import send_stop
from producer.resume.started import Started
from producer.snapshot.scheduler import Snapshots
from producer.sources.changes import LogMoment
from producer.stops import Cause, Stopped, event_position
from producer.tables import TableName, dotted
from schemas.wire.position import STOP_ROW, binlog_file_number
from schemas.wire.records import TableStop

_log = structlog.get_logger("capture")


class TableStops:
    """The rules are in producer/stops.py."""

    def __init__(self, started: Started, ports: Ports, choice: TableChoice, snapshots: Snapshots) -> None:
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
        """Tell whether there is a stop that its topic does not have yet."""
        return bool(self._captured.unsaid)

    def stop(self, error: TableStoppedError, at: LogMoment) -> None:
        """Publish nothing of the tables from `at` on; their topics say so at the end of the transaction there."""
        cause = Cause(self._epoch, at.file, binlog_file_number(at.file), at.pos, at.ts_ms)
        for part in error.parts:
            names = part.tables if part.tables is not None else self._captured.known
            for place, name in enumerate(sorted({self._names.same(each) for each in names})):
                if name not in self._captured.stopped and not self._begun_behind(name, cause):
                    self._stop_table(name, part, cause, place)

    def _begun_behind(self, name: TableName, cause: Cause) -> bool:
        """Tell whether a former start took the table up behind the cause."""
        begins = self._started.begins.get(name)
        return begins is not None and (cause.epoch, cause.file_number, cause.pos) < begins[:3]

    def _stop_table(self, name: TableName, error: TableStoppedError, cause: Cause, number: int) -> None:
        source = self._captured.source
        if name not in self._captured.known:  # nothing of it was ever published
            self._started.errors[name] = str(error)
            _log.error("table left out", source=source, table=dotted(name), reason=str(error))
            return
        stop = cause.stop(name, error)
        self._captured.stop(name, Stopped(stop, place=cause.place(number)))
        self._snapshots.tables.forget(name)
        self._started.copies.stopped(dotted(name), stop.cause, stop.reason, self._now_ms())
        self._started.late.pop(name, None)
        _log.error(
            "table stopped", source=source, table=dotted(name), cause=stop.cause, reason=stop.reason,
            remedy=stop.remedy, file=stop.file, pos=stop.pos,
        )  # fmt: skip

    def say(self, file: str, pos: int) -> bool:
        """Send the stops that their topics do not have yet, as far as they have a place; returns whether there was one."""
        number = binlog_file_number(file)
        said = False
        for name in sorted(self._captured.unsaid):
            stopped, topic = self._captured.stopped[name], self._captured.topic(name)
            topic.note()
            here = (self._epoch, number, pos, self._snapshots.sender.next_row(topic))
            position = event_position(
                stopped.place, topic.ceiling, (self._epoch, number, pos - 1, STOP_ROW), here
            )
            if position is None:
                continue
            if position == here:
                self._snapshots.sender.take_row(topic)
            stopped.position = position
            self._captured.unsaid.discard(name)
            self.send(name)
            said = True
        return said

    def send(self, name: TableName) -> None:
        """Send the stop of a table at its place."""
        send_stop(self._writer, self._started.context, self._captured, name, self._started.record)

    def visible(self) -> dict[str, TableStop]:
        """The stops of tables that are to be captured: one that is not selected is nobody's trouble."""
        return {
            dotted(name): stopped.stop
            for name, stopped in sorted(self._captured.stopped.items())
            if self._choice.selected(*name)
        }

    def left_out(self) -> dict[str, str]:
        """Return why tables are not captured of which nothing was published."""
        return {dotted(name): reason for name, reason in sorted(self._started.errors.items())}
