"""The key sweep that follows a DROP or TRUNCATE PARTITION, beside a live load on the same table: how many
keys a minute it compares, and what the table's other events notice. MariaDB → Kafka → PostgreSQL and MySQL.

The table has `--rows` rows in ten partitions, and one is removed. Both sides are filled without the log, so
that the sweep takes nearly all of the time. `--rate` rows a second are changed meanwhile in transactions of
ten: rows are updated, inserted, deleted, and inserted again with keys that the statement removed. The first
row of each transaction is the clock, which gets the transaction's number: the lag of a transaction is the
time from its commit until the target's clock shows its number or a later one. "Before" is the same load
without the sweep, in the same run. At the end both tables are compared row by row.

python -m bench.key_sweep [--rows 1000000] [--rate 200] [--target postgres,mysql]
    [--keys together,spread,columns]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.kit import Figures, kind_of, percentiles, tree, wait
from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL, combine_services
from tests.kits.running import source_config, target_config, write_config

DB = "swept"
PARTITIONS = 10


class Shape(NamedTuple):
    """How the removed keys lie among the others: the table's key and partitioning, and the statement."""

    key: str
    by: str
    values: str
    statement: str


BY_RANGE = ("RANGE (id)", "LESS THAN ({above})", "DROP")
SHAPES = {
    "together": Shape("id", *BY_RANGE),
    "columns": Shape("id, t", *BY_RANGE),  # a number and a text, of which the servers order the text
    "spread": Shape("id", f"LIST (id MOD {PARTITIONS})", "IN ({number})", "TRUNCATE"),
}
SEQUENCES = {
    "mariadb": "SELECT seq AS id FROM seq_{low}_to_{high}",
    "postgres": "SELECT id FROM generate_series({low}, {high}) AS ids (id)",
    "mysql": "WITH RECURSIVE ids (id) AS (SELECT {low} UNION ALL SELECT id + 1 FROM ids WHERE id < {high}) "
    "SELECT id FROM ids",
}
ROWS = {
    "mariadb": "SELECT GROUP_CONCAT(id, ':', v ORDER BY id)",
    "postgres": "SELECT string_agg(concat(id, ':', v), ',' ORDER BY id)",
    "mysql": "SELECT GROUP_CONCAT(id, ':', v ORDER BY id)",
}
BLOCK = 100_000
"""Number of keys that are filled in or compared at a time."""
PER_TRANSACTION = 10
BEFORE_S = 20.0
WAIT_S = 3600.0


@dataclass(frozen=True)
class Seen:
    """`keys`: those that the source has after the statement. `swept_s`: from the statement to the end of the
    debt in the target. `before`, `during`: the transactions' lags in seconds."""

    keys: int
    removed: int
    swept_s: float
    before: list[float]
    during: list[float]
    cpu: dict[str, float]
    machine: tuple[float, float]
    """The machine's load (of one minute) before and after."""


class Side:
    """The table on one side: a server, and how its SQL generates and shows rows."""

    def __init__(self, server: MariaDB | MySQL | PostgreSQL, kind: str) -> None:
        self.server, self.kind = server, kind

    @contextlib.contextmanager
    def connection(self) -> Iterator[Callable[[str], list[Any]]]:
        """Yield what runs a statement and returns its rows."""
        with contextlib.closing(self.server.connect(DB)) as connection, connection.cursor() as cursor:

            def run(sql: str) -> list[Any]:
                cursor.execute(sql)
                return list(cursor.fetchall()) if cursor.description else []

            if self.kind != "postgres":
                run("SET SESSION group_concat_max_len = 100000000")
            yield run

    def fill(self, rows: int) -> None:
        """Write rows that neither log nor capture sees."""
        with self.connection() as run:
            if self.kind != "postgres":
                run("SET SESSION sql_log_bin = 0")
            if self.kind == "mysql":
                run(f"SET SESSION cte_max_recursion_depth = {BLOCK}")
            for low in range(1, rows + 1, BLOCK):
                ids = SEQUENCES[self.kind].format(low=low, high=min(rows, low + BLOCK - 1))
                run(f"INSERT INTO big SELECT id, 0, 'a row of the big table' FROM ({ids}) AS ids")

    def find(self, sql: str) -> Any:
        with self.connection() as run:
            return run(sql)[0][0]


