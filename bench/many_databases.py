"""One source with many small databases, MariaDB → Kafka → PostgreSQL: `rowlock check`, then `rowlock run`
until every row of the snapshots is in the target, then a change in each table, and in every hundredth
database.

A database has two tables of ten rows. Figures: time of `check`, of the start of capture and of each part of
the first copy, peak memory of each kind of process, topics.

python -m bench.many_databases [--databases 200] [--seconds 600]
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from bench.kit import Figures, Tree, tree, wait
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
from tests.kits.running import source_config, target_config, write_config

ROWS = 10
TABLES = ("acct", "entry")
TARGET_DB = "manydb"
TABLES_PER_QUERY = 200


class ManyDatabases:
    """The services, and the databases `m00000`, … of the source."""

    def __init__(self, folder: Path, kafka: Kafka, source: MariaDB, target: PostgreSQL, number: int) -> None:
        self._kafka, self._source, self._target, self._number = kafka, source, target, number
        self._folder, self.figures = folder, Figures()
        self._complete: set[str] = set()
        """The target tables whose rows need not be counted again."""

    def prepare(self) -> Path:
        """Make the databases, and return the configuration."""
        began = time.monotonic()
        rows = ", ".join(f"({n}, 'x')" for n in range(ROWS))
        with contextlib.closing(self._source.connect("mysql")) as connection, connection.cursor() as cursor:
            for number in range(self._number):
                cursor.execute(f"CREATE DATABASE m{number:05d}")
                for table in TABLES:
                    cursor.execute(f"CREATE TABLE m{number:05d}.{table} (id INT PRIMARY KEY, t VARCHAR(20))")
                    cursor.execute(f"INSERT INTO m{number:05d}.{table} VALUES {rows}")
                connection.commit()
        self._target.create_database(TARGET_DB)
        self.figures.add_event("databases made", f"{time.monotonic() - began:.0f} s")
        route = {"from": "m0*.*", "to": "public.{db}_{table}"}
        return write_config(
            self._folder,
            kafka={"bootstrap": self._kafka.bootstrap, "prefix": "many"},
            sources={"b": source_config(self._source, "mariadb", "m0*")},
            targets={"hq": target_config(self._target, "postgres", TARGET_DB)},
            pipelines={"p": {"sources": ["b"], "target": "hq", "routes": [route]}},
        )

    def check(self, config: Path) -> None:
        began = time.monotonic()
        with tree("rowlock.cli", "check", "-c", str(config), log=self._folder / "check.log") as check:
            check.process.wait(1200)
            code = check.process.returncode
        self.figures.add_event("check", f"{time.monotonic() - began:.1f} s", f"exit code {code}")
        self.figures.memory("check", check.peaks)

    def run(self, config: Path, seconds: float) -> None:
        """Run until all rows are in the target, at most so long."""
        expected = self._number * len(TABLES)
        began = time.monotonic()
        with tree("rowlock.cli", "run", "-c", str(config), log=self._folder / "run.log") as ours:
            try:
                self._follow(ours, began, expected, seconds)
            finally:
                self.figures.memory("run", ours.peaks)
                cpu = {kind: f"{used:.0f} s" for kind, used in ours.cpu_by_kind().items()}
                self.figures.add_event("processor time", str(cpu))

    def _follow(self, ours: Tree, began: float, expected: int, seconds: float) -> None:
        for what, count in (
            ("first topic", lambda: min(self._count_topics(), 1)),
            ("half of the topics", lambda: self._count_topics() >= expected // 2),
            ("all topics", lambda: self._count_topics() >= expected),
            ("first table in the target", lambda: self._count_tables() > 0),
            ("half of the tables", lambda: self._count_tables() >= expected // 2),
            ("all tables", lambda: self._count_tables() >= expected),
            ("all rows", lambda: self._count_complete(ROWS) >= expected),
        ):
            left = seconds - (time.monotonic() - began)
            try:
                wait(count, what, max(left, 1), pause=1.0)
            except TimeoutError:
                text = f"{self._count_topics()} topics, {self._count_tables()} tables"
                self.figures.add_event(what, f"not within {seconds:.0f} s", text)
                return
            self.figures.add_event(what, f"{time.monotonic() - began:.1f} s")
        self._change_all()
        self._change(ours)

    def _change_all(self) -> None:
        """Make an event in each table, and wait until all are in the target."""
        values = f"VALUES ({ROWS}, 'one')"
        with contextlib.closing(self._source.connect("mysql")) as connection, connection.cursor() as cursor:
            for number in range(self._number):
                for table in TABLES:
                    cursor.execute(f"INSERT INTO m{number:05d}.{table} {values}")
        began, expected = time.monotonic(), self._number * len(TABLES)
        self._complete = set()
        wait(lambda: self._count_complete(ROWS + 1) >= expected, "one event in each table", 120)
        figure = f"{time.monotonic() - began:.1f} s"
        self.figures.add_event("one event in each table, last commit → all visible", figure)

    def _change(self, ours: Tree) -> None:
        changed = range(0, self._number, 100)
        began, used = time.monotonic(), ours.cpu_by_kind()
        for number in changed:
            self._source.execute(f"INSERT INTO m{number:05d}.acct VALUES (1000, 'new')")
        for number in changed:
            query = f"SELECT 1 FROM public.m{number:05d}_acct WHERE id = 1000"
            wait(lambda query=query: self._target.execute(query, database=TARGET_DB), query, 120)  # type: ignore[misc]
        self.figures.add_event(f"{len(changed)} changed tables", f"{time.monotonic() - began:.1f} s")
        time.sleep(20)
        seconds = time.monotonic() - began
        spent = {kind: (cpu - used.get(kind, 0.0)) / seconds for kind, cpu in ours.cpu_by_kind().items()}
        text = ", ".join(f"{kind} {share * 100:.1f} %" for kind, share in spent.items())
        self.figures.add_event("idle", f"{sum(spent.values()) * 100:.0f} % of a core", text)

    def _count_topics(self) -> int:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap, "log_level": 0})
        return sum(topic.startswith("many.b.m0") for topic in admin.list_topics(timeout=30).topics)

    def _count_tables(self) -> int:
        query = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'm0%'"
        return int(self._target.execute(query, database=TARGET_DB)[0][0])

    def _count_complete(self, rows: int) -> int:
        """Return the number of target tables that were seen with `rows` rows.

        Statistics of the server would be cheaper, but a session reports its last inserts up to ten seconds
        late.
        """
        query = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'm0%'"
        left = sorted(
            {str(name) for (name,) in self._target.execute(query, database=TARGET_DB)} - self._complete
        )
        for at in range(0, len(left), TABLES_PER_QUERY):
            some = left[at : at + TABLES_PER_QUERY]
            counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in some)
            found = self._target.execute(counts, database=TARGET_DB)
            self._complete.update(str(name) for name, seen in found if seen == rows)
        return len(self._complete)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many_databases", description=__doc__)
    parser.add_argument("--databases", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600.0, help="for the first copy")
    parser.add_argument("--keep-logs", type=Path, help="a folder for the logs of check and run")
    options = parser.parse_args()
    kafka, source, target = Kafka(), MariaDB(durable=False), PostgreSQL()
    services: list[Any] = [kafka, source, target]
    with (
        tempfile.TemporaryDirectory(prefix="rowlock-many-") as folder,
        combine_services(*services),
    ):
        place = options.keep_logs or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        many = ManyDatabases(place, kafka, source, target, options.databases)
        config = many.prepare()
        many.check(config)
        many.run(config, options.seconds)


if __name__ == "__main__":
    main()
