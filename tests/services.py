"""Fixtures for real services: started when a test first asks for one, once per test process, shared by its
tests.

Tests keep apart by names (`unique`), not by servers. A test may kill, pause or restart a shared service:
after each test that may have, whatever was started is running again.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Generator, Iterator
from typing import NoReturn, TypeVar

import pytest

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import EmbeddedError, Kafka, MariaDB, MySQL, PostgreSQL, Service
from tests.kits.families import family, send
from tests.real_oracle import RealOracle, dsn
from tests.servers.debian_mariadb import NewMariaDB
from tests.servers.given_server import explain_unknown_statement, make_given_server
from tests.servers.h2_server import OracleOnH2
from tests.servers.versions import VERSIONS
from tests.stands.oracle_on_h2 import make_database

S = TypeVar("S", bound=Service)
_started: list[Service] = []
#: The fixtures that start them.
SERVICES = frozenset(
    {"kafka", "mariadb", "mariadb2", "mysql", "new_mariadb", "postgres", "oracle", "version"}
)
#: The markers of tests on services (conftest gives them by folder).
_MARKERS = ("integration", "faults", "upgrade")
#: How the reason begins for which a test is skipped that needs one.
NO_MYSQL = "no MySQL here: "


def _shared(service: S) -> Iterator[S]:
    with service:
        _started.append(service)
        yield service
        _started.remove(service)


def _revive(service: Service) -> None:
    service.process.resume()
    service.start()


def without_mysql(reason: str) -> NoReturn:
    """Skip a test for want of a MySQL; where one is required (`.ci/run`), fail it."""
    if os.environ.get("ROWLOCK_REQUIRE_MYSQL"):
        pytest.fail(f"{NO_MYSQL}{reason} (ROWLOCK_REQUIRE_MYSQL is set)", pytrace=False)
    pytest.skip(f"{NO_MYSQL}{reason}")


def without_version(reason: str) -> NoReturn:
    """Skip a test for want of a version of a server; where they are required (`.ci/run`), fail it."""
    if os.environ.get("ROWLOCK_REQUIRE_OLD_SERVERS"):
        pytest.fail(f"no such server here: {reason} (ROWLOCK_REQUIRE_OLD_SERVERS is set)", pytrace=False)
    pytest.skip(f"no such server here: {reason}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test with a statement that the server of the environment does not know."""
    report = yield
    unknown = explain_unknown_statement(call.excinfo.value if call.excinfo else None)
    if report.failed and unknown is not None:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: the server does not know a statement: {unknown}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end what was not tested."""
    left = [one for one in terminalreporter.stats.get("skipped", ()) if NO_MYSQL in str(one.longrepr)]
    if left:
        terminalreporter.section("NOT TESTED: MySQL", sep="!", red=True, bold=True)
        terminalreporter.write_line(
            f"{len(left)} tests need a real MySQL and were skipped: {left[0].longrepr[-1]}"
        )
        terminalreporter.write_line(
            "ROWLOCK_REQUIRE_MYSQL=1 turns that into failures, as .ci/run does", red=True
        )


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The broker; topics begin with `unique`."""
    yield from _shared(Kafka())


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MySQLFamily]:
    """A MariaDB with a row binlog; its commits do not wait for the disk. Or the one that the environment
    names (tests.servers.given_server)."""
    yield from _shared(make_given_server("MariaDB") or MariaDB(durable=False))


@pytest.fixture(scope="session")
def mariadb2() -> Iterator[MariaDB]:
    """A second, independent MariaDB."""
    yield from _shared(MariaDB(durable=False))


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySQLFamily]:
    """A real MySQL 9 with GTIDs; where it cannot be had the test is skipped (ROWLOCK_REQUIRE_MYSQL=1: it
    fails). Or the one that the environment names (tests.servers.given_server)."""
    if (given := make_given_server("MySQL")) is not None:
        yield from _shared(given)
        return
    try:
        MySQL.fetch()
    except EmbeddedError as error:
        without_mysql(error.seen)
    yield from _shared(MySQL(durable=False))


@pytest.fixture(scope="session")
def new_mariadb() -> Iterator[NewMariaDB]:
    """A MariaDB 11.8, from where MySQL comes from; where it cannot be had the test is skipped
    (ROWLOCK_REQUIRE_MYSQL=1: it fails)."""
    try:
        NewMariaDB.fetch()
    except EmbeddedError as error:
        if os.environ.get("ROWLOCK_REQUIRE_MYSQL"):
            pytest.fail(f"no new MariaDB here: {error.seen} (ROWLOCK_REQUIRE_MYSQL is set)", pytrace=False)
        pytest.skip(f"no new MariaDB here: {error.seen}")
    yield from _shared(NewMariaDB(durable=False))


