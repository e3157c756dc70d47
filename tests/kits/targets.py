"""What the tests of targets share: one target of each kind, a table with every trap, a judge that reads it
back."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from pydantic import SecretStr

from consumer.ordering.model import ApplyUnit, LaneProgress, TargetTable
from consumer.ordering.model import NetChange as NetChange
from consumer.targets.dialect import open_session
from consumer.targets.mysql.connection import FLAVOURS, Flavour
from consumer.targets.session import SqlSession
from schemas.config.kinds.targets import TARGET_KINDS
from schemas.config.model import TargetConfig
from schemas.io.oracle_connection import open_oracle
from schemas.io.server_errors import parse_server_version
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from tests import real_oracle
from tests.stands import oracle_on_h2, sqlite_target

KINDS = ("postgres", "mariadb", "mysql")
_DATABASES = {"postgres": "pg_db", "mariadb": "mariadb_db", "mysql": "mysql_db", "oracle": "oracle_db"}
#: Kinds that have a substitute for the server in the tests. (A server of your own, ROWLOCK_ORACLE_DSN, is
#: used with the product's own dialect.)
STANDS = {"sqlite": sqlite_target.KIND, **({} if real_oracle.dsn() else {"oracle": oracle_on_h2.KIND})}
LAYOUT = '{"version":1}'


@dataclass
class Target:
    """A fresh database of one kind of server. `schema` is where its tables are."""

    kind: str
    service: Any
    database: str
    sessions: list[SqlSession] = field(default_factory=list)

    @property
    def version(self) -> tuple[int, ...]:
        return parse_server_version(self.service.execute("SELECT VERSION()")[0][0])

    @property
    def flavour(self) -> Flavour:
        """What is true of this version of a MySQL or MariaDB."""
        return FLAVOURS[self.kind].choose_for(self.service.execute("SELECT VERSION()")[0][0])

    @property
    def has_whole_texts(self) -> bool:
        """Whether a unique index may be over values of any length: MariaDB's since 10.4."""
        return self.kind in FLAVOURS and self.flavour.whole_texts

    @property
    def schema(self) -> str:
        return "public" if self.kind == "postgres" else self.database

    def config(self, **changes: Any) -> TargetConfig:
        values = {
            "type": self.kind, "host": getattr(self.service, "host", "127.0.0.1"), "port": self.service.port,
            "user": self.service.user,
            "password": SecretStr(self.service.password), "database": self.database, **changes,
        }  # fmt: skip
        return TargetConfig.model_validate(values)

    def open(self, **changes: Any) -> SqlSession:
        session = open_session(self.config(**changes), name="rowlock test")
        self.sessions.append(session)
        return session

    def sql(self, text: str, arguments: Sequence[object] = ()) -> list[Any]:
        rows: list[Any] = self.service.execute(text, arguments, database=self.database)
        return rows

    def quoted(self, name: str) -> str:
        return f'"{name}"' if self.kind == "postgres" else f"`{name}`"

    def name(self, table: str) -> str:
        return f"{self.quoted(self.schema)}.{self.quoted(table)}"

    def holds(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        """Return rows of `table` as they are read from here."""
        return list(rows)

    def as_given(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        """Return rows of FakeSource's table, read from here, as they were given."""
        return list(rows)

    def displaced(self) -> list[dict[str, Any]]:
        """The rows that had to make room, in their order."""
        rows = self.sql("SELECT row_data, displaced_by, table_name FROM rowlock_displaced ORDER BY id")
        return [{"row": json.loads(row[0]), "by": row[1], "table": row[2]} for row in rows]

    def start_again(self) -> None:
        self.service.start()

    def put_back(self, _unit: ApplyUnit, epoch: int) -> None:
        """Let the progress be what it was, but for this epoch."""
        self.sql(f"UPDATE {self.name('rowlock_progress')} SET epoch = {epoch}")

    def forget(self, _unit: ApplyUnit) -> None:
        self.sql("DELETE FROM rowlock_progress")

    def narrow(self, table: str, column: str, length: int) -> None:
        """Let the target refuse longer values of a NOT NULL column from now on."""
        change = (
            f"ALTER {column} TYPE varchar({length})"
            if self.kind == "postgres"
            else f"MODIFY {column} varchar({length}) NOT NULL"
        )
        self.sql(f"ALTER TABLE {table} {change}")

    @contextlib.contextmanager
    def row_locked(self, table: str, key: int) -> Iterator[None]:
        """Somebody else holds the row's lock."""
        blocker = self.service.connect(self.database, autocommit=False)
        with blocker.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {self.name(table)} WHERE id = {key} FOR UPDATE")
            yield
        blocker.rollback()
        blocker.close()

    def shorten_waits(self, session: SqlSession) -> None:
        """Let the session give up a wait for a lock after a second."""
        setting = "lock_timeout = '1s'" if self.kind == "postgres" else "innodb_lock_wait_timeout = 1"
        session._link.execute(f"SET {setting}", [])


class SqliteTarget(Target):
    """A file. There is no server: it has a port and a password only because every target's configuration
    does."""

    def __init__(self, path: Path) -> None:
        path.touch()
        super().__init__("sqlite", SimpleNamespace(port=1, user="nobody", password=""), str(path))

    @property
    def schema(self) -> str:
        return sqlite_target.SCHEMA

    def sql(self, text: str, arguments: Sequence[object] = ()) -> list[Any]:
        with contextlib.closing(sqlite_target.connected(self.database)) as connection:
            return connection.execute(text, arguments).fetchall()

    def narrow(self, table: str, column: str, length: int) -> None:
        for change in ("INSERT", "UPDATE"):
            self.sql(
                f"CREATE TRIGGER narrow_{change} BEFORE {change} ON {table} WHEN length(NEW.{column}) > "
                f"{length} BEGIN SELECT RAISE(ABORT, 'too long'); END"
            )

    @contextlib.contextmanager
    def row_locked(self, table: str, key: int) -> Iterator[None]:
        with contextlib.closing(sqlite_target.connected(self.database)) as blocker:
            blocker.execute("BEGIN IMMEDIATE")
            yield
            blocker.rollback()

    def shorten_waits(self, session: SqlSession) -> None:
        link: Any = session._link
        link.lock_wait_s = 1.0


class OracleTarget(Target):
    """Oracle's dialect on H2, or on a server of one's own (`make test-oracle`). Tables are in the user's
    schema."""

    @property
    def version(self) -> tuple[int, ...]:
        return parse_server_version(self.service.execute("SELECT VERSION()")[0][0])

    @property
    def flavour(self) -> Flavour:
        """What is true of this version of a MySQL or MariaDB."""
        return FLAVOURS[self.kind].choose_for(self.service.execute("SELECT VERSION()")[0][0])

    @property
    def has_whole_texts(self) -> bool:
        """Whether a unique index may be over values of any length: MariaDB's since 10.4."""
        return self.kind in FLAVOURS and self.flavour.whole_texts

    @property
    def schema(self) -> str:
        return str(self.service.user).lower()

    def config(self, **changes: Any) -> TargetConfig:
        return super().config(**{"host": self.service.host, **changes})

    def _open(self) -> Any:
        return (open_oracle if real_oracle.dsn() else oracle_on_h2.open_on_h2)(self.config())

    def sql(self, text: str, arguments: Sequence[object] = ()) -> list[Any]:
        with contextlib.closing(self._open()) as connection:
            connection.autocommit = True
            return [(*map(_plain, row),) for row in connection.cursor().execute(text, arguments).fetchall()]

    def holds(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        """An empty text is NULL, where that may be."""
        may = [column.nullable for column in table.columns]
        return [
            tuple(None if null and v == "" else v for v, null in zip(row, may, strict=True)) for row in rows
        ]

    def as_given(self, table: Table, rows: Sequence[Row]) -> list[Row]:
        """FakeSource never gives NULL for a note."""
        at = table.column_names.index("note")
        return [(*row[:at], "" if row[at] is None else row[at], *row[at + 1 :]) for row in rows]

    def name(self, table: str) -> str:
        return f'"{self.schema.upper()}"."{table.upper()}"'

    def narrow(self, table: str, column: str, length: int) -> None:
        self.sql(f"ALTER TABLE {table} MODIFY {column} VARCHAR2({length} CHAR)")

    @contextlib.contextmanager
    def row_locked(self, table: str, key: int) -> Iterator[None]:
        with contextlib.closing(self._open()) as blocker:
            blocker.cursor().execute(f"SELECT * FROM {self.name(table)} WHERE id = {key} FOR UPDATE")
            yield
            blocker.rollback()

    def shorten_waits(self, session: SqlSession) -> None:
        link: Any = session._link
        link.raw.call_timeout = 1000


def _plain(value: object) -> object:
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


@contextlib.contextmanager
def fresh(kind: str, request: pytest.FixtureRequest) -> Iterator[Target]:
    """A fresh database of one kind; its sessions are closed afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "sqlite":
            patch.setitem(TARGET_KINDS, kind, sqlite_target.KIND)
            found: Target = SqliteTarget(request.getfixturevalue("tmp_path") / "target.db")
        elif kind == "oracle":
            patch.setitem(TARGET_KINDS, kind, STANDS.get(kind, TARGET_KINDS[kind]))
            found = OracleTarget(
                kind, request.getfixturevalue(kind), request.getfixturevalue(_DATABASES[kind])
            )
        else:
            found = Target(kind, request.getfixturevalue(kind), request.getfixturevalue(_DATABASES[kind]))
        yield found
        for session in found.sessions:
            session.close()


def opened_again(config: dict[str, Any], name: str) -> Any:
    """Open a session in another process, from the configuration of a target as JSON has it."""
    if config["type"] == "kafka":
        from tests.stands.kafka_target import StandSession

        return StandSession.from_config(config)
    TARGET_KINDS.update(STANDS)
    return open_session(TargetConfig.model_validate(config), name=name)


def targets(*kinds: str) -> Any:
    """Return the fixture `target`: a fresh database of each of `kinds` in turn. Epochs count from 1."""

    def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
        monkeypatch.setattr("schemas.clock.read_clock_ms", lambda: 0)
        with fresh(request.param, request) as found:
            yield found

    return pytest.fixture(target, params=kinds)


target = targets(*KINDS)


def text_type(length: int, collation: str = "utf8mb4_bin") -> ColumnType:
    return ColumnType(kind=Kind.VARCHAR, length=length, charset="utf8mb4", collation=collation)


def index(name: str, *columns: str) -> UniqueIndex:
    return UniqueIndex(name=name, parts=tuple(IndexPart(column=column) for column in columns))


def people(schema: str, name: str = "people") -> Table:
    """A key, two nullable unique keys (one of two columns), and a column without meaning."""
    return Table(
        db=schema,
        name=name,
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
            Column(name="mail", type=text_type(60)),
            Column(name="land", type=text_type(3)),
            Column(name="passport", type=ColumnType(kind=Kind.INT, bits=32)),
            Column(name="note", type=text_type(100)),
        ),
        key=index("PRIMARY", "id"),
        unique=(index("mail", "mail"), index("pass", "land", "passport")),
    )


def as_target(table: Table, added: tuple[str, ...] = ()) -> TargetTable:
    return TargetTable(
        table=table,
        key_at=table.find_ordinals(table.key.columns),
        unique_at=tuple(table.find_ordinals(unique.columns) for unique in table.unique),
        added=added,
    )


@dataclass
class Lane:
    """A worker with one lane: takes the unit over, and applies net changes one after the other."""

    session: SqlSession
    unit: ApplyUnit
    row: LaneProgress

    @classmethod
    def start(cls, session: SqlSession, topic: str = "topic", lanes: int = 1) -> Lane:
        unit = ApplyUnit("pipe", topic)
        session.ensure_bookkeeping()
        epoch, _, _ = session.take_over(unit, "topic-id", LAYOUT, lanes)
        rows, _, _ = session.begin_attempt(unit, epoch)
        return cls(session, unit, rows[0])

    def apply_net_change(self, *nets: NetChange, displacing: str | None = None) -> int:
        """Returns how many rows were displaced."""
        after = structs.replace(self.row, offset=self.row.offset + 1)
        with self.session.begin_transaction(self.unit, [self.row]) as tx:
            displaced = sum(tx.apply_net_change(net, displacing=displacing) for net in nets)
            tx.write_progress([after])
        self.row = after
        return displaced


def rows_of(session: SqlSession, table: TargetTable) -> list[Row]:
    """Return all rows by paging, so that every reading test pages."""
    found: list[Row] = []
    while True:
        after = tuple(found[-1][at] for at in table.key_at) if found else None
        page = session.fetch_rows(table, after, 7)
        found += page
        if len(page) < 7:
            return found
