"""The source with a binlog: MySQL and MariaDB, which differ only in their descriptions
(producer/sources/mysql, producer/sources/mariadb).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from producer.checks.binlog_server import check_binlog_server, require_server
from producer.decoders.context import SourceContext
from producer.definitions.logged_statements import ImpactAnalyzer
from producer.definitions.proof import DefinitionReader
from producer.definitions.scan import make_statement_scan
from producer.snapshot.reader import BackgroundChunkReader, ChunkReader, make_connection_opener
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.binlog_log import BinlogLog
from producer.sources.binlog.flavours import get_flavour
from producer.sources.binlog.proven_log import ProvenLog, log_beginning, resume_proven_log
from producer.sources.binlog.spill import make_spill_factory
from producer.sources.catalog import Catalog, open_catalog
from producer.sources.changes import LogStart
from producer.sources.protocols import SourceCheckResult, SourceDatabase
from producer.sources.source_errors import source_errors
from producer.sources.source_session import connect_settings
from producer.sources.survey import ExaminedTable
from producer.tables import TableName
from schemas.config.model import Config, SourceConfig
from schemas.table.names import NameRules
from schemas.wire.position import LogPoint
from schemas.wire.records import StoredPosition


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
    """A source with a binlog: `SourceDatabase` of producer/sources/protocols.py, which documents the methods."""

    def __init__(self, config: Config, name: str) -> None:
        self._config = config
        self._source = source = config.sources[name]
        self._place = f"source {name}"
        self._flavour = get_flavour(source)
        self.connector = self._flavour.type
        self._catalog = LiveCatalog(source)
        self.tables = BinlogTables(self._catalog)
        self._log = ProvenLog(connect_settings(source))
        # Its knowledge of the log outlives runs of capture.
        self._scan = make_statement_scan(source)
        self.definitions = DefinitionReader(source, self._catalog, self._scan)

    # --- checks

    def check_source(self) -> SourceCheckResult:
        return check_binlog_server(self._source, self._place)

    def require_usable(self) -> None:
        require_server(self._source, self._place)

    # --- a run of capture

    def open_source(self, beat: Callable[[], None]) -> None:
        with self._catalog.open_catalog() as catalog:
            self._scan.index.set_name_comparison(catalog.tables.names.normalize_table)
        self.definitions = DefinitionReader(self._source, self._catalog, self._scan, beat)

    def close(self) -> None:
        self._catalog.close()

    # --- identity, and the log

    def find_log_end(self) -> LogStart:
        with self._catalog.open_catalog() as catalog:
            return log_beginning(catalog, self._log)

    def resume_log(self, stored: StoredPosition) -> LogStart:
        with self._catalog.open_catalog() as catalog:
            return resume_proven_log(catalog, self._log, stored)

    def open_log(self, record: StoredPosition, captured: Callable[[str, str], bool]) -> BinlogLog:
        spill = self._source.large_transactions == "spill"
        folder = self._config.state_dir / "spill"
        assembly = (
            TransactionBuffer(captured, spill=make_spill_factory(folder))
            if spill
            else TransactionBuffer(captured)
        )
        return BinlogLog(self._flavour, record, captured, self._log.open_at, assembly)

    def log_end(self) -> tuple[str, int] | None:
        with self._catalog.open_catalog() as catalog:
            return catalog.server.log_end()

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
