"""Users without rights: what is printed for each missing one is run as it is, and must be all that was
missing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from consumer.errors import ConsumerError, MissingGrantError, TargetConfigError
from consumer.ordering.model import NetChange
from consumer.targets.checks.table_findings import check_session
from consumer.targets.session import SqlSession
from deploy.embedded.services import MariaDB
from rowlock.inspect.check import list_findings
from schemas.config.model import load_config
from tests.kits.targets import LAYOUT, Lane, Target, as_target, people, rows_of
from tests.kits.targets import target as target

#: A few rows go in statements, many in another way on PostgreSQL.
MANY = 60


@dataclass
class User:
    """A user that may nothing but log in (on MySQL and MariaDB not even use the database)."""

    target: Target
    name: str

    def open(self) -> SqlSession:
        return self.target.open(user=self.name, password="pw")

    def grant(self, rights: str, where: str) -> None:
        self.target.sql(f"GRANT {rights} ON {where} TO {self.account}")

    @property
    def account(self) -> str:
        return f'"{self.name}"' if self.target.kind == "postgres" else f"'{self.name}'@'%'"

    def may_write_bookkeeping(self) -> None:
        """Give the rights of docs/how-to/target-setup.md, but for tables that exist already."""
        if self.target.kind == "postgres":
            self.grant("CREATE, USAGE", "SCHEMA public")
            return
        self.grant("CREATE", f"{self.target.database}.*")
        rights, _, where = self.target.flavour.locks.grant.partition(" ON ")
        self.grant(rights, where)


def made(target: Target, name: str) -> User:
    if target.kind == "postgres":
        target.sql(f'CREATE ROLE "{name}" LOGIN')
    else:
        target.sql(f"CREATE USER `{name}`@`%` IDENTIFIED BY 'pw'")
    return User(target, name)


@pytest.fixture
def users(target: Target) -> Iterator[list[User]]:
    """Two users without rights; PostgreSQL's cannot even make a temporary table."""
    if target.kind == "postgres":
        target.sql(f'REVOKE ALL ON DATABASE "{target.database}" FROM PUBLIC')
    both = [made(target, f"{target.database}_{end}") for end in ("u", "o")]
    yield both
    for session in target.sessions:
        session.close()
    for user in both:
        if target.kind == "postgres":
            target.sql(f"DROP OWNED BY {user.account} CASCADE")
            target.sql(f"DROP ROLE {user.account}")
        else:
            target.sql(f"DROP USER {user.account}")


def test_server_of_the_tests_has_a_version_that_counts_as_tested(target: Target) -> None:
    assert target.open().explain_untested_version() is None


def lacks(user: User, tables: Sequence[tuple[str, str]]) -> list[str]:
    """Return the statements that `check` would print."""
    try:
        session = user.open()
    except MissingGrantError as error:
        return [error.statement]
    found = [each.remedy for each in check_session(session, "target") if each.level == "error"]
    found += [each.statement for each in session.find_missing_rights(tables, create=True)]
    session.close()
    return found


def all_given(user: User, tables: Sequence[tuple[str, str]]) -> list[str]:
    """Run what is printed until nothing is; return all of it. A right may show only when another one is
    there."""
    given: list[str] = []
    while statements := lacks(user, tables):
        assert not set(statements) & set(given), "what was run did not help"
        for each in statements:
            user.target.sql(each)
        given += statements
    return given


def refusal(user: User, change: NetChange) -> MissingGrantError | None:
    """Take the unit over and apply a change, as a worker does."""
    try:
        Lane.start(user.open()).apply_net_change(change)
    except MissingGrantError as error:
        return error
    return None


def net(target: Target, name: str, rows: int, first: int) -> NetChange:
    values: list[Any] = [(first + at, None, None, None, "x") for at in range(rows)]
    return NetChange(as_target(people(target.schema, name)), updates=values)


def test_what_check_prints_is_all_that_a_run_needs(target: Target, users: list[User]) -> None:
    user, schema = users[0], target.schema
    target.open().create_table(people(schema))
    elsewhere = f"{target.database}_x"
    tables = [(schema, "people"), (schema, "created"), (elsewhere, "created")]
    given = all_given(user, tables)
    try:
        assert given
        session = user.open()
        lane = Lane.start(session)
        for place, name in tables:
            session.create_table(people(place, name))
            wrapped = as_target(people(place, name))
            some: list[Any] = [(1, "a", None, None, None)]
            lane.apply_net_change(NetChange(wrapped, replaces=some, deletes=[(2,)]))
            lane.apply_net_change(NetChange(wrapped, replaces=[(2, "a", None, None, None)]), displacing="{}")
            lane.apply_net_change(
                NetChange(wrapped, updates=[(at, None, None, None, None) for at in range(10, 10 + MANY)])
            )
            assert len(rows_of(session, wrapped)) == 1 + MANY
    finally:
        if target.kind == "postgres":
            target.sql(f'DROP SCHEMA IF EXISTS "{elsewhere}" CASCADE')
        else:
            target.sql(f"DROP DATABASE IF EXISTS `{elsewhere}`")


