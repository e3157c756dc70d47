"""From the start of `rowlock run` to the first row in the target: one table of ten rows, MariaDB → Kafka →
PostgreSQL.

`first`: nothing has run yet, so that topics and the target table are made, and a snapshot. `again`: a row was
written while nothing ran. The revision before is measured by turns in the same run, from a tree of its own
(`git archive`), with the packages of this one. Each pair has a prefix in Kafka and databases of its own.

python -m bench.start [--times 3] [--before REVISION] [--steps]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from bench.kit import Figures, tree, wait
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL, combine_services
from tests.kits.running import source_config, target_config, write_config

ROOT = Path(__file__).parents[1]
BEFORE = "bd00c59f"
"""The last revision in which each micro-batch of Spark applied what had come."""
TIMES = 3
TABLE = "small"
KINDS = ("first", "again")
SETTLED = ("slot opened", "Spark query started live")
"""Steps at which Spark applies what comes, and a start is over: now, and in the revision before."""


@dataclass(frozen=True)
class Started:
    """One start. Seconds since the process began, `visible` of the first row; `cpu`: processor seconds of all
    processes until then.

    `behind_s`: from the commit of another row, once Spark applies, until it is visible.
    """

    visible: float
    cpu: float
    behind_s: float
    steps: Mapping[str, float]


class Starts:
    """Makes a first start, and one after it, of a revision."""

    def __init__(self, folder: Path, kafka: Kafka, source: MariaDB, target: PostgreSQL) -> None:
        self._folder, self._kafka, self._source, self._target = folder, kafka, source, target
        self._number = 0

    def pair(self, where: Path | None) -> dict[str, Started]:
        """`where`: the tree of another revision."""
        self._number += 1
        name = f"start{self._number}"
        config = self._prepare(name)
        first = self._start(name, config, where, 10)
        self._execute(name, f"INSERT INTO {TABLE} VALUES (100, 'x')")
        return dict(zip(KINDS, (first, self._start(name, config, where, 11)), strict=True))

    def _prepare(self, name: str) -> Path:
        self._source.create_database(name)
        self._target.create_database(name)
        self._execute(name, f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, t VARCHAR(20))")
        self._execute(name, f"INSERT INTO {TABLE} VALUES " + ", ".join(f"({n}, 'x')" for n in range(10)))
        folder = self._folder / name
        folder.mkdir()
        route = {"from": f"{name}.*", "to": "public.{table}"}
        return write_config(
            folder,
            kafka={"bootstrap": self._kafka.bootstrap, "prefix": name},
            sources={"b": source_config(self._source, "mariadb", name)},
            targets={"hq": target_config(self._target, "postgres", name)},
            pipelines={"p": {"sources": ["b"], "target": "hq", "routes": [route]}},
        )

    def _execute(self, name: str, statement: str) -> None:
        with contextlib.closing(self._source.connect(name)) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def _start(self, name: str, config: Path, where: Path | None, rows: int) -> Started:
        log = config.parent / f"{rows}.log"
        with contextlib.closing(self._target.connect(name)) as target:
            began, at = time.monotonic(), time.time()
            with tree("rowlock.cli", "run", "-c", str(config), log=log, cwd=where) as processes:
                wait(lambda: _count(target) == rows, f"{rows} rows", 120, pause=0.02)
                visible, cpu = time.monotonic() - began, processes.cpu_seconds()
                wait(lambda: steps_of(log, at).keys() & set(SETTLED), "Spark applies", 120, pause=0.2)
                time.sleep(1)
                committed = time.monotonic()
                self._execute(name, f"INSERT INTO {TABLE} VALUES (1000, 'y')")
                wait(lambda: _count(target) == rows + 1, "one more", 60, pause=0.005)
                behind = time.monotonic() - committed
                self._execute(name, f"DELETE FROM {TABLE} WHERE id = 1000")
                wait(lambda: _count(target) == rows, "one less", 60)
        return Started(visible, cpu, behind, steps_of(log, at))


def _count(target: Any) -> int:
    with contextlib.suppress(Exception):
        return int(target.execute(f"SELECT count(*) FROM {TABLE}").fetchone()[0])
    return -1


def steps_of(log: Path, began: float) -> dict[str, float]:
    """Return what the log says → seconds after `began` (wall clock), of the first such line."""
    found: dict[str, float] = {}
    for line in log.read_text().splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            fields = json.loads(line)
            at = datetime.fromisoformat(str(fields["timestamp"])).timestamp() - began
            reported = [str(fields[name]) for name in ("event", "child", "query", "unit") if name in fields]
            found.setdefault(" ".join(reported), at)
    return found


@contextlib.contextmanager
def revision(name: str | None) -> Iterator[Path | None]:
    """Yield a folder with the tree of a revision; None where git does not have it."""
    command = ["git", "archive", "--format=tar", str(name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False) if name else None
    if done is None or done.returncode:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rowlock-before-") as folder:
        with tarfile.open(fileobj=BytesIO(done.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def measure(
    starts: Starts, before: str | None, times: int, *, steps: bool = False
) -> dict[str, list[dict[str, Started]]]:
    """Return "now" and, if git has `before`, "before": pairs that were made by turns."""
    found: dict[str, list[dict[str, Started]]] = {}
    with revision(before) as where:
        turns = {"now": None} if where is None else {"before": where, "now": None}
        for _ in range(times):
            for which, at in turns.items():
                pair = starts.pair(at)
                found.setdefault(which, []).append(pair)
                if steps:
                    _show(which, pair)
    return found


def _show(which: str, pair: Mapping[str, Started]) -> None:
    for kind, one in pair.items():
        print(
            f"== {which}, {kind}: {one.visible:.2f} s, {one.cpu:.2f} s of "
            f"processors; later {one.behind_s:.2f} s"
        )
        for what, at in one.steps.items():
            print(f"   {at:7.2f} {what}", flush=True)


def figures(found: Mapping[str, list[dict[str, Started]]], into: Figures) -> None:
    """Add a line for each kind of start and each revision, medians."""
    for kind in KINDS:
        for which, pairs in found.items():
            runs = [pair[kind] for pair in pairs]
            seen = ", ".join(f"{run.visible:.2f}" for run in runs)
            cpu = statistics.median(run.cpu for run in runs)
            baseline = (
                f"revision {BEFORE}, the last with micro-batches (baseline)"
                if which == "before"
                else "goal 3 s"
            )
            into.add_event(
                f"`rowlock run` → first row visible, {kind} start{', before' if which == 'before' else ''}",
                f"{statistics.median(run.visible for run in runs):.2f} s",
                f"{seen}; {cpu:.1f} s of processor time until then; {baseline}",
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--before", default=BEFORE, help='a revision of git; "": none')
    parser.add_argument("--steps", action="store_true", help="show what the log said, and when")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rowlock-start-") as folder,
        combine_services(kafka := Kafka(), source := MariaDB(durable=False), target := PostgreSQL()),
    ):
        starts = Starts(Path(folder), kafka, source, target)
        figures(measure(starts, options.before, options.times, steps=options.steps), Figures())


if __name__ == "__main__":
    main()
