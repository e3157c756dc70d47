"""One `rowlock run` from MySQL and MariaDB into PostgreSQL, MySQL and MariaDB at once, and a judge that
shares no code with it.

Each pipeline reads both sources. `merged` of both goes into one table, kept apart by `add:`; every other
table keeps its source's name at its end. The judge reads with the plain drivers, as text, and brings the
servers' spellings together.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from schemas.io.mysql_catalog import read_collations
from schemas.table.collations import make_collation_chooser
from schemas.table.model import Column, Kind, Row
from schemas.table.typemap import render_mysql_type
from schemas.values.mysql import connect_mysql, quote_name, to_mysql
from schemas.values.postgres import SESSION_OPTIONS, quote_pg, to_postgres
from tests.kits.running import Run, write_config
from tests.kits.schemas_strategies import TABLE
from tests.kits.whole_run import Source, Target, WholeRun, make_parts

SOURCES = ("my", "ma")
TARGETS = ("pg", "my", "ma")
#: The pipeline to this target waits for a person where the others, by default, follow an ALTER TABLE.
STRICT = "ma"
Server = MySQL | MariaDB | PostgreSQL
Text = str | None


@dataclass
class WholeWay(WholeRun):
    """The run. `db`: the sources' database and PostgreSQL's; `db`_t: the database of the other targets."""

    first: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)

    def target(self, name: str) -> tuple[Target, str]:
        return self.targets[name], self.db if name == "pg" else f"{self.db}_t"

    def change(self, source: str, *statements: str | tuple[str, Iterable[Any]], apart: bool = True) -> None:
        """Run statements at a source; see `change`."""
        change(self.sources[source], self.db, *statements, apart=apart)

    def verify(self, *words: str) -> dict[tuple[str, str, str], dict[str, Any]]:
        """`verify` as JSON by (pipeline, source, table). The exit code must fit."""
        result = self.invoke("verify", "--output", "json", *words)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert found, result.output
        assert result.exit_code == (0 if all(each["equal"] for each in found) else 1), result.output
        return {
            (each["pipeline"], each["source"], each["source_table"].partition(".")[2]): each for each in found
        }

    def changed(self, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
        """Return another configuration: this one after `change`."""
        raw = yaml.safe_load(self.config.read_text())
        change(raw)
        file = folder / "changed.yaml"
        file.write_text(yaml.safe_dump(raw))
        return file


@contextlib.contextmanager
def whole_way(
    folder: Path, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[WholeWay]:
    """Make the databases of both sources and all targets, and the configuration of a run that is not
    started."""
    db = f"w{secrets.token_hex(4)}"
    sources: dict[str, Source] = {"my": mysql, "ma": mariadb}
    targets: dict[str, Target] = {"pg": postgres, **sources}
    parts = make_parts(db, kafka, sources, targets, {name: make_pipeline(db, name) for name in TARGETS})
    for name in SOURCES:
        parts["targets"][name]["database"] = f"{db}_t"
    made = WholeWay(db, sources, targets, Run(write_config(folder, **parts), folder / "run.log"), parts)
    places: list[tuple[Any, str]] = [
        (postgres, db),
        *((each, name) for each in (mysql, mariadb) for name in (db, f"{db}_t")),
    ]
    for server, name in places:
        server.create_database(name)
    try:
        yield made
    finally:
        made.run.close()
        for server, name in places:
            server.start()
            server.drop_database(name)


def change(
    server: MySQL | MariaDB,
    database: str,
    *statements: str | tuple[str, Iterable[Any]],
    apart: bool = True,
) -> None:
    """Run statements; each a transaction, or all of them one. Zero dates pass."""
    with contextlib.closing(connect_mysql(server.host, server.port, "root", "", database)) as conn:
        with conn.cursor() as cursor:
            if not apart:
                cursor.execute("BEGIN")
            for each in statements:
                cursor.execute(*((each,) if isinstance(each, str) else each))
            if not apart:
                cursor.execute("COMMIT")


def make_pipeline(db: str, target: str) -> dict[str, Any]:
    place = "public" if target == "pg" else f"{db}_t"
    merged = {"from": f"{db}.merged", "to": f"{place}.{{table}}", "add": {"branch": "{source}"}}
    policies = {"schema_changes": "stop", "repair": "stop"} if target == STRICT else {}
    return {
        "sources": list(SOURCES), "target": target, "lanes": 4, **policies,
        "routes": [merged, {"from": f"{db}.*", "to": f"{place}.{{table}}_{{source}}"}],
    }  # fmt: skip


# --- rows of all types


def create_everything(server: MySQL | MariaDB, db: str) -> None:
    with contextlib.closing(connect_mysql(server.host, server.port, "root", "", db)) as conn:
        choose = make_collation_chooser(read_collations(conn))
        columns = ", ".join(
            f"{quote_name(c.name)} {render_mysql_type(c.type, choose)} {'NULL' if c.nullable else 'NOT NULL'}"
            for c in TABLE.columns
        )
        with conn.cursor() as cursor:
            cursor.execute(f"CREATE TABLE everything ({columns}, PRIMARY KEY (id)) CHARACTER SET utf8mb4")


def insert_everything(row: Row) -> tuple[str, Iterable[Any]]:
    places = ", ".join(["%s"] * len(TABLE.columns))
    return f"INSERT INTO everything VALUES ({places})", to_mysql(TABLE)(row)


def update_everything(row: Row) -> tuple[str, Iterable[Any]]:
    """Return the statement that gives the row with this id all values of `row`."""
    columns = ", ".join(f"{quote_name(column.name)} = %s" for column in TABLE.columns)
    return f"UPDATE everything SET {columns} WHERE id = %s", (*to_mysql(TABLE)(row), row[0])


def overwrite(system: WholeWay, target: str, table: str, row: Row, column: str) -> None:
    """Put one column of `row` into the target, behind rowlock's back."""
    server, database = system.target(target)
    at = TABLE.find_ordinals((column,))[0]
    if isinstance(server, PostgreSQL):
        statement = f"UPDATE {table} SET {quote_pg(column)} = %s WHERE id = %s"
        with server.connect(database, options=SESSION_OPTIONS) as conn:
            assert conn.execute(statement.encode(), (to_postgres(TABLE)(row)[at], row[0])).rowcount == 1
        return
    with contextlib.closing(connect_mysql(server.host, server.port, "root", "", database)) as conn:
        with conn.cursor() as cursor:
            value = to_mysql(TABLE)(row)[at]
            assert (
                cursor.execute(f"UPDATE {table} SET {quote_name(column)} = %s WHERE id = %s", (value, row[0]))
                == 1
            )


