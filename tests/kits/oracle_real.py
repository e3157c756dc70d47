"""Capture of a user's own Oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from producer.sources.oracle.log import PollPace
from producer.sources.oracle.session import OracleDriver, load_oracle_driver
from producer.sources.oracle.source import OracleSource
from schemas.config.model import Config
from schemas.io.oracle_connection import open_oracle
from tests.kits.oracle_site import PREFIX, OracleSite
from tests.real_oracle import RealOracle, dsn


class RealStand:
    """What OracleSite asks of a stand, on a server of one's own."""

    def __init__(self, server: RealOracle) -> None:
        self._server = server
        self.own: Any = open_oracle(server.server())
        self.before = lambda _sql: None

    def driver(self) -> OracleDriver:
        return load_oracle_driver(self._server.server())

    def close(self) -> None:
        self.own.close()

    def do(self, sql: str, binds: Sequence[object] = ()) -> list[Any]:
        with self.own.cursor() as cursor:
            cursor.execute(sql, list(binds))
            found = cursor.fetchall() if cursor.description else []
        self.own.commit()
        return list(found)

    def create(self, table: str, columns: dict[str, str], log: str | None = None) -> None:
        """`log`: what stands behind WITH PRIMARY KEY, SEQUENCE; None: all columns, and new values."""
        listed = ", ".join(f'"{name}" {type_}' for name, type_ in columns.items())
        self.do(f'CREATE TABLE "{table}" ("id" NUMBER(10) PRIMARY KEY, {listed})')
        names = ", ".join(f'"{name}"' for name, type_ in columns.items() if not type_.endswith("LOB"))
        self.do(
            f'CREATE MATERIALIZED VIEW LOG ON "{table}" WITH PRIMARY KEY, SEQUENCE '
            f"{f'({names}) INCLUDING NEW VALUES' if log is None else log}"
        )

    def logged(self, table: str) -> int:
        names = self.do("SELECT log_table FROM user_mview_logs WHERE master = :1", (table,))
        return int(self.do(f'SELECT COUNT(*) FROM "{names[0][0]}"')[0][0]) if names else 0


class RealSite(OracleSite):
    def __init__(self, server: RealOracle) -> None:
        self._server, self.db = server, server.user.upper()
        self.real = RealStand(server)
        super().__init__(self.real)  # type: ignore[arg-type]

    def make_tables(self) -> None:
        for table in "ab":
            self.real.create(table, {"version": "NUMBER(18)"})

    def config(self, tables: str = "*", snapshot: str = "initial") -> Config:
        server = self._server
        own = {
            "type": "oracle", "host": server.host, "port": server.port, "database": server.service,
            "user": server.user, "password": server.password, "tables": [f"{self.db}.{tables}"],
            "snapshot": snapshot,
        }  # fmt: skip
        return Config.model_validate({"kafka": {"bootstrap": "h:1", "prefix": PREFIX}, "sources": {"s": own}})

    def source(self, config: Config) -> OracleSource:
        pace = PollPace(self.poll_rows, 0.0, lambda: self.now, lambda _seconds: None)
        return OracleSource(config.sources["s"], "s", self.real.driver(), pace)

    def put(self, table: str, version: int, *ids: int) -> None:
        with self.real.own.cursor() as cursor:
            for id_ in ids:
                cursor.execute(f'UPDATE "{table}" SET "version" = :1 WHERE "id" = :2', [version, id_])
                if not cursor.rowcount:
                    cursor.execute(f'INSERT INTO "{table}" ("id", "version") VALUES (:1, :2)', [id_, version])
        self.real.own.commit()

    def delete(self, table: str, *ids: int) -> None:
        for id_ in ids:
            self.real.do(f'DELETE FROM "{table}" WHERE "id" = :1', (id_,))

    def truncate(self, table: str) -> None:
        self.real.do(f'TRUNCATE TABLE "{table}"')

    def drop(self, table: str) -> None:
        self.real.do(f'DROP TABLE "{table}" PURGE')

    def widen(self, table: str) -> None:
        self.real.do(f'ALTER TABLE "{table}" ADD ("note" VARCHAR2(10))')
        self.real.do(f'ALTER MATERIALIZED VIEW LOG ON "{table}" ADD ("note")')

    def rows(self, table: str) -> dict[int, int]:
        return {
            int(id_): int(version) for id_, version in self.real.do(f'SELECT "id", "version" FROM "{table}"')
        }


@pytest.fixture
def site() -> Iterator[RealSite]:
    server = RealOracle.of(dsn())
    server.empty()
    site = RealSite(server)
    yield site
    site.real.close()


def stops(site: RealSite) -> list[str]:
    return [event.stop.cause for event in site.events("a") if event.stop is not None]
