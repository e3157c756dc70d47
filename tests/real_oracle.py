"""A server of one's own for the tests of Oracle: `make test-oracle DSN=user/password@host:port/service`.

Its user's tables are dropped before each test, so its name must begin with ROWLOCK_TEST. What the run does
not judge by itself, and a person looks at, is LOOK_AT.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr

from schemas.io.oracle_connection import open_oracle

#: What ADR 28 and 29 have from memory and no test decides.
LOOK_AT = (
    "revoke each grant that `rowlock check` prints, one at a time: check names that very one (point 1)",
    (
        "a user of another schema's tables: which of ALL_TABLES, ALL_MVIEW_LOGS, ALL_SUMMAP and "
        "ALL_SUMDELTA it sees (points 1, 4)"
    ),
    "a whole `rowlock run` from and into it under your load, and `rowlock verify` behind it (all points)",
    "a LOB that is empty (EMPTY_CLOB()): what the driver gives for it, NULL or ''",
    "a change through a locator (DBMS_LOB.WRITE): whether the log has a row for it",
    "ALL_SUMDELTA after INSERT /*+ APPEND */ into a table without a materialized view",
    "DBMS_MVIEW.PURGE_LOG between two polls: the stop, and that nothing tells of rows that nobody had read",
    (
        "two views in turn: that a refresh takes its time behind the lock on the log (V$SQL of its UPDATE of "
        "SNAPTIME$$), so that none stamps rows with a time before the last one's"
    ),
    (
        "on RAC: the order of COMMIT_SCN in ALL_SUMMAP, and that a log without it is refused, and stops "
        "when the second instance opens"
    ),
    (
        "ALL_SUMMAP: that it has a transaction's row as soon as the log's rows are seen, and whether it shrinks "  # noqa: E501
        "though rows of the log are deleted by DELETE"
    ),
    (
        "ALL_OBJECTS.TIMESTAMP of a table: that ADD PARTITION (also by INTERVAL) and ADD CONSTRAINT leave it "
        "(else such a table is copied again)"
    ),
    (
        "ALL_OBJECTS of a partitioned table: that ADD PARTITION, MODIFY DEFAULT ATTRIBUTES and a local index "
        "leave LAST_DDL_TIME of the other partitions (else such a table is copied again), and that an "
        "index-organized one has no DATA_OBJECT_ID"
    ),
    (
        "FLASHBACK PLUGGABLE DATABASE: what of V$DATABASE, V$PDB_INCARNATION (from 12.2) and SYS_CONTEXT "
        "changes, that identity() could hold"
    ),
    "FLASHBACK TABLE a TO SCN …: whether the log has rows for what it takes back",
    (
        "a row level policy (DBMS_RLS), and a redaction policy (DBMS_REDACT): that ALL_POLICIES shows the first "  # noqa: E501
        "to rowlock's user, and what EXEMPT … POLICY changes"
    ),
    "ALL_BASE_TABLE_MVIEWS as rowlock's user: that it shows views of other users and of other databases",
    "how ALL_IND_EXPRESSIONS spells the index over CASE … END (catalogue._UNLESS_NULL must match it)",
    (
        "GV_$SESSION.BLOCKING_SESSION while a take-over waits, and how long KILL SESSION … IMMEDIATE takes "
        "with a large transaction open"
    ),
    "the plan of the array's DELETE and MERGE: the key's index (V$SQL_PLAN)",
    "ORA-01461 and ORA-24816 with several LOBs above 4000 and 32767 bytes in one row",
    "a standby, a restricted session, an expired password, a full tablespace: class and remedy of each error",
)


def dsn() -> str:
    return os.environ.get("ROWLOCK_ORACLE_DSN", "")


@dataclass(frozen=True)
class RealOracle:
    user: str
    password: str
    host: str
    port: int
    service: str

    @classmethod
    def of(cls, text: str) -> RealOracle:
        """Raises ValueError with what is wrong."""
        found = re.fullmatch(r"([^/@]+)/(.+)@([^:@]+):(\d+)/(.+)", text)
        if found is None:
            raise ValueError("DSN is user/password@host:port/service")
        user, password, host, port, service = found.groups()
        if not user.upper().startswith("ROWLOCK_TEST"):
            raise ValueError(
                "the tests drop all tables of their user: make one whose name begins "
                f"with ROWLOCK_TEST, not {user}"
            )
        return cls(user, password, host, int(port), service)

    def server(self) -> Any:
        """Return its section, as `open_oracle` takes it."""
        return SimpleNamespace(
            host=self.host, port=self.port, user=self.user, password=SecretStr(self.password),
            database=self.service, tls=None,
        )  # fmt: skip

    def empty(self) -> None:
        """Drop the user's tables and materialized views."""
        with open_oracle(self.server()) as connection, connection.cursor() as cursor:
            for (view,) in cursor.execute("SELECT mview_name FROM user_mviews").fetchall():
                cursor.execute(f'DROP MATERIALIZED VIEW "{view}"')
            logs = {row[0] for row in cursor.execute("SELECT log_table FROM user_mview_logs").fetchall()}
            names = [row[0] for row in cursor.execute("SELECT table_name FROM user_tables").fetchall()]
            for name in names:
                if name not in logs:  # a log goes with its table
                    cursor.execute(f'DROP TABLE "{name}" CASCADE CONSTRAINTS PURGE')


if __name__ == "__main__":
    RealOracle.of(dsn())
    print("To be looked at by eye beside these tests:", *LOOK_AT, sep="\n- ")
