"""What capture asks of a model's source beside its log, and the log as it opens it: ProvenLog and LogStream
are the product's."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from producer.decoders.envelope import SourceContext
from producer.definitions.proof import DefinitionReader
from producer.sources.binlog import proven_log
from producer.sources.binlog.log_stream import LogStream
from producer.sources.binlog.proven_log import ProvenLog, log_beginning, resume_proven_log
from producer.sources.changes import LogFile, LogStart, TimedEnd
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR, MySQLVisibility
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.server_state import AnsweringServer
from producer.sources.survey import MISSING, ExaminedTable
from producer.tables import TableName
from schemas.table.model import Table
from schemas.table.names import EXACT
from schemas.wire.records import Identity, StoredPosition
from tests.sim.binlog import Dump, file_name
from tests.sim.source import Session, Source, gtids_in
from tests.sim.wire import DB


class SimulatedServer:
    """The source as capture starts on it, and a connection to its catalogue."""

    names = EXACT

    definitions: DefinitionReader

    def __init__(self, source: Source, rng: random.Random, log: ProvenLog) -> None:
        self._source, self._rng, self._log = source, rng, log
        self.tables = self.server = self.session = self
        self.flavour = (
            replace(MYSQL_FLAVOUR, visibility=lambda _settings: MySQLVisibility(source.first_outside))
            if source.mysql
            else MARIADB_FLAVOUR
        )

    def list_table_names(self, _patterns: Sequence[str]) -> list[TableName]:
        self._others()
        return sorted((DB, table) for table in self._tables)

    def find_log_end(self) -> LogStart:
        port: Any = self
        return log_beginning(port, self._log)

    def resume_log(self, stored: StoredPosition) -> LogStart:
        port: Any = self
        return resume_proven_log(port, self._log, stored)

    def parse_gtids(self, text: str | None) -> GtidSet:
        return self.flavour.captured_gtids(text or "")

    def build_context(self, name: str, epoch: int, gen: int) -> SourceContext:
        kind = self.flavour
        return SourceContext(connector=kind.type, form=kind.table_map, name=name, epoch=epoch, gen=gen)

    def read_identity(self) -> Identity:
        source = self._source
        gtids = source.executed(source.visible) if source.mysql else f"0-1-{source.binlog.last_gtid}"
        return Identity(server_uuid=None, server_id=1, version="11.4.5", gtid_set=gtids or None)

    def read_timed_end(self) -> TimedEnd | None:
        port: Any = self
        return proven_log.read_timed_end(port)

    def read_time_ms(self) -> int:
        self._others()
        return self._source.now_ms

    def log_end(self) -> tuple[str, int]:
        self._others()
        number, pos = self._source.binlog.end
        return file_name(number), pos

    def log_files(self) -> list[LogFile]:
        return [LogFile(*each) for each in self._source.binlog.files]

    def examine_tables(self, names: Collection[TableName]) -> dict[TableName, ExaminedTable]:
        self._others()
        return {
            name: ExaminedTable(self._tables[name[1]], None) if name[1] in self._tables else MISSING
            for name in names
        }

    def has_gtids(self, stored: StoredPosition, now: Identity) -> bool:
        return self.flavour.has_gtids(self.run_query, stored.identity.gtid_set, now.gtid_set)

    def run_query(self, sql: str, arguments: Iterable[object] = ()) -> list[dict[str, Any]]:
        self._others()
        if "GTID_SUBSET" in sql:
            (stored,) = arguments
            return [{"inside": gtids_in(str(stored)) <= self._source.visible}]
        if "WAIT_FOR_EXECUTED_GTID_SET" in sql:
            number = int(str(next(iter(arguments))).rpartition(":")[2])
            while self._source.visible < number:
                self._source.show()
            return [{"late": 0}]
        if "FROM information_schema.tables" in sql:
            names = [("bank", "log"), *((DB, table) for table in self._tables)]
            return [{"db": db, "name": name, "kind": "BASE TABLE"} for db, name in names]
        if "FROM information_schema." in sql:  # triggers, views, routines, keys: there are none
            return []
        if sql.startswith("SET SESSION"):
            return []
        if sql.startswith("SELECT 1 FROM"):  # it waits for statements that are under way
            while self._source.visible < len(self._source.log):
                self._source.show()
            return []
        raise NotImplementedError(sql)

    def find_nontransactional_engine(self, _name: TableName) -> str | None:
        return None

    def estimate_rows(self, name: TableName) -> int | None:
        self._others()
        rows = self._source.seen.get(name[1])
        return None if rows is None else len(rows)

    def find_partitioning(self, _name: TableName) -> str | None:
        return ""

    def read_grants(self) -> list[str]:
        return ["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"]

    def read_variables(self) -> dict[str, str]:
        return {"gtid_mode": "ON"}

    def identify_server(self) -> AnsweringServer:
        return AnsweringServer("h:1", 1)

    @property
    def connection(self) -> Session:
        return Session(self._source, self._rng)

    @property
    def _tables(self) -> dict[str, Table]:
        """The definitions that it shows: a statement of MySQL's is in the log before."""
        return self._source.seen_defined if self._source.mysql else self._source.defined

    def _others(self) -> None:
        """Let others change the source between two questions."""
        while self._rng.random() < 0.3:
            self._source.world.source_step(self._source)


class Log(ProvenLog):
    """The source's log, proven and read by the product's code, a few events at a time."""

    def __init__(self, source: Source, rng: random.Random, clock: Callable[[], float]) -> None:
        super().__init__({})
        self._source, self._rng, self._clock = source, rng, clock

    def _open_stream(self, file: str, pos: int) -> LogStream:
        return LogStream(Dump(self._source.binlog, file, pos, self._rng), file, pos, self._clock)
