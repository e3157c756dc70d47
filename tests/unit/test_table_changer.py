"""Carrying a change of a table out: who is named when it waits, which error it becomes, how a connection is
ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, cast

import pytest

from consumer.errors import (
    UNDO,
    ConsumerError,
    LockWaitError,
    MissingGrantError,
    NotUniqueError,
    RefusedError,
    TargetConfigError,
    TransientError,
    UniqueViolationError,
)
from consumer.targets import table_changer
from consumer.targets.alterations import AddColumn, AddUnique, AlterTable, ChangeKey, DropTable
from consumer.targets.dialect_components import Link, LockHolder, LockHolders
from consumer.targets.mysql.connection import FLAVOURS, MySqlLink
from consumer.targets.mysql.locks import MySqlLocks
from consumer.targets.postgres.connection import PostgresLink
from consumer.targets.table_changer import TableChanger, describe_holders
from schemas.config.model import TargetConfig
from schemas.table.model import Column, ColumnType, Kind, Table, UniqueIndex
from tests.kits.targets import index, people

TABLE = people("s")
CHANGE = AlterTable(TABLE, [AddColumn(Column(name="n", type=ColumnType(kind=Kind.INT, bits=32)))])


class FakeLocks:
    """`seen`: whom each look sees; `ends`: how often a connection that is ended is still there."""

    def __init__(self, seen: Sequence[LockHolders | ConsumerError] = (), ends: int = 0) -> None:
        self.seen, self.ends = list(seen), ends
        self.asked = Event()
        self.ended: list[int] = []

    def end_blockers_of(self, waiting: int) -> list[int]:
        raise AssertionError("a change of a table ends nobody")

    def find_lock_holders(self, waiting: int, table: Table) -> LockHolders:
        assert waiting == 7
        found = self.seen.pop(0) if self.seen else LockHolders()
        if not self.seen:
            self.asked.set()
        if isinstance(found, ConsumerError):
            raise found
        return found

    def end_connection(self, connection: int) -> bool:
        self.ended.append(connection)
        return len(self.ended) <= self.ends


class FakeLink:
    """Runs statements; the second one ends as it is told."""

    def __init__(
        self,
        error: ConsumerError | None = None,
        until: Event | None = None,
        locks: FakeLocks | None = None,
    ) -> None:
        self.error, self.until = error, until
        self.locks = locks or FakeLocks()
        self.sent: list[str] = []
        self.connected = self.closed = 0

    def connect(self) -> None:
        self.connected += 1

    def close(self) -> None:
        self.closed += 1

    def get_connection_id(self) -> int:
        return 7

    def execute(self, text: str, params: Sequence[object]) -> list[tuple[object, ...]]:
        self.sent.append(text)
        if text == "second":
            if self.until is not None:
                assert self.until.wait(60)
            if self.error is not None:
                raise self.error
        return []


class FakeAlterer:
    transactional = False

    def __init__(self) -> None:
        self.patience: list[float | None] = []

    def render_statements(self, change: AlterTable | DropTable) -> Iterator[str]:
        yield "first"
        yield "second"

    def get_index_name(self, table: Table, index: UniqueIndex) -> str:
        return f"the {index.name}"

    @contextmanager
    def extend_lock_wait(self, lock_wait_s: float) -> Iterator[None]:
        self.patience.append(lock_wait_s)
        try:
            yield
        finally:
            self.patience.append(None)


def carried_out(
    link: FakeLink, change: AlterTable | DropTable = CHANGE, *, locks: FakeLocks | None = None
) -> FakeLink:
    """Returns the second connection, which sees `locks`."""
    second, alterer = FakeLink(locks=locks), FakeAlterer()
    made = TableChanger(cast(Link, link), alterer, lambda: cast(Link, second))
    try:
        made.apply_change(change)
    finally:
        assert alterer.patience == [table_changer.CHANGE_LOCK_WAIT_S, None], "the session is as before"
    return second


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATIENCE_S", "POLL_S", "END_POLL_S"):
        monkeypatch.setattr(table_changer, name, 0.001)


def test_what_is_done_at_once_asks_nobody() -> None:
    link = FakeLink()
    assert carried_out(link).connected in {0, 1}
    assert link.sent == ["first", "second"]


def test_who_was_seen_last_is_named() -> None:
    held = LockHolders((LockHolder(12, "bank@10.0.0.3", 812, "SELECT *\n  FROM people WHERE " + "x" * 80),))
    locks = FakeLocks([held, LockHolders()])
    link = FakeLink(LockWaitError("1205"), locks.asked)
    with pytest.raises(LockWaitError) as waited:
        carried_out(link, locks=locks)
    reported = str(waited.value)
    assert reported.startswith(
        "the change of target table s.people waits for a lock held by connection 12 (bank@10.0.0.3, for 812 "
        "s, SELECT * FROM people WHERE x"
    )
    assert "…)" in reported
    assert "x" * 60 not in reported
    assert isinstance(waited.value, TransientError)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (LockHolders(), "rowlock cannot see which session holds it; "),
        (LockHolders(unseen="GRANT it"), "rowlock cannot see which session holds it (GRANT it); "),
        (LockHolders((LockHolder(1, "u"), LockHolder(2, "v", 3))), ("held by connection 1 (u), "
        "connection 2 (v, for 3 s); ")),
        (LockHolders((LockHolder(1, "u"),), guessed=True, unseen="INSTALL it"), ("that may be held by "
        "connection 1 (u) (INSTALL it); ")),
    ],
)  # fmt: skip
def test_the_words(seen: LockHolders, words: str) -> None:
    assert words in describe_holders(TABLE, seen)


def test_what_cannot_be_asked_is_said_and_does_no_harm() -> None:
    locks = FakeLocks([MissingGrantError("denied", "GRANT it;")])
    with pytest.raises(LockWaitError, match="GRANT it"):
        carried_out(FakeLink(LockWaitError("1205"), locks.asked), locks=locks)
    locks = FakeLocks([TransientError("too many connections")])
    link = FakeLink(until=locks.asked)
    assert carried_out(link, locks=locks).closed == 1
    assert link.sent == ["first", "second"]


def test_which_index_cannot_be_built() -> None:
    mail, mails, key = index("mail", "mail"), index("mail_2", "mail", "note"), index("PRIMARY", "note")
    change = AlterTable(TABLE, [AddUnique(mail), AddUnique(mails), ChangeKey(TABLE.key, key)])
    for name, expected in (("the mail", mail), ("the mail_2", mails), ("people_pkey", key)):
        with pytest.raises(NotUniqueError) as refused:
            carried_out(FakeLink(UniqueViolationError(f"index {name} …")), change)
        assert refused.value.index == expected
        assert f"GROUP BY {', '.join(expected.columns)}" in str(refused.value)
    with pytest.raises(UniqueViolationError) as other:
        carried_out(FakeLink(UniqueViolationError("?")))
    assert not isinstance(other.value, NotUniqueError)


def test_errors_and_their_remedies() -> None:
    with pytest.raises(TargetConfigError, match="refer to the table"):
        carried_out(FakeLink(RefusedError("a foreign key")), DropTable(TABLE))
    with pytest.raises(RefusedError, match="too long"):
        carried_out(FakeLink(RefusedError("too long")))
    with pytest.raises(TargetConfigError, match="seen: alter the target table by hand as the source's is"):
        carried_out(FakeLink(TargetConfigError("seen", UNDO)))
    with pytest.raises(TargetConfigError, match=r"^seen: do it$"):
        carried_out(FakeLink(TargetConfigError("seen: do it")))


def test_a_connection_is_ended_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def ending(locks: FakeLocks) -> TableChanger:
        return TableChanger(cast(Link, FakeLink(locks=locks)), FakeAlterer(), lambda: cast(Link, FakeLink()))

    locks = FakeLocks(ends=3)
    made = ending(locks)
    made.end_connection(9)
    assert locks.ended == [9] * 4
    made.end_connection(7)
    assert locks.ended == [9] * 4, "its own is none of an earlier attempt"
    monkeypatch.setattr(table_changer, "END_S", 0.0)
    with pytest.raises(TransientError, match="connection 8 of an earlier attempt"):
        ending(FakeLocks(ends=10**9)).end_connection(8)


class Answers:
    """A link that answers by a word of the query."""

    account = "`u`@`%`"

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def execute(self, text: str, params: Sequence[object]) -> list[tuple[object, ...]]:
        word = next(word for word in self.answers if word in text)
        found: Any = self.answers[word]
        if isinstance(found, ConsumerError):
            raise found
        return list(found)


def asked(kind: str, **answers: Any) -> LockHolders:
    return MySqlLocks(cast(MySqlLink, Answers(**answers)), FLAVOURS[kind].locks).find_lock_holders(7, TABLE)


def test_mariadb_with_and_without_its_plugin() -> None:
    who = [(12, "u@h", 5, "SELECT 1")]
    found = (LockHolder(12, "u@h", 5, "SELECT"),)
    assert asked("mariadb", Waiting=[]) == LockHolders(), "it does not wait, or not for a table"
    shown = asked("mariadb", Waiting=[(1,)], METADATA_LOCK_INFO=[(1,)], metadata_lock_info=who)
    assert shown == LockHolders(found)
    guess = asked("mariadb", Waiting=[(1,)], METADATA_LOCK_INFO=[], innodb_trx=who)
    assert guess.found == found
    assert guess.guessed
    assert "INSTALL SONAME" in guess.unseen


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_user_who_may_not_see_it_is_told_the_right(kind: str) -> None:
    denied = MissingGrantError("denied", "GRANT something;")
    found = asked(
        kind,
        Waiting=[(1,)],
        METADATA_LOCK_INFO=[],
        innodb_trx=denied,
        metadata_locks=denied,
    )
    right = {"mysql": "SELECT ON performance_schema.*", "mariadb": "PROCESS ON *.*"}[kind]
    assert found == LockHolders(unseen=f"it is shown after GRANT {right} TO `u`@`%`")


def test_a_prepared_statement_of_an_earlier_form_costs_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import psycopg

    values = {"type": "postgres", "host": "h", "port": 1, "user": "u", "password": "p", "database": "d"}
    link, closed = PostgresLink(TargetConfig.model_validate(values), "test"), []
    monkeypatch.setattr(PostgresLink, "close", lambda _: closed.append(True))
    info = {psycopg.pq.DiagnosticField.SOURCE_FUNCTION: b"RevalidateCachedQuery"}
    with pytest.raises(TransientError), link.translate_errors():
        raise psycopg.errors.FeatureNotSupported("gecachter Plan …", info=cast(Any, info))
    assert closed
    with pytest.raises(TargetConfigError), link.translate_errors():
        raise psycopg.errors.FeatureNotSupported("something else")
