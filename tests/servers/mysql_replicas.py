"""Real MySQL servers of which one replicates the other, as an operator promotes and demotes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import MySQL
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.wire.records import StoredPosition
from tests.kits.waiting import until

_SEMI_SYNC = ["--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so"]
_WAITS = (
    "SET GLOBAL rpl_semi_sync_source_enabled = ON, rpl_semi_sync_source_timeout = 600000, "
    "rpl_semi_sync_source_wait_no_replica = OFF"
)


class ReplicatedServer(MySQLFamily, ABC):
    """A server that can replicate another one, and be promoted. `semi_sync`: commits wait for a replica."""

    make_set: ClassVar[type[GtidSet]] = GtidSet
    semi_sync = False

    @property
    @abstractmethod
    def executed(self) -> str:
        """The GTIDs of what it has executed."""

    @abstractmethod
    def is_recorded(self, record: StoredPosition) -> bool:
        """Whether a position is of this server."""

    @abstractmethod
    def replicate(self, primary: MySQLFamily) -> None:
        """Become a read-only replica of `primary`."""

    @abstractmethod
    def stop_replicating(self) -> None:
        """Receive and apply nothing more for now."""

    @abstractmethod
    def accept_writes(self) -> None:
        """Be the primary."""

    @abstractmethod
    def allow_writes(self) -> None: ...
    @abstractmethod
    def refuse_writes(self) -> None: ...
    @abstractmethod
    def promote(self) -> None:
        """Apply what has arrived, and become the primary."""

    def replace_it(self) -> Self:
        """Return an empty server in the place of this one, which is closed. A replica leaves out what has its
        own server_id, so it has another one."""
        return type(self)(port=self.port, server_id=self.server_id + 1)

    def purge_log(self) -> None:
        """Purge all files of the log but the newest."""
        self.execute("FLUSH BINARY LOGS")
        newest = self.execute("SHOW BINARY LOGS")[-1][0]

        def purge() -> bool:  # a file may be needed for a recovery for a moment
            self.execute(f"PURGE BINARY LOGS TO '{newest}'")
            return bool(self.execute("SHOW BINARY LOGS")[0][0] == newest)

        until(purge, f"{newest} is the only file of the log")

    def has_all_of(self, other: ReplicatedServer) -> bool:
        return self.make_set.parse(self.executed).covers(self.make_set.parse(other.executed))


class ReplicatedMySQL(ReplicatedServer, MySQL):
    """A MySQL that can replicate another one, and be promoted."""

    def __init__(self, *, semi_sync: bool = False, **options: Any) -> None:
        extra = [*_SEMI_SYNC, "--skip-replica-start", *options.pop("extra", [])]
        super().__init__(durable=False, extra=extra, **options)
        self.semi_sync = semi_sync

    @property
    def executed(self) -> str:
        return str(self.execute("SELECT @@global.gtid_executed")[0][0]).replace("\n", "")

    def is_recorded(self, record: StoredPosition) -> bool:
        return record.identity.server_uuid == str(self.execute("SELECT @@server_uuid")[0][0])

    def replicate(self, primary: MySQLFamily) -> None:
        self.refuse_writes()
        if self.semi_sync:
            self.execute("SET GLOBAL rpl_semi_sync_replica_enabled = ON")
        self.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, "
            "SOURCE_USER = 'root', SOURCE_PASSWORD = '', SOURCE_AUTO_POSITION = 1, "
            "GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
        )
        self.execute("START REPLICA")

    def stop_replicating(self) -> None:
        self.execute("STOP REPLICA")

    def accept_writes(self) -> None:
        self.allow_writes()
        if self.semi_sync:
            self.execute(_WAITS)

    def allow_writes(self) -> None:
        self.execute("SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")

    def refuse_writes(self) -> None:
        self.execute("SET GLOBAL super_read_only = ON")

    def promote(self) -> None:
        self.execute("STOP REPLICA IO_THREAD")
        until(self.has_applied_all, f"replica at port {self.port} has applied what it received")
        self.execute("STOP REPLICA")
        self.execute("RESET REPLICA ALL")
        self.accept_writes()

    def replace_it(self) -> Self:
        return type(self)(semi_sync=self.semi_sync, port=self.port, server_id=self.server_id + 1)

    def has_applied_all(self) -> bool:
        received = self.execute(
            "SELECT received_transaction_set FROM performance_schema.replication_connection_status"
        )
        executed = GtidSet.parse(self.executed)
        return all(executed.covers(GtidSet.parse(str(row[0]))) for row in received)