class Load:
    """Changes rows of the table, `rate` a second, and notes when each transaction was committed."""

    def __init__(self, source: Side, rows: int, rate: int, keys: str) -> None:
        self._source, self._rows, self._rate, self._keys = source, rows, rate, keys
        self.committed: list[float] = []

    def run(self, over: threading.Event) -> None:
        drawn, began = random.Random(1), time.monotonic()
        with self._source.connection() as execute:
            while not over.is_set():
                number = len(self.committed) + 1
                for statement in ("BEGIN", *self._list_changes(number, drawn), "COMMIT"):
                    execute(statement)
                self.committed.append(time.monotonic())
                due = began + number * PER_TRANSACTION / self._rate
                over.wait(max(0.0, due - time.monotonic()))

    def _list_changes(self, number: int, drawn: random.Random) -> Iterator[str]:
        rows, new = self._rows, self._rows + 2 * number
        part = rows // PARTITIONS
        yield f"UPDATE big SET v = {number} WHERE id = {rows - 1}"  # the clock
        ids = ", ".join(str(drawn.randrange(part + 1, rows - 1)) for _ in range(4))
        yield f"UPDATE big SET v = {number} WHERE id IN ({ids})"
        yield f"INSERT INTO big VALUES ({new}, {number}, 'new'), ({new + 1}, {number}, 'new')"
        yield f"DELETE FROM big WHERE id = {drawn.randrange(rows + 1, new)}"
        removed = drawn.randrange(1, part) * (PARTITIONS if self._keys == "spread" else 1)
        yield f"REPLACE INTO big VALUES ({removed}, {number}, 'again')"


class Clock:
    """Reads the target's clock all the time, and notes when it showed a later number."""

    def __init__(self, target: Side, rows: int) -> None:
        self._target, self._rows = target, rows
        self.seen: list[tuple[float, int]] = [(0.0, 0)]

    def run(self, over: threading.Event) -> None:
        with self._target.connection() as query:
            while not over.wait(0.005):
                number = int(query(f"SELECT v FROM big WHERE id = {self._rows - 1}")[0][0])
                if number > self.seen[-1][1]:
                    self.seen.append((time.monotonic(), number))

    def list_lags(self, committed: Sequence[float], since: float, upto: float) -> list[float]:
        """Return the lags of the transactions that were committed between `since` and `upto`."""
        lags, shown = [], iter(self.seen)
        at, number = next(shown)
        for each, commit in enumerate(committed, 1):
            while number < each:
                at, number = next(shown)
            if since <= commit <= upto:
                lags.append(max(0.0, at - commit))
        return lags


