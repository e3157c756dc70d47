"""Changes of target tables when others are in the way: locks, dead workers, servers that die, and users that
may little."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from msgspec import structs
from msgspec.structs import replace as changed

from consumer.errors import LockWaitError, MissingGrantError, TransientError
from consumer.ordering.model import NetChange
from consumer.targets.alterations import (
    AddColumn,
    AlterTable,
    ChangeColumn,
    DropColumn,
    DropTable,
    apply_alterations,
)
from consumer.targets.session import SqlSession
from schemas.table.model import Row, Table
from tests.kits.alter import BIG, INT, ROWS, Altered, column, shape, with_value
from tests.kits.documented_user import PASSWORD, documented_target_user
from tests.kits.targets import Target, as_target, people, rows_of, text_type
from tests.kits.targets import target as target
from tests.kits.waiting import until


@pytest.fixture
def made(target: Target) -> Iterator[Altered]:
    """The table, and a session of exactly the documented user."""
    target.open().create_table(people(target.schema))
    with documented_target_user(target, f"{target.database}_u", "people") as user:
        yield Altered.made(target, user=user)


# -- locks


@contextmanager
def reader(target: Target) -> Iterator[int]:
    """Somebody reads the table in a transaction that stays open; yields the number of the connection."""
    connection = target.service.connect(target.database, autocommit=False)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT 'a report', COUNT(*) FROM {target.name('people')}")
            cursor.fetchall()
            cursor.execute(
                "SELECT pg_backend_pid()" if target.kind == "postgres" else "SELECT CONNECTION_ID()"
            )
            [(number,)] = cursor.fetchall()
            yield int(number)
    finally:
        connection.close()


def settings(session: SqlSession) -> list[tuple[object, ...]]:
    """What a change may leave behind in the session."""
    names = (
        "current_setting('lock_timeout')"
        if session.transactional_ddl
        else "@@lock_wait_timeout, @@innodb_lock_wait_timeout, @@sql_mode"
    )
    return session._link.execute(f"SELECT {names}", [])


def test_a_reader_is_named_and_the_change_is_made_once_it_is_done(target: Target, made: Altered) -> None:
    before, waits = made.real, settings(made.session)
    with reader(target) as number:
        began = time.monotonic()
        with pytest.raises(LockWaitError) as waited:
            made.alter(AddColumn(column("n", INT)))
        assert time.monotonic() - began < 60, "not the session's own patience, nor the server's"
        assert f"connection {number} (" in str(waited.value)
        assert re.search(r"waits for a lock (that may be )?held by", str(waited.value))
        # for how long a foreign connection has been at it PostgreSQL shows after a GRANT alone (below)
        assert target.kind == "postgres" or re.search(r" for \d+ s", str(waited.value))
        assert made.real == before
    assert settings(made.session) == waits
    assert made.rows(made.alter(AddColumn(column("n", INT)))) == with_value(None)
    assert settings(made.session) == waits
    made.alter(ChangeColumn(made.real.get_column("n"), column("n", text_type(5)), lossless=False))
    assert settings(made.session) == waits


def test_readers_do_not_queue_for_long(target: Target, made: Altered) -> None:
    """A reader that comes while the change waits for another one waits for the change to give up, and no
    longer."""
    with reader(target), ThreadPoolExecutor(2) as pool:
        changing = pool.submit(made.alter, AddColumn(column("n", INT)))
        until(lambda: waiting(target), "the change waits for the table")
        read = pool.submit(target.sql, f"SELECT COUNT(*) FROM {target.name('people')}")
        assert read.result(60) == [(len(ROWS),)], "while the first reader goes on"
        with pytest.raises(LockWaitError):
            changing.result(60)


def waiting(target: Target) -> bool:
    if target.kind == "postgres":
        return bool(target.sql("SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"))
    state = "Waiting for table metadata lock"
    return bool(target.sql("SELECT 1 FROM information_schema.processlist WHERE state = %s", [state]))


def test_what_a_user_may_not_see_is_said_with_what_shows_it(target: Target, made: Altered) -> None:
    """The reader is another user, whose statement PostgreSQL does not show; the others show it only to
    users with a right."""
    if target.kind != "postgres":
        target.sql(f"REVOKE {target.flavour.locks.grant} FROM `{target.database}_u`@'%'")
    with reader(target), pytest.raises(LockWaitError) as waited:
        made.alter(AddColumn(column("n", INT)))
    if target.kind == "postgres":
        grant = f'GRANT pg_read_all_stats TO "{target.database}_u"'
    else:
        grant = f"GRANT {target.flavour.locks.grant} TO '{target.database}_u'@'%'"
    assert grant in str(waited.value)
    target.sql(grant)
    if target.kind == "postgres":
        made.session.close()  # a role's rights are those of its sessions from then on
    with reader(target) as number, pytest.raises(LockWaitError) as waited:
        made.alter(AddColumn(column("n", INT)))
    # MariaDB and MySQL before 8.0 show none of a connection that runs none.
    guesses = target.kind != "postgres" and "PROCESS" in target.flavour.locks.grant
    statement = "" if guesses else "SELECT"
    assert re.search(rf"connection {number} \([^)]*for \d+ s.*{statement}", str(waited.value)), waited.value


# -- workers and servers that die

#: Rows for which a server makes a new table long enough to be met at it; where it is faster, it gets more.
MANY, MOST = 50_000, 1_000_000


def filled(made: Altered, most: int) -> None:
    """Fill the table up to key `most`."""
    digits = (
        "(SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION "
        "SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
    )
    number = " + ".join(f"{each}.d * {10**at}" for at, each in enumerate("abcdef"))
    places = ", ".join(f"{digits} AS {each}" for each in "abcdef")
    made.target.sql(
        f"INSERT INTO people (id, passport, note) SELECT n, n, CONCAT('note ', n) FROM (SELECT {number} AS "
        f"n FROM {places}) AS t WHERE n BETWEEN 10 AND {most} AND n > (SELECT MAX(id) FROM people)"
    )


def all_rows(made: Altered, table: Table) -> list[Row]:
    """Read them in large pages."""
    found: list[Row] = []
    while page := made.session.fetch_rows(as_target(table), (found[-1][0],) if found else None, 20_000):
        found += page
    return found


def widened(made: Altered) -> AlterTable:
    """A change that the server can only make by a new table."""
    real = made.real
    return AlterTable(
        real,
        [
            ChangeColumn(real.get_column("note"), column("note", text_type(300)), lossless=True),
            ChangeColumn(real.get_column("passport"), column("passport", BIG), lossless=True),
            AddColumn(column("n", INT, null=False, default="4")),
        ],
    )


def whole(made: Altered, rows: list[Row], *forms: Table) -> Table:
    """Require that the table is in one of these forms, with all rows; return the form."""
    real = made.real
    found = [form for form in forms if shape(form) == shape(real)]
    assert len(found) == 1, "between two forms"
    assert all_rows(made, real) == (rows if "n" not in real.column_names else [(*row, 4) for row in rows])
    return real


def at_work(target: Target, changing: Future[None], number: int) -> bool:
    """Wait until the connection makes a new table (and does not wait, or prepare); return whether it was seen
    doing so."""
    query = (
        f"SELECT state FROM information_schema.processlist WHERE id = {number} AND info LIKE 'ALTER TABLE%'"
    )
    with target.service.connect(target.database) as watching, watching.cursor() as cursor:
        while not changing.done():
            cursor.execute(query)
            if any("copy" in str(row[0]).lower() for row in cursor.fetchall()):
                return True
    return False


def broken_off(made: Altered, change: AlterTable, blow: Callable[[int], None]) -> bool:
    """Carry a change out over the session, and strike while the server is at it; False: it was too fast."""
    number = made.session.get_connection_id()
    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(made.session.alter_table, change, connection=number)
        if not at_work(made.target, changing, number):
            changing.result()
            return False
        blow(number)
        with pytest.raises(TransientError):
            changing.result(120)
    with pytest.raises(
        TransientError
    ):  # never over another connection, for that one's work may be another process's by now
        made.session.alter_table(change, connection=number)
    return True


def ended_by_another(made: Altered, number: int) -> None:
    """The process that takes the unit over ends the connection that its mark names: its statement is over
    when that returns."""
    heir = made.target.open(user=f"{made.target.database}_u", password=PASSWORD)
    heir.end_connection(number)
    assert not made.target.sql("SELECT 1 FROM information_schema.processlist WHERE id = %s", [number])
    heir.end_connection(number)  # it no longer exists


def server_killed(made: Altered, _: int) -> None:
    made.target.service.kill()
    made.target.service.start()


@pytest.mark.parametrize("target", ["mariadb", "mysql"], indirect=True)
@pytest.mark.parametrize("blow", [ended_by_another, server_killed])
def test_a_change_that_is_broken_off_leaves_the_old_table_or_the_new_one(
    made: Altered, blow: Callable[[Altered, int], None]
) -> None:
    before, change = made.real, widened(made)
    back = [
        ChangeColumn(c, before.get_column(c.name), lossless=True)
        for c in apply_alterations(change).columns[3:5]
    ]
    made.session.create_table(changed(apply_alterations(change), name="made"))
    after, most = made.session.read_table(made.target.schema, "made"), MANY
    assert after is not None
    filled(made, most)
    while not broken_off(made, change, lambda number: blow(made, number)):
        made.run(AlterTable(made.real, [*back, DropColumn("n")]))
        most *= 2
        assert most < MOST, "no server is that fast"
        filled(made, most)
    rows = [*ROWS, *((n, None, None, n, f"note {n}") for n in range(10, most + 1))]
    found = whole(made, rows, before, after)
    if shape(found) == shape(before):  # what is to be done is worked out from the real table again
        made.run(AlterTable(found, change.steps))
    whole(made, rows, after)


@pytest.mark.parametrize("target", ["mariadb", "mysql"], indirect=True)
def test_a_dead_worker_that_waits_for_the_table_is_ended(target: Target, made: Altered) -> None:
    change, before = AlterTable(made.real, [AddColumn(column("n", INT))]), made.real
    with reader(target), ThreadPoolExecutor(1) as pool:
        number = made.session.get_connection_id()
        changing = pool.submit(made.session.alter_table, change, connection=number)
        until(lambda: waiting(target), "the change waits for the table")
        ended_by_another(made, number)
        with pytest.raises(TransientError):
            changing.result(60)
    assert made.real == before


@pytest.mark.parametrize("target", ["mariadb", "mysql"], indirect=True)
def test_a_change_is_made_over_the_connection_of_its_mark_alone(target: Target, made: Altered) -> None:
    change, before = AlterTable(made.real, [AddColumn(column("n", INT))]), made.real
    number = made.session.get_connection_id()
    target.sql(f"KILL {number}")
    with pytest.raises(TransientError):
        made.session.alter_table(change, connection=number)
    assert made.session.get_connection_id() != number
    with pytest.raises(TransientError, match="the process that owns the unit now may have ended it"):
        made.session.alter_table(change, connection=number)
    assert made.real == before
    made.session.end_connection(made.session.get_connection_id())  # its own is none of an earlier attempt
    made.session.alter_table(change, connection=made.session.get_connection_id())
    assert made.rows(apply_alterations(change)) == with_value(None)


@pytest.mark.parametrize("target", ["postgres"], indirect=True)
def test_a_change_is_part_of_its_transaction(target: Target, made: Altered) -> None:
    change, before = AlterTable(made.real, [AddColumn(column("n", INT))]), made.real
    lane = made.lane
    with pytest.raises(TransientError), made.session.begin_transaction(lane.unit, [lane.row]) as tx:  # noqa: PT012
        tx.alter_table(change)
        tx.apply_net_change(NetChange(as_target(apply_alterations(change)), replaces=with_value(5)))
        tx.write_progress([structs.replace(lane.row, offset=9)])
        target.sql(f"SELECT pg_terminate_backend({made.session.get_connection_id()})")
    assert made.real == before
    assert made.rows(before) == ROWS
    with made.session.begin_transaction(lane.unit, [lane.row]) as tx:
        tx.apply_net_change(NetChange(as_target(before), updates=ROWS))
        tx.alter_table(change)
        tx.apply_net_change(NetChange(as_target(apply_alterations(change)), updates=with_value(6)))
        tx.write_progress([structs.replace(lane.row, offset=9)])
    assert made.rows(apply_alterations(change)) == with_value(6)
    assert made.session.read_progress(lane.unit)[0] == [structs.replace(lane.row, offset=9)]


def test_a_session_writes_the_table_in_its_new_form(target: Target, made: Altered) -> None:
    """What it had made for the old one is forgotten: many rows go another way than few."""
    many: list[Row] = [(number, f"m{number}", None, None, "old") for number in range(100, 200)]
    table = as_target(people(target.schema))
    made.lane.apply_net_change(NetChange(table, replaces=many))
    real = made.real
    made.run(AlterTable(real, [ChangeColumn(real.get_column("note"), column("note", INT), lossless=False)]))
    again: list[Row] = [(*row[:4], row[0]) for row in many]
    expected = apply_alterations(
        AlterTable(
            people(target.schema),
            [ChangeColumn(table.table.get_column("note"), column("note", INT), lossless=False)],
        )
    )
    made.lane.apply_net_change(NetChange(as_target(expected), replaces=again))
    assert made.rows(expected)[len(ROWS) :] == again


# -- users


def test_a_statement_that_was_prepared_for_the_old_form_is_retried(target: Target) -> None:
    """PostgreSQL refuses it once; the session connects again."""
    session = target.open()
    session.create_table(people(target.schema))
    for _ in range(7):  # psycopg prepares a statement when it has run five times
        session._link.execute(f"SELECT * FROM {target.name('people')}", [])
    target.sql(f"ALTER TABLE {target.name('people')} ADD COLUMN more INT")
    if target.kind == "postgres":
        with pytest.raises(TransientError):
            session._link.execute(f"SELECT * FROM {target.name('people')}", [])
    assert rows_of(session, as_target(people(target.schema))) == []


def test_a_user_without_the_right_is_told_what_gives_it(target: Target) -> None:
    """The statement is run as it is printed; and `check` prints it before."""
    admin = target.open()
    admin.create_table(people(target.schema))
    place = (target.schema, "people")
    with documented_target_user(target, f"{target.database}_u", "people") as user:
        account = target.quoted(user) + ("" if target.kind == "postgres" else "@'%'")
        if target.kind == "postgres":
            target.sql(f"ALTER TABLE people OWNER TO {target.service.user}")
            target.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON people TO {account}")
        else:
            target.sql(f"REVOKE ALTER, DROP ON {target.quoted(target.database)}.* FROM {account}")
        made = Altered.made(target, user=user)
        assert made.session.find_missing_rights([place], create=True) == []
        lacks = made.session.find_missing_rights([place], create=True, alter=[place], drop=[place])
        reported = set[str]()
        for change in (AlterTable(made.real, [AddColumn(column("n", INT))]), DropTable(made.real)):
            for _ in range(2):
                try:
                    made.run(change)
                except MissingGrantError as error:
                    reported.add(error.statement)
                    target.sql(error.statement)
                    made.session.close()
        assert made.session.read_table(*place) is None
        assert len(reported) == (1 if target.kind == "postgres" else 2)
        words = {word for each in reported for word in ("ALTER", "DROP", "OWNER") if word in each}
        assert all(word in " ".join(each.statement for each in lacks) for word in words)
