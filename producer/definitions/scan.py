"""Scans a source's log for statements, each range once, on a connection of its own.

The known range outlives the runs of capture in a process, so a scan that takes longer than the server
keeps an unread stream open does not begin again. The connection is closed once a range is read; the next
scan begins where it ended.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing

import structlog

from producer.definitions.index import StatementIndex
from producer.definitions.statement_search import StatementWalker
from producer.errors import TransientSourceError
from producer.sources.binlog.binlog_dump import DumpConnection, choose_dump_start
from producer.sources.binlog.large_packets import OpenFile, open_temporary_file
from producer.sources.binlog.log_stream import DUMP_HEARTBEAT_S, SILENCE
from producer.sources.source_session import connect_settings, source_errors
from schemas.config.model import SourceConfig
from schemas.wire.position import LogPoint

_log = structlog.get_logger("capture")
_LOG_AFTER_S = 5.0
_WAIT = 0.2
OpenDump = Callable[[str, int], DumpConnection]
"""(file name, offset) → a dump that begins there."""


class StatementScan:
    """The scan of a source's log. A process has one for each source."""

    def __init__(
        self, dump: OpenDump, index: StatementIndex, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.index = index
        self.read_bytes = 0  # so far, of all ranges
        self._dump = dump
        self._clock = clock
        self._server: object = None

    def select_server(self, server: object) -> None:
        """Select the server for the scan. The index of another server is forgotten."""
        if server != self._server:
            self.index.clear_index()
            self._server = server

    def cover_range(
        self, begin: LogPoint, end: LogPoint, names: FileNames, server_id: int, beat: Callable[[], None]
    ) -> None:
        """Add the statements in [begin, end) to the index.

        `server_id`: the server from which the dump must come. `beat`: called repeatedly meanwhile; may
        raise. Raises the errors of a stream.
        """
        for low, high in self.index.list_missing_ranges(begin, end):
            self._read_range(low, high, names, server_id, beat)

    def _read_range(
        self, low: LogPoint, high: LogPoint, names: FileNames, server_id: int, beat: Callable[[], None]
    ) -> None:
        began = last_read_at = self._clock()
        received = 0
        start = choose_dump_start(low[1])
        with closing(self._open_dump(names(low[0]), start)) as packets:
            walker = StatementWalker(names(low[0]), start, checksum=packets.checksum)
            while walker.point < high:
                batch = _read_packets(packets)
                for found in walker.read_statements(batch):
                    if found.at >= low:
                        self.index.add_statement(found.at, found.tables)
                _require_server(walker, server_id)
                self.index.mark_covered(low, max(low, walker.point))
                self.read_bytes += sum(map(len, batch))
                now = self._clock()
                if batch or received != packets.received_bytes:
                    last_read_at, received = now, packets.received_bytes
                if now - last_read_at > SILENCE:
                    raise TransientSourceError(
                        f"the source was silent for {SILENCE:.0f} s while its log was scanned for statements"
                    )
                beat()
        took = self._clock() - began
        if took > _LOG_AFTER_S:
            _log.info(
                "log scanned for statements",
                from_=f"{names(low[0])}:{low[1]}",
                to=f"{names(high[0])}:{high[1]}",
                seconds=round(took, 1),
            )

    def _open_dump(self, file: str, pos: int) -> DumpConnection:
        with source_errors():
            return self._dump(file, pos)


FileNames = Callable[[int], str]
"""Returns the name of the log file with a number."""


def _read_packets(packets: DumpConnection) -> list[bytes]:
    with source_errors():
        return packets.read_packets(_WAIT)


def _require_server(walker: StatementWalker, server_id: int) -> None:
    if walker.server_id not in (None, server_id):
        raise TransientSourceError(
            f"the log is from server {walker.server_id}, but the catalog from server {server_id}: the "
            "source's address leads to different servers"
        )


def make_statement_scan(source: SourceConfig, open_file: OpenFile = open_temporary_file) -> StatementScan:
    """Return the scan of a source's log; each of its dumps has a server id of its own.

    `open_file`: creates the file of an event that is too large for memory.
    """
    settings = connect_settings(source)

    def dump(file: str, pos: int) -> DumpConnection:
        server_id = random.randrange(1 << 30, 1 << 31)  # noqa: S311 - must differ from other dumps, nothing more
        return DumpConnection(
            settings,
            server_id=server_id,
            file=file,
            pos=pos,
            heartbeat=DUMP_HEARTBEAT_S,
            open_file=open_file,
        )

    return StatementScan(dump, StatementIndex())


def derive_file_names(example: str) -> FileNames:
    """Return the names of the series of log files to which `example` belongs."""
    stem, _, digits = example.rpartition(".")
    return lambda number: f"{stem}.{number:0{len(digits)}d}"
