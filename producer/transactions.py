"""Folds the events of the log into transactions: pure, and of bounded memory for transactions of any size.

Each event goes in on its own, and comes out as what capture has to do about it, in order: encode captured rows
(`Rows`), carry out a statement at its barrier (`Barrier`), or note that a transaction is over (`Boundary`). Nothing is
kept but the transaction's header, its TABLE_MAPs, and the row events of *uncaptured* tables that have not been counted
yet: `row` counts those too, but only a captured row behind them makes the count matter.

What would be lost or misread is refused (`StreamStoppedError`), never skipped: partial JSON images, compressed
transactions, XA groups with captured rows, statement-based changes, rolled-back rows, lost-event incidents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from producer import ddl
from producer import log_event as log
from producer.codec import TableMap, TableMapCache, count_rows
from producer.errors import StreamStoppedError
from producer.log_event import LogEvent
from schemas.findings import START_OVER

#: Bytes of uncaptured row events that may wait to be counted, in one transaction.
DEFER_LIMIT = 4 << 20
_DUMMY_TABLE = 0xFFFFFF


class Header(NamedTuple):
    """A source transaction. `file`, `pos`: its start; `id`: its GTID, else "file:pos"; `ts_ms`: its commit time."""

    file: str
    pos: int
    ts_ms: int
    server_id: int
    gtid: str | None

    @property
    def id(self) -> str:
        return self.gtid or f"{self.file}:{self.pos}"


class Rows(NamedTuple):
    """A row event of a captured table; whoever encodes it says how many rows it had (`Fold.counted`)."""

    header: Header
    table_map: TableMap
    event_type: int
    body: bytes
    first_row: int


class Barrier(NamedTuple):
    """A statement that may concern captured tables; events made from it stand at `row` on (`Fold.counted`)."""

    header: Header
    statement: ddl.TableDdl | ddl.SchemaDrop | ddl.Unknown
    sql: str
    row: int


class Boundary(NamedTuple):
    """A transaction is over: capture may resume at `file`, `pos`. `captured`: it had events for topics."""

    header: Header
    file: str
    pos: int
    captured: bool


Output = Rows | Barrier | Boundary


@dataclass(slots=True)
class _Open:
    """The transaction at hand. `grouped`: it ends by COMMIT or XID; else by its one statement."""

    header: Header
    grouped: bool
    xa: str | None = None
    row: int = 0
    captured: bool = False
    maps: dict[int, TableMap] = field(default_factory=dict)
    deferred: list[tuple[TableMap, int, bytes]] = field(default_factory=list)
    deferred_bytes: int = 0


class Fold:
    """`captured(db, table)` says whether a table is captured; `names()` are the names of captured tables so far."""

    def __init__(self, captured: Callable[[str, str], bool], names: Callable[[], set[str]]) -> None:
        self._captured = captured
        self._names = names
        self._maps = TableMapCache()
        self._open: _Open | None = None
        self._prepared: set[str] = set()

    @property
    def inside(self) -> bool:
        """Whether a transaction is open."""
        return self._open is not None

    def counted(self, rows: int) -> None:
        """Say how many positions the last `Rows` or `Barrier` took."""
        transaction = self._require_open("rows")
        transaction.row += rows
        transaction.captured = True

    def uncaptured(self, rows: Rows) -> None:
        """Say that the rows of the last `Rows` were not captured after all."""
        transaction = self._require_open("rows")
        transaction.deferred.append((rows.table_map, rows.event_type, rows.body))

    def feed(self, event: LogEvent) -> Output | None:
        """Return what follows from `event`. Raises StreamStoppedError."""
        kind = event.type
        if kind in log.ROW_EVENTS:
            return self._rows(event)
        if kind == log.TABLE_MAP:
            table_map = self._maps.get(event.body)
            self._require_open(event).maps[table_map.table_id] = table_map
            return None
        if kind in (log.GTID, log.ANONYMOUS_GTID, log.MARIADB_GTID):
            return self._begin_gtid(event)
        if kind == log.XID:
            return self._end(event)
        if kind == log.QUERY:
            return self._query(event, log.parse_query(event.body))
        return self._other(event)

    # --- begin and end

    def _begin_gtid(self, event: LogEvent) -> Output | None:
        if self._open is not None:
            raise _stopped(event, "a transaction begins inside another one")
        if event.type == log.MARIADB_GTID:
            gtid = log.parse_mariadb_gtid(event.body, event.server_id)
            transaction = self._start(event, gtid.text, event.timestamp * 1000)
            transaction.grouped = not gtid.flags & log.MARIADB_STANDALONE
            transaction.xa = gtid.xid if gtid.flags & log.MARIADB_PREPARED_XA else None
            return None
        text = log.parse_gtid(event.body) if event.type == log.GTID else None
        self._start(event, text, log.commit_ms(event.body) or event.timestamp * 1000)
        return None

    def _start(self, event: LogEvent, gtid: str | None, ts_ms: int) -> _Open:
        header = Header(event.file, event.start, ts_ms, event.server_id, gtid)
        self._open = _Open(header, grouped=False)
        return self._open

    def _end(self, event: LogEvent) -> Boundary:
        transaction = self._require_open(event)
        self._open = None
        return Boundary(transaction.header, event.file, event.end, transaction.captured)

    def _require_open(self, event: LogEvent | str) -> _Open:
        if self._open is None:
            raise _stopped(event, "rows outside of a transaction")
        return self._open

    # --- rows

    def _rows(self, event: LogEvent) -> Rows | None:
        transaction = self._require_open(event)
        table_id = int.from_bytes(event.body[:6], "little")
        table_map = transaction.maps.get(table_id)
        if table_map is None:
            if table_id == _DUMMY_TABLE:
                return None
            raise _stopped(event, f"rows of table id {table_id} without its TABLE_MAP")
        if not self._captured(table_map.db, table_map.name):
            self._defer(transaction, table_map, event)
            return None
        if transaction.xa is not None:
            raise _stopped(
                event,
                f"an XA transaction changes {table_map.db}.{table_map.name}; XA is not supported yet: "
                f"exclude the table, or end the use of XA on it and {START_OVER}",
            )
        self._count_deferred(transaction)
        return Rows(transaction.header, table_map, event.type, event.body, transaction.row)

    def _defer(self, transaction: _Open, table_map: TableMap, event: LogEvent) -> None:
        transaction.deferred.append((table_map, event.type, event.body))
        transaction.deferred_bytes += len(event.body)
        if transaction.deferred_bytes > DEFER_LIMIT:
            self._count_deferred(transaction)

    def _count_deferred(self, transaction: _Open) -> None:
        for table_map, kind, body in transaction.deferred:
            if kind == log.PARTIAL_UPDATE_ROWS:
                raise StreamStoppedError(
                    f"partial JSON images of {table_map.db}.{table_map.name} in a transaction with captured rows: "
                    "SET GLOBAL binlog_row_value_options=''"
                )
            transaction.row += count_rows(table_map, kind, body)
        transaction.deferred.clear()
        transaction.deferred_bytes = 0

    # --- statements

    def _query(self, event: LogEvent, query: log.Query) -> Output | None:
        statement = ddl.classify(query.sql, query.db)
        if isinstance(statement, ddl.Control):
            return self._control(event, statement)
        transaction = self._open or self._start(event, None, event.timestamp * 1000)
        if isinstance(statement, ddl.Dml):
            self._check_dml(event, statement)
        if isinstance(statement, ddl.Dml | ddl.Harmless):
            return None if transaction.grouped else self._end(event)
        self._count_deferred(transaction)
        return Barrier(transaction.header, statement, query.sql, transaction.row)

    def after_barrier(self, event: LogEvent) -> Boundary | None:
        """Say that the Barrier that `event` gave is dealt with; a lone statement's transaction ends with it."""
        return None if self._require_open(event).grouped else self._end(event)

    def _check_dml(self, event: LogEvent, statement: ddl.Dml) -> None:
        named = statement.words & self._names()
        if named:
            raise _stopped(
                event,
                f"a change logged as a statement names the captured table {', '.join(sorted(named))}: "
                "binlog_format must be ROW for every session (SET GLOBAL binlog_format=ROW, reconnect the clients), "
                f"then {START_OVER}",
            )

    def _control(self, event: LogEvent, control: ddl.Control) -> Boundary | None:
        match control.verb:
            case "begin" | "xa_start":
                transaction = self._open or self._start(event, None, event.timestamp * 1000)
                transaction.grouped = True
                transaction.xa = control.xid if control.verb == "xa_start" else None
            case "commit":
                return self._end(event)
            case "rollback" | "rollback_to":
                return self._rollback(event, whole=control.verb == "rollback")
            case "xa_commit" | "xa_rollback":
                return self._finish_xa(event, control)
            case "xa_prepare":
                return self._end(event)
        return None

    def _rollback(self, event: LogEvent, *, whole: bool) -> Boundary | None:
        transaction = self._require_open(event)
        if transaction.captured:
            raise _stopped(
                event,
                "rows that are already captured are rolled back in the log (a transaction that mixes tables "
                f"with and without transactions): convert the MyISAM tables, then {START_OVER}",
            )
        return self._end(event) if whole else None

    def _finish_xa(self, event: LogEvent, control: ddl.Control) -> Boundary:
        if self._open is None:
            self._start(event, None, event.timestamp * 1000)
        if control.verb == "xa_commit" and control.xid not in self._prepared:
            raise _stopped(
                event,
                f"XA COMMIT of a transaction that was prepared before capture began ({control.xid}): its rows are "
                f"unknown here, and XA is not supported yet: {START_OVER}",
            )
        self._prepared.discard(control.xid)
        return self._end(event)

    # --- the rest

    def _other(self, event: LogEvent) -> Output | None:
        kind = event.type
        if kind in log.IGNORED:
            return None
        if kind == log.PARTIAL_UPDATE_ROWS:
            self._partial(event)
        elif kind == log.XA_PREPARE:
            return self._xa_prepare(event)
        elif kind == log.EXECUTE_LOAD_QUERY:
            return self._query(event, log.parse_query(event.body, extra=13))
        else:
            raise _unknown(event)
        return None

    def _partial(self, event: LogEvent) -> None:
        transaction = self._require_open(event)
        table_map = transaction.maps.get(int.from_bytes(event.body[:6], "little"))
        if table_map is None or self._captured(table_map.db, table_map.name):
            raise _stopped(
                event,
                "partial JSON images (PARTIAL_UPDATE_ROWS) of a captured table: "
                f"SET GLOBAL binlog_row_value_options='', then {START_OVER}",
            )
        self._defer(transaction, table_map, event)

    def _xa_prepare(self, event: LogEvent) -> Boundary:
        """Ends an XA group; nothing of it was captured, or `_rows` had refused it."""
        transaction = self._require_open(event)
        if transaction.xa is not None:
            self._prepared.add(transaction.xa)
        return self._end(event)


