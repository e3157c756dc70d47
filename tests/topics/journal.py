"""A source under load whose every change is known: one writer, who keeps what he committed, in tables that
all have the same rows."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from deploy.embedded.services import MariaDB, MySQL
from tests.topics.expected import EMPTIED, SourceHistory, Step
from tests.topics.forms import Image

DDL = """CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, version BIGINT NOT NULL,
  town VARCHAR(20) NOT NULL,
         owner VARCHAR(40) NULL UNIQUE, amount DECIMAL(12,2) NOT NULL, at DATETIME(3) NOT NULL)"""
COLUMNS = ("id", "version", "town", "owner", "amount", "at")
TOWNS = ("ulm", "bonn", "köln", "jena")
KEYS = 60
OWNERS = [f"owner{i}" for i in range(40)]


class Journal(threading.Thread):
    """The writer: inserts, updates, deletes, keys and towns that change, unique owners handed from row to
    row, several a transaction.

    `history`: what was there before it began, and the changes of all that was committed. An error of it is
    raised by `finish`. `pause_s`: between transactions.
    """

    def __init__(
        self, server: MariaDB | MySQL, db: str, tables: Sequence[str], seed: int = 1, pause_s: float = 0.005
    ) -> None:
        super().__init__(name=f"journal of {db}", daemon=True)
        self._server, self._db, self._tables = server, db, tables
        self._random, self._pause_s = random.Random(seed), pause_s
        self._ending = threading.Event()
        self._emptying, self._widening = threading.Event(), threading.Event()
        self._columns: tuple[str, ...] = COLUMNS
        self._error: BaseException | None = None
        self._rows: dict[int, Image] = {}
        self._owners: dict[str, int] = {}
        self._version = 0
        self._open: list[Step] = []
        self.history = SourceHistory()

    @property
    def count(self) -> int:
        return len(self.history.steps)

    def prepare(self) -> None:
        """Make the tables, with rows for the snapshot: every other one has an owner."""
        with contextlib.closing(self._server.connect(self._db)) as connection, connection.cursor() as cursor:
            for table in self._tables:
                cursor.execute(DDL.format(name=table))
            for key in range(0, KEYS, 2):
                self._put(cursor, None, self._row(key, owner=OWNERS[key // 4] if key % 4 else None))
            cursor.execute("COMMIT")
        self._open.clear()
        self.history.first = list(self._rows.values())

    def run(self) -> None:
        try:
            with (
                contextlib.closing(self._server.connect(self._db)) as connection,
                connection.cursor() as cursor,
            ):
                while not self._ending.wait(self._pause_s):
                    if self._emptying.is_set():
                        self._empty(cursor)
                    if self._widening.is_set():
                        self._widen(cursor)
                    cursor.execute("BEGIN")
                    for _ in range(self._random.randint(1, 6)):
                        self._change(cursor)
                    cursor.execute("COMMIT")
                    self.history.steps += self._open
                    self._open.clear()
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def finish(self) -> None:
        self._ending.set()
        self.join(60)
        if self._error:
            raise self._error

    def alive(self) -> None:
        """Raise what has ended it."""
        if self._error:
            raise self._error

    def empty(self) -> None:
        """Have all tables emptied by TRUNCATE between two transactions."""
        self._emptying.set()

    def widen(self) -> None:
        """Have all tables given a column `note` between two transactions."""
        self._widening.set()

    def rows(self, table: str) -> list[Image]:
        """Return all rows of a table as the server has them."""
        found = self._server.execute(f"SELECT {', '.join(self._columns)} FROM {table}", database=self._db)
        return [dict(zip(self._columns, row, strict=True)) for row in found]

    # --- changes

    def _empty(self, cursor: Any) -> None:
        for table in self._tables:
            cursor.execute(f"TRUNCATE TABLE {table}")
        self.history.steps.append(EMPTIED)
        self._rows.clear()
        self._owners.clear()
        self._emptying.clear()

    def _widen(self, cursor: Any) -> None:
        for table in self._tables:
            cursor.execute(f"ALTER TABLE {table} ADD note VARCHAR(20) NULL")
        self._rows = {key: {**row, "note": None} for key, row in self._rows.items()}
        self._columns = (*COLUMNS, "note")
        self._widening.clear()

    def _change(self, cursor: Any) -> None:
        draw, key = self._random.random(), self._random.randrange(KEYS)
        row = self._rows.get(key)
        free = [key, *(each for each in range(KEYS) if each not in self._rows)]
        changes: list[tuple[float, Callable[[Image], Image | None]]] = [
            (0.15, lambda row: None),
            (0.3, lambda row: {**row, "id": self._random.choice(free)}),
            (0.45, lambda row: {**row, "town": self._random.choice(TOWNS)}),
        ]
        for below, change in changes:
            if row is not None and draw < below:
                after = change(row)
                self._put(cursor, row, None if after is None else self._next(after))
                return
        owner = self._random.choice(OWNERS) if draw > 0.7 else None
        holder = self._owners.get(owner or "")
        if holder is not None and holder != key:
            self._put(cursor, self._rows[holder], self._next({**self._rows[holder], "owner": None}))
        self._put(cursor, row, self._row(key, owner=owner))

    def _next(self, row: Image) -> Image:
        self._version += 1
        return {**row, "version": self._version}

    def _row(self, key: int, owner: str | None) -> Image:
        cents, ms = self._random.randint(-99999, 99999), self._random.randrange(1000)
        more = {name: self._random.choice([None, "ä"]) for name in self._columns[len(COLUMNS) :]}
        return self._next(
            {
                "id": key,
                "version": 0,
                "town": self._random.choice(TOWNS),
                "owner": owner,
                "amount": Decimal(cents).scaleb(-2),
                "at": datetime(2026, 11, 1 + key % 28, 7, 5, 9, ms * 1000),  # noqa: DTZ001 - wall time
                **more,
            }
        )

    def _put(self, cursor: Any, before: Image | None, after: Image | None) -> None:
        for table in self._tables:
            cursor.execute(*_statement(table, before, after))
        if before is not None:
            del self._rows[before["id"]]
            self._owners.pop(before["owner"] or "", None)
        if after is not None:
            self._rows[after["id"]] = after
            if after["owner"] is not None:
                self._owners[after["owner"]] = after["id"]
        self._open.append((before, after))


def _statement(table: str, before: Image | None, after: Image | None) -> tuple[str, list[Any]]:
    if after is None:
        assert before is not None
        return f"DELETE FROM {table} WHERE id = %s", [before["id"]]
    values = list(after.values())
    if before is None:
        return f"INSERT INTO {table} ({', '.join(after)}) VALUES ({', '.join(['%s'] * len(after))})", values
    changed = ", ".join(f"{name} = %s" for name in after)
    return f"UPDATE {table} SET {changed} WHERE id = %s", [*values, before["id"]]
