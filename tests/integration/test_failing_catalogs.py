"""Whatever a server answers to a question about its catalog, a command ends with a sentence and an exit
code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from rowlock.cli import main
from tests.kits.capture import running as capturing
from tests.kits.capture import write_config as write_capture
from tests.kits.running import source_config, target_config, write_config
from tests.servers.failing_server import DENIED, LOST, PLANTED, UNKNOWN_COLUMN, FailingServer, Fault

FAULTS = {"unknown column": UNKNOWN_COLUMN, "denied": DENIED, "lost": LOST}
#: What is said of a connection that is lost.
_LOST = ("lost", "no database answers", "nothing answers", "cannot be reached")
#: Command line → the faults. `run` asks what `check` asks.
COMMANDS = {
    "check --output json": FAULTS,
    "verify --settle 0": FAULTS,
    "run": ("unknown column",),
    "check --plan": ("unknown column",),
    "status --output json": ("unknown column",),
}
CASES = [(line, fault) for line, faults in COMMANDS.items() for fault in faults]
#: What a connection sends when it is opened. The last ones of `check` and `status` only ask for headroom and
#: version: a refused login is reported by those before them, which are asked for more.
_CONNECTING = ("SET ", "SELECT @@max_allowed_packet")


@pytest.fixture
def failing(mariadb: MariaDB) -> Iterator[FailingServer]:
    with FailingServer(mariadb.port) as server:
        yield server


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` ends where it would start its processes: everything before that is asked of the servers."""
    monkeypatch.setattr("rowlock.processes.run.run_processes", lambda *_, **__: 0)


def make_table(server: Any, db: str) -> None:
    server.execute("CREATE TABLE IF NOT EXISTS acct (id INT PRIMARY KEY, v VARCHAR(9) UNIQUE)", database=db)
    server.execute("REPLACE INTO acct VALUES (1, 'a'), (2, 'b')", database=db)


def configured(
    folder: Path, kafka: Kafka, prefix: str, source: dict[str, Any], target: dict[str, Any]
) -> Path:
    schema = "public" if target["type"] == "postgres" else target["database"]
    return write_config(
        folder,
        kafka={"bootstrap": kafka.bootstrap, "prefix": prefix},
        sources={"branch": source},
        targets={"hq": target},
        pipelines={
            "p": {
                "sources": ["branch"],
                "target": "hq",
                "routes": [{"from": "*.acct", "to": f"{schema}.{{table}}"}],
            }
        },
        coordination={"rest": "127.0.0.1:0", "listen": "127.0.0.1:0"},
    )


def invoke(config: Path, line: str) -> Result:
    return CliRunner().invoke(main, [*line.split(), "-c", str(config)])


def assert_said(line: str, result: Result, what: str, *, lost: bool, named: bool) -> None:
    """The command ended as a command does, and named what failed."""
    ended = result.exception is None or isinstance(result.exception, SystemExit)
    assert ended, f"{what}: {result.exception!r}"
    assert "Traceback" not in result.output, what
    assert result.exit_code in (0, 1, 2), what
    if not named:
        return
    words = _LOST if lost else (PLANTED,)
    assert any(word in result.output.lower() for word in words), f"{what}: {result.output}"
    if not line.startswith(("check --output", "run", "status")):
        assert result.exit_code != 0, what
        assert len(result.stderr.splitlines()) <= 2, f"{what}: {result.stderr}"


def each_statement_fails(config: Path, line: str, server: FailingServer, fault: Fault) -> int:
    """Run the command once for each statement that it sends, which fails. Returns how many there are."""
    server.reset()
    invoke(config, line)
    statements = list(server.statements)
    for number, statement in enumerate(statements):
        server.reset(number, fault)
        result = invoke(config, line)
        assert server.has_failed
        what = f"{line}, statement {number}: {' '.join(statement.split())[:200]}"
        assert_said(line, result, what, lost=fault is LOST, named=not statement.startswith(_CONNECTING))
    return len(statements)


@pytest.mark.parametrize(("line", "fault"), [case for case in CASES if case[0].partition(" ")[0] != "status"])
def test_a_source_s_failing_statement_is_a_sentence(
    failing: FailingServer, mariadb: MariaDB, mariadb_db: str, kafka: Kafka, postgres: PostgreSQL, pg_db: str,
    unique: str, tmp_path: Path, line: str, fault: str,
) -> None:  # fmt: skip
    make_table(mariadb, mariadb_db)
    postgres.execute("CREATE TABLE acct (id INT PRIMARY KEY, v VARCHAR(9) UNIQUE)", database=pg_db)
    source = source_config(mariadb, "mariadb", mariadb_db) | {"port": failing.port}
    config = configured(tmp_path, kafka, unique, source, target_config(postgres, "postgres", pg_db))
    assert each_statement_fails(config, line, failing, FAULTS[fault]) > 5