# --- the judge


_BYTES = (Kind.BINARY, Kind.VARBINARY, Kind.BLOB, Kind.GEOMETRY)


def texts(server: Server, database: str, table: str) -> list[list[Any]]:
    """Return the rows of a table of all types, every value brought to one spelling."""
    postgres = isinstance(server, PostgreSQL)
    shown = ", ".join((_postgres if postgres else _mysql)(column) for column in TABLE.columns)
    options: dict[str, Any] = (
        {"options": "-c TimeZone=UTC"} if postgres else {"init_command": "SET time_zone = '+00:00'"}
    )
    with contextlib.closing(server.connect(database, **options)) as conn, conn.cursor() as cursor:
        cursor.execute(f"SELECT {shown} FROM {table}")
        found = cursor.fetchall()
    spelt = [
        [None if value is None else _spelling(column.type.kind, str(value), postgres) for column,
        value in zip(TABLE.columns, row, strict=True)]
        for row in found
    ]  # fmt: skip
    return sorted(spelt, key=lambda row: Decimal(row[0]))


def _mysql(column: Column) -> str:
    name = quote_name(column.name)
    if column.type.kind in _BYTES:
        return f"HEX({name})"
    if column.type.kind in (Kind.FLOAT, Kind.DOUBLE):
        return f"{name} * 1e0"  # CAST would round
    if column.type.kind in (Kind.ENUM_NUMBER, Kind.SET_NUMBER):
        return f"CAST({name} AS UNSIGNED)"  # as CHAR it would be labels
    return f"CAST({name}{' + 0' if column.type.kind is Kind.BIT else ''} AS CHAR)"


def _postgres(column: Column) -> str:
    name = quote_pg(column.name)
    return f"encode({name}, 'hex')" if column.type.kind in _BYTES else f"{name}::text"


def _spelling(kind: Kind, text: str, postgres: bool) -> Any:
    match kind:
        case Kind.INT | Kind.YEAR | Kind.DECIMAL:
            return Decimal(text)
        case Kind.BIT:
            return int(text, 2 if postgres else 10)
        case Kind.FLOAT:
            return struct.pack(">f", float(text)).hex()
        case Kind.DOUBLE:
            return repr(float(text))
        case Kind.JSON:
            return _document(text)
        case Kind.TIME | Kind.DATETIME | Kind.TIMESTAMP:
            whole, _, fraction = text.removesuffix("+00").partition(".")
            return whole, fraction.rstrip("0")
        case Kind.GEOMETRY:
            return (_ewkb if postgres else _internal)(bytes.fromhex(text))
        case _:
            return text.lower() if kind in _BYTES else text


def _document(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def _internal(raw: bytes) -> tuple[int, bytes]:
    """The servers' own form: SRID, then WKB."""
    return int.from_bytes(raw[:4], "little"), raw[4:]


def _ewkb(raw: bytes) -> tuple[int, bytes]:
    """PostGIS' form: WKB with the SRID behind the type, if the type says so. Returns SRID and WKB."""
    kind = int.from_bytes(raw[1:5], "little")
    if not kind & 0x20000000:
        return 0, raw
    plain = (kind & ~0x20000000).to_bytes(4, "little")
    return int.from_bytes(raw[5:9], "little"), raw[:1] + plain + raw[9:]
