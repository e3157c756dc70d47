"""Real MySQL servers of which one replicates the other, as an operator promotes and demotes them."""

from __future__ import annotations

from typing import Any

from deploy.embedded.services import MySQL
from tests.kits.waiting import until

_SEMI_SYNC = ["--plugin-load-add=semisync_source.so", "--plugin-load-add=semisync_replica.so"]
_WAITS = (
    "SET GLOBAL rpl_semi_sync_source_enabled = ON, rpl_semi_sync_source_timeout = 600000, "
    "rpl_semi_sync_source_wait_no_replica = OFF"
)


class ReplicatedMySQL(MySQL):
    """A MySQL that can replicate another one, and be promoted. `semi_sync`: commits wait for a replica."""

    def __init__(self, *, semi_sync: bool = False, **options: Any) -> None:
        extra = [*_SEMI_SYNC, "--skip-replica-start", *options.pop("extra", [])]
        super().__init__(durable=False, extra=extra, **options)
        self.semi_sync = semi_sync

    @property
    def uuid(self) -> str:
        return str(self.execute("SELECT @@server_uuid")[0][0])

    @property
    def executed(self) -> str:
        return str(self.execute("SELECT @@global.gtid_executed")[0][0]).replace("\n", "")

    def replicate(self, primary: MySQL) -> None:
        """Become a read-only replica of `primary`."""
        self.execute("SET GLOBAL super_read_only = ON")
        if self.semi_sync:
            self.execute("SET GLOBAL rpl_semi_sync_replica_enabled = ON")
        self.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{primary.host}', SOURCE_PORT = {primary.port}, "
            "SOURCE_USER = 'root', SOURCE_PASSWORD = '', SOURCE_AUTO_POSITION = 1, "
            "GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
        )
        self.execute("START REPLICA")

    def accept_writes(self) -> None:
        """Be the primary."""
        self.execute("SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
        if self.semi_sync:
            self.execute(_WAITS)

    def promote(self) -> None:
        """Apply what has arrived, and become the primary."""
        self.execute("STOP REPLICA IO_THREAD")
        until(self.has_applied_all, f"replica at port {self.port} has applied what it received")
        self.execute("STOP REPLICA")
        self.execute("RESET REPLICA ALL")
        self.accept_writes()

    def has_applied_all(self) -> bool:
        received = self.execute(
            "SELECT received_transaction_set FROM performance_schema.replication_connection_status"
        )
        return all(self._has(str(row[0])) for row in received)

    def has_all_of(self, other: ReplicatedMySQL) -> bool:
        return self._has(other.executed)

    def _has(self, gtids: str) -> bool:
        return bool(self.execute("SELECT GTID_SUBSET(%s, @@global.gtid_executed)", (gtids,))[0][0])
