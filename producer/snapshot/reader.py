"""Reads chunks of a table for producer/snapshot/chunks.py: one SELECT, and what it certainly saw.

LOW must not be ahead of what the SELECT sees. With semi-synchronous replication (AFTER_SYNC, the
default) a commit is in the log, delivered to replicas and counted in SHOW MASTER STATUS before a SELECT
sees it. How to find out what is visible depends on the server (`SnapshotVisibility`, in
producer/sources/mysql and producer/sources/mariadb).

Nothing is locked and nothing is written. HIGH is the log's end after the SELECT.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

import pymysql
import structlog
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from producer.snapshot.text import build_select_expressions, make_snapshot_row_decoder
from producer.sources.binlog.flavour import SnapshotVisibility
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, ReadChunk
from producer.sources.source_session import source_errors
from schemas.io.certificates import explain_refused_certificate
from schemas.io.mysql_connection import MYSQL_SESSION_SQL, open_connection
from schemas.table.model import Column, Key, Kind, Table
from schemas.values.mysql import pack_rows, quote_name, to_mysql_columns
from schemas.values.packed import PackedSelect, can_pack, decode_packed_rows
from schemas.wire.position import LogPoint

_log = structlog.get_logger("snapshot")
_TABLE_CHANGED = frozenset({1054, 1146, 1412})  # unknown column, no such table, definition changed


def make_connection_opener(settings: dict[str, Any]) -> Callable[[], Connection[Any]]:
    """Return a function that opens connections for reading chunks. `settings`: those of pymysql."""
    settings = {**settings, "init_command": MYSQL_SESSION_SQL, "autocommit": True, "charset": "utf8mb4"}
    return lambda: open_connection(**settings)


class ChunkReader:
    """Reads chunks through a connection of its own, which is opened when needed and after it was lost;
    blocking.

    `connect`: opens it. `started`: where the stream began.
    """

    def __init__(
        self, connect: Callable[[], Connection[Any]], visibility: SnapshotVisibility, started: LogPoint
    ) -> None:
        self._connect = connect
        self._visibility = visibility
        self._started = started
        self._prepared = False
        self._connection: Connection[Any] | None = None

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(pymysql.MySQLError):
                self._connection.close()
            self._connection = None

    def read_chunk(self, request: ReadChunk) -> ChunkRead | ChunkFailed | ChunkRefused:
        """Read a chunk. Raises SourceRefusedError if a retry would not help: a missing grant, or a
        certificate that is refused.
        """
        with source_errors():
            return self._read_chunk(request)

    def _read_chunk(self, request: ReadChunk) -> ChunkRead | ChunkFailed | ChunkRefused:
        try:
            connection = self._open_connection()
            if not self._prepared and not self._visibility.is_start_visible(connection, self._started):
                return ChunkFailed(
                    request.request, "transactions before the stream's start are not visible yet"
                )
            self._prepared = True
            return self._select_chunk(connection, request)
        except (pymysql.MySQLError, OSError) as error:
            self.close()
            return _handle_read_error(request, error)

    def _open_connection(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = self._connect()
            with self._connection.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return self._connection

    def _select_chunk(self, connection: Connection[Any], request: ReadChunk) -> ChunkRead:
        convert = make_snapshot_row_decoder(request.table)
        with connection.cursor(Cursor) as cursor:
            low = self._visibility.begin_snapshot(cursor)
            found = _fetch_rows(cursor, request)
            cursor.execute("COMMIT")  # before decoding a row may raise
            high = self._visibility.log_end(cursor)
        return ChunkRead(request.request, [convert(row) for row in found], low, high)


def _fetch_rows(cursor: Cursor, request: ReadChunk) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a chunk, read packed if possible; if these may not be complete, read them again in
    the same transaction.
    """
    table, packed = request.table, None
    chunk = (table, request.after, request.limit, request.where)
    if can_pack(table):
        [packed] = _fetch_all(cursor, *build_chunk_query(*chunk, packed=pack_rows(table)))
    rows = None if packed is None else decode_packed_rows(table, packed)
    return rows if rows is not None else _fetch_all(cursor, *build_chunk_query(*chunk))


def _fetch_all(cursor: Cursor, sql: str, parameters: _Parameters) -> Sequence[tuple[Any, ...]]:
    cursor.execute(sql, parameters or None)
    return cursor.fetchall()


_PERMANENT = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 1698})
"""The errors for denied access."""
_NOT_OF_A_CONDITION = frozenset(
    {1040, 1044, 1045, 1053, 1205, 1213, 1317, 1412, 1698, 1927, 1969, 2002, 2003, 2006, 2013, 2014, 2026,
    2055, 3024}
)  # fmt: skip
"""Errors that do not depend on the statement: full or lost servers, killed connections, locks,
time-outs.
"""


def _handle_read_error(request: ReadChunk, error: Exception) -> ChunkFailed | ChunkRefused:
    """Return the outcome of an error: a refusal if a condition is the most likely cause, otherwise the
    chunk is read again.

    Raises `error` if a retry would not help.
    """
    number = error.args[0] if error.args else None
    of_server = isinstance(error, pymysql.MySQLError) and isinstance(number, int) and number > 0
    if request.where is not None and of_server and number not in _NOT_OF_A_CONDITION:
        return ChunkRefused(request.request, str(error.args[-1]))
    if explain_refused_certificate(error) is not None:
        raise error
    retryable = (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError)
    if number in _TABLE_CHANGED or (isinstance(error, retryable) and number not in _PERMANENT):
        return ChunkFailed(request.request, str(error))
    raise error


# --- the query

_Parameters = tuple[object, ...]
_NO_PARAMETERS: _Parameters = ()

