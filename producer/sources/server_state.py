"""The present state of a source's server: its variables, its log, its identity, the user's grants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import pymysql

from producer.errors import SourceRefusedError
from producer.sources.binlog.flavour import ExecutedGtids
from producer.sources.changes import LogFile
from producer.sources.grants import Rights
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.source_session import SourceSession
from schemas.io.mysql_catalog import read_charset_ids
from schemas.wire.records import Identity, StoredPosition

_CANNOT_SHOW = 1220  # ER_ERROR_WHEN_EXECUTING_COMMAND: there is no such file


class AnsweringServer(NamedTuple):
    """The server that answers.

    `own`: its uuid, or host and port; `server_id`: the id in the events that it writes itself.
    """

    own: str
    server_id: int


class ReplicaChannel(NamedTuple):
    """A connection over which a server replicates another one. `origin`: host and port of that one.

    `receives`: it is connected. `received`: the GTIDs that have arrived; empty: they are not known.
    `is_applied`: all that has arrived was applied, by the files and offsets of that server.
    """

    origin: str
    receives: bool
    received: str
    is_applied: bool = True


class ServerState:
    """The state of a server, read through one connection. Raises pymysql errors."""

    def __init__(self, session: SourceSession) -> None:
        self._session = session
        self._flavour = session.flavour

    def read_variables(self) -> dict[str, str]:
        """Return all global variables, names in lower case."""
        return {
            row["Variable_name"].lower(): row["Value"]
            for row in self._session.run_query("SHOW GLOBAL VARIABLES")
        }

    def read_charsets(self) -> dict[int, str]:
        """Return the character set of every collation id."""
        return read_charset_ids(self._session.connection)

    def read_time_ms(self) -> int:
        """Return the server's time in ms since 1970, of the clock that gives transactions their times.

        No time zone is involved: an hour that occurs twice a year would be ambiguous.
        """
        (row,) = self._session.run_query(
            "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS ms"
        )
        return int(row["ms"])

    def log_end(self) -> tuple[str, int] | None:
        """Return file and position of the end of the log; None: there is no binary log."""
        rows = self._log_status()
        return (rows[0]["File"], int(rows[0]["Position"])) if rows else None

    def log_filters(self) -> tuple[str, str]:
        """Return the databases that alone are logged, and those that are not logged (comma-separated.

        Empty: no filter).
        """
        rows = self._log_status()
        return (
            (str(rows[0]["Binlog_Do_DB"] or ""), str(rows[0]["Binlog_Ignore_DB"] or "")) if rows else ("", "")
        )

    def log_files(self) -> list[LogFile]:
        """Return the log's files, oldest first. Raises OperationalError 1381 without a binary log."""
        return [
            LogFile(row["Log_name"], int(row["File_size"]))
            for row in self._session.run_query("SHOW BINARY LOGS")
        ]

    def identify_server(self) -> AnsweringServer:
        """Return the identity of the server on this connection, which may differ from others at the same
        address.
        """
        row = self._session.run_query(f"SELECT {self._flavour.own} AS own, @@global.server_id AS id")[0]
        return AnsweringServer(str(row["own"]), int(row["id"]))

    def read_identity(self) -> Identity:
        row = self._session.run_query(
            f"SELECT {self._flavour.uuid} AS uuid, @@global.server_id AS id, @@version AS version, "
            f"{self._flavour.gtids} AS gtids"
        )[0]
        gtid_set = (row["gtids"] or "").replace("\n", "") or None
        return Identity(
            server_uuid=row["uuid"], server_id=int(row["id"]), version=row["version"], gtid_set=gtid_set
        )

    def has_gtids(self, stored: StoredPosition, now: Identity) -> bool:
        """Return whether the server has all transactions that the record's identity lists."""
        return self._flavour.has_gtids(self._session.run_query, stored.identity.gtid_set, now.gtid_set)

    def is_writable(self) -> bool:
        """Return whether the server accepts writes of ordinary users."""
        shown = self._session.run_query("SELECT @@global.read_only AS only")[0]["only"]
        return str(shown).upper() in ("0", "OFF")

    def name_writer(self) -> str:
        """Return the server's name in the GTIDs of transactions that it writes first."""
        return str(self._session.run_query(f"SELECT {self._flavour.failover.writer} AS writer")[0]["writer"])

    def has_failover_setting(self) -> bool:
        """Return whether the server numbers its transactions as a failover needs it."""
        rows = self._session.run_query(f"SELECT @@global.{self._flavour.failover.setting} AS value")
        return str(rows[0]["value"]).upper() in ("1", "ON")

    def read_executed(self, captured: GtidSet) -> ExecutedGtids:
        """Return what the server has executed, as far as it concerns `captured`. Raises
        SourceRefusedError."""
        return self._flavour.failover.executed(self._session.run_query, captured)

    def list_channels(self) -> list[ReplicaChannel]:
        """Return the server's replication channels, also those that are stopped."""
        rows = self._session.run_first_known(self._session.flavour.replicates_from)
        return [
            ReplicaChannel(
                f"{_get_either(row, 'Source_Host', 'Master_Host')}:"
                f"{_get_either(row, 'Source_Port', 'Master_Port')}",
                _get_either(row, "Replica_IO_Running", "Slave_IO_Running") == "Yes",
                str(row.get("Retrieved_Gtid_Set") or row.get("Gtid_IO_Pos") or ""),
                _has_applied(row),
            )
            for row in rows
        ]

    def list_gtid_files(self) -> Iterator[tuple[str, str]]:
        """Yield each file of the log, the newest first, with the GTIDs of everything before it.

        A file that is purged meanwhile ends the list.
        """
        for file in reversed(self.log_files()):
            try:
                rows = self._session.run_query(f"SHOW BINLOG EVENTS IN '{file.name}' LIMIT 3")
            except pymysql.MySQLError as error:
                if error.args[0] != _CANNOT_SHOW:
                    raise
                return
            rules = self._flavour.failover
            found = [row["Info"] for row in rows if row["Event_type"] == rules.list_event]
            if not found:
                raise SourceRefusedError(
                    f"the source's file {file.name} does not begin with a list of GTIDs", rules.remedy
                )
            yield file.name, str(found[0]).strip("[]")

    def read_grants(self) -> list[str]:
        """Return the lines of SHOW GRANTS, including those of the active roles."""
        return self._flavour.grants(self._session.run_query)

    def read_privileges(self) -> frozenset[str]:
        """Return the names of all privileges that the server's GRANT knows, in upper case."""
        return frozenset(row["Privilege"].upper() for row in self._session.run_query("SHOW PRIVILEGES"))

    @cached_property
    def version(self) -> str:
        """The server's VERSION()."""
        return str(self._session.run_query("SELECT VERSION() AS version")[0]["version"])

    @cached_property
    def rights(self) -> Rights:
        """The names of the rights that capture needs, as this server knows them."""
        return self._flavour.rights.select_known(self.read_privileges())

    def _log_status(self) -> list[dict[str, Any]]:
        return self._session.run_first_known(self._flavour.log_status)


def _has_applied(row: Mapping[str, Any]) -> bool:
    """Return whether a replica has applied what it has received, by the places in the other server's log."""
    received = (
        _get_either(row, "Source_Log_File", "Master_Log_File"),
        _get_either(row, "Read_Source_Log_Pos", "Read_Master_Log_Pos"),
    )
    applied = (
        _get_either(row, "Relay_Source_Log_File", "Relay_Master_Log_File"),
        _get_either(row, "Exec_Source_Log_Pos", "Exec_Master_Log_Pos"),
    )
    return received == applied


def _get_either(row: Mapping[str, Any], name: str, former: str) -> str:
    """Return a value by the column's name, or by the one that older servers have."""
    return str(row[name] if name in row else row.get(former))
