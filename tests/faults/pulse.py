"""A counter in each of many tables of the source, and the times at which its values arrive in the target: how
long does any table wait while something is broken?"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from tests.kits.running import DatabaseServer

INTERVAL_S = 0.25


def list_statements(names: list[str]) -> list[str]:
    """Return the statements that make the tables `names`, each with one row."""
    made = []
    for name in names:
        made.append(f"CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL)")
        made.append(f"INSERT INTO {name} VALUES (1, 0)")
    return made


class Pulse:
    """Counts in all tables every INTERVAL_S, and watches the target. Errors are raised by `stop`."""

    def __init__(
        self, source: DatabaseServer, target: DatabaseServer, database: str, names: list[str]
    ) -> None:
        self._source, self._target, self._database, self._names = source, target, database, names
        self._ending = threading.Event()
        self._errors: list[BaseException] = []
        self._mutex = threading.Lock()
        self._written: dict[int, float] = {}
        """Number of a count → when it was committed."""
        self._seen = dict.fromkeys(names, 0)
        self._waits: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        """Of each table: when counts became visible, and how long the oldest of them had been committed."""
        self.regressions: list[tuple[str, int, int]] = []
        self._threads = [threading.Thread(target=self._guard, args=(run,), daemon=True)
                         for run in (self._write, self._watch)]  # fmt: skip

    def start(self) -> None:
        self._seen |= self._read_once()
        self._next = max(self._seen.values()) + 1
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(30)
        if self._errors:
            raise self._errors[0]

    def find_longest_waits(self, since: float) -> dict[str, float]:
        """Return the longest time in seconds that a count of each table needed which became visible after
        `since`; one that is still on its way counts until now."""
        now = time.monotonic()
        with self._mutex:
            found = {}
            for name in self._names:
                waits = [wait for at, wait in self._waits[name] if at >= since]
                first = self._written.get(self._seen[name] + 1)
                found[name] = max([*waits, *([] if first is None else [now - first])], default=0.0)
            return found

    def find_resumption(self, since: float) -> dict[str, float | None]:
        """Return how many seconds after `since` a count of each table became visible that was committed
        after `since`; None: none did yet."""
        with self._mutex:
            return {
                name: next((at - since for at, wait in self._waits[name] if at - wait >= since), None)
                for name in self._names
            }

    def _guard(self, run: Any) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001
            self._errors.append(error)

    def _write(self) -> None:
        with contextlib.closing(self._source.connect(self._database)) as connection:
            cursor = connection.cursor()
            number = self._next
            while not self._ending.wait(INTERVAL_S):
                cursor.execute("BEGIN")
                for name in self._names:
                    cursor.execute(f"UPDATE {name} SET n = {number}")
                cursor.execute("COMMIT")
                with self._mutex:
                    self._written[number] = time.monotonic()
                number += 1

    def _watch(self) -> None:
        while not self._ending.is_set():
            with (
                contextlib.suppress(OSError, RuntimeError),
                contextlib.closing(self._target.connect(self._database)) as connection,
                connection.cursor() as cursor,
            ):
                while not self._ending.wait(0.02):
                    self._note(self._read(cursor))
                    connection.commit()

    def _read_once(self) -> dict[str, int]:
        with contextlib.closing(self._target.connect(self._database)) as connection:
            with connection.cursor() as cursor:
                return self._read(cursor)

    def _read(self, cursor: Any) -> dict[str, int]:
        cursor.execute(" UNION ALL ".join(f"SELECT '{name}', n FROM {name}" for name in self._names))
        return {str(name): int(n) for name, n in cursor.fetchall()}

    def _note(self, found: dict[str, int]) -> None:
        now = time.monotonic()
        with self._mutex:
            for name, number in found.items():
                before = self._seen[name]
                if number < before:
                    self.regressions.append((name, before, number))
                elif number > before:
                    first = self._written.get(before + 1, now)
                    last = self._written.get(number, now)
                    self._waits[name].append((now, now - first))
                    if last != first:
                        self._waits[name].append((now, now - last))
                self._seen[name] = number
