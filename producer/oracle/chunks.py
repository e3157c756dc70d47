"""Reads chunks of a table beside the log. A SELECT of Oracle sees one moment, so that LOW and HIGH are numbers of polls around it."""

from __future__ import annotations

from collections.abc import Callable

from producer.errors import SourceRefusedError, TableStoppedError, TransientSourceError
from producer.oracle.session import OracleSession
from producer.sources.chunk_data import ChunkFailed, ChunkRead, ChunkRefused, Low, ReadChunk
from producer.sources.oracle import sql
from producer.sources.oracle.following import Following
from producer.sources.oracle.forms import bound_key, expressions, key_binds, row_of
from producer.sources.oracle.mlog import high_of
from producer.tables import dotted
from schemas.findings import copy_again
from schemas.wire.position import LogPoint


class OracleChunks:
    """`done`: every poll of a lower number has been read; `begun`: the number of the last poll that has begun. Asked from any thread."""

    def __init__(
        self, session: OracleSession, following: Following, done: Callable[[], int], begun: Callable[[], int]
    ) -> None:
        self._session, self._following = session, following
        self._done, self._begun = done, begun

    def close(self) -> None:
        self._session.close()

    def read(self, request: ReadChunk) -> ChunkRead | ChunkFailed | ChunkRefused:
        """Read a chunk. Raises SourceRefusedError, and TableStoppedError for a value that cannot be read."""
        name = (request.table.db, request.table.name)
        if request.where is not None:
            return ChunkRefused(request.request, "a source of type oracle takes no condition yet")
        logged = self._following.now(name)
        if logged is None or logged.table != request.table:
            return ChunkFailed(request.request, "the table is another one now")
        behind = request.after is not None
        statement = sql.chunk(
            name, expressions(logged), key_binds(logged), request.limit, None, behind=behind
        )
        binds = sql.chunk_binds(bound_key(logged, request.after)) if request.after is not None else []
        low: LogPoint = (0, self._done())
        try:
            rows = self._session.rows(statement, binds)
            read = list(map(row_of(logged), rows))
        except TransientSourceError as error:
            return ChunkFailed(request.request, str(error))
        except SourceRefusedError as error:
            if not error.args or "ORA-00904" not in str(error):
                raise
            return ChunkFailed(request.request, str(error))  # altered since; the next look tells
        except (ValueError, ArithmeticError) as error:
            reason = f"a value of {dotted(name)} cannot be read ({error})"
            raise TableStoppedError(frozenset([name]), "value", reason, copy_again(*name)) from error
        return ChunkRead(request.request, read, Low(low, None), (0, high_of(self._begun())))