def run_version(name: str) -> Iterator[MySQLFamily]:
    """Run a server of its own: "mysql" and "mariadb" are the newest, others those of tests.servers.versions.
    Where it cannot be had the test is skipped (ROWLOCK_REQUIRE_OLD_SERVERS=1: it fails)."""
    try:
        service = {"mysql": MySQL, "mariadb": MariaDB, **VERSIONS}[name]()
        service.start()
    except EmbeddedError as error:
        without_version(error.seen)
    yield from _shared(service)


@pytest.fixture(scope="module")
def version(request: pytest.FixtureRequest) -> Iterator[MySQLFamily]:
    """A server of the version that the parameter names (see run_version)."""
    yield from run_version(request.param)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgreSQL]:
    """A PostgreSQL 18 whose commits do not wait for the disk (those of rowlock wait for the operating
    system)."""
    yield from _shared(PostgreSQL(extra=["-c", "synchronous_commit=off", "-c", "fsync=off"]))


@pytest.fixture(scope="session")
def oracle() -> Iterator[OracleOnH2 | RealOracle]:
    """H2 in Oracle mode, which stands in for Oracle as a target; or a server of one's own."""
    if given := dsn():
        yield RealOracle.of(given)
    else:
        yield from _shared(OracleOnH2())


@pytest.fixture
def unique() -> str:
    """A short name that no other test has: for a Kafka prefix, a database, a user."""
    return f"t{secrets.token_hex(4)}"


def _database(service: MariaDB | MySQL | NewMariaDB | PostgreSQL, name: str) -> Iterator[str]:
    service.create_database(name)
    yield name
    _revive(service)
    service.drop_database(name)


@pytest.fixture
def mariadb_db(mariadb: MariaDB, unique: str) -> Iterator[str]:
    """The name of a fresh database on `mariadb`."""
    yield from _database(mariadb, unique)


@pytest.fixture
def new_mariadb_db(new_mariadb: NewMariaDB, unique: str) -> Iterator[str]:
    """The name of a fresh database on `new_mariadb`."""
    yield from _database(new_mariadb, unique)


@pytest.fixture
def mysql_db(mysql: MySQL, unique: str) -> Iterator[str]:
    """The name of a fresh database on `mysql`."""
    yield from _database(mysql, unique)


@pytest.fixture
def pg_db(postgres: PostgreSQL, unique: str) -> Iterator[str]:
    """The name of a fresh database on `postgres`."""
    yield from _database(postgres, unique)


@pytest.fixture
def oracle_db(oracle: OracleOnH2 | RealOracle, unique: str) -> Iterator[str]:
    """The name of a fresh database on `oracle`, with Oracle's catalog, which goes with the service; or of
    one's own, emptied."""
    if isinstance(oracle, RealOracle):
        oracle.empty()
        yield oracle.service
        return
    make_database(oracle.port, unique)
    yield unique
    _revive(oracle)


@pytest.fixture(autouse=True)
def _services_survive(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test did to a shared service, the next one finds it running."""
    yield
    if _started and may_have_stopped(request):
        revive_all()


def may_have_stopped(request: pytest.FixtureRequest) -> bool:
    """Return whether a test may have stopped a service: it is in one of their folders, or elsewhere and asked
    for a service.

    The others are thousands, and to look at the machine's processes after each would take longer than they
    do.
    """
    marked = any(request.node.get_closest_marker(marker) for marker in _MARKERS)
    return marked or not SERVICES.isdisjoint(request.fixturenames)


def revive_all() -> None:
    """Have every service running that was started: one look at the machine's processes for all of them."""
    send(family(os.getpid()), signal.SIGCONT)
    for service in _started:
        service.start()


def pytest_report_header() -> str:
    """The line that pytest shows at the top: what a test can count on here."""
    reason = MySQL.explain_unavailable()
    known = [f"{kind.kind} {kind.read_version()}" for kind in (Kafka, MariaDB, PostgreSQL)]
    mysql_line = (
        f"no MySQL ({reason})" if reason else f"MySQL {MySQL.read_version() or '9 (not downloaded yet)'}"
    )
    return "services: " + ", ".join([*known, mysql_line])
