"""Row events of captured tables into their topics: the hot path of capture."""

from __future__ import annotations

from collections.abc import Callable

from producer.barriers.new_tables import NewTables
from producer.binlog_format.errors import DecodeError
from producer.decoders.row_codec import TransactionContext, mark_last
from producer.kafka.settings import fitting
from producer.ports import Ports
from producer.resume.started import Started
from producer.snapshot.scheduler import Snapshots
from producer.source import LoggedRows, SourceLog
from producer.sources.changes import TransactionHeader
from producer.sources.chunk_data import LogMark
from producer.stops import of_decoding, too_large
from producer.tables import TableName
from schemas.wire.position import binlog_file_number


class RowSender:
    """Sends rows, all but the last one of all: that one is held until it is known whether it ends its transaction.

    `on_batch` is called when a batch has left: a transaction may be larger than what is read at once. `made_ms`: the time that
    events say they were made at, in ms since 1970. `sent`: how many rows there were.
    """

    def __init__(
        self,
        started: Started,
        ports: Ports,
        *,
        log: SourceLog,
        new_tables: NewTables,
        snapshots: Snapshots,
        on_batch: Callable[[], None],
    ) -> None:
        self.made_ms = 0
        self.sent = 0
        self._writer = ports.writer
        self._captured = started.captured
        self._context = started.context
        self._names = ports.names
        self._left_out = started.errors
        self._begins = started.begins
        self._log = log
        self._new_tables = new_tables
        self._snapshots = snapshots
        self._on_batch = on_batch
        self._held: tuple[str, bytes, bytes] | None = None
        self._context_of: tuple[TransactionHeader, TransactionContext] | None = None

    def take(self, rows: LoggedRows) -> None:
        """Encode and send the rows of an event, and tell the snapshots. Raises TableStoppedError."""
        context, source = self.transaction(rows.header), self._context
        name = self._names.same(rows.table)
        state = self._captured.tables.get(name) or self._new_tables.first_sight(name, context)
        if state is None:
            self._left_out.setdefault(name, "its definition is unknown: it was dropped since")
            self._log.uncaptured(rows)
            return
        if self._begins and self._before(name, context):
            self._log.uncaptured(rows)
            return
        try:
            records = rows.encode(state, source, context)
        except DecodeError as error:
            raise of_decoding(name, error) from error
        fit, size = fitting(records)
        if fit < len(records):
            key, value = records[fit]
            rows.forget(state, source, context, records, fit)
            self._send(state.topic.name, records, size)
            raise too_large(name, key, len(key) + len(value))
        self._log.counted(fit)
        if not records:
            return
        if self._snapshots.tables.under_way(name):
            self._snapshots.rows_seen(state, _mark(rows.header), rows.keys(state, source))
        self._send(state.topic.name, records, size)

    def _before(self, name: TableName, at: TransactionContext) -> bool:
        """Tell whether a former start took the table up behind these rows: then its snapshot had them, or nobody wanted them."""
        begins = self._begins.get(name)
        if begins is None:
            return False
        if (at.file_number, at.pos) < begins[1:3]:
            return True
        del self._begins[name]
        return False

    def _send(self, topic: str, records: list[tuple[bytes, bytes]], size: int) -> None:
        """Send rows of `size` bytes, all but the last one of all: that one may be the transaction's last."""
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

    def end(self) -> None:
        """The transaction is over: the row that is held was its last."""
        if self._held is not None:
            topic, key, value = self._held
            self._held = None
            self._writer.send(topic, key, mark_last(value))

    @property
    def holding(self) -> bool:
        """Tell whether a row is held."""
        return self._held is not None

    def release(self) -> None:
        """Send the row that is held, which is not the last event of its transaction."""
        if self._held is not None:
            self._writer.send(*self._held)
            self._held = None

    def transaction(self, header: TransactionHeader) -> TransactionContext:
        """Return the context of a transaction's events, the same one for all of them."""
        if self._context_of is None or self._context_of[0] is not header:
            context = TransactionContext(
                id=header.id, gtid=header.gtid, file=header.file, file_number=binlog_file_number(header.file),
                pos=header.pos, ts_ms=header.ts_ms, server_id=header.server_id, made_ms=self.made_ms,
            )  # fmt: skip
            self._context_of = (header, context)
        return self._context_of[1]


def _mark(header: TransactionHeader) -> LogMark:
    return LogMark((binlog_file_number(header.file), header.pos), header.gtid)
