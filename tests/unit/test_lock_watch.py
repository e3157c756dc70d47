"""The watch of transactions that wait for row locks: what it looks up, when, and what it reports; and how
sessions that hold locks are described."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from consumer.attempt.drivers import lock_watch
from consumer.attempt.drivers.lock_watch import LOOK_AFTER_S, LOOK_INTERVAL_S, LockWatch
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.errors import ConsumerError, LockWaitError, MissingGrantError, TransientError
from consumer.ordering.model import ApplyUnit
from consumer.targets.dialect_components import LockHolder, LockHolders
from consumer.targets.lock_holders import describe_holder, describe_row_wait, summarize_statement
from consumer.targets.mysql.connection import FLAVOURS, MySqlLink
from consumer.targets.mysql.locks import MySqlLocks
from consumer.targets.oracle.connection import OracleLink
from consumer.targets.oracle.locks import OracleLocks, encode_connection_id
from consumer.targets.postgres.connection import PostgresLink
from consumer.targets.postgres.locks import PostgresLocks
from schemas.problems import decode_problem

ONE = LockHolders((LockHolder(12, "app@h", 30, "UPDATE acct", "psql"),))
TWO = LockHolders((LockHolder(13, "app@h", 40),))


class FakeSession:
    """A session that finds `seen`, and records for which connections it was asked."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.seen: LockHolders | Exception = ONE
        self.asked: list[Sequence[int]] = []

    def get_connection_id(self) -> int:
        return self._number

    def find_row_holders(self, connections: Sequence[int]) -> LockHolders:
        self.asked.append(list(connections))
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen


