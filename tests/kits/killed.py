"""Attempts at a unit of a real target that die at any statement, without Spark and without a process of their
own.

A moment is a statement that an attempt is about to send which locks, writes or commits (in front of a read
the server is as it is in front of the next such statement). What an attempt does not live through: see
`Blow`. A paused process goes on once its unit is another's.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast

import psycopg
import pymysql

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.slots.connections import ConnectionCache
from consumer.targets.base import UnitTarget
from consumer.targets.session import SqlSession
from tests.kits.attempts import Real, RealUnit

Blow = Literal["before", "sent", "cut", "paused"]
"""before: the process dies in front of the statement. sent: it dies once the server has the statement, which
may run on. cut: the connection is lost then, and the process lives. paused: the process waits in front of the
statement until the unit is another's."""
BLOWS: tuple[Blow, ...] = ("before", "sent", "cut", "paused")
_MOMENT = re.compile(r"(?!SET\b|SHOW\b)(?!SELECT\b(?!.*FOR UPDATE))", re.DOTALL)
_ALONE = re.compile(r"\s*(ALTER|DROP|CREATE)\b")
_EDGE = re.compile(r"\s*(BEGIN|COMMIT|ALTER|DROP|CREATE)\b")
PAUSE_S = 120


def turn(at: int, count: int) -> tuple[Blow, ...]:
    """Return `count` of the blows, others at each moment."""
    return (BLOWS * 2)[at % len(BLOWS) :][:count]


class Killed(BaseException):
    """The process is gone."""


class Moments:
    """Counts the moments of one attempt, and strikes at the one with number `at` (from 1; 0: at none)."""

    def __init__(self, at: int = 0, blow: Blow = "before") -> None:
        self.at, self.blow = at, blow
        self.seen: list[str] = []
        self.reached, self.go = threading.Event(), threading.Event()
        self._dead = False
        self._close: list[Callable[[], None]] = []

    def between(self, what: str, *, inside: bool = True) -> list[int]:
        """Return the moments after the attempt's begin, up to the one after the last transaction in which
        `what` is named; not `inside`: without those within a transaction, which are alike but for the locks
        that are held."""
        last = max(at for at, text in enumerate(self.seen, 1) if what in text)
        begun, ended = (self.seen.index("COMMIT", at) + 1 for at in (0, last))
        found = range(begun + 1, min(ended + 1, len(self.seen)) + 1)
        return [at for at in found if inside or _EDGE.match(self.seen[at - 1])]

    def statement_alone(self, at: int) -> bool:
        """Tell whether the statement of a moment commits by itself."""
        return _ALONE.match(self.seen[at - 1]) is not None

    @property
    def struck(self) -> bool:
        return 0 < self.at <= len(self.seen)

    def alive(self) -> None:
        if self._dead:
            raise Killed

    def opened(self, close: Callable[[], None]) -> None:
        """A connection that ends with the process."""
        self._close.append(close)

    def join_statement(self, text: str) -> None:
        """Add a statement to the moment of those that are sent with it."""
        self.seen[-1] += f"; {text}"

    def statement(self, text: str, send: Callable[[], Any], cut: Callable[[], Exception]) -> Any:
        """Let a statement be sent, or not. `cut`: sends it, and loses the connection."""
        self.alive()
        if not _MOMENT.match(text.lstrip()):
            return send()
        self.seen.append(text)
        if len(self.seen) != self.at:
            return send()
        self.reached.set()
        if self.blow == "paused":
            assert self.go.wait(PAUSE_S), "nobody lets the paused process go on"
            return send()
        if self.blow == "before":
            raise self._killed()
        error = cut()
        raise error if self.blow == "cut" else self._killed()

    def end(self) -> None:
        for close in self._close:
            close()

    def _killed(self) -> Killed:
        self._dead = True
        self.end()
        return Killed()