def test_rights_are_named_on_a_server_of_another_language(target: Target, users: list[User]) -> None:
    if target.kind == "postgres":
        pytest.skip("its rights are read from the catalog, and it has no other language here")
    try:
        target.sql("SET GLOBAL lc_messages = 'de_DE'")
    except pymysql.OperationalError:
        pytest.skip("its messages in other languages are not installed")
    try:
        assert all_given(users[0], [(target.schema, "people")])
    finally:
        target.sql("SET GLOBAL lc_messages = 'en_US'")


def test_no_right_is_asked_for_in_vain(target: Target, users: list[User]) -> None:
    """Take each right of a table away: it alone is printed."""
    user, place = users[0], (target.schema, "people")
    target.open().create_table(people(target.schema))
    all_given(user, [place])
    user.open().ensure_bookkeeping()
    assert lacks(user, [place]) == []
    where = target.name("people") if target.kind == "postgres" else f"`{target.database}`.*"
    target.sql(f"REVOKE UPDATE, DELETE ON {where} FROM {user.account}")
    [statement] = lacks(user, [place])
    assert statement.startswith("GRANT UPDATE, DELETE ON ")
    target.sql(statement)
    everything = "SCHEMA public" if target.kind == "postgres" else f"`{target.database}`.*"
    target.sql(f"REVOKE CREATE ON {everything} FROM {user.account}")
    [statement] = lacks(user, [place])
    with pytest.raises(MissingGrantError):  # although all tables are there
        user.open().ensure_bookkeeping()
    assert statement.startswith("GRANT CREATE ON ")


@pytest.mark.parametrize("rows", [1, MANY])
def test_an_error_of_a_run_prints_the_grant(target: Target, users: list[User], rows: int) -> None:
    user = users[0]
    target.open().create_table(people(target.schema))
    user.may_write_bookkeeping()
    given: list[str] = []
    while (refused := refusal(user, net(target, "people", rows, 0))) is not None:
        assert refused.statement in str(refused)
        assert refused.statement not in given, "what was run did not help"
        target.sql(refused.statement)
        given.append(refused.statement)
    assert len(rows_of(target.open(), as_target(people(target.schema)))) == rows
    assert any("people" in each for each in given)
    assert any("TEMPORARY" in each for each in given) == (target.kind == "postgres" and rows == MANY)


def test_a_user_ends_its_own_connections_without_a_right(target: Target, users: list[User]) -> None:
    user = users[0]
    all_given(user, [])
    dead = user.open()
    lane = Lane.start(dead)
    with pytest.raises(ConsumerError), dead.begin_transaction(lane.unit, [lane.row]) as tx:  # noqa: PT012
        epoch, _, _ = user.open().take_over(lane.unit, "id", LAYOUT, 1)
        assert epoch == 2
        tx.write_progress([lane.row])


def test_a_connection_of_another_user_is_not_taken_for_one_that_ended(
    target: Target, users: list[User]
) -> None:
    user, other = users
    all_given(user, [])
    user.open().ensure_bookkeeping()
    all_given(other, [])
    dead = other.open()
    lane = Lane.start(dead)
    with pytest.raises(ConsumerError), dead.begin_transaction(lane.unit, [lane.row]) as tx:  # noqa: PT012
        with pytest.raises(MissingGrantError, match="of another user") as refused:
            user.open().take_over(lane.unit, "id", LAYOUT, 1)
        ends = "pg_signal_backend" if target.kind == "postgres" else f"{target.flavour.locks.kill} ON *.*"
        assert refused.value.statement == f"GRANT {ends} TO {user.account};"
        target.sql(refused.value.statement)
        assert user.open().take_over(lane.unit, "id", LAYOUT, 1)[0] == 2
        tx.write_progress([lane.row])


def test_a_superuser_who_holds_the_rows_is_named(target: Target, users: list[User]) -> None:
    if target.kind != "postgres":
        pytest.skip("only PostgreSQL has connections that no grant lets others end")
    user = users[0]
    all_given(user, [])
    lane = Lane.start(user.open())
    with target.open().begin_transaction(lane.unit, [lane.row]):
        with pytest.raises(TargetConfigError, match=r"SUPERUSER[\s\S]* of another user") as refused:
            user.open().take_over(lane.unit, "id", LAYOUT, 1)
    assert not isinstance(refused.value, MissingGrantError)


