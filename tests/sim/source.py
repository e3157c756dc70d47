"""The model's source databases: rows, a log of transactions, and sessions that read with a consistent view.

A source has rows (key, u1, u2, version) with case-insensitive key and unique values. With semi-synchronous replication a
transaction is in the log before a SELECT sees it: `visible` lags behind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from producer.snapshot.chunks import LogPoint
from schemas.wire.position import binlog_file_number
from tests.sim.binlog import FILE, UUID, Binlog, Change, SourceRow

if TYPE_CHECKING:
    from tests.sim.world import World

NUMBER = binlog_file_number(FILE)
BEGIN = 4


@dataclass(frozen=True)
class Logged:
    """A transaction: where it starts and ends in the log, its changes; `truncate`: all rows are gone."""

    start: int
    end: int
    gtid: str
    changes: tuple[Change, ...] = ()
    truncate: bool = False


class Source:
    def __init__(self, name: str, world: World, *, mysql: bool) -> None:
        self.name, self.world, self.mysql = name, world, mysql
        self.rows: dict[str, SourceRow] = {}
        self.binlog = Binlog(mysql=mysql)
        self.log: list[Logged] = []
        self.seen: dict[str, SourceRow] = {}  # what a SELECT sees: rows as of `visible`
        self.visible = 0  # transactions that a SELECT sees

    def start_with(self, rows: list[SourceRow]) -> None:
        """Rows from before the log begins."""
        for row in rows:
            self.rows[row[0].lower()] = self.seen[row[0].lower()] = row

    def transact(self, rng: random.Random) -> None:
        """Commit a transaction of a few random row changes; SELECTs see it later."""
        start = self.binlog.end
        if self.rows and rng.random() < self.world.truncates:
            for row in self.rows.values():
                self.world.happened(self, row, None)
            self.rows = {}
            gtid = self.binlog.truncate()
            self.log.append(Logged(start, self.binlog.end, gtid, truncate=True))
            return
        undone = rng.random() < self.world.undone
        changes: list[Change] = []
        for _ in range(rng.randint(1, 3)):
            change = self.world.random_change(self, rng)
            if change is None:
                continue
            changes.append(change)
            if undone:
                break
            _carry_out(self.rows, change)
            self.world.happened(self, *change)
        if changes:
            gtid = self.binlog.transaction(changes, undone=undone, beside=rng.random() < 0.2)
            self.log.append(Logged(start, self.binlog.end, gtid, () if undone else tuple(changes)))

    def show(self) -> None:
        """Let SELECTs see the next transaction."""
        if self.visible < len(self.log):
            logged = self.log[self.visible]
            if logged.truncate:
                self.seen.clear()
            for change in logged.changes:
                _carry_out(self.seen, change)
            self.visible += 1

    # --- what the server says

    def shown_until(self) -> int:
        """Return the offset in the log up to which a SELECT sees it."""
        return self.log[self.visible - 1].end if self.visible else BEGIN

    def executed(self, count: int) -> str:
        """Return the GTIDs of the first `count` transactions."""
        return f"{UUID}:1-{count}" if count else ""

    def first_outside(self, executed: str) -> LogPoint | None:
        """Return where the first transaction starts that is not in `executed`."""
        count = int(executed.rpartition("-")[2] or 0)
        return (NUMBER, self.log[count].start) if count < len(self.log) else None


class Session:
    """A connection to the source, and its cursor; others commit between its statements."""

    open = True

    def __init__(self, source: Source, rng: random.Random) -> None:
        self.source, self.rng = source, rng
        self._view: tuple[int, int, dict[str, SourceRow]] | None = None
        self._found: list[tuple[Any, ...]] = []

    @contextmanager
    def cursor(self, *_: object) -> Iterator[Session]:
        yield self

    def close(self) -> None: ...

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._found

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._found[0] if self._found else None

    def execute(self, sql: str, arguments: tuple[Any, ...] | None = None) -> None:
        while self.rng.random() < 0.3:
            self.source.world.source_step(self.source)
        self._found = self._answer(sql, arguments or ())

    def _answer(self, sql: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        source = self.source
        if sql.startswith("START TRANSACTION"):
            self._view = self._snapshot() if "CONSISTENT SNAPSHOT" in sql else None
        elif sql.startswith("SHOW STATUS"):
            assert self._view is not None
            return [("Binlog_snapshot_file", FILE), ("Binlog_snapshot_position", str(self._view[1]))]
        elif "gtid_executed" in sql:
            return [(source.executed(source.visible),)]
        elif sql.startswith("SHOW"):
            return [(FILE, source.binlog.end)]
        elif sql.startswith("SELECT"):
            self._view = self._view or self._snapshot()
            return self._select(self._view[2], sql, arguments)
        return []

    def _snapshot(self) -> tuple[int, int, dict[str, SourceRow]]:
        return self.source.visible, self.source.shown_until(), dict(self.source.seen)

    @staticmethod
    def _select(seen: dict[str, SourceRow], sql: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        limit = re.search(r"LIMIT (\d+)", sql)
        assert limit is not None, sql
        after = str(arguments[0]).lower() if arguments else ""
        rows = [seen[key] for key in sorted(seen) if key > after][: int(limit[1])]
        return [(*(text if text is None else str(text).encode() for text in row[:3]), row[3]) for row in rows]


def _carry_out(rows: dict[str, SourceRow], change: Change) -> None:
    before, after = change
    if before is not None:
        del rows[before[0].lower()]
    if after is not None:
        rows[after[0].lower()] = after
