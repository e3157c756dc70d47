"""The source with a binlog: MySQL and MariaDB, which differ only in their descriptions
(producer/sources/mysql, producer/sources/mariadb).
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from producer.binlog_format.large_rows import CutBody, CutValue
from producer.binlog_format.log_event import BinlogEvent
from producer.checks.binlog_server import check_binlog_server, require_server
from producer.checks.source_hosts import check_hosts
from producer.decoders.envelope import SourceContext
from producer.definitions.logged_statements import ImpactAnalyzer
from producer.definitions.proof import DefinitionReader
from producer.definitions.scan import make_statement_scan
from producer.errors import CaptureError
from producer.snapshot.reader import BackgroundChunkReader, ChunkReader, make_connection_opener
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.host_watch import HostWatch
from producer.sources.binlog.hosts import ask_hosts, identify_host, select_server
from producer.sources.binlog.large_packets import make_file_opener
from producer.sources.binlog.proven_log import ProvenLog, log_beginning, read_timed_end, resume_proven_log
from producer.sources.binlog.server_switch import complete_gtids, resume_other_log
from producer.sources.binlog.xa_recover import read_recovered_xa
from producer.sources.catalog import Catalog, get_flavour, open_catalog
from producer.sources.changes import LogStart, TimedEnd
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.protocols import SourceCheckResult, SourceDatabase
from producer.sources.source_session import connect_settings, source_errors
from producer.sources.survey import ExaminedTable
from producer.tables import TableName
from schemas.config.model import Config, SourceConfig
from schemas.table.names import NameRules
from schemas.wire.position import LogPoint
from schemas.wire.records import StoredPosition

_HEAD = struct.Struct("<BIIIQQI")
_BUFFER = 1 << 20


class SpillFile:
    """The events of one large transaction, in order, in a file without a name, with mode 0600, which ends
    with the process. `append` and iterating raise OSError (no room left).
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER)  # noqa: SIM115 - it lives as long as this does
        self._log = ""
        self._count = 0
        self._cut: dict[int, tuple[CutValue, ...]] = {}  # by the number of the event

    def append(self, event: BinlogEvent) -> None:
        self._log = event.file
        if isinstance(event.body, CutBody):
            self._cut[self._count] = event.body.cut
        self._count += 1
        self._file.write(
            _HEAD.pack(
                event.type,
                event.timestamp,
                event.server_id,
                event.flags,
                event.start,
                event.end,
                len(event.body),
            )
        )
        self._file.write(event.body)

    def __iter__(self) -> Iterator[BinlogEvent]:
        """Yield the events, once; the disk space is freed afterwards."""
        self._file.seek(0)
        number = 0
        while head := self._file.read(_HEAD.size):
            kind, timestamp, server_id, flags, start, end, size = _HEAD.unpack(head)
            body = self._file.read(size)
            if (cut := self._cut.get(number)) is not None:
                body = CutBody.build(body, cut)
            number += 1
            yield BinlogEvent(kind, timestamp, server_id, flags, self._log, start, end, body)
        self.close()

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


def make_spill_factory(folder: Path) -> Callable[[], SpillFile]:
    """Return a function that creates a SpillFile in `folder`, and the folder if it is missing."""

    def make() -> SpillFile:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return SpillFile(folder)

    return make


class LiveCatalog:
    """The source's catalog, on a connection that is alive."""

    def __init__(self, source: SourceConfig) -> None:
        self._source = source
        self._open: Catalog | None = None

    def __call__(self) -> Catalog:
        """Return the catalog, on a new connection if the last one is lost.

        Raises TransientSourceError, SourceRefusedError.
        """
        with source_errors():
            if self._open is not None and not self._open.session.alive:
                self.close()
            if self._open is None:
                self._open = open_catalog(self._source)
        return self._open

    @contextmanager
    def open_catalog(self) -> Iterator[Catalog]:
        """Provide the catalog for queries, and translate its driver's errors."""
        catalog = self()
        with source_errors():
            yield catalog

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class BinlogTables:
    """The tables of a source with a binlog: `SourceTables` of producer/sources/protocols.py."""

    def __init__(self, catalog: LiveCatalog) -> None:
        self._catalog = catalog

    @property
    def names(self) -> NameRules:
        with self._catalog.open_catalog() as catalog:
            return catalog.tables.names

    def list_table_names(self, patterns: Sequence[str]) -> list[TableName]:
        with self._catalog.open_catalog() as catalog:
            return catalog.tables.list_table_names(patterns)

    def examine_tables(self, names: Collection[TableName]) -> dict[TableName, ExaminedTable]:
        with self._catalog.open_catalog() as catalog:
            return catalog.tables.examine_tables(names)