@contextlib.contextmanager
def _beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work(over)` on a thread of its own until the block ends; raise its error then."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work, over)
        try:
            yield
        finally:
            over.set()
        done.result()


def run(rows: int, rate: int, kind: str, keys: str) -> Seen:
    kafka, source = Kafka(), Side(MariaDB(), "mariadb")
    target = Side(PostgreSQL() if kind == "postgres" else MySQL(extra=["--skip-log-bin"]), kind)
    with tempfile.TemporaryDirectory() as folder, combine_services(kafka, source.server, target.server):
        _create(source, target, rows, keys)
        config = write_config(
            Path(folder),
            kafka={"bootstrap": kafka.bootstrap, "prefix": DB},
            sources={"b": source_config(source.server, "mariadb", DB)},
            targets={"hq": target_config(target.server, kind, DB)},
            pipelines={
                "p": {
                    "sources": ["b"],
                    "target": "hq",
                    "routes": [
                        {"from": f"{DB}.*", "to": f"{'public' if kind == 'postgres' else DB}.{{table}}"}
                    ],
                }
            },
        )
        with tree("rowlock.cli", "run", "-c", str(config), log=Path(folder) / "run.log"):
            wait(lambda: _has_clock(target, rows), "the first row", 120, pause=0.5)
            for side in (source, target):
                side.fill(rows - 2)
            load, clock = Load(source, rows, rate, keys), Clock(target, rows)
            with _beside(clock.run), _beside(load.run):
                wait(lambda: clock.seen[-1][1] > 5 * rate / PER_TRANSACTION, "the load", 120)
                seen = _measure(source, target, load, clock, SHAPES[keys].statement)
            _compare(source, target, rows + 2 * len(load.committed) + 2)
            return seen


def _create(source: Side, target: Side, rows: int, keys: str) -> None:
    """Create the table at the source with its clock and the last row, which the snapshot brings."""
    for side in (source, target):
        side.server.create_database(DB)
    shape = SHAPES[keys]
    part = rows // PARTITIONS
    parts = [
        f"PARTITION p{number} VALUES {shape.values.format(number=number, above=(number + 1) * part + 1)}"
        for number in range(PARTITIONS)
    ]
    if shape.by == BY_RANGE[0]:
        parts[-1] = f"PARTITION p{PARTITIONS - 1} VALUES LESS THAN MAXVALUE"
    with source.connection() as run:
        run(
            f"CREATE TABLE big (id BIGINT, v BIGINT, t VARCHAR(40), PRIMARY KEY ({shape.key})) "
            f"PARTITION BY {shape.by} ({', '.join(parts)})"
        )
        run(f"INSERT INTO big VALUES ({rows - 1}, 0, 'the clock'), ({rows}, 0, 'the last one')")


def _has_clock(target: Side, rows: int) -> bool:
    with contextlib.suppress(Exception):
        return int(target.find(f"SELECT count(*) FROM big WHERE id = {rows - 1}")) == 1
    return False


def _measure(source: Side, target: Side, load: Load, clock: Clock, statement: str) -> Seen:
    first, machine = time.monotonic(), os.getloadavg()[0]
    time.sleep(BEFORE_S)
    removed, cpu = int(source.find("SELECT count(*) FROM big PARTITION (p0)")), _cpu()
    began = time.monotonic()
    with source.connection() as run:
        run(f"ALTER TABLE big {statement} PARTITION p0")
    with target.connection() as run:

        def in_debt() -> bool:
            return '"removed":{' in str(run("SELECT definition FROM rowlock_unit")[0][0])

        wait(in_debt, "the debt", 120, pause=0.05)
        wait(lambda: not in_debt(), "the end of the debt", WAIT_S, pause=0.1)
    ended, used = time.monotonic(), _cpu()
    keys = int(source.find("SELECT count(*) FROM big"))
    last = len(load.committed)
    wait(lambda: clock.seen[-1][1] >= last, "the last transaction", WAIT_S)
    return Seen(
        keys, removed, ended - began,
        clock.list_lags(load.committed[:last], first, began),
        clock.list_lags(load.committed[:last], began, ended),
        {kind: seconds - cpu.get(kind, 0.0) for kind, seconds in used.items()},
        (machine, os.getloadavg()[0]),
    )  # fmt: skip


def _cpu() -> dict[str, float]:
    """Return the processor seconds of this process's children, by what they are."""
    found: dict[str, float] = {}
    for each in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times, kind = each.cpu_times(), kind_of(each.cmdline()).partition(":")[0]
            found[kind] = found.get(kind, 0.0) + times.user + times.system
    return found


def _compare(source: Side, target: Side, upto: int) -> None:
    """Wait until both tables are equal in every block of keys. Raises TimeoutError if they stay different."""
    with source.connection() as here, target.connection() as there:
        for low in range(0, upto, BLOCK):
            rows = f"FROM big WHERE id > {low} AND id <= {low + BLOCK}"
            wait(
                lambda rows=rows: (
                    here(f"{ROWS[source.kind]} {rows}")[0][0] == there(f"{ROWS[target.kind]} {rows}")[0][0]
                ),
                f"equal rows: {rows}",
                60,
                pause=1,
            )


def figures(what: str, seen: Seen, found: Figures) -> None:
    found.add_event(
        f"key sweep, {what}",
        f"{seen.keys / seen.swept_s * 60 / 1e6:.2f} million keys a minute",
        f"{seen.keys:,} keys, {seen.removed:,} rows removed, {seen.swept_s:.1f} s; the machine's load "
        f"{seen.machine[0]:.1f} and {seen.machine[1]:.1f}, at {datetime.now(UTC):%H:%M}",
    )
    for name, lags in (("before", seen.before), ("during", seen.during)):
        found.add_event(f"lag of the table's other events {name} the sweep", _format_lags(lags))
    cpu = sorted(seen.cpu.items(), key=lambda item: -item[1])
    text = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in cpu if seconds >= 0.5)
    found.add_event("processor seconds meanwhile", text)


def _format_lags(lags: list[float]) -> str:
    return f"{percentiles(lags)}, max {max(lags) * 1000:.0f} ms ({len(lags):,} transactions)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="a multiple of ten")
    parser.add_argument("--rate", type=int, default=200, help="changed rows a second")
    parser.add_argument("--target", default="postgres,mysql")
    parser.add_argument("--keys", default="together", help=f"of {', '.join(SHAPES)}")
    given, found = parser.parse_args(), Figures()
    for kind in given.target.split(","):
        for keys in given.keys.split(","):
            figures(f"{kind}, keys {keys}", run(given.rows, given.rate, kind, keys), found)


if __name__ == "__main__":
    main()
