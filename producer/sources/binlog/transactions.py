"""Folds the events of the log into transactions.

Pure, and of bounded memory for transactions of any size.

The events come from producer/sources/binlog/assembly.py, those of a transaction once its end is known;
rows that were rolled back are marked. Each event goes in on its own, and the result is what capture has
to do about it, in order: encode captured rows (`CapturedRows`), carry out a statement at its barrier
(`Barrier`), fold the rows of a prepared XA transaction next (`XaCommit`), or record the end of a transaction
(`Boundary`). Only the transaction's header, its
TABLE_MAPs, and those row events of *uncaptured* tables are kept that have not been counted yet: `row`
counts them too, but the count matters only if a captured row follows. An event that cannot be counted (a
MINIMAL or partial image, an unknown type) counts as one row, so `row` is the same whenever the log is
read.

Input that would be lost or misread is refused, never skipped: with `TableStoppedError` where the
affected tables are known, otherwise with `StreamStoppedError`. After a TableStoppedError the fold
continues, and counts the event's rows as uncaptured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import BinlogEvent
from producer.decoders.row_codec import (
    SourceContext,
    TableCodec,
    TableMap,
    TableMapCache,
    TransactionContext,
    count_rows,
    unpack_rows_event,
)
from producer.errors import StreamStoppedError, TableStoppedError
from producer.sources.binlog.assembly import ONE_PHASE
from producer.sources.binlog.event_groups import UNDONE
from producer.sources.binlog.prepared_xa import PreparedXaTransactions, XaCommit
from producer.sources.changes import Barrier, Boundary, OpenXa, TableName, TransactionHeader
from producer.statements import ddl
from producer.statements.conversions import treat_optimize_as_alter
from producer.statements.statement import Statement, parse_statement
from schemas.findings import START_OVER, format_copy_remedy
from schemas.table.model import Key
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import PreparedPlace

#: Bytes of uncaptured row events of one transaction that may wait to be counted.
DEFER_LIMIT = 4 << 20
_DUMMY_TABLE = 0xFFFFFF

_NONE: frozenset[TableName] = frozenset()


class CodecProvider(Protocol):
    """Creates the codec of a row layout once: producer.tables.TableState."""

    def get_codec(self, table_map: TableMap, source: SourceContext, /) -> TableCodec: ...


class CapturedRows(NamedTuple):
    """A row event of a captured table (`LoggedRows` of producer/sources/protocols.py).

    Its encoder reports how many rows it had.
    """

    header: TransactionHeader
    table_map: TableMap
    event_type: int
    body: bytes
    first_row: int

    @property
    def table(self) -> TableName:
        return self.table_map.db, self.table_map.name

    def build_records(
        self, table: CodecProvider, source: SourceContext, transaction: TransactionContext
    ) -> list[tuple[bytes, bytes]]:
        kind, body = unpack_rows_event(self.event_type, self.body)
        return table.get_codec(self.table_map, source).build_records(kind, body, transaction, self.first_row)

    def withdraw_rows(
        self,
        table: CodecProvider,
        source: SourceContext,
        transaction: TransactionContext,
        records: list[tuple[bytes, bytes]],
        keep: int,
    ) -> None:
        table.get_codec(self.table_map, source).withdraw_rows(records, keep, transaction)

    def list_keys(self, table: CodecProvider, source: SourceContext) -> list[Key]:
        return table.get_codec(self.table_map, source).decode_keys(
            *unpack_rows_event(self.event_type, self.body)
        )


FoldedChange = CapturedRows | Barrier | Boundary


@dataclass(slots=True)
class _OpenTransaction:
    """The transaction that is being read.

    `grouped`: it ends with COMMIT or XID; otherwise with its one statement.

    `announced`: its statement is the beginning of an ALTER, or an ALTER that failed, so nothing has
    changed.
    """

    header: TransactionHeader
    grouped: bool
    xa: str | None = None
    announced: bool = False
    row: int = 0
    undone: set[TableName] = field(default_factory=set)
    maps: dict[int, TableMap] = field(default_factory=dict)
    deferred: list[tuple[TableMap, int, bytes]] = field(default_factory=list)
    deferred_bytes: int = 0

    def defer_rows(self, table_map: TableMap, event: BinlogEvent) -> None:
        """Keep an event that is not captured; its rows are counted if a captured one follows."""
        self.deferred.append((table_map, event.type, event.body))
        self.deferred_bytes += len(event.body)
        if self.deferred_bytes > DEFER_LIMIT:
            self.count_deferred()

    def count_deferred(self) -> None:
        for table_map, kind, body in self.deferred:
            self.row += count_event_positions(table_map, kind, body)
        self.deferred.clear()
        self.deferred_bytes = 0


class TransactionAssembler:
    """Folds events into changes, one transaction at a time.

    `captured(db, table)`: whether a table is captured. `prepared`: the XA transactions that were
    prepared before. `xa_in_order`: see PreparedXaTransactions. `objects_changed`: the start of the last
    statement that may have changed a table, a view, a trigger or a routine, as (number of the file,
    offset). `xa`: the XA transactions that are prepared and have not ended.
    """

    def __init__(
        self,
        captured: Callable[[str, str], bool],
        prepared: OpenXa | None = None,
        *,
        xa_in_order: bool = True,
    ) -> None:
        self.xa = PreparedXaTransactions(prepared or {}, in_order=xa_in_order)
        self._captured = captured
        self.objects_changed: tuple[int, int] = (0, 0)
        self._maps = TableMapCache()
        self._open: _OpenTransaction | None = None

    @property
    def inside(self) -> bool:
        """True if a transaction is open."""
        return self._open is not None

    def record_position_count(self, rows: int) -> None:
        """Record how many positions the last `CapturedRows` or `Barrier` took."""
        self._require_open("rows").row += rows

    def skip_uncaptured(self, rows: CapturedRows) -> None:
        """Count the rows of the last `CapturedRows` as uncaptured."""
        transaction = self._require_open("rows")
        transaction.deferred.append((rows.table_map, rows.event_type, rows.body))

    def fold_event(self, event: BinlogEvent) -> FoldedChange | XaCommit | None:
        """Return the change that `event` completes, or None. After an XaCommit the rows of its transaction
        are folded, and then `finish_xa_commit` is called.

        Raises StreamStoppedError, TableStoppedError.
        """
        kind = event.type
        if kind in log.ANY_ROWS:
            return self._handle_rows(event)
        if kind == log.TABLE_MAP:
            table_map = self._maps.get_table_map(event.body)
            self._require_open(event).maps[table_map.table_id] = table_map
            return None
        if kind in (log.GTID, log.ANONYMOUS_GTID, log.MARIADB_GTID):
            return self._begin_gtid(event)
        if kind == log.XID:
            return self._end_transaction(event)
        if kind in log.QUERIES:
            return self._handle_statement(event, parse_statement(log.parse_statement_event(event)))
        return self._handle_other_event(event)

    # --- begin and end

    def _begin_gtid(self, event: BinlogEvent) -> FoldedChange | None:
        if self._open is not None:
            raise _build_stream_stop(event, "a transaction begins inside another one")
        if event.type == log.MARIADB_GTID:
            gtid = log.parse_mariadb_gtid(event.body, event.server_id)
            header = _build_header(event, gtid.text, event.timestamp * 1000)
            self._open = _OpenTransaction(
                header,
                grouped=not gtid.flags & log.MARIADB_STANDALONE,
                xa=gtid.xid if gtid.flags & log.MARIADB_PREPARED_XA else None,
                announced=gtid.alter in ("start", "rollback"),
            )
            return None
        text = log.parse_gtid(event.body) if event.type == log.GTID else None
        self._start_transaction(event, text, log.read_gtid_commit_ms(event.body) or event.timestamp * 1000)
        return None

    def _start_transaction(self, event: BinlogEvent, gtid: str | None, ts_ms: int) -> _OpenTransaction:
        self._open = _OpenTransaction(_build_header(event, gtid, ts_ms), grouped=False)
        return self._open

    def _end_transaction(self, event: BinlogEvent) -> Boundary:
        transaction = self._require_open(event)
        self._open = None
        undone = _NONE
        if transaction.undone:
            undone = frozenset(name for name in transaction.undone if self._captured(*name))
        return Boundary(transaction.header, event.file, event.end, undone, self.xa.open)

    def _require_open(self, event: BinlogEvent | str) -> _OpenTransaction:
        if self._open is None:
            raise _build_stream_stop(event, "an event that belongs into a transaction is outside of one")
        return self._open

    # --- rows

    def _handle_rows(self, event: BinlogEvent) -> CapturedRows | None:
        transaction = self._require_open(event)
        table_id = int.from_bytes(event.body[:6], "little")
        table_map = transaction.maps.get(table_id)
        if table_map is None:
            if table_id == _DUMMY_TABLE:
                return None
            raise _build_stream_stop(event, f"rows of table id {table_id} without its TABLE_MAP")
        if event.flags & UNDONE:
            transaction.undone.add((table_map.db, table_map.name))
        elif self._captured(table_map.db, table_map.name):
            transaction.count_deferred()
            if event.type == log.PARTIAL_UPDATE_ROWS:
                transaction.defer_rows(table_map, event)
                raise _build_partial_rows_stop(table_map)
            return CapturedRows(transaction.header, table_map, event.type, event.body, transaction.row)
        transaction.defer_rows(table_map, event)
        return None

    # --- statements

    def _handle_statement(self, event: BinlogEvent, statement: Statement) -> FoldedChange | XaCommit | None:
        if isinstance(statement.kind, ddl.TransactionControl):
            return self._handle_control(event, statement.kind)
        if statement.kind == ddl.HarmlessStatement() and statement.query.settings != log.SessionSettings():
            statement = treat_optimize_as_alter(statement)
        kind = statement.kind
        transaction = self._open or self._start_transaction(event, None, event.timestamp * 1000)
        if not isinstance(kind, ddl.DmlStatement) and kind != ddl.HarmlessStatement():
            self.objects_changed = (parse_binlog_file_number(event.file), event.start)
        if transaction.announced or (
            isinstance(kind, ddl.HarmlessStatement) and not isinstance(kind, ddl.TriggerCreation)
        ):
            return None if transaction.grouped else self._end_transaction(event)
        if not isinstance(kind, ddl.DmlStatement | ddl.HarmlessStatement):
            self.xa.note_statement(statement)
        transaction.count_deferred()
        return Barrier(transaction.header, statement, transaction.row, event.start)

    def finish_barrier(self, event: BinlogEvent) -> Boundary | None:
        """Finish the Barrier of `event`.

        Returns the Boundary if the statement was the whole transaction.
        """
        return None if self._require_open(event).grouped else self._end_transaction(event)

    def finish_xa_commit(self, event: BinlogEvent) -> Boundary:
        """Finish the XaCommit of `event`, whose rows were folded since."""
        return self._end_transaction(event)

    def _handle_control(
        self, event: BinlogEvent, control: ddl.TransactionControl
    ) -> Boundary | XaCommit | None:
        match control.verb:
            case "begin" | "xa_start":
                transaction = self._open or self._start_transaction(event, None, event.timestamp * 1000)
                transaction.grouped = True
                transaction.xa = control.xid if control.verb == "xa_start" else None
            case "commit":
                return self._end_transaction(event)
            case "rollback":
                return self._end_transaction(event)
            case "xa_commit" | "xa_rollback":
                if self._open is None:
                    self._start_transaction(event, None, event.timestamp * 1000)
                if control.verb == "xa_commit":
                    return self.xa.commit_prepared(control.xid, self._captured)
                self.xa.end_prepared(control.xid)
                return self._end_transaction(event)
            case "xa_prepare":
                return self._handle_xa_prepare(event)
        return None

    def _handle_xa_prepare(self, event: BinlogEvent) -> Boundary:
        """End an XA group. If it is only prepared, all of its rows are marked as rolled back."""
        transaction = self._require_open(event)
        if transaction.xa is not None and event.body[:1] != ONE_PHASE:
            header = transaction.header
            place = PreparedPlace(
                file=header.file,
                pos=header.pos,
                end=event.end,
                ts_ms=event.timestamp * 1000,
                gtid=header.gtid or "",
            )
            self.xa.add_prepared(transaction.xa, transaction.undone, place)
            transaction.undone.clear()
        return self._end_transaction(event)

    # --- the rest

    def _handle_other_event(self, event: BinlogEvent) -> FoldedChange | None:
        kind = event.type
        if kind in log.IGNORED:
            return None
        if kind == log.XA_PREPARE:
            return self._handle_xa_prepare(event)
        raise _build_unknown_event_stop(event)


def count_event_positions(table_map: TableMap, kind: int, body: bytes) -> int:
    """Return how many positions an unpublished event takes: its number of rows, or 1 if they cannot be
    counted.

    The result depends on the log alone: a transaction that is read again gets the same numbers.
    """
    try:
        kind, body = unpack_rows_event(kind, body)
        return count_rows(table_map, kind, body)
    except DecodeError:
        return 1


def _build_partial_rows_stop(table_map: TableMap) -> TableStoppedError:
    name = (table_map.db, table_map.name)
    return TableStoppedError(
        frozenset([name]), "log", f"a partial JSON image (PARTIAL_UPDATE_ROWS) of {name[0]}.{name[1]}",
        "SET GLOBAL binlog_row_value_options='' at the source, reconnect its clients, and "
        f"{format_copy_remedy(*name)}",
    )  # fmt: skip


def _build_unknown_event_stop(event: BinlogEvent) -> StreamStoppedError:
    if event.type == log.GTID_TAGGED:
        return _build_stream_stop(
            event,
            "a tagged GTID (GTID_NEXT='AUTOMATIC:tag') is not supported yet",
            f"use untagged ones, and {START_OVER}",
        )
    if event.type == log.INCIDENT:
        return _build_stream_stop(event, "the server reports that it lost events (INCIDENT)", START_OVER)
    return _build_stream_stop(
        event,
        f"an event of unknown type {event.type}, which might carry rows: this server is newer than rowlock",
    )


def _build_stream_stop(event: BinlogEvent | str, seen: str, remedy: str = "") -> StreamStoppedError:
    place = f"{event.file}:{event.start}" if isinstance(event, BinlogEvent) else event
    return StreamStoppedError(f"capture cannot follow the log at {place}: {seen}", remedy)


def _build_header(event: BinlogEvent, gtid: str | None, ts_ms: int) -> TransactionHeader:
    return TransactionHeader(event.file, event.start, ts_ms, event.server_id, gtid)
