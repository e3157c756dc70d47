"""Real MariaDB servers, one of which replicates the other by GTID, promoted and demoted by an operator."""

from __future__ import annotations

from typing import Any

from pymysql.cursors import DictCursor

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import MariaDB
from producer.sources.mariadb.mariadb_gtids import MariadbGtidSet
from schemas.wire.records import StoredPosition
from tests.kits.waiting import until
from tests.servers.mysql_replicas import ReplicatedServer

_STRICT = ["--gtid-strict-mode=ON", "--log-slave-updates=ON", "--skip-slave-start", "--read-only=ON"]


class ReplicatedMariaDB(ReplicatedServer, MariaDB):
    """A MariaDB that can replicate another one, and be promoted. It starts read-only."""

    make_set = MariadbGtidSet

    def __init__(self, **options: Any) -> None:
        super().__init__(durable=False, extra=[*_STRICT, *options.pop("extra", [])], **options)

    @property
    def executed(self) -> str:
        return str(self.execute("SELECT @@global.gtid_binlog_state")[0][0] or "")

    @property
    def applied(self) -> str:
        """These, and those of domains that were deleted."""
        applied = str(self.execute("SELECT @@global.gtid_slave_pos")[0][0] or "")
        return ",".join(each for each in (applied, self.executed) if each)

    def is_recorded(self, record: StoredPosition) -> bool:
        return record.identity.server_id == self.server_id

    def replicate(self, primary: MySQLFamily) -> None:
        self.refuse_writes()
        own = str(self.execute("SELECT @@global.gtid_binlog_pos")[0][0] or "")
        if own:
            self.execute("SET GLOBAL gtid_slave_pos = %s", (own,))
        self.execute(
            f"CHANGE MASTER TO MASTER_HOST = '{primary.host}', MASTER_PORT = {primary.port}, "
            "MASTER_USER = 'root', MASTER_PASSWORD = '', MASTER_USE_GTID = slave_pos, "
            "MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0"
        )
        self.execute("START SLAVE")

    def stop_replicating(self) -> None:
        self.execute("STOP SLAVE")

    def accept_writes(self) -> None:
        self.allow_writes()

    def allow_writes(self) -> None:
        self.execute("SET GLOBAL read_only = OFF")

    def refuse_writes(self) -> None:
        self.execute("SET GLOBAL read_only = ON")

    def promote(self) -> None:
        self.execute("STOP SLAVE IO_THREAD")
        until(self.has_applied_all, f"replica at port {self.port} has applied what it received")
        self.execute("STOP SLAVE")
        self.execute("RESET SLAVE ALL")
        self.allow_writes()

    def read_status(self) -> list[dict[str, Any]]:
        """Return the rows of SHOW ALL SLAVES STATUS."""
        with self.connect(cursorclass=DictCursor) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW ALL SLAVES STATUS")
            return [dict(row) for row in cursor.fetchall()]

    def purge_log(self) -> None:
        self.execute("SET GLOBAL slave_connections_needed_for_purge = 0")
        super().purge_log()

    def has_applied_all(self) -> bool:
        executed = MariadbGtidSet.parse(self.applied)
        return all(
            executed.covers(MariadbGtidSet.parse(str(row["Gtid_IO_Pos"] or ""))) for row in self.read_status()
        )