def _unknown(event: LogEvent) -> StreamStoppedError:
    if event.type == log.TRANSACTION_PAYLOAD:
        return _stopped(
            event,
            f"a compressed transaction: SET GLOBAL binlog_transaction_compression=OFF, then {START_OVER}",
        )
    if event.type == log.GTID_TAGGED:
        return _stopped(
            event,
            f"a tagged GTID (GTID_NEXT='AUTOMATIC:tag') is not supported yet: use untagged ones, and {START_OVER}",
        )
    if event.type == log.INCIDENT:
        return _stopped(event, f"the server says that it lost events (INCIDENT): {START_OVER}")
    return _stopped(
        event,
        f"an event of unknown type {event.type}, which might carry rows: this server is newer than rowlock",
    )


def _stopped(event: LogEvent | str, seen: str) -> StreamStoppedError:
    place = f"{event.file}:{event.start}" if isinstance(event, LogEvent) else event
    return StreamStoppedError(f"the log holds at {place} what capture cannot follow: {seen}")


def outputs(fold: Fold, events: Iterator[LogEvent]) -> Iterator[Output]:
    """Feed `events` and deal with barriers at once; for tests and tools that have nothing to do at a barrier."""
    for event in events:
        output = fold.feed(event)
        if output is not None:
            yield output
        if isinstance(output, Barrier):
            boundary = fold.after_barrier(event)
            if boundary is not None:
                yield boundary