@pytest.mark.parametrize("target", ["postgres", "mariadb"], indirect=True)
def test_rowlock_check_says_it(
    target: Target, users: list[User], mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    """From a source's tables through routes to the target; no Kafka is needed for that."""
    mariadb.execute(f"CREATE TABLE `{mariadb_db}`.acct (id INT PRIMARY KEY)")
    schema = "public" if target.kind == "postgres" else f"{target.database}_t"
    user = users[0]
    if target.kind == "mariadb":
        user.grant("CREATE", f"{target.database}.*")
    else:
        user.grant("CONNECT", f'DATABASE "{target.database}"')
    config = tmp_path / "c.yaml"
    config.write_text(f"""\
kafka: {{bootstrap: "127.0.0.1:1"}}
sources:
  b: {{type: mariadb, host: 127.0.0.1, port: {mariadb.port}, user: {mariadb.user}, password: "{mariadb.password}", tables: ["{mariadb_db}.acct"]}}
targets:
  hq: {{type: {target.kind}, host: 127.0.0.1, port: {target.service.port}, user: {user.name}, password: pw, database: {target.database}}}
pipelines:
  p: {{sources: [b], target: hq, routes: [{{from: "*.*", to: "{schema}.{{table}}"}}]}}
  q: {{sources: [b], target: hq, routes: [{{from: "*.*", to: "{schema}.{{table}}"}}]}}
""")  # noqa: E501
    found = [each for each in list_findings(load_config(config, {})) if "target hq" in each.place]
    remedies = [each.remedy for each in found if each.remedy.startswith("GRANT")]
    if target.kind == "postgres":
        assert remedies == [
            f'GRANT TEMPORARY ON DATABASE "{target.database}" TO {user.account};',
            f'GRANT CREATE ON SCHEMA "public" TO {user.account};',
        ]
    else:
        rights = "SELECT, INSERT, UPDATE, DELETE"
        pattern = target.database.replace("_", r"\_")
        assert remedies == [
            f"GRANT PROCESS ON *.* TO {user.account};",
            f"GRANT {rights} ON `{pattern}`.* TO {user.account};",
            rf"GRANT {rights}, CREATE, ALTER, TRIGGER ON `{pattern}\_t`.* TO {user.account};",
        ]


def test_who_may_not_be_ended_may_let_go(
    target: Target, users: list[User], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person looked at the progress rows with a lock: no unit stops for that."""
    user, other = users
    all_given(user, [])
    user.open().ensure_bookkeeping()
    all_given(other, [])
    mine, dead, refused = user.open(), other.open(), threading.Event()
    ending = type(mine._link.locks).end_blockers_of

    def noticed(locks: Any, waiting: int) -> list[int]:
        try:
            return ending(locks, waiting)
        except MissingGrantError:
            refused.set()
            raise

    monkeypatch.setattr(type(mine._link.locks), "end_blockers_of", noticed)
    lane = Lane.start(dead)
    with ThreadPoolExecutor(1) as pool:
        with dead.begin_transaction(lane.unit, [lane.row]):
            taking = pool.submit(mine.take_over, lane.unit, "id", LAYOUT, 1)
            assert refused.wait(10)
        assert taking.result()[0] == 2


def test_rights_that_come_from_a_role(target: Target, users: list[User]) -> None:
    if target.kind == "mysql" and target.version < (8, 0):
        pytest.skip("it has no roles")
    user, place = users[0], (target.schema, "people")
    target.open().create_table(people(target.schema))
    given = all_given(users[1], [place])
    role = f"{target.database}_r"
    target.sql(f"CREATE ROLE {role}")
    try:
        target.sql(f"GRANT {role} TO {user.account}")
        if target.kind != "postgres":
            word = "FOR" if target.kind == "mariadb" else "TO"
            target.sql(f"SET DEFAULT ROLE {role} {word} {user.account}")
        for each in given:
            target.sql(each.replace(users[1].account, role))
        assert lacks(user, [place]) == []
        where = target.name("people") if target.kind == "postgres" else f"`{target.database}`.*"
        target.sql(f"REVOKE DELETE ON {where} FROM {role}")
        assert {each.split(" ON ")[0] for each in lacks(user, [place])} == {"GRANT DELETE"}
    finally:
        if target.kind == "postgres":
            target.sql(f"DROP OWNED BY {role}")
        target.sql(f"DROP ROLE {role}")
