"""The keys of a table, read as a key sweep reads them: the source's in chunks, the target's in pages.

Processor time a key, of this process and of the server.

`id` is a key of one BIGINT, `day` of a BIGINT and a DATE, `branch` of an added text and a BIGINT.

python -m bench.key_reads [--rows 1000000] [--servers mariadb,mysql,postgres]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psutil
from msgspec.structs import replace

from bench.key_sweep import BLOCK, SEQUENCES
from bench.kit import Figures
from consumer.attempt.drivers.threads import KEYS_PER_FETCH
from consumer.tables.router import build_key_table, build_target_table
from consumer.targets.dialect import open_session
from deploy.embedded.services import MariaDB, MySQL, PostgreSQL
from producer.ports import Ports
from producer.snapshot.jobs import KEYS_PER_ROW
from producer.snapshot.reader import ChunkReader, make_connection_opener
from producer.sources.catalog import BINLOG_FLAVOURS
from producer.sources.chunk_data import ChunkRead, ReadChunk
from schemas.config.model import TargetConfig
from schemas.io.mysql_catalog import read_table
from schemas.table.model import Key

DB = "keys"
BRANCH = "branch 1"
TABLES = {
    "id": ("id BIGINT", "id", "id"),
    "day": ("id BIGINT, day DATE", "id, day", "id, DATE '2026-11-29'"),
    "branch": ("branch VARCHAR(64), id BIGINT", "branch, id", f"'{BRANCH}', id"),
}
"""Columns, key, and values."""
CHUNK_KEYS = Ports.__dataclass_fields__["chunk_rows"].default * KEYS_PER_ROW
Server = MariaDB | MySQL | PostgreSQL
SERVERS: dict[str, Callable[[], Server]] = {"mariadb": MariaDB, "mysql": MySQL, "postgres": PostgreSQL}


def fill(server: Server, kind: str, rows: int) -> None:
    server.create_database(DB)
    with contextlib.closing(server.connect(DB)) as connection, connection.cursor() as cursor:
        if kind == "mysql":
            cursor.execute(f"SET SESSION cte_max_recursion_depth = {BLOCK}")
        for name, (columns, key, values) in TABLES.items():
            cursor.execute(f"CREATE TABLE t_{name} ({columns}, v VARCHAR(40), PRIMARY KEY ({key}))")
            for low in range(1, rows + 1, BLOCK):
                ids = SEQUENCES[kind].format(low=low, high=min(rows, low + BLOCK - 1))
                cursor.execute(f"INSERT INTO t_{name} SELECT {values}, 'a row' FROM ({ids}) AS ids")
            if kind == "postgres":
                cursor.execute(f"VACUUM ANALYZE t_{name}")


def read_source(server: Server, kind: str, name: str) -> Iterator[int]:
    """Yield the number of keys of each chunk."""
    settings: dict[str, Any] = {"host": server.host, "port": server.port, "user": server.user, "password": ""}
    with contextlib.closing(server.connect(DB)) as connection:
        table = read_table(connection, DB, f"t_{name}")
    keys = replace(table, columns=tuple(map(table.get_column, table.key.columns)), unique=())
    visibility = BINLOG_FLAVOURS[kind].visibility(settings)
    after: Key | None = None
    with contextlib.closing(ChunkReader(make_connection_opener(settings), visibility, (0, 0))) as reader:
        while True:
            answer = reader.read_chunk(ReadChunk(1, keys, after, CHUNK_KEYS, 0.0))
            if not isinstance(answer, ChunkRead):
                raise TypeError(f"the chunk was not read: {answer}")
            yield len(answer.rows)
            if len(answer.rows) < CHUNK_KEYS:
                return
            after = answer.rows[-1]


def read_target(server: Server, kind: str, name: str) -> Iterator[int]:
    """Yield the number of keys of each page."""
    config = TargetConfig.model_validate(
        {"type": kind, "host": server.host, "port": server.port, "user": server.user, "password": "",
         "database": DB}
    )  # fmt: skip
    with contextlib.closing(open_session(config, name="bench")) as session:
        real = session.read_table("public" if kind == "postgres" else DB, f"t_{name}")
        if real is None:
            raise LookupError(name)
        added = ("branch",) if name == "branch" else ()
        table, where = build_key_table(build_target_table(real, real, added)), dict.fromkeys(added, BRANCH)
        page = session.fetch_rows(table, None, KEYS_PER_FETCH, where)
        while page:
            yield len(page)
            page = session.fetch_rows(table, page[-1], KEYS_PER_FETCH, where)


def measure(reading: Callable[[], Iterator[int]], rows: int) -> str:
    next(reading())  # imports
    here, there = time.process_time(), _server_cpu()
    if (found := sum(reading())) != rows:
        raise ValueError(f"{found} keys were read, not {rows}")
    here = time.process_time() - here
    time.sleep(1)  # PostgreSQL counts the session's process among its own once that has ended
    there = _server_cpu() - there
    return f"{here / rows * 1e6:.2f} + {there / rows * 1e6:.2f} µs"


def _server_cpu() -> float:
    """Return the processor seconds of the only server that runs, with its processes that have ended."""
    found = 0.0
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = each.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--servers", default=",".join(SERVERS))
    given, figures = parser.parse_args(), Figures()
    rows = given.rows
    for kind in given.servers.split(","):
        with SERVERS[kind]() as server:
            fill(server, kind, rows)
            for name in TABLES:
                place = f"key {name}, at {datetime.now(UTC):%H:%M}, load {os.getloadavg()[0]:.1f}"
                if kind != "postgres" and name != "branch":
                    used = measure(lambda: read_source(server, kind, name), rows)  # noqa: B023
                    figures.add_event(f"{kind} as source", used, place)
                used = measure(lambda: read_target(server, kind, name), rows)  # noqa: B023
                figures.add_event(f"{kind} as target", used, place)


if __name__ == "__main__":
    main()