_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.TEXT})
_BY_NUMBER = frozenset({Kind.ENUM, Kind.SET, Kind.ENUM_NUMBER, Kind.SET_NUMBER, Kind.YEAR})
"""Kinds that sort by their number, but compare differently with a literal (labels as text, YEAR 0 as
2000).
"""


def build_chunk_query(
    table: Table,
    after: Key | None,
    limit: int,
    where: str | None = None,
    *,
    packed: PackedSelect | None = None,
) -> tuple[str, _Parameters]:
    """Return the SELECT of the first `limit` rows after key `after` in key order, by the source's own
    collations.

    `where`: a complete condition that they meet (producer.copies.limits.explain_unbalanced_condition); a
    comment in it ends with its line. `packed`: the rows are packed by these expressions.
    """
    columns = [table.get_column(name) for name in table.key.columns]
    names = [_sort_expression(column) for column in columns]
    conditions, parameters = [], _NO_PARAMETERS
    if where is not None:
        conditions.append(f"({where.replace('%', '%%')}\n)")
    if after is not None:
        places = [_render_place(column) for column in columns]
        condition, parameters = _build_key_condition(names, places, _build_parameters(table, columns, after))
        conditions.append(condition)
    selected = packed.columns if packed is not None else ", ".join(build_select_expressions(table))
    sql = (
        f"SELECT {selected.replace('%', '%%')} FROM "
        f"{quote_name(table.db)}.{quote_name(table.name)}"
        f"{' WHERE ' if conditions else ''}{' AND '.join(conditions)} ORDER BY "
        f"{', '.join(names)} LIMIT {limit:d}"
    )
    if packed is not None:
        sql = packed.render(sql)
    return sql if parameters else sql.replace("%%", "%"), parameters


def _sort_expression(column: Column) -> str:
    name = quote_name(column.name).replace("%", "%%")
    # "+0" would make a signed number, or a double, of a SET: its 64th label would sort first.
    return f"CAST({name} AS UNSIGNED)" if column.type.kind in _BY_NUMBER else name


def _render_place(column: Column) -> str:
    """Return the expression of a key's value.

    The server would give a backslash in sjis its code of two bytes, and rows before that would be skipped.
    """
    return f"CONVERT(%s USING sjis) COLLATE {column.type.collation}" if _is_sjis(column) else "%s"


def _is_sjis(column: Column) -> bool:
    return column.type.charset == "sjis" and column.type.kind in _TEXTS


def _build_key_condition(names: list[str], places: list[str], values: _Parameters) -> tuple[str, _Parameters]:
    """Return a condition for (names) > (values) that can use an index: row comparison is not optimized."""
    condition = f"{names[-1]} > {places[-1]}"
    parameters: _Parameters = (values[-1],)
    for name, place, value in zip(names[-2::-1], places[-2::-1], values[-2::-1], strict=True):
        condition = f"{name} >= {place} AND ({name} > {place} OR {condition})"
        parameters = (value, value, *parameters)
    return condition, parameters


def _build_parameters(table: Table, columns: list[Column], key: Key) -> _Parameters:
    values = to_mysql_columns(table, tuple(column.name for column in columns))(key)
    return tuple(_convert_parameter(column, value) for column, value in zip(columns, values, strict=True))


def _convert_parameter(column: Column, value: Any) -> object:
    kind = column.type.kind
    if kind is Kind.DECIMAL:
        return Decimal(value)  # a text would be compared as a double
    if kind is Kind.ENUM:
        return column.type.members.index(value) + 1 if value else 0
    if kind is Kind.SET:
        labels = value.split(",") if value else []
        return sum(1 << column.type.members.index(label) for label in labels)
    if _is_sjis(column):
        return str(value).encode("shift_jis")
    return value


# --- the thread


class BlockingChunkReader(Protocol):
    """Reads chunks one after the other, on a thread of its own: ChunkReader, or another source's."""

    def read_chunk(self, request: ReadChunk, /) -> ChunkRead | ChunkFailed | ChunkRefused: ...
    def close(self) -> None: ...


class BackgroundChunkReader:
    """A thread that reads one chunk at a time, while the stream continues.

    `submit` a ReadChunk and poll for the answer. `poll_answer` raises the errors of `read_chunk`.
    """

    def __init__(self, reader: BlockingChunkReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._requests: queue.SimpleQueue[ReadChunk | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[ChunkRead | ChunkFailed | ChunkRefused | BaseException] = (
            queue.SimpleQueue()
        )
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run_reads, name="snapshot", daemon=True)
        self._thread.start()

    def submit(self, request: ReadChunk) -> None:
        self._requests.put(request)

    def poll_answer(self) -> ChunkRead | ChunkFailed | ChunkRefused | None:
        """Return the next answer, or None."""
        try:
            answer = self._answers.get_nowait()
        except queue.Empty:
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """Stop; waits for a SELECT in flight."""
        self._closed.set()
        self._requests.put(None)
        self._thread.join()
        self._reader.close()

    def _run_reads(self) -> None:
        while (request := self._requests.get()) is not None:
            self._closed.wait(max(0.0, request.not_before - self._clock()))
            if self._closed.is_set():
                return
            try:
                answer: ChunkRead | ChunkFailed | ChunkRefused | BaseException = self._reader.read_chunk(
                    request
                )
            except Exception as error:  # noqa: BLE001 - raised again in the thread that polls
                answer = error
            if isinstance(answer, ChunkFailed):
                name = f"{request.table.db}.{request.table.name}"
                _log.warning("chunk not readable", table=name, reason=answer.reason)
            self._answers.put(answer)
