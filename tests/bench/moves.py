"""How long a move interrupts a topic: two apply processes, one topic under load, moved to and fro as a coordinator does.

`run()` returns seconds: `stop` (asked to ended), `start` (asked to the first commit), `gap` (the longest time without a commit
of the topic, from the stop on). The coordinator's part, two messages and a durable record, is not in it. The first moves
meet a Spark that has never run and are not counted.
"""

from __future__ import annotations

import random
import secrets
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from deploy.embedded.services import Kafka, PostgreSQL, stack
from tests.apply_kit import FakeSource, Topic, account_table, write_config
from tests.assigned_kit import AssignedApply, Writer, assigned_apply

COLD = 4
SETTLE_S = 1.5


def run(moves: int = 20, rate: float = 1000) -> dict[str, Any]:
    """Move a topic of `rate` rows/s `moves` times, after COLD that do not count. Returns p50 and max of each figure."""
    with stack(kafka := Kafka(), postgres := PostgreSQL()), tempfile.TemporaryDirectory() as folder:
        name = f"bench{secrets.token_hex(3)}"
        postgres.create_database(name)
        with ExitStack() as running:
            bench = _Bench(kafka, postgres, name, Path(folder), running)
            found = bench.moves(moves + COLD, rate)[COLD:]
    figures = {what: [each[what] for each in found] for what in ("stop", "start", "gap")}
    return {
        what: {"p50": round(statistics.median(values), 3), "max": round(max(values), 3)}
        for what, values in figures.items()
    } | {"moves": len(found), "rows_per_s": rate}


class _Bench:
    def __init__(self, kafka: Any, postgres: Any, name: str, folder: Path, running: ExitStack) -> None:
        target = {
            "type": "postgres", "host": "127.0.0.1", "port": postgres.port, "user": postgres.user, "password": "x",
            "database": name,
        }  # fmt: skip
        route = {"from": "bank.*", "to": "public.{table}"}
        self.processes: list[AssignedApply] = []
        for which in ("a", "b"):
            (folder / which).mkdir()
            config = write_config(folder / which, kafka=kafka, prefix=name, target=target, routes=[route])
            self.processes.append(running.enter_context(assigned_apply(config)))
        self.source = FakeSource(table=account_table())
        self.topic = Topic(kafka.bootstrap, name, self.source)
        self.topic.write([self.source.definition()])
        self.unit = f"apply/p/{self.topic.name}"
        self._connection = postgres.connect(name)
        self._commits: list[tuple[float, int]] = []
        self._rng = random.Random(1)

    def moves(self, number: int, rate: float) -> list[dict[str, float]]:
        for process in self.processes:
            process.ready()
        epochs = count(int(time.time() * 1000))
        epoch = next(epochs)
        here, there = self.processes
        self._open(here, epoch)
        here.do("start", self.unit, epoch)
        watching = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(watching,), daemon=True)
        watcher.start()
        found = []
        with Writer(lambda n: self.topic.write([self._change() for _ in range(n)]), rate):
            time.sleep(SETTLE_S)
            for _ in range(number):
                new = next(epochs)
                self._open(there, new)
                found.append(self._move(here, epoch, there, new))
                here, there, epoch = there, here, new
        watching.set()
        watcher.join()
        return found

    def _open(self, process: AssignedApply, epoch: int) -> None:
        process.do("open", self.unit, epoch)
        process.wait(self.unit, epoch, "ready")

    def _move(self, here: AssignedApply, old: int, there: AssignedApply, new: int) -> dict[str, float]:
        asked = here.do("stop", self.unit, old)
        ended, _ = here.wait(self.unit, old, "ended")
        started = there.do("start", self.unit, new)
        time.sleep(SETTLE_S)
        times = [at for at, _ in list(self._commits)]
        before = [at for at in times if at <= asked][-1:] or [asked]
        after = [at for at in times if at > asked]
        first = next((at for at in after if at > started), time.monotonic())
        gap = max((b - a for a, b in pairwise([*before, *after])), default=time.monotonic() - before[0])
        return {"stop": ended - asked, "start": first - started, "gap": gap}

    def _change(self) -> Any:
        key = self._rng.randrange(20_000)
        return self.source.put(self.source.row(key, f"{key}@x", self._rng.randrange(1000)))

    def _watch(self, done: threading.Event) -> None:
        """Note when the topic's progress in the target changes."""
        while not done.wait(0.003):
            rows = self._connection.execute("SELECT to_regclass('rowlock_progress')").fetchone()
            if rows is None or rows[0] is None:
                continue
            query = "SELECT min(kafka_offset) FROM rowlock_progress"
            (offset,) = self._connection.execute(query).fetchone() or (None,)
            if offset is not None and (not self._commits or self._commits[-1][1] != offset):
                self._commits.append((time.monotonic(), offset))
