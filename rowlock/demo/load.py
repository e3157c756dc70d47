"""The workload of the demo's branches, a thread each, and a probe that measures the latency from commit
to visibility.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from deploy.embedded.services import MariaDB, PostgreSQL
from rowlock.demo.bank import DATABASE, PROBES, Bank, BankStatement

TRANSACTIONS_PER_S = 60
"""Per branch: some 200 row changes a second, which leaves two small cores room for everything else."""
PROBE_EVERY_S = 0.4
PROBE_GIVE_UP_S = 20.0
PROBE_POLL_S = 0.002


def execute_transaction(connection: Any, statements: list[BankStatement]) -> int:
    """Run one transaction, and return the number of rows that it changed."""
    changed = 0
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for text, parameters in statements:
            changed += cursor.execute(text, parameters)
        cursor.execute("COMMIT")
    return changed


@dataclass(slots=True)
class Branch:
    """One branch: its server, its bank, and the thread that works in it."""

    name: str
    server: MariaDB
    bank: Bank = field(init=False)
    rows: int = 0
    error: str = ""

    def __post_init__(self) -> None:
        self.bank = Bank(random.Random(self.name))  # noqa: S311 - the same rows at every demo, on purpose

    def seed_tables(self, customers: int) -> int:
        """Fill the tables, and return the number of rows."""
        with self.server.connect(DATABASE) as connection:
            return sum(
                execute_transaction(connection, statements)
                for statements in self.bank.seed_customers(customers)
            )

    def start(self, stop: threading.Event) -> threading.Thread:
        """Run the workload in a thread until `stop` is set."""
        thread = threading.Thread(
            target=self._run_workload, args=(stop,), name=f"branch {self.name}", daemon=True
        )
        thread.start()
        return thread

    def _run_workload(self, stop: threading.Event) -> None:
        try:
            with self.server.connect(DATABASE) as connection:
                due = time.monotonic()
                while not stop.wait(max(0.0, due - time.monotonic())):
                    self.rows += execute_transaction(connection, self.bank.build_transaction())
                    due += 1 / TRANSACTIONS_PER_S
        except Exception as error:  # noqa: BLE001 - the thread's end is told by the main one
            if not stop.is_set():
                self.error = f"{self.name}: {error}"


class LatencyProbe:
    """Inserts transfers at a branch, waits until the head office shows each, and keeps the seconds in
    between.
    """

    def __init__(
        self, branch: str, source: MariaDB, office: PostgreSQL, database: str, stop: threading.Event
    ) -> None:
        self._branch = branch
        self._source = source
        self._office = office
        self._database = database
        self._stop = stop
        self.seconds: list[float] = []
        self.sent = 0
        self.lost = 0

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run_probe, name="probe", daemon=True)
        thread.start()
        return thread

    def _run_probe(self) -> None:
        number = PROBES
        with self._source.connect(DATABASE) as source, self._office.connect(self._database) as office:
            while not self._stop.wait(PROBE_EVERY_S):
                number += 1
                self._measure_latency(source, office, number)

    def _measure_latency(self, source: Any, office: Any, number: int) -> None:
        insert = "INSERT INTO transfers VALUES (%s, 1, 2, 0.01, UTC_TIMESTAMP(3), 'latency probe')"
        execute_transaction(source, [(insert, (number,))])
        self.sent += 1
        committed = time.perf_counter()
        find = "SELECT 1 FROM public.transfers WHERE branch = %s AND id = %s"
        while time.perf_counter() - committed < PROBE_GIVE_UP_S:
            if office.execute(find, (self._branch, number)).fetchone():
                self.seconds.append(time.perf_counter() - committed)
                return
            if self._stop.is_set():
                return
            time.sleep(PROBE_POLL_S)
        self.lost += 1


def compute_percentile(values: list[float], share: float) -> float | None:
    """Return the value below which `share` of `values` lie (nearest rank); None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
