"""A copy of one table beside a live load: how fast it is, and what the live rows notice of it. MariaDB →
Kafka → PostgreSQL.

The copied table has ten million rows (`--rows`); 2,000 rows a second are written meanwhile, half of them into
the very table. Produce to visible is measured with rows of a third, small table, one every 50 ms, before the
copy and while it runs: the ratio is of one run. After the copy, under the same load, one process reads the
same table by a plain SELECT and writes it by COPY into a new table: what two servers and a script need for
it, without any guarantee.

python -m bench.copy_table [--rows 10000000] [--rate 2000] [--key int|text] [--max-rows-per-second 8000]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymysql.cursors import SSCursor

from bench.kit import Figures, Tree, percentiles, tree, wait
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
from tests.kits.running import source_config, target_config, write_config

DB = "copied"
KEYS = {"int": "id BIGINT PRIMARY KEY", "text": "id VARCHAR(20) CHARACTER SET utf8mb4 PRIMARY KEY"}
FIRST = 10_000
"""Rows that are in the table when capture begins; the others come by doubling, without their events being
waited for one by one."""
BEFORE_S = 20.0
WAIT_S = 3600.0


@dataclass(frozen=True)
class Seen:
    """`visible`: seconds from commit to visible of rows of the small table, as they came."""

    before: Sequence[float]
    during: Sequence[float]
    rows: int
    captured_s: float
    applied_s: float
    plain_s: float
    peaks: dict[str, float]


class Load:
    """Writes into the big table and a table of its own, `rate` rows a second, a transaction of a tenth of
    that each."""

    def __init__(self, source: MariaDB, rate: int) -> None:
        self._source, self._rate = source, rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _run(self) -> None:
        batch, began = max(2, self._rate // 10), time.monotonic()
        with contextlib.closing(self._source.connect(DB)) as connection, connection.cursor() as cursor:
            while not self._over.is_set():
                half = batch // 2
                ids = ", ".join(f"({self.written + n}, 'live')" for n in range(half))
                cursor.execute(f"REPLACE INTO live VALUES {ids}")
                cursor.execute(
                    f"UPDATE big SET v = v + 1 WHERE n BETWEEN {self.written % FIRST} AND "
                    f"{self.written % FIRST + half - 1}"
                )
                self.written += batch
                self._over.wait(max(0.0, began + self.written / self._rate - time.monotonic()))


class Probe:
    """A row of the small table every 50 ms, and how long each takes to be visible."""

    def __init__(self, source: MariaDB, target: PostgreSQL) -> None:
        self._source, self._target = source, target
        self._number = 0

    def measure(self, until: Any) -> list[float]:
        """Measure until `until()` is true."""
        found: list[float] = []
        with (
            contextlib.closing(self._source.connect(DB)) as source,
            contextlib.closing(self._target.connect(DB)) as target,
            source.cursor() as cursor,
        ):
            while not until():
                self._number += 1
                cursor.execute(f"INSERT INTO probe VALUES ({self._number})")
                began, query = time.monotonic(), f"SELECT 1 FROM probe WHERE id = {self._number}"
                wait(
                    lambda query=query: target.execute(query).fetchone(),
                    "a row of the probe",
                    300,
                    pause=0.002,
                )
                found.append(time.monotonic() - began)
                time.sleep(0.05)
        return found


def run(rows: int, rate: int, key: str, most: int | None = None) -> Seen:
    kafka, source, target = Kafka(), MariaDB(), PostgreSQL()
    with tempfile.TemporaryDirectory() as folder, combine_services(kafka, source, target):
        _fill(source, rows, key)
        target.create_database(DB)
        config = write_config(
            Path(folder),
            kafka={"bootstrap": kafka.bootstrap, "prefix": DB},
            sources={"b": source_config(source, "mariadb", DB)},
            targets={"hq": target_config(target, "postgres", DB)},
            pipelines={
                "p": {
                    "sources": ["b"],
                    "target": "hq",
                    "routes": [{"from": f"{DB}.*", "to": "public.{table}"}],
                }
            },
        )
        with tree("rowlock.cli", "run", "-c", str(config), log=Path(folder) / "run.log") as processes:
            _wait_for_rows(target, rows)
            load, probe = Load(source, rate), Probe(source, target)
            with load.running():
                ends = time.monotonic() + BEFORE_S
                before = probe.measure(lambda: time.monotonic() >= ends)
                return _copied(config, processes, probe, before, lambda: _plain(source, target), most)


def _plain(source: MariaDB, target: PostgreSQL) -> float:
    """Return how long a SELECT and a COPY of the table take."""
    with (
        contextlib.closing(source.connect(DB, cursorclass=SSCursor)) as reading,
        contextlib.closing(target.connect(DB)) as writing,
        reading.cursor() as rows,
    ):
        writing.execute("CREATE TABLE plain (LIKE big INCLUDING ALL)")
        began = time.monotonic()
        rows.execute("SELECT id, n, v, t FROM big ORDER BY id")
        with writing.cursor() as cursor, cursor.copy("COPY plain (id, n, v, t) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        writing.commit()
        return time.monotonic() - began


def _copied(
    config: Path,
    processes: Tree,
    probe: Probe,
    before: list[float],
    plain: Callable[[], float],
    most: int | None,
) -> Seen:
    began = time.monotonic()
    _rowlock(config, "copy", f"{DB}.big", *(["--max-rows-per-second", str(most)] if most else []))
    captured: list[tuple[float, int]] = []

    def over() -> bool:
        copies = json.loads(_rowlock(config, "copy", "--output", "json"))["copies"]
        if copies and copies[0]["phase"] not in ("waiting", "running", "done"):
            raise RuntimeError(copies[0]["reason"])
        done = bool(copies) and copies[0]["phase"] == "done"
        if done and not captured:
            captured.append((time.monotonic() - began, copies[0]["rows"]))
        return done and _applied(config)

    looked = [0.0]

    def seldom() -> bool:
        if time.monotonic() < looked[0] + 2:
            return False
        looked[0] = time.monotonic()
        return over()

    during = probe.measure(seldom)
    (captured_s, rows) = captured[0]
    applied_s = time.monotonic() - began
    return Seen(before, during, rows, captured_s, applied_s, plain(), dict(processes.peaks))


def _applied(config: Path) -> bool:
    status = json.loads(_rowlock(config, "status", "--output", "json", fine=(0, 1)))
    unit = next(each for each in status["units"] if each["topic"].endswith(".big"))
    return (unit["lag_events"] or 0) < 20_000 and unit["state"] in ("current", "behind")


def _rowlock(config: Path, command: str, *words: str, fine: Sequence[int] = (0,)) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rowlock.cli", command, "-c", str(config), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in fine:
        raise RuntimeError(f"rowlock {command}: {done.stderr[-2000:]}")
    return done.stdout


def _fill(source: MariaDB, rows: int, key: str) -> None:
    source.create_database(DB)
    with contextlib.closing(source.connect(DB)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE probe (id INT PRIMARY KEY)")
        cursor.execute("CREATE TABLE live (id BIGINT PRIMARY KEY, t VARCHAR(20))")
        cursor.execute(f"CREATE TABLE big ({KEYS[key]}, n BIGINT, v INT, t VARCHAR(40), KEY (n))")
        values = ", ".join(f"({n}, {n}, 0, 'a row of the big table')" for n in range(FIRST))
        cursor.execute(f"INSERT INTO big VALUES {values}")
        have = FIRST
        while have < rows:
            more = min(have, rows - have)
            cursor.execute(f"INSERT INTO big SELECT n + {have}, n + {have}, v, t FROM big WHERE n < {more}")
            connection.commit()
            have += more


def _wait_for_rows(target: PostgreSQL, rows: int) -> None:
    with contextlib.closing(target.connect(DB)) as connection:

        def there() -> bool:
            with contextlib.suppress(Exception):
                return int(connection.execute("SELECT count(*) FROM big").fetchone()[0]) == rows
            return False

        wait(there, f"{rows:,} rows of the first snapshot", WAIT_S, pause=2)


def figures(seen: Seen, found: Figures) -> None:
    """Add what is printed and written to docs/benchmarks.md."""
    found.add_event(
        "copy of one table: captured", f"{seen.rows / seen.captured_s / 1000:.1f} thousand rows/s"
    )
    found.add_event("copy of one table: applied", f"{seen.rows / seen.applied_s / 1000:.1f} thousand rows/s")
    found.add_event(
        "the same rows by SELECT and COPY", f"{seen.rows / seen.plain_s / 1000:.1f} thousand rows/s"
    )
    found.add_event("copy of one table, applied : SELECT and COPY", f"{seen.plain_s / seen.applied_s:.2f}")
    for name, values in (("before", list(seen.before)), ("during", list(seen.during))):
        found.add_event(f"live rows {name} the copy", percentiles(values), f"{len(values)} rows")
    found.add_event(
        "live rows, p50 during : before",
        f"{statistics.median(seen.during) / statistics.median(seen.before):.2f}",
    )
    found.memory("copy of one table", seen.peaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--key", choices=sorted(KEYS), default="int")
    parser.add_argument("--max-rows-per-second", type=int, help="read the copy no faster")
    given = parser.parse_args()
    figures(run(given.rows, given.rate, given.key, given.max_rows_per_second), Figures())


if __name__ == "__main__":
    main()
