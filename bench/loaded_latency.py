"""From commit to visible under a steady load: how late rows are at the target while 2,000 and 5,000 row
events a second are written, in transactions of ten, MariaDB → Kafka → PostgreSQL.

The last row that a transaction inserts is its sample: its time runs from the end of its commit at the client
until a reader that polls the target all the time sees it. Rows are applied in lanes, so each sample is looked
for by itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from bench import workload
from bench.kit import percentiles, wait
from bench.stage import SOURCE_DB, Bench, rowlock_run

RATES = (2_000, 5_000)
WARM_S = 15.0
MEASURED_S = 60.0
INSERTED = 5
"""Number of rows that a transaction of the workload inserts; transaction t's last one is 5 * (t + 1)."""


class Writer(threading.Thread):
    """Commits `rate` row events a second until the time `until`, and notes when each transaction was
    committed."""

    def __init__(self, bench: Bench, rate: int, first: int, until: float) -> None:
        super().__init__(daemon=True)
        self._bench, self._rate, self._next, self._until = bench, rate, first, until
        self.committed: dict[int, float] = {}
        self.seconds = 0.0

    def run(self) -> None:
        began, pause = time.monotonic(), workload.EVENTS_PER_TRANSACTION / self._rate
        with (
            contextlib.closing(self._bench.source.connect(SOURCE_DB)) as source,
            source.cursor() as cursor,
        ):
            while time.monotonic() < self._until:
                workload.run(cursor, workload.EVENTS_PER_TRANSACTION, self._next)
                self.committed[INSERTED * (self._next + 1)] = time.monotonic()
                self._next += 1
                time.sleep(max(0.0, began + len(self.committed) * pause - time.monotonic()))
        self.seconds = time.monotonic() - began


def _watch(target: Any, writer: Writer, first: int, until: float) -> dict[int, float]:
    """Return when each sample from `first` on became visible, of those that did before `until`."""
    seen: dict[int, float] = {}
    low = first
    target.execute(
        "SET enable_seqscan = off"
    )  # a table without statistics would be read whole, again and again
    query = f"SELECT id FROM {workload.TABLE} WHERE id >= %s AND mod(id, {INSERTED}) = 0"
    while time.monotonic() < until or low in writer.committed:
        for (number,) in target.execute(query, (low,)).fetchall():
            seen.setdefault(number, time.monotonic())
        while low in seen:
            low += INSERTED
        time.sleep(0.002)
    return seen


def measure(bench: Bench, target: Any, rate: int, first: int) -> tuple[list[float], float, int]:
    """Return the samples in seconds, the rate that was reached, and the number of the next transaction."""
    began = time.monotonic()
    until = began + WARM_S + MEASURED_S
    writer = Writer(bench, rate, first, until)
    writer.start()
    with contextlib.closing(target):
        seen = _watch(target, writer, INSERTED * (first + 1), until)
    writer.join()
    lags = [
        seen[number] - at
        for number, at in writer.committed.items()
        if at >= began + WARM_S and number in seen
    ]
    count = len(writer.committed)
    return lags, count * workload.EVENTS_PER_TRANSACTION / writer.seconds, first + count


def run(bench: Bench) -> None:
    """Add a line for each rate."""
    name = "loaded"
    config = bench.config(name, prefix=name, tables=workload.TABLE)
    postgres = bench.targets["postgres"]
    with rowlock_run(bench, name, config):
        for rate in RATES:
            bench.load(1_000)
            with contextlib.closing(postgres.connect(name)) as target:
                _await_row(target, INSERTED * bench.transaction)
            lags, reached, bench.transaction = measure(bench, postgres.connect(name), rate, bench.transaction)
            bench.figures.add_event(
                f"commit → visible at {reached:,.0f} row events/s",
                f"{percentiles(lags)}, max {max(lags) * 1000:.0f} ms",
                f"{len(lags):,} transactions in {MEASURED_S:.0f} s; goal p50 ≤ 40 ms, p99 ≤ 150 ms",
            )


def _await_row(target: Any, number: int) -> None:
    query = f"SELECT 1 FROM {workload.TABLE} WHERE id = %s"

    def is_visible() -> bool:
        with contextlib.suppress(Exception):  # the table may not exist yet
            return target.execute(query, (number,)).fetchone() is not None
        return False

    wait(is_visible, "the rows before", pause=0.1)
