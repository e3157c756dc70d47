"""Oracle as a source: implements `SourceDatabase` of producer/sources/protocols.py, which documents the
methods (docs/adr/0028).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from producer.decoders.envelope import SourceContext
from producer.errors import SourceRefusedError
from producer.snapshot.reader import BackgroundChunkReader
from producer.sources.changes import LogStart, TimedEnd
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.checks import check_oracle, require_oracle
from producer.sources.oracle.chunks import OracleChunkQueue, OracleChunkReader
from producer.sources.oracle.definitions import OracleDefinitions
from producer.sources.oracle.following import FollowedTables
from producer.sources.oracle.log import OracleLog, PollPace
from producer.sources.oracle.rows import FILE
from producer.sources.oracle.session import OracleDriver, OracleSession, load_oracle_driver
from producer.sources.protocols import ChunkQueue, SourceCheckResult, SourceDatabase
from producer.sources.survey import ExaminedTable
from producer.start.positions import require_recorded_server
from producer.tables import TableName
from schemas.config.model import Config, SourceConfig
from schemas.findings import START_OVER
from schemas.table.names import EXACT, NameRules
from schemas.wire.position import LogPoint
from schemas.wire.records import StoredPosition

_FIRST = 2


class OracleTables:
    """The tables of an Oracle source: `SourceTables`.

    Names are compared exactly: Oracle keeps them in upper case unless they were quoted.
    """

    names: NameRules = EXACT

    def __init__(self, catalog: OracleCatalog) -> None:
        self._catalog = catalog

    def list_table_names(self, patterns: Sequence[str]) -> list[TableName]:
        return self._catalog.list_table_names(patterns)

    def examine_tables(self, names: Collection[TableName]) -> dict[TableName, ExaminedTable]:
        return {name: found for name, (found, _) in self._catalog.examine_tables(names).items()}


class OracleSource:
    """Oracle as a source.

    The poll and all queries of the loop share one connection; each reader of chunks has its own.
    """

    connector = "oracle"

    def __init__(self, source: SourceConfig, name: str, driver: OracleDriver, pace: PollPace) -> None:
        self._source, self._place, self._driver, self._pace = source, f"source {name}", driver, pace
        self._session = OracleSession(driver)
        self._catalog = OracleCatalog(self._session)
        self._following = FollowedTables()
        self._log: OracleLog | None = None
        self.tables = OracleTables(self._catalog)
        self.definitions = OracleDefinitions(self._session, self._catalog, self._following, pace.wait)

    # --- checks

    def check_source(self) -> SourceCheckResult:
        return check_oracle(self._session, self._catalog, self._place, self._source.user, self._source.tables)

    def require_usable(self) -> None:
        require_oracle(self._catalog, self._place, self._source.user)

    # --- a run of capture

    def open_source(self, beat: Callable[[], None]) -> None:
        """Forget the tables of the run before; the record determines which are followed."""
        self._following.end_capture()

    def close(self) -> None:
        self._session.close()

    # --- identity, and the log

    def find_log_end(self) -> LogStart:
        ts_ms, _ = self._catalog.read_server_time()
        return LogStart(FILE, _FIRST, self._catalog.read_identity(), (), ts_ms)

    def resume_log(self, stored: StoredPosition) -> LogStart:
        now = self._catalog.read_identity()
        require_recorded_server(stored, now)
        if stored.file != FILE:
            raise SourceRefusedError(
                "the source was captured as another kind of database (its stored "
                f"position is in {stored.file})",
                START_OVER,
            )
        self._following.restore_tables(stored.proof)
        return LogStart(stored.file, stored.pos, now, stored.proof, stored.ts_ms)

    def parse_gtids(self, text: str | None) -> GtidSet:
        del text  # an Oracle has no GTIDs
        return GtidSet()

    def open_log(self, record: StoredPosition, captured: Callable[[str, str], bool]) -> OracleLog:
        self._log = OracleLog(
            self._session, self._catalog, self.definitions, record, captured, pace=self._pace
        )
        return self._log

    def read_timed_end(self) -> TimedEnd | None:
        """Return where the last poll ended: a polled log has no other end."""
        log = self._require_log()
        return TimedEnd(*log.point, log.complete_ms)

    def build_context(self, name: str, epoch: int, gen: int) -> SourceContext:
        return SourceContext(connector=self.connector, name=name, epoch=epoch, gen=gen)

    # --- tables

    def find_nontransactional_engine(self, name: TableName) -> str | None:
        return None  # tables without transactions do not exist

    def estimate_rows(self, name: TableName) -> int | None:
        return self._catalog.estimate_rows(name)

    def make_impact_finder(self, objects_changed: Callable[[], LogPoint]) -> Any:
        return None  # not used: what a look finds has its verdicts

    # --- snapshots

    def open_reader(self, started: LogPoint) -> ChunkQueue:
        log = self._require_log()
        chunks = OracleChunkReader(
            OracleSession(self._driver), self._following, lambda: log.point[1], lambda: log.begun_poll
        )
        return OracleChunkQueue(self.make_chunk_queue(chunks), self._following.get_brought_poll)

    def _require_log(self) -> OracleLog:
        if self._log is None:
            raise ValueError("the log is not open")
        return self._log

    def make_chunk_queue(self, chunks: OracleChunkReader) -> ChunkQueue:
        """Return a queue that reads chunks alongside the loop."""
        return BackgroundChunkReader(chunks)


def make_oracle_source(config: Config, name: str) -> SourceDatabase:
    """Return the source `name` of the configuration; it connects when it is used."""
    source = config.sources[name]
    return OracleSource(source, name, load_oracle_driver(source), PollPace())
