"""Tables that wait for their definition (`StartedCapture.late`).

Such a table waits until the stream has passed every event in its topic, and every statement that leaves
its definition unproven.
"""

from __future__ import annotations

from producer.barriers.new_tables import NewTableCapture
from producer.errors import TableStoppedError
from producer.loop.rows import RowSender
from producer.loop.table_stops import TableStops
from producer.ports import Clock
from producer.sources.changes import LogMoment, TransactionHeader
from producer.start.started import StartedCapture
from schemas.wire.position import DEFINITION_ROW, LogPoint, parse_binlog_file_number


class LateTables:
    """Begins to capture the waiting tables between the transactions of the stream."""

    def __init__(
        self,
        started: StartedCapture,
        clock: Clock,
        *,
        new_tables: NewTableCapture,
        rows: RowSender,
        stops: TableStops,
    ) -> None:
        self._started, self._clock = started, clock
        self._new_tables, self._rows, self._stops = new_tables, rows, stops

    def take_up(self, file: str, pos: int) -> None:
        """Define the tables that have waited long enough, between transactions at `file`, `pos`."""
        late, now_ms = self._started.late, self._clock.now_ms()
        at: LogPoint = (parse_binlog_file_number(file), pos)
        for name in sorted(late):
            ceiling = self._started.captured.get_topic(name).ceiling
            above = ceiling is None or (self._started.context.epoch, *at, DEFINITION_ROW) > ceiling
            if above and at > late[name]:
                del late[name]
                header = TransactionHeader(file, pos, now_ms, 0, None)
                try:
                    self._new_tables.take_up_unknown_table(name, self._rows.get_transaction_context(header))
                except TableStoppedError as error:
                    self._stops.stop_tables(error, LogMoment(file, pos - 1, now_ms))