class Watched:
    """A watch whose looks the test makes, a clock, and transactions that the test begins and ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.reports: list[Report] = []
        self.watch = LockWatch(self.reports.append)
        self.sessions = [FakeSession(number) for number in range(3)]
        self._open: dict[tuple[str, int], Any] = {}
        monkeypatch.setattr(lock_watch, "monotonic", lambda: self.now)
        monkeypatch.setattr(lock_watch, "TICK_S", 1e6)  # the thread looks at nothing by itself

    def begin(self, number: int = 0, topic: str = "t", epoch: int = 7) -> None:
        spec = cast(UnitSpec, SimpleNamespace(unit=ApplyUnit("p", topic), epoch=epoch))
        session: Any = self.sessions[number]
        self._open[topic, number] = self.watch.watch_transaction(spec, number, session)
        self._open[topic, number].__enter__()

    def end(self, number: int = 0, topic: str = "t", error: Exception | None = None) -> None:
        ended = self._open.pop((topic, number)).__exit__(type(error) if error else None, error, None)
        assert not ended, "an error is never swallowed"

    def look_after(self, seconds: float) -> list[str]:
        """Let time pass and look; return the messages that are reported."""
        self.now += seconds
        self.reports.clear()
        self.watch.look()
        return [decode_problem(each.message).what for each in self.reports]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Watched(monkeypatch)
    yield made
    made.watch.close()


def test_short_transactions_cost_no_look_up(watched: Watched) -> None:
    for _ in range(5):
        watched.begin()
        assert watched.look_after(LOOK_AFTER_S / 2) == []
        watched.end()
    assert watched.sessions[0].asked == []


def test_an_old_transaction_is_looked_up_once_in_an_interval(watched: Watched) -> None:
    watched.begin()
    (first,) = watched.look_after(LOOK_AFTER_S)
    assert "open for 3 s and waits for a row lock held by connection 12 (app@h, psql, for 30 s" in first
    assert watched.reports == [Report("t", "waiting", 7, -1, message=watched.reports[0].message)]
    assert watched.look_after(LOOK_INTERVAL_S / 2) == []
    (second,) = watched.look_after(LOOK_INTERVAL_S / 2)
    assert "open for 8 s" in second
    assert watched.sessions[0].asked == [[0]] * 2


def test_the_end_of_a_wait_is_reported_once(watched: Watched) -> None:
    watched.begin()
    watched.look_after(LOOK_AFTER_S)
    watched.end()
    assert watched.look_after(0.0) == [""]
    assert watched.reports == [Report("t", "waiting", 7, -1)]
    assert watched.look_after(60.0) == []


def test_a_transaction_that_goes_on_after_its_wait_no_longer_waits(watched: Watched) -> None:
    watched.begin()
    watched.look_after(LOOK_AFTER_S)
    watched.sessions[0].seen = LockHolders()
    assert watched.look_after(LOOK_INTERVAL_S) == [""]
    assert watched.look_after(LOOK_INTERVAL_S / 2) == [], "a long one is not looked up more often"
    assert watched.look_after(LOOK_INTERVAL_S / 2) == []
    assert len(watched.sessions[0].asked) == 3


def test_a_long_transaction_that_waits_for_nothing_is_not_reported(watched: Watched) -> None:
    watched.sessions[0].seen = LockHolders()
    watched.begin()
    assert watched.look_after(LOOK_AFTER_S) == []
    watched.end()
    assert watched.look_after(1.0) == []


def test_a_retry_after_the_lock_time_out_is_the_same_wait(watched: Watched) -> None:
    watched.begin()
    watched.look_after(LOOK_AFTER_S)
    watched.end(error=LockWaitError("1205"))
    assert watched.look_after(LOOK_INTERVAL_S) == [], "still reported, and nothing can be looked up"
    assert watched.sessions[0].asked == [[0]]
    watched.begin()
    (message,) = watched.look_after(0.0)
    assert f"open for {LOOK_AFTER_S + LOOK_INTERVAL_S:.0f} s" in message
    watched.end(error=TransientError("1213"))
    assert watched.look_after(0.0) == [""], "another error ends the wait"


def test_another_takeover_begins_another_wait(watched: Watched) -> None:
    watched.begin()
    watched.end(error=LockWaitError("1205"))
    watched.now += 60.0
    watched.begin(epoch=8)
    assert watched.look_after(LOOK_AFTER_S / 2) == []
    assert watched.sessions[0].asked == []


def test_lanes_of_a_unit_are_looked_up_together_and_units_apart(watched: Watched) -> None:
    for number, topic in ((0, "t"), (1, "t"), (2, "u")):
        watched.begin(number, topic)
    watched.look_after(LOOK_AFTER_S)
    assert [each.topic for each in watched.reports] == ["t", "u"]
    assert watched.sessions[0].asked + watched.sessions[2].asked == [[0, 1], [2]]
    watched.end(0)
    assert watched.look_after(0.0) == [], "another lane of it may still wait"
    watched.end(1)
    assert watched.look_after(0.0) == [""]
    watched.end(2, "u")


@pytest.mark.parametrize("error", [TransientError("no connection"), MissingGrantError("no", "GRANT it;")])
def test_a_failed_look_up_is_reported_and_harms_no_transaction(
    watched: Watched, error: ConsumerError
) -> None:
    watched.sessions[0].seen = error
    watched.begin()
    (message,) = watched.look_after(LOOK_AFTER_S)
    assert f"(the look-up failed: {error})" in message
    watched.end()


def test_a_wait_that_ends_during_the_look_up_is_not_reported(watched: Watched) -> None:
    watched.begin()
    find = watched.sessions[0].find_row_holders

    def find_late(connections: Sequence[int]) -> LockHolders:
        watched.end()
        return find(connections)

    watched.sessions[0].find_row_holders = find_late  # type: ignore[method-assign]
    assert watched.look_after(LOOK_AFTER_S) == []


def test_only_another_session_is_logged_again(watched: Watched) -> None:
    watched.begin()
    for seen, logged in ((ONE, 1), (ONE, 0), (TWO, 1), (TWO, 0)):
        watched.sessions[0].seen = seen
        with capture_logs() as logs:
            watched.look_after(LOOK_INTERVAL_S)
        assert [each["event"] for each in logs] == ["unit waits for a row lock"] * logged


@pytest.mark.parametrize(
    ("text", "outline"),
    [
        ("UPDATE bank.acct SET name = 'Ann' WHERE id = 7", "UPDATE bank.acct"),
        ("  update\n`bank`.`acct` set a = 1", "UPDATE `bank`.`acct`"),
        ('DELETE FROM ONLY "acct" WHERE id = 7', 'DELETE FROM "acct"'),
        ("insert into acct (a) values ('x from secret')", "INSERT INTO acct"),
        ("SELECT 'copied from secret', \"and from me\" FROM acct FOR UPDATE", "SELECT FROM acct"),
        ("SELECT 'it''s \\' from secret' FROM acct", "SELECT FROM acct"),
        ("/* by ann from home */ LOCK TABLES acct WRITE", "LOCK TABLES acct"),
        ("-- from x\nCOMMIT", "COMMIT"),
        ("SET @secret = 'cut off at from the", "SET"),
        ("CALL pay(7, 'Ann')", "CALL"),
        ("", ""),
        ("'x'", ""),
    ],
)
def test_an_outline_has_the_keyword_and_the_table_and_no_value(text: str, outline: str) -> None:
    assert summarize_statement(text) == outline


def test_what_is_not_known_of_a_holder_is_left_out() -> None:
    assert describe_holder(LockHolder(1, "u")) == "connection 1 (u)"
    full = LockHolder(1, "u@h", 5, "UPDATE a", "psql")
    assert describe_holder(full) == "connection 1 (u@h, psql, for 5 s, UPDATE a)"
    part = describe_row_wait(LockHolders((full,), unseen="GRANT it shows more"), 4.4)
    assert part.what.endswith("held by connection 1 (u@h, psql, for 5 s, UPDATE a) (GRANT it shows more)")
    unseen = describe_row_wait(LockHolders(unseen="it is shown after GRANT it"), 4.4)
    assert "open for 4 s, and rowlock cannot see whether another session holds a lock" in unseen.what
    assert "GRANT it" in unseen.what


class Answer:
    """A link that answers each query, or one that contains a word, with rows."""

    account = "`u`@`%`"

    def __init__(self, *rows: tuple[object, ...], **words: Any) -> None:
        self._rows, self._words = list(rows), words

    def execute(self, text: str, params: Sequence[object]) -> list[tuple[object, ...]]:
        return next((rows for word, rows in self._words.items() if word in text), self._rows)


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_prepared_transaction_has_no_session(kind: str) -> None:
    locks = MySqlLocks(
        cast(MySqlLink, Answer((None, None, None, None, None), (5, "u@h", 9, None, None))),
        FLAVOURS[kind].locks,
    )
    seen = locks.find_row_holders(3)
    assert seen.found == (LockHolder(5, "u@h", 9),)
    assert "XA RECOVER" in seen.unseen
    found = PostgresLocks(cast(PostgresLink, Answer((None, None, None, None, None)))).find_row_holders(3)
    assert found.found == ()
    assert "pg_prepared_xacts" in found.unseen


@pytest.mark.parametrize(
    ("kind", "version", "grant", "kill", "settings"),
    [
        ("mysql", "9.7.4", "SELECT ON performance_schema.*", "CONNECTION_ADMIN", 0),
        ("mysql", "8.0.15", "SELECT ON performance_schema.*", "CONNECTION_ADMIN", 0),
        ("mysql", "5.7.44-log", "PROCESS ON *.*", "SUPER", 0),
        ("mariadb", "11.4.5-MariaDB", "PROCESS ON *.*", "CONNECTION ADMIN", 2),
        ("mariadb", "10.4.34-MariaDB", "PROCESS ON *.*", "SUPER", 2),
        ("mariadb", "10.2.11-MariaDB", "PROCESS ON *.*", "SUPER", 0),
    ],
)
def test_older_server_shows_its_locks_otherwise(
    kind: str, version: str, grant: str, kill: str, settings: int
) -> None:
    found = FLAVOURS[kind].choose_for(version)
    assert (found.locks.grant, found.locks.kill, len(found.settings)) == (grant, kill, settings)


def test_an_oracle_session_is_named_by_instance_user_machine_and_sql_id() -> None:
    idle = (1, 33, 7, "APP@host", None, None, None)
    busy = (1, 34, 8, "APP@host", 12, "9fz", "sqlplus")
    seen = OracleLocks(cast(OracleLink, Answer(idle, busy)), "rowlock").find_row_holders(5)
    numbers = [encode_connection_id(1, 33, 7), encode_connection_id(1, 34, 8)]
    assert seen.found == (
        LockHolder(numbers[0], "APP@host"),
        LockHolder(numbers[1], "APP@host", 12, "sql_id 9fz", "sqlplus"),
    )


class Refusal(Answer):
    def execute(self, text: str, params: Sequence[object]) -> list[tuple[object, ...]]:
        raise MissingGrantError("denied", "GRANT it;")


def test_a_user_without_the_right_is_given_the_grant() -> None:
    mysql = MySqlLocks(cast(MySqlLink, Refusal()), FLAVOURS["mysql"].locks).find_row_holders(3)
    assert mysql == LockHolders(unseen="it is shown after GRANT SELECT ON performance_schema.* TO `u`@`%`")
    oracle = OracleLocks(cast(OracleLink, Refusal()), "rowlock").find_row_holders(5)
    assert oracle == LockHolders(unseen='it is shown after GRANT SELECT ON SYS.GV_$SESSION TO "ROWLOCK"')
