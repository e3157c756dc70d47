"""Opens the log at the position of capture, only if it is the log that was captured (rules:
producer/sources/binlog/log_proof.py).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog

from producer.errors import SourceRefusedError
from producer.sources.binlog.binlog_dump import BEGIN
from producer.sources.binlog.large_packets import OpenFile, open_temporary_file
from producer.sources.binlog.log_proof import (
    NO_FILE,
    build_other_history_error,
    build_proofs,
    find_exact_proof,
    select_remaining_proofs,
)
from producer.sources.binlog.log_stream import LogStream, NoEventError, open_stream
from producer.sources.binlog.unlogged_xa import require_logged_xa
from producer.sources.catalog import Catalog
from producer.sources.changes import LogFile, LogStart, TimedEnd
from producer.start.positions import check_gtids, check_log, require_recorded_server
from schemas.io.server_errors import is_access_denied
from schemas.wire.records import LogProof, StoredPosition

_log = structlog.get_logger("capture")


class _FilePurgedError(SourceRefusedError):
    """The file of a proof was purged."""


def log_beginning(catalog: Catalog, log: ProvenLog) -> LogStart:
    """Return the log's end, at which capture begins. Raises SourceRefusedError."""
    identity = catalog.server.read_identity()  # before the end: the log has all that it lists up to there
    require_logged_xa(catalog, identity.version, None)
    end = read_timed_end(catalog)
    if end is None:
        raise SourceRefusedError("the source has no binary log", "set log_bin and restart it")
    return LogStart(end.file, end.pos, identity, log.read_head_proof(end.file), end.ts_ms)


def read_timed_end(catalog: Catalog) -> TimedEnd | None:
    """Return the log's end; None: there is no binary log. Raises pymysql errors."""
    ts_ms = catalog.server.read_time_ms()  # before the end: the log has all commits of that time up to there
    end = catalog.server.log_end()
    return None if end is None else TimedEnd(*end, ts_ms)


def resume_proven_log(catalog: Catalog, log: ProvenLog, stored: StoredPosition) -> LogStart:
    """Return the place where the log continues, if it is the one that was captured up to `stored`.

    Raises SourceRefusedError. A server with a log that is ahead counts a transaction as executed later
    than its log shows it (much later with semi-synchronous replication). So if the very event at the
    position is proven, missing GTIDs may still be committing.
    """
    identity = catalog.server.read_identity()
    require_recorded_server(stored, identity)
    require_logged_xa(catalog, identity.version, stored.file)
    contained = catalog.server.has_gtids(stored, identity)
    if not contained and not catalog.session.flavour.runs_ahead:
        check_gtids(stored, identity, contained=False)
    check_log(stored, files := catalog.server.log_files())
    proofs = log.require_proofs(stored, files)
    check_gtids(
        stored,
        identity,
        contained=contained or find_exact_proof(stored.proof, stored.file, stored.pos) is not None,
    )
    identity = msgspec.structs.replace(identity, gtid_set=stored.identity.gtid_set)
    return LogStart(stored.file, stored.pos, identity, proofs, stored.ts_ms)


class ProvenLog:
    """The log of a source. `settings`: those of pymysql.connect. `find_current_file`: returns the file that
    the server writes now.

    All methods raise like `LogStream.read_events`.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        find_current_file: Callable[[], str | None] = lambda: None,
        open_file: OpenFile = open_temporary_file,
    ) -> None:
        self._settings = settings
        self._find_current_file = find_current_file
        self._open_file = open_file

    def open_at(self, proofs: Sequence[LogProof], file: str, pos: int) -> LogStream:
        """Return the log from `file`, `pos` on, proven: by this very connection if one of `proofs` ends
        there.

        Raises SourceRefusedError for another history.
        """
        proof = find_exact_proof(proofs, file, pos)
        if proof is not None:
            return self._open_proven(proof)
        for other in proofs:
            with contextlib.suppress(_FilePurgedError):  # purged since the start
                self._open_proven(other).close()
        return self._open_stream(file, pos)

    def require_proofs(self, stored: StoredPosition, files: Sequence[LogFile]) -> tuple[LogProof, ...]:
        """Read the stored proofs' events again, and return the proofs in files that the source (`files`)
        still has.

        Raises SourceRefusedError for another history, and if no proof is left. A record of a version
        that stored no proof is accepted with a warning; from then on its file's first event is the
        proof.
        """
        if not stored.proof:
            _log.warning(
                "stored position has no proof of the log", source=stored.source, file=stored.file,
                pos=stored.pos,
                reason="until the next record, only the source's uuid, GTIDs and size show "
                "whether it was reset or restored",
            )  # fmt: skip
            return self.read_head_proof(stored.file)
        left = select_remaining_proofs(stored.proof, files[0].name)
        for proof in left:
            self._open_proven(proof).close()
        return tuple(left)

    def read_head_proof(self, file: str) -> tuple[LogProof, ...]:
        """Return the proof by the first event of `file`, which is the only one until an event is
        captured; empty if the file is.
        """
        stream = self._open_stream(file, BEGIN)
        try:
            return build_proofs([stream.read_first_event()])
        except NoEventError:
            return ()
        finally:
            stream.close()

    def _open_proven(self, proof: LogProof) -> LogStream:
        stream = self._open_stream(proof.file, proof.start)
        try:
            stream.require_proven_event(proof)
        except SourceRefusedError as error:
            stream.close()
            if error.__cause__ is None or is_access_denied(error.__cause__):
                raise  # the message is complete, or shows nothing about the log
            if NO_FILE in str(error).lower():
                raise _FilePurgedError.from_problem(error.problem) from error
            raise build_other_history_error(
                f"{proof.file}:{proof.start}", str(error.__cause__.args[-1])
            ) from error
        except BaseException:
            stream.close()
            raise
        return stream

    def _open_stream(self, file: str, pos: int) -> LogStream:
        server_id = random.randrange(1 << 30, 1 << 31)  # noqa: S311 - must differ from other dumps, nothing more
        return open_stream(
            self._settings,
            server_id=server_id,
            file=file,
            pos=pos,
            find_current_file=self._find_current_file,
            open_file=self._open_file,
        )
