"""Runs the cases' statements at the sources, a statement of each case in a round, while capture lags by a
given number of rounds.

Lag 0: the next round begins when capture has read this one. Lag n: capture reads a round when n more have
been run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql
import pymysql.cursors

from deploy.embedded.services import MariaDB, MySQL
from peers.cases import Case
from peers.sql_text import defined, filled, makes_table

ROUNDS = 30
"""A case of more statements runs several in a round."""
_LIMITS = "SET SESSION lock_wait_timeout = 10, SESSION innodb_lock_wait_timeout = 5"
_KEY = "given_key BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE, ADD PRIMARY KEY (given_key)"
_MADE = re.compile(r"create\s+(?:database|schema)\s+(?:if\s+not\s+exists\s+)?⟦([^⟧]*)⟧", re.IGNORECASE)


@dataclass(slots=True)
class Played:
    """A case at one source. `refused`: (statement, the server's words); `accepted`: how many it took.

    `keys`: a table without a key is given an invisible one as soon as it is made, since rowlock cannot follow
    it otherwise.
    """

    case: Case
    server: MariaDB | MySQL
    names: dict[str, str]
    keys: bool = False
    accepted: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    _connection: pymysql.connections.Connection[Any] | None = None

    def begin(self) -> None:
        """Make the databases that the case does not make itself."""
        own = {name for each in self.case.statements for name in _MADE.findall(each)}
        for mark, name in self.names.items():
            if mark not in own:
                self.server.create_database(name)

    def run(self, statement: str) -> None:
        try:
            with self._open().cursor() as cursor:
                cursor.execute(filled(statement, self.names))
                self.accepted += 1
                if self.keys and makes_table(statement):
                    self._give_key(cursor, filled(defined(statement) or "", self.names))
        except (pymysql.MySQLError, UnicodeError) as error:
            self.refused.append((statement, str(error.args[-1] if error.args else error)))
            if (
                isinstance(error, pymysql.err.OperationalError | pymysql.err.InterfaceError)
                and not self._alive()
            ):
                self._connection = None

    @staticmethod
    def _give_key(cursor: pymysql.cursors.Cursor, table: str) -> None:
        cursor.execute(f"SHOW INDEX FROM {table} WHERE Non_unique = 0")
        nullable: dict[str, bool] = {}
        for row in cursor.fetchall():
            nullable[str(row[2])] = nullable.get(str(row[2]), False) or row[9] == "YES"
        if all(nullable.values()):  # also where there is none
            cursor.execute(f"ALTER TABLE {table} ADD COLUMN {_KEY}")

    def end(self) -> None:
        """What it has not committed is rolled back."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.MySQLError):
                self._connection.close()
            self._connection = None

    def _open(self) -> pymysql.connections.Connection[Any]:
        if self._connection is None:
            options = {"init_command": _LIMITS, "read_timeout": 60, "charset": "utf8mb4"}
            self._connection = self.server.connect(self.names[""], **options)
        return self._connection

    def _alive(self) -> bool:
        try:
            assert self._connection is not None
            self._connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True


def rounds(count: int) -> Iterator[tuple[int, int]]:
    """Yield [from, to) for a case of `count` statements, ROUNDS times; the last may be empty."""
    parts = max(1, min(ROUNDS, count))
    for at in range(ROUNDS):
        yield count * min(at, parts) // parts, count * min(at + 1, parts) // parts


Ends = dict[str, tuple[int, int]]
"""Source → the end of its log: (number of the file, position)."""


def play(
    cases: Sequence[Played],
    behind: int,
    ends: Callable[[], Ends],
    release: Callable[[Ends], None],
    read: Callable[[Ends], None],
) -> None:
    """Run all statements. `release`: let capture read up to there; `read`: await that it has."""
    passed: list[Ends] = [ends()]
    release(passed[0])
    spans = [list(rounds(len(each.case.statements))) for each in cases]
    for at in range(ROUNDS):
        ran = False
        for each, span in zip(cases, spans, strict=True):
            low, high = span[at]
            ran = ran or high > low
            for statement in each.case.statements[low:high]:
                each.run(statement)
        if not ran:
            break
        passed.append(ends())
        if len(passed) > behind:
            release(passed[-1 - behind])
            read(passed[-1 - behind])
    for each in cases:
        each.end()