class BinlogSource:
    """A source with a binlog: `SourceDatabase` of producer/sources/protocols.py, which documents the
    methods."""

    tables: BinlogTables
    definitions: DefinitionReader

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._section = section = config.sources[name]
        self._place = f"source {name}"
        self._flavour = get_flavour(section)
        self.connector = self._flavour.type
        self._watch: HostWatch | None = None
        self._beat: Callable[[], None] = lambda: None
        self._use_server(section.list_servers()[0])

    def _use_server(self, server: SourceConfig) -> None:
        """Read this server from now on. Nothing is connected yet."""
        self._source = server
        self._catalog = LiveCatalog(server)
        self.tables = BinlogTables(self._catalog)
        open_file = make_file_opener(self._config.state_dir / "spill")
        self._log = ProvenLog(connect_settings(server), self._find_current_file, open_file)
        # Its knowledge of the log outlives runs of capture.
        self._scan = make_statement_scan(server, open_file)
        self.definitions = DefinitionReader(server, self._catalog, self._scan)

    def _choose_server(self) -> None:
        """Choose among `hosts` the server to read. Raises SourceRefusedError, TransientSourceError."""
        if not self._section.hosts:
            return
        server = select_server(self._section)
        if (server.host, server.port) != (self._source.host, self._source.port):
            self.close()
            self._use_server(server)

    # --- checks

    def check_source(self) -> SourceCheckResult:
        if not self._section.hosts:
            return check_binlog_server(self._source, self._place)
        found = check_hosts(self._section, self._place)
        with contextlib.suppress(CaptureError):  # a finding already
            self._choose_server()
        return found

    def require_usable(self) -> None:
        self._choose_server()
        require_server(self._source, self._place)

    # --- a run of capture

    def open_source(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        with self._catalog.open_catalog() as catalog:
            self._scan.index.set_name_comparison(catalog.tables.names.normalize_table)
            own = identify_host(catalog)
        self.definitions = DefinitionReader(self._source, self._catalog, self._scan, beat)
        if self._section.hosts:
            servers = self._section.list_servers()
            self._watch = HostWatch(lambda: ask_hosts(servers), own)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        self._catalog.close()

    # --- identity, and the log

    def find_log_end(self) -> LogStart:
        with self._catalog.open_catalog() as catalog:
            start = log_beginning(catalog, self._log)
            if not self._section.hosts:
                return start
            identity = complete_gtids(catalog, self._log, start, connect_settings(self._source))
            return start._replace(identity=identity)

    def resume_log(self, stored: StoredPosition) -> LogStart:
        with self._catalog.open_catalog() as catalog:
            if self._section.hosts and not stored.identity.is_same_server(catalog.server.read_identity()):
                return resume_other_log(catalog, self._log, stored, self._beat)
            return resume_proven_log(catalog, self._log, stored)

    def open_log(self, record: StoredPosition, captured: Callable[[str, str], bool]) -> BinlogLog:
        spill = self._source.large_transactions == "spill"
        folder = self._config.state_dir / "spill"
        assembly = (
            TransactionBuffer(captured, spill=make_spill_factory(folder))
            if spill
            else TransactionBuffer(captured)
        )
        with self._catalog.open_catalog() as catalog:
            recovered = read_recovered_xa(catalog)
        watch, make_order = self._watch, self._flavour.failover.make_order
        order = make_order(record.identity.gtid_set or "") if make_order and self._section.hosts else None
        return BinlogLog(
            self._flavour, record, captured, self._log.open_at, assembly, recovered=recovered,
            require_server=None if watch is None else watch.require_same_server, order=order,
        )  # fmt: skip

    def parse_gtids(self, text: str | None) -> GtidSet:
        return self._flavour.captured_gtids(text or "")

    def _find_current_file(self) -> str | None:
        with self._catalog.open_catalog() as catalog:
            end = catalog.server.log_end()
        return end and end[0]

    def read_timed_end(self) -> TimedEnd | None:
        with self._catalog.open_catalog() as catalog:
            end = read_timed_end(catalog)
        if end is not None and self._watch is not None and not self._watch.has_confirmed_role():
            return end._replace(ts_ms=0)  # the log may have ended, and another one continues it
        return end

    def build_context(self, name: str, epoch: int, gen: int) -> SourceContext:
        with self._catalog.open_catalog() as catalog:
            return SourceContext(
                connector=self.connector, form=self._flavour.table_map, name=name, epoch=epoch, gen=gen,
                charsets=catalog.server.read_charsets(),
            )  # fmt: skip

    # --- tables

    def find_nontransactional_engine(self, name: TableName) -> str | None:
        with self._catalog.open_catalog() as catalog:
            return catalog.tables.find_nontransactional_engine(name)

    def estimate_rows(self, name: TableName) -> int | None:
        with self._catalog.open_catalog() as catalog:
            return catalog.tables.estimate_rows(name)

    def make_impact_finder(self, objects_changed: Callable[[], LogPoint]) -> ImpactAnalyzer:
        return ImpactAnalyzer(self.definitions, self._catalog, objects_changed, self.tables.names)

    # --- snapshots

    def open_reader(self, started: LogPoint) -> BackgroundChunkReader:
        settings = connect_settings(self._source)
        visibility = self._flavour.visibility(settings)
        return BackgroundChunkReader(ChunkReader(make_connection_opener(settings), visibility, started))


def make_binlog_source(config: Config, name: str) -> SourceDatabase:
    """Return the source `name` of the configuration; it connects when it is used."""
    return BinlogSource(config, name)