@pytest.mark.parametrize(("line", "fault"), CASES)
def test_a_target_s_failing_statement_is_a_sentence(
    failing: FailingServer, mariadb: MariaDB, mariadb2: MariaDB, mariadb_db: str, kafka: Kafka, unique: str,
    tmp_path: Path, line: str, fault: str,
) -> None:  # fmt: skip
    mariadb2.create_database(unique)
    make_table(mariadb2, unique)
    make_table(mariadb, mariadb_db)
    target = target_config(mariadb, "mariadb", mariadb_db) | {"port": failing.port}
    config = configured(tmp_path, kafka, unique, source_config(mariadb2, "mariadb", unique), target)
    try:
        assert each_statement_fails(config, line, failing, FAULTS[fault]) > 2
    finally:
        mariadb2.drop_database(unique)


POSTGRES_FAULTS: dict[str, type[psycopg.Error]] = {
    "unknown column": psycopg.errors.UndefinedColumn,
    "denied": psycopg.errors.InsufficientPrivilege,
    "lost": psycopg.errors.AdminShutdown,
}


class FailingCursors:
    """Lets psycopg's statement number `fails` (from 0), of all connections of this process, fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.statements: list[str] = []
        self.fails, self.error = -1, psycopg.Error
        real = psycopg.Cursor.execute

        def execute(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            self.statements.append(str(query))
            if len(self.statements) - 1 == self.fails:
                raise self.error(PLANTED)
            return real(cursor, query, *arguments, **options)

        monkeypatch.setattr(psycopg.Cursor, "execute", execute)


@pytest.mark.parametrize("fault", POSTGRES_FAULTS)
@pytest.mark.parametrize("line", ["check --output json", "verify --settle 0"])
def test_a_postgres_target_s_failing_statement_is_a_sentence(
    mariadb: MariaDB, mariadb_db: str, kafka: Kafka, postgres: PostgreSQL, pg_db: str, unique: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, fault: str,
) -> None:  # fmt: skip
    make_table(mariadb, mariadb_db)
    postgres.execute("CREATE TABLE acct (id INT PRIMARY KEY, v VARCHAR(9) UNIQUE)", database=pg_db)
    source = source_config(mariadb, "mariadb", mariadb_db)
    config = configured(tmp_path, kafka, unique, source, target_config(postgres, "postgres", pg_db))
    cursors = FailingCursors(monkeypatch)
    invoke(config, line)
    statements, cursors.error = list(cursors.statements), POSTGRES_FAULTS[fault]
    assert len(statements) > 5
    for number, statement in enumerate(statements):
        cursors.statements.clear()
        cursors.fails = number
        result = invoke(config, line)
        # `status`, which `check` asks for headroom, only asks whether the version is supported
        named = "synchronous_commit" not in statement
        assert_said(line, result, f"{line}, statement {number}: {statement[:200]}", lost=False, named=named)


def test_capture_ends_or_goes_on_when_a_statement_fails(
    failing: FailingServer, mariadb: MariaDB, mariadb_db: str, kafka: Kafka, unique: str, tmp_path: Path
) -> None:
    """From the first question of a start to the end of its snapshot. Each statement fails once, the faults in
    turn."""
    make_table(mariadb, mariadb_db)
    source = source_config(mariadb, "mariadb", mariadb_db) | {"port": failing.port, "snapshot": "only"}
    number, faults = 0, list(FAULTS.values())
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        config = write_capture(folder, kafka.bootstrap, f"{unique}.{number}", {"s": source})
        failing.reset(number, fault := faults[number % len(faults)])
        with capturing(config, "s") as unit:
            code = unit.wait(120)
        what = f"statement {number} of {failing.statements}: {unit.output()}"
        assert code in (0, 2), what
        assert "Traceback" not in unit.output(), what
        assert "internal error of rowlock" not in unit.output(), what
        if not failing.has_failed:
            break
        if code == 2:
            assert fault is not LOST, what
            assert PLANTED in unit.output(), what
        number += 1
    assert code == 0, what
    assert number > 30, what
