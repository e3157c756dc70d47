"""Reads chunks of a table alongside the log.

A SELECT of Oracle sees one moment, so LOW and HIGH are numbers of polls around it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from producer.errors import SourceRefusedError, TableStoppedError, TransientSourceError
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, LowWatermark, ReadChunk
from producer.sources.oracle import sql
from producer.sources.oracle.following import FollowedTables
from producer.sources.oracle.forms import (
    bind_key,
    list_column_expressions,
    list_key_binds,
    make_row_converter,
)
from producer.sources.oracle.mlog import build_high_watermark
from producer.sources.oracle.session import ALTERED, OracleSession, parse_error_number
from producer.sources.protocols import ChunkQueue
from producer.tables import TableName, format_table_name
from schemas.findings import format_copy_remedy
from schemas.wire.position import LogPoint

_NOT_OF_A_CONDITION = frozenset({
    0, 18, 20, 28, 60, 603, 604, 942, 1012, 1013, 1031, 1033, 1034, 1089, 1092, 1109, 1555, 1652, 2396, 2399,
    3113, 3114, 3135, 4021, 4031, 4036, 8103, 12170, 12514, 12516, 12519, 12520, 12528, 12537, 12541, 12547,
    12571, 22924,
})  # fmt: skip
"""Errors that do not depend on the statement: lost and killed connections, locks, time-outs, lack of
undo, memory or rights. 0: an error that has no number of the server.
"""
_BINDS = ("DPY-4008", "DPY-4009", "DPY-4010")
"""Errors of the driver, which takes `:name` in a condition for a bind without a value."""


def _answer_error(
    request: ReadChunk, error: TransientSourceError | SourceRefusedError
) -> ChunkFailed | ChunkRefused:
    """Return the outcome of an error: a refusal if a condition is the most likely cause, otherwise the
    chunk is read again.

    Raises `error` if a retry would not help.
    """
    cause = error.__cause__
    number = parse_error_number(cause) if cause is not None else 0
    if request.where is not None and (
        number not in _NOT_OF_A_CONDITION or any(each in str(error) for each in _BINDS)
    ):
        return ChunkRefused(request.request, str(cause))
    if isinstance(error, SourceRefusedError) and number != ALTERED:  # else a look decides
        raise error
    return ChunkFailed(request.request, str(error))


class OracleChunkReader:
    """Reads chunks. `done`: every poll of a lower number has been read.

    `begun`: the number of the last poll that has begun. Both are called from any thread.
    """

    def __init__(
        self,
        session: OracleSession,
        following: FollowedTables,
        done: Callable[[], int],
        begun: Callable[[], int],
    ) -> None:
        self._session, self._following = session, following
        self._done, self._begun = done, begun

    def close(self) -> None:
        self._session.close()

    def read_chunk(self, request: ReadChunk) -> ChunkRead | ChunkFailed | ChunkRefused:
        """Read a chunk.

        Raises SourceRefusedError, and TableStoppedError for a value that cannot be read.
        """
        name = (request.table.db, request.table.name)
        if request.where is not None and "\\" in request.where:
            return ChunkRefused(
                request.request, "a condition with a backslash is not taken: compare with CHR(92)"
            )
        logged = self._following.get_captured_table(name)
        if logged is None or logged.table != request.table:
            return ChunkFailed(request.request, "the table was replaced by another one")
        has_lower_bound = request.after is not None
        statement = sql.build_chunk_select(
            name,
            list_column_expressions(logged),
            list_key_binds(logged),
            request.limit,
            request.where,
            has_lower_bound=has_lower_bound,
        )
        binds = sql.build_chunk_binds(bind_key(logged, request.after)) if request.after is not None else []
        low: LogPoint = (0, self._done())
        try:
            rows = self._session.fetch_rows(statement, binds)
            read = list(map(make_row_converter(logged), rows))
        except (TransientSourceError, SourceRefusedError) as error:
            return _answer_error(request, error)
        except (ValueError, ArithmeticError) as error:
            reason = f"a value of {format_table_name(name)} cannot be read ({error})"
            raise TableStoppedError(frozenset([name]), "value", reason, format_copy_remedy(*name)) from error
        return ChunkRead(
            request.request, read, LowWatermark(low, None), (0, build_high_watermark(self._begun()))
        )


class OracleChunkQueue:
    """A `ChunkQueue` that returns a chunk when a poll that began after its SELECT has read all of its
    table's log.

    A poll may read only a part of a long log, and a row of a chunk must not be published before older
    rows of the log. `brought`: returns FollowedTable.brought. Answers come in the order of the requests.
    The numbers of requests do not distinguish them: a stopped table may be copied again before its
    answer arrives.
    """

    def __init__(self, chunks: ChunkQueue, brought: Callable[[TableName], int | None]) -> None:
        self._chunks, self._brought = chunks, brought
        self._asked: deque[TableName] = deque()
        self._held: ChunkRead | ChunkFailed | ChunkRefused | None = None

    def submit(self, request: ReadChunk) -> None:
        self._asked.append((request.table.db, request.table.name))
        self._chunks.submit(request)

    def poll_answer(self) -> ChunkRead | ChunkFailed | ChunkRefused | None:
        if self._held is None:
            self._held = self._get_answer()
        answer = self._held
        if answer is None or (isinstance(answer, ChunkRead) and self._must_wait(answer)):
            return None
        self._held = None
        self._asked.popleft()
        return answer

    def _get_answer(self) -> ChunkRead | ChunkFailed | ChunkRefused | None:
        """Return the next answer or None. Raises the reading's error, which was the answer then."""
        try:
            return self._chunks.poll_answer()
        except Exception:
            self._asked.popleft()
            raise

    def _must_wait(self, answer: ChunkRead) -> bool:
        brought = self._brought(self._asked[0])
        return brought is not None and brought < answer.high[1]

    def close(self) -> None:
        self._chunks.close()