class MortalCache(ConnectionCache):
    """The connections of a process that may die."""

    def __init__(self, real: Real, moments: Moments) -> None:
        super().__init__(real.config, "rowlock mortal")
        self._moments = moments

    def _open_connection(self, number: int) -> UnitTarget:
        self._moments.alive()
        session = super()._open_connection(number)
        try:
            _watch(cast(SqlSession, session)._link, self._moments)
        except Killed:  # meanwhile, by another lane
            session.close()
            raise
        return session


def _watch(link: Any, moments: Moments) -> None:
    """Let `moments` see what is sent over a link, also over the connections that it makes later."""
    connect = link.connect
    seen: list[object] = []

    def connected() -> None:
        moments.alive()
        connect()
        raw = link._raw
        if all(raw is not each for each in seen):
            seen.append(raw)
            (_watch_postgres if isinstance(raw, psycopg.Connection) else _watch_mysql)(raw, moments)

    link.connect = connected
    connected()


def _watch_mysql(raw: Any, moments: Moments) -> None:
    execute = raw._execute_command

    def hooked(command: int, sql: str | bytes) -> None:
        text = sql.decode("utf-8", "replace") if isinstance(sql, bytes) else str(sql)

        def cut() -> Exception:
            execute(command, sql)
            raw._force_close()
            return pymysql.OperationalError(2013, "Lost connection to MySQL server during query")

        moments.statement(text, lambda: execute(command, sql), cut)

    raw._execute_command = hooked
    moments.opened(raw._force_close)


def _watch_postgres(raw: Any, moments: Moments) -> None:
    """Watch a session of PostgreSQL. The statements of one pipeline are one moment that has all their texts:
    a session that is paused within a pipeline would hold locks that others wait for."""
    execute = raw.execute
    pipelines: list[object] = [None]

    def hooked(query: str, params: Any = None, **more: Any) -> Any:
        if raw._pipeline is not None and raw._pipeline is pipelines[-1]:
            moments.join_statement(query)
            return execute(query, params, **more)
        pipelines[:] = [raw._pipeline]

        def cut() -> Exception:
            execute(query, params, **more)
            raw.close()
            return psycopg.OperationalError("server closed the connection unexpectedly")

        return moments.statement(query, lambda: execute(query, params, **more), cut)

    raw.execute = hooked
    moments.opened(raw.close)


class MortalUnit(RealUnit):
    """A unit whose attempts may die."""

    def apply(self, start: int = 0, *, cache: ConnectionCache | None = None) -> Report:
        spec = UnitSpec(
            unit=self.unit, source=self.source.name, epoch=self.epoch, topic_id="id", routes=self.routes,
            lanes=self.lanes, patient=True, sweep_s=3600.0, **self.spec,
        )  # fmt: skip
        return apply_topic(
            spec,
            cache or self.real.cache,
            AttemptInputs(
                self._slices(start, len(self.topic)),
                read_missing=self._slices,
                find_begin=lambda after, hint: find_begin(
                    self._slices, lambda first: self._slices(first, len(self.topic)), after, hint
                ),
            ),
            self.real.tables if cache is None else {},
        )

    def strike(self, moments: Moments) -> None:
        """Run an attempt that is struck; a process that is still there tries again, as it would."""
        cache = MortalCache(self.real, moments)
        try:
            report = self.apply(cache=cache)
            if report.state == "behind" and moments.blow == "cut":
                self.apply(cache=cache)
        except Killed:
            pass
        finally:
            cache.close()
            moments.end()

    @contextmanager
    def struck(self, moments: Moments) -> Iterator[None]:
        """Within it, the unit's process was struck; after it, one that was paused has continued, and has seen
        that the unit is not its own."""
        if moments.blow != "paused":
            self.strike(moments)
            yield
            return
        zombie = threading.Thread(target=self.strike, args=(moments,), daemon=True)
        zombie.start()
        while not moments.reached.wait(0.01) and zombie.is_alive():
            pass
        yield
        moments.go.set()
        zombie.join(PAUSE_S)
        assert not zombie.is_alive()
