"""Sends row events of captured tables to their topics: the hot path of capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from producer.barriers.new_tables import NewTableCapture
from producer.binlog_format.errors import DecodeError
from producer.decoders.row_codec import TransactionContext, mark_last, replace_previous
from producer.errors import TableStoppedError
from producer.ports import Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.sources.changes import TransactionHeader
from producer.sources.chunk_data import LogMark
from producer.sources.protocols import LoggedRows, SourceLog
from producer.start.started import StartedCapture
from producer.stops import build_decoding_stop, build_oversized_row_stop, explain_unseen_table
from producer.tables import TableName, TableState
from schemas.wire.position import Position, parse_binlog_file_number


class RowSender:
    """Sends rows. The last row is held until it is known whether it ends its transaction.

    `on_batch`: called when a batch has been sent, as a transaction may be larger than one read.
    `made_ms`: the creation time in events, in ms since 1970. `sent`: the number of rows so far.
    """

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        log: SourceLog,
        new_tables: NewTableCapture,
        snapshots: SnapshotScheduler,
        on_batch: Callable[[], None],
    ) -> None:
        self.made_ms = 0
        self.sent = 0
        self._writer = ports.writer
        self._captured = started.captured
        self._context = started.context
        self._limits = started.limits
        self._names = ports.names
        self._left_out = started.errors
        self._begins = started.begins
        self._covered = started.covered
        self._log = log
        self._new_tables = new_tables
        self._snapshots = snapshots
        self._on_batch = on_batch
        self._held: tuple[str, bytes, bytes] | None = None
        self._context_of: tuple[TransactionHeader, TransactionContext] | None = None

    def send_rows(self, rows: LoggedRows) -> None:
        """Encode and send the rows of an event, and notify the snapshots. Raises TableStoppedError."""
        context, source = self.get_transaction_context(rows.header), self._context
        name = self._names.normalize_table(rows.table)
        state = self._captured.tables.get(name) or self._new_tables.take_up_unknown_table(name, context)
        if state is None:
            self._left_out.setdefault(name, explain_unseen_table(name))
            self._log.skip_uncaptured(rows)
            return
        if self._begins and self._was_before_takeover(name, context):
            self._log.skip_uncaptured(rows)
            return
        before = state.topic.tail.last
        try:
            records = rows.build_records(state, source, context)
        except DecodeError as error:
            raise build_decoding_stop(name, error) from error
        if name in self._covered and self._leave_out_covered(rows, state, records, before):
            return
        topic = state.topic.name
        fit, size = self._limits.count_fitting(topic, records)
        if fit < len(records):
            refused = records[fit]
            rows.withdraw_rows(state, source, context, records, fit)
            self._send_records(topic, records, size)
            raise build_oversized_row_stop(name, refused, topic, self._limits.get_limit(topic))
        self._log.record_position_count(fit)
        if not records:
            return
        if self._snapshots.tables.is_under_way(name):
            self._snapshots.handle_rows(state, _build_log_mark(rows.header), rows.list_keys(state, source))
        self._send_records(topic, records, size)

    def _leave_out_covered(
        self,
        rows: LoggedRows,
        state: TableState,
        records: list[tuple[bytes, bytes]],
        before: Position | None,
    ) -> bool:
        """Remove from `records` what the topic has already, as the log of another server. Return whether
        nothing is left. `before`: the topic's last position before them.

        Raises TableStoppedError if the log brings other rows first; nothing is sent then.
        """
        name, source, context = state.name, self._context, self.get_transaction_context(rows.header)
        total, covered = len(records), self._covered[name]
        try:
            count = covered.count_covered(rows.header.gtid, records)
        except TableStoppedError:
            rows.withdraw_rows(state, source, context, records, 0)
            del self._covered[name]
            raise
        if self._snapshots.tables.is_under_way(name):
            self._snapshots.handle_rows(state, _build_log_mark(rows.header), rows.list_keys(state, source))
        if count < total:
            del records[:count]
            if count:
                key, value = records[0]
                records[0] = key, replace_previous(value, before)
            self._log.record_position_count(count)
            return False
        rows.withdraw_rows(state, source, context, records, 0)
        context.total_order += total
        self._log.record_position_count(total)
        return True

    def find_covered_stops(self, tables: Iterable[TableName]) -> list[TableStoppedError]:
        """Return the stops of those tables that a statement concerns before the log has brought all rows
        that their topics have."""
        return [
            self._covered[name].build_stop("a statement on the table precedes rows that the topic has")
            for name in dict.fromkeys(tables)
            if name in self._covered and self._covered[name].is_pending and name not in self._captured.stopped
        ]

    def _was_before_takeover(self, name: TableName, at: TransactionContext) -> bool:
        """Return whether an earlier start added the table after these rows: its snapshot had them, or
        they are not to be captured.
        """
        begins = self._begins.get(name)
        if begins is None:
            return False
        if (at.file_number, at.pos) < begins[1:3]:
            return True
        del self._begins[name]
        return False

    def _send_records(self, topic: str, records: list[tuple[bytes, bytes]], size: int) -> None:
        """Send rows of `size` bytes except the last, which may be the transaction's last."""
        if not records:
            return
        writer = self._writer
        if self._held is not None:
            writer.send(*self._held)
        self.sent += len(records)
        key, value = records.pop()
        self._held = (topic, key, value)
        writer.send_all(topic, records, size - len(key) - len(value))
        if writer.full:
            writer.flush()
            self._on_batch()

    def begin_read(self, now_ms: int) -> None:
        """Let events be created at `now_ms` until the log is read again."""
        self.made_ms = now_ms

    def end_transaction(self) -> None:
        """Send the held row, which is the last of its transaction."""
        if self._covered:  # not before: the position does not include the transaction yet
            for name in [name for name, each in self._covered.items() if not each.is_pending]:
                del self._covered[name]
        if self._held is not None:
            topic, key, value = self._held
            self._held = None
            self._writer.send(topic, key, mark_last(value))

    @property
    def holding(self) -> bool:
        """True if a row is held."""
        return self._held is not None

    def release_last_row(self) -> None:
        """Send the held row, which is not the last event of its transaction."""
        if self._held is not None:
            self._writer.send(*self._held)
            self._held = None

    def get_transaction_context(self, header: TransactionHeader) -> TransactionContext:
        """Return the context of a transaction's events, the same one for all of them."""
        if self._context_of is None or self._context_of[0] is not header:
            context = TransactionContext(
                id=header.id, gtid=header.gtid, file=header.file,
                file_number=parse_binlog_file_number(header.file), pos=header.pos, ts_ms=header.ts_ms,
                server_id=header.server_id, made_ms=self.made_ms,
            )  # fmt: skip
            self._context_of = (header, context)
        return self._context_of[1]


def _build_log_mark(header: TransactionHeader) -> LogMark:
    return LogMark((parse_binlog_file_number(header.file), header.pos), header.gtid)
