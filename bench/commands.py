"""Seconds that commands take as whole processes: `rowlock --help`, `units list` and `status`.

`units list` and `status` are measured beside a running system (MariaDB → Kafka → PostgreSQL) with one table
and with 1,000, once all rows are in the target and `status` finds nothing wrong.

python -m bench.commands [--tables 1,1000] [--times 5]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kit import Figures, tree, wait
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
from tests.kits.running import source_config, target_config, write_config

TABLES = (1, 1_000)
TIMES = 5
COMMANDS = (("units", "list"), ("status",))
_ROWLOCK = (sys.executable, "-m", "rowlock.cli")


@dataclass(frozen=True)
class Ended:
    """One command that has ended. `cpu_s`: processor seconds of its process."""

    seconds: float
    cpu_s: float
    code: int
    lines: int


def time_command(*words: str, log: Path) -> Ended:
    """Run `rowlock` with these words. `log`: the file for what it prints."""
    with log.open("wb") as out:
        began = time.monotonic()
        process = subprocess.Popen([*_ROWLOCK, *words], stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    lines = len(log.read_text().splitlines())
    return Ended(seconds, used.ru_utime + used.ru_stime, process.returncode, lines)


class RunningTables:
    """A source with tables `t0`, … of one row each, and a system that replicates them."""

    def __init__(self, folder: Path, kafka: Kafka, source: MariaDB, target: PostgreSQL, number: int) -> None:
        self._kafka, self._source, self._target, self._number = kafka, source, target, number
        self._name = f"commands{number}"
        self._folder = folder / self._name
        self._folder.mkdir()

    def prepare(self) -> Path:
        """Make the tables, and return the configuration."""
        self._source.create_database(self._name)
        self._target.create_database(self._name)
        connecting = contextlib.closing(self._source.connect(self._name))
        with connecting as connection, connection.cursor() as cursor:
            for number in range(self._number):
                cursor.execute(f"CREATE TABLE t{number} (id INT PRIMARY KEY)")
                cursor.execute(f"INSERT INTO t{number} VALUES (1)")
            connection.commit()
        route = {"from": f"{self._name}.*", "to": "public.{table}"}
        return write_config(
            self._folder,
            kafka={"bootstrap": self._kafka.bootstrap, "prefix": self._name},
            sources={"b": source_config(self._source, "mariadb", self._name)},
            targets={"hq": target_config(self._target, "postgres", self._name)},
            pipelines={"p": {"sources": ["b"], "target": "hq", "routes": [route]}},
        )

    def measure(self, config: Path, times: int) -> dict[str, list[Ended]]:
        """Return what each command took, by its words, while the system runs."""
        log = self._folder / "command.log"
        with tree("rowlock.cli", "run", "-c", str(config), log=self._folder / "run.log"):
            wait(lambda: self._count_rows() >= self._number, "all rows", 900, pause=1.0)
            wait(
                lambda: time_command("status", "-c", str(config), log=log).code == 0,
                "a status without a finding", 300, pause=2.0,
            )  # fmt: skip
            return {
                " ".join(words): [time_command(*words, "-c", str(config), log=log) for _ in range(times)]
                for words in COMMANDS
            }

    def _count_rows(self) -> int:
        query = "SELECT coalesce(sum(n_tup_ins), 0) FROM pg_stat_user_tables WHERE relname LIKE 't%'"
        return int(self._target.execute(query, database=self._name)[0][0])


def describe_runs(runs: Sequence[Ended]) -> tuple[str, str]:
    """Return the figure, a median, and its note. Raises RuntimeError if a command has failed."""
    if failed := [run.code for run in runs if run.code]:
        raise RuntimeError(f"the command ended with exit code {failed[0]}")
    seconds = sorted(run.seconds for run in runs)
    cpu_s = statistics.median(run.cpu_s for run in runs)
    note = f"{len(runs)} times, {seconds[0]:.2f} to {seconds[-1]:.2f} s; {cpu_s:.2f} s of processor time"
    return f"{statistics.median(seconds):.2f} s", note


def run(
    folder: Path, kafka: Kafka, source: MariaDB, target: PostgreSQL, figures: Figures,
    tables: Sequence[int] = TABLES, times: int = TIMES,
) -> None:  # fmt: skip
    """Add the figures of `--help`, and of the other commands for each number of tables."""
    helped = [time_command("--help", log=folder / "help.log") for _ in range(times)]
    figures.add_event("`rowlock --help`", *describe_runs(helped))
    for number in tables:
        running = RunningTables(folder, kafka, source, target, number)
        for words, runs in running.measure(running.prepare(), times).items():
            figure, note = describe_runs(runs)
            what = f"`rowlock {words}`, {number:,} table{'s' * (number > 1)}"
            figures.add_event(what, figure, f"{note}; {runs[-1].lines:,} lines")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.commands", description=__doc__)
    parser.add_argument("--tables", default=",".join(map(str, TABLES)), help="comma-separated numbers")
    parser.add_argument("--times", type=int, default=TIMES)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rowlock-commands-") as folder,
        combine_services(kafka := Kafka(), source := MariaDB(durable=False), target := PostgreSQL()),
    ):
        tables = [int(number) for number in options.tables.split(",")]
        run(Path(folder), kafka, source, target, Figures(), tables, options.times)
        print(f"load: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")


if __name__ == "__main__":
    main()
