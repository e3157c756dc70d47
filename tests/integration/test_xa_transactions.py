"""XA transactions on real servers, from XA PREPARE to the topics: each row of the table in
docs/explanation/xa.md, and what may happen to capture, the log and the server in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pymysql
import pytest

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import Kafka
from producer.checks.recovered_xa import read_prepared_xids
from schemas.config.model import load_config
from schemas.io.server_errors import parse_server_version
from schemas.wire.records import Watermark
from tests.capturing import Capturing
from tests.kits.capture import position, running, watermarks
from tests.kits.copying import Copying
from tests.kits.waiting import until
from tests.servers.versions import VERSIONS
from tests.services import run_version

#: They log XA transactions at PREPARE.
SERVERS = (
    "mariadb",
    "mysql",
    *(each for each in VERSIONS if each not in {"mariadb-10.1.23", "mariadb-10.2.11"}),
)
_UNKNOWN_XID = 1397  # XAER_NOTA: also while a session that ends has not let go of it


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[MySQLFamily]:
    """A server of its own: tests restart it."""
    yield from run_version(request.param)


@pytest.fixture
def xa(server: Any, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[XaSite]:
    server.create_database(unique)
    yield XaSite(kafka, server, unique, tmp_path)
    for row in server.execute("XA RECOVER"):
        name = row[3].decode() if isinstance(row[3], bytes) else row[3]
        server.execute(f"XA ROLLBACK '{name}'")
    server.drop_database(unique)


def end_xa(server: Any, xid: str, verb: str = "COMMIT") -> None:
    """End a transaction in another session than the one that prepared it."""

    def ended() -> bool:
        try:
            server.execute(f"XA {verb} '{xid}'")
        except pymysql.MySQLError as error:
            if error.args[0] != _UNKNOWN_XID:
                raise
            return False
        return True

    until(ended, f"XA {verb} '{xid}'")


class XaSite(Capturing):
    """Capture of a server with XA transactions."""

    def prepare(self, xid: str, *statements: str) -> None:
        """Prepare a transaction in a session of its own, which ends."""
        self.change(f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'")

    def end(self, xid: str, verb: str = "COMMIT") -> None:
        end_xa(self.database, xid, verb)

    def written(self, table: str = "a") -> list[Any]:
        """Return the values of v as the topic has them, in its order, without repetitions."""
        found, seen = [], set()
        for event in self.events(table):
            if event.after is not None and event.source.position not in seen:
                seen.add(event.source.position)
                found.append(event.after["v"])
        return found

    @property
    def locks_tables_again(self) -> bool:
        """Whether the server locks the tables of prepared transactions after a restart: MySQL from 8.0 on."""
        version = parse_server_version(self.database.execute("SELECT VERSION()")[0][0])
        return bool(self.database.kind == "MySQL" and version >= (8, 0))

    @property
    def marks(self) -> list[Watermark]:
        return watermarks(self.kafka.bootstrap, self.db, "s")

    @property
    def open(self) -> set[str]:
        return set(position(self.kafka.bootstrap, self.db, "s").prepared_at)


def test_rows_are_published_at_commit_in_commit_order(xa: XaSite) -> None:
    xa.change("CREATE TABLE other (id INT PRIMARY KEY)")
    xa.run(patterns=("a", "b"))
    xa.prepare("one", "INSERT INTO a VALUES (1, 'first'), (2, 'first')", "UPDATE a SET v = 'x' WHERE id = 2")
    xa.prepare("two", "INSERT INTO other VALUES (1)", "INSERT INTO a VALUES (3, 'second')")
    xa.prepare("undone", "INSERT INTO a VALUES (4, 'undone')")
    xa.prepare("others", "INSERT INTO other VALUES (2)")
    xa.change(
        "INSERT INTO a VALUES (5, 'plain')",
        "XA START 'phase'", "INSERT INTO a VALUES (6, 'one phase')", "XA END 'phase'",
        "XA COMMIT 'phase' ONE PHASE",
        "XA START 'same'", "INSERT INTO a VALUES (7, 'kept')", "SAVEPOINT s",
        "INSERT INTO a VALUES (8, 'undone')", "ROLLBACK TO s", "XA END 'same'", "XA PREPARE 'same'",
        "XA COMMIT 'same'",
        "XA START 'empty'", "SAVEPOINT s", "INSERT INTO a VALUES (8, 'undone')", "ROLLBACK TO s",
        "XA END 'empty'", "XA PREPARE 'empty'", "XA COMMIT 'empty'",
    )  # fmt: skip
    xa.end("two")
    xa.end("undone", "ROLLBACK")
    xa.end("others")
    xa.run(patterns=("a", "b"))
    assert xa.written() == ["plain", "one phase", "kept", "second"]
    assert len(xa.open) == 1
    assert set(xa.marks[-1].prepared) == xa.open
    assert read_prepared_xids(load_config(xa.config(), {}).sources["s"]) == xa.open, "as the server names it"
    xa.end("one")
    xa.run(patterns=("a", "b"))
    assert xa.written() == ["plain", "one phase", "kept", "second", "first", "first", "x"]
    xa.holds_source_rows("a", "b")
    assert xa.open == set()


@pytest.mark.parametrize("ends", ["stopped", "killed"])
def test_rows_survive_what_happens_between_prepare_and_commit(xa: XaSite, ends: str) -> None:
    """Capture ends in between, the server begins new files of its log, and ends as well."""
    xa.run()
    with running(xa.config(), "s") as unit:
        xa.prepare("kept", "INSERT INTO a VALUES (1, 'kept')")
        xa.prepare("undone", "INSERT INTO a VALUES (2, 'undone')")
        xa.prepare("later", "INSERT INTO b VALUES (3, 'later')")
        until(lambda: len(xa.open) == 3, f"the record; {unit.output()[-3000:]}")
        unit.kill() if ends == "killed" else unit.stop()
    for _ in range(2):
        xa.database.execute("FLUSH BINARY LOGS")
    xa.database.restart() if ends == "stopped" else xa.database.kill()
    xa.database.start()
    assert len(xa.database.execute("XA RECOVER")) == 3, "the server knows them"
    xa.run("INSERT INTO a VALUES (9, 'between')")
    xa.end("kept")
    xa.end("undone", "ROLLBACK")
    xa.run()
    assert xa.written() == ["between", "kept"]
    xa.end("later")
    xa.run()
    xa.holds_source_rows("a", "b")
    assert xa.open == set()


def test_nothing_is_published_twice_when_capture_is_killed_after_commit(xa: XaSite) -> None:
    xa.run()
    filled = [f"INSERT INTO a VALUES ({n}, 'row {n}')" for n in range(300)]
    xa.prepare("large", *filled)
    for kills in count():
        with running(xa.config(), "s") as unit:
            if kills == 0:
                until(lambda: len(xa.open) == 1, f"the record; {unit.output()[-3000:]}")
                xa.end("large")
            if kills == 3:
                until(lambda: xa.open == set(), f"the commit; {unit.output()[-3000:]}")
                assert unit.stop() == 0
                break
            until(lambda: len(xa.written()) > 0, f"its rows; {unit.output()[-3000:]}")
            unit.kill()
    xa.run()
    assert xa.written() == [f"row {n}" for n in range(300)]
    xa.holds_source_rows("a", "b")


def test_transaction_beyond_the_memory_is_read_again_from_the_log(xa: XaSite) -> None:
    xa.change("CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(20), x LONGTEXT)")
    xa.run()
    filled = [f"INSERT INTO big VALUES ({n}, 'kept', REPEAT('x', 1000000))" for n in range(40)]
    xa.prepare("big", *filled, "SAVEPOINT s", "DELETE FROM big WHERE id < 20", "ROLLBACK TO s",
               "UPDATE big SET v = 'last' WHERE id = 0")  # fmt: skip
    gen = xa._gen()
    with running(xa.config(), "s") as unit:
        until(lambda: xa._gen() > gen and len(xa.open) == 1, f"the record; {unit.output()[-3000:]}")
        xa.end("big")
        until(lambda: xa.open == set(), f"the commit; {unit.output()[-3000:]}", 200)
        assert "read again" in unit.output()
        assert unit.stop() == 0
    xa.run()
    assert xa.written("big") == ["kept"] * 40 + ["last"]
    xa.holds_source_rows("a", "b", "big")


def test_compressed_transaction_is_read_again_after_a_restart(xa: XaSite) -> None:
    xa.run()
    mysql = xa.database.kind == "MySQL"
    setting = "binlog_transaction_compression" if mysql else "log_bin_compress"
    if not xa.database.execute(f"SHOW GLOBAL VARIABLES LIKE '{setting}'"):
        pytest.skip("this version compresses no transactions")
    if not mysql:
        xa.database.execute("SET GLOBAL log_bin_compress_min_len = 10")
    xa.database.execute(f"SET GLOBAL {setting} = ON")
    try:
        xa.prepare("z", "INSERT INTO a VALUES (1, REPEAT('z', 20)), (2, REPEAT('z', 20))",
                   "UPDATE a SET v = 'changed' WHERE id = 2")  # fmt: skip
    finally:
        xa.database.execute(f"SET GLOBAL {setting} = OFF")
    xa.run()
    xa.end("z")
    xa.run()
    assert xa.written() == ["z" * 20, "z" * 20, "changed"]
    xa.holds_source_rows("a", "b")


def test_order_of_log_and_engine_for_contended_transactions(xa: XaSite) -> None:
    """Two sessions change the same rows by XA transactions: each image continues the one before it."""
    pairs = 300
    xa.change("INSERT INTO a VALUES (1, '0'), (2, '0')")
    xa.run()
    numbers, failed = count(1), []

    def contend(name: str, verb: str) -> None:
        try:
            with closing(xa.database.connect(xa.db)) as connection, connection.cursor() as cursor:
                for n in range(pairs):
                    xid, row = f"{name}{n}", 1 + n % 2
                    for statement in (
                        f"XA START '{xid}'",
                        f"UPDATE a SET v = CONCAT('{next(numbers)}', '-', LEFT(v, 8)) WHERE id = {row}",
                        f"XA END '{xid}'",
                        f"XA PREPARE '{xid}'",
                        f"XA {verb if n % 5 == 4 else 'COMMIT'} '{xid}'",
                    ):
                        cursor.execute(statement)
        except pymysql.MySQLError as error:
            failed.append(error)

    threads = [threading.Thread(target=contend, args=(name, "ROLLBACK")) for name in "xy"]
    with running(xa.config(), "s"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    xa.run()
    for row in (1, 2):
        images = [
            (event.before["v"] if event.before else None, event.after["v"])
            for event in xa.events("a")
            if event.after is not None and event.after["id"] == row and event.op == "u"
        ]
        images = list(dict.fromkeys(images))
        assert len(images) == 2 * (pairs // 2 - pairs // 10)
        assert all(after == before for (_, after), (before, _) in pairwise(images))
    xa.holds_source_rows("a", "b")


def test_snapshot_beside_transactions_that_are_prepared_before_its_chunks(xa: XaSite) -> None:
    """They are prepared before LOW, and end before, within and after the chunk that has their rows."""
    xa.options["snapshot"] = "initial"
    xa.run(patterns=("b",))
    for start in range(0, 9000, 1000):
        xa.change(f"INSERT INTO a VALUES {', '.join(f'({n}, {n})' for n in range(start, start + 1000))}")
    for n in range(40):
        xa.prepare(
            f"s{n}", f"UPDATE a SET v = 'xa {n}' WHERE id = {n * 220}",
            f"DELETE FROM a WHERE id = {n * 220 + 1}", f"INSERT INTO a VALUES ({20000 + n}, 'xa')",
        )  # fmt: skip
    xa.run(patterns=("b",))
    assert len(xa.open) == 40
    with running(xa.config(), "s") as unit:
        for n in range(40):
            xa.end(f"s{n}", "ROLLBACK" if n % 4 == 0 else "COMMIT")
            xa.prepare(f"t{n}", f"UPDATE a SET v = 'during {n}' WHERE id = {n * 220 + 3}")
            xa.end(f"t{n}", "ROLLBACK" if n % 3 == 0 else "COMMIT")
        until(
            lambda: xa.open == set() and not xa.marks[-1].snapshot_pending,
            f"the snapshot; {unit.output()[-3000:]}", 200,
        )  # fmt: skip
        assert unit.stop() == 0
    xa.run()
    xa.holds_source_rows("a", "b")


def test_statement_between_prepare_and_commit_after_a_restart(xa: XaSite) -> None:
    """A prepared transaction keeps its tables locked. After a restart MariaDB, and MySQL 5.7, let some
    statements pass nevertheless, and the table stops at COMMIT."""
    xa.run()
    xa.prepare("x", "INSERT INTO a VALUES (1, 'x')")
    xa.database.restart()
    with closing(xa.database.connect(xa.db)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 2, innodb_lock_wait_timeout = 2")
        try:
            cursor.execute("ALTER TABLE a ALTER COLUMN v SET DEFAULT 'x'")
        except pymysql.MySQLError:
            altered = False
        else:
            altered = True
    assert altered is not xa.locks_tables_again
    xa.end("x")
    xa.run()
    if altered:
        xa.stopped("a", "xa")
        assert xa.written() == []
    else:
        assert xa.written() == ["x"]
        xa.holds_source_rows("a", "b")


def test_commit_of_a_transaction_from_before_capture_stops_all_tables(xa: XaSite) -> None:
    xa.prepare("n", "INSERT INTO a VALUES (1, 'x')")
    xa.run()
    xa.end("n")
    with running(xa.config(), "s") as unit:
        until(lambda: xa.notified() == {f"{xa.db}.a", f"{xa.db}.b"}, f"stops; {unit.output()[-3000:]}")
        assert unit.stop() == 0
    xa.stopped("a", "xa")


def test_purged_prepare_stops_its_tables(xa: XaSite) -> None:
    xa.run()
    xa.prepare("p", "INSERT INTO a VALUES (1, 'x')")
    xa.database.execute("FLUSH BINARY LOGS")
    xa.run()
    last = xa.database.execute("SHOW BINARY LOGS")[-1][0]

    def purged() -> bool:
        xa.database.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(xa.database.execute("SHOW BINARY LOGS")[0][0] == last)

    until(purged, "the purge")
    xa.run("INSERT INTO a VALUES (2, 'between')")
    xa.end("p")
    xa.run()
    xa.stopped("a", "xa")
    assert xa.written() == ["between"]


def phases(copying: Copying) -> list[str]:
    return [each.phase for each in copying.states().values()]


def test_table_that_xa_stopped_is_healed_by_a_copy(
    server: Any, kafka: Kafka, unique: str, tmp_path: Path
) -> None:
    """Another transaction is open while the copy reads the table, in chunks of three rows."""
    server.create_database(unique)
    copying = Copying(kafka, server, unique, tmp_path)
    copying.change("XA START 'early'", "UPDATE live SET version = 500 WHERE id = 2", "XA END 'early'",
                   "XA PREPARE 'early'")  # fmt: skip
    with copying.running() as unit:
        until(lambda: copying.equal("live"), f"the snapshot; {unit.output()[-3000:]}", 200)
        end_xa(server, "early")
        until(lambda: copying.stops() == {"live": "xa"}, f"the stop; {unit.output()[-3000:]}", 200)
        copying.change("XA START 'open'", "UPDATE live SET version = 600 WHERE id = 4",
                       "DELETE FROM live WHERE id = 5", "XA END 'open'", "XA PREPARE 'open'")  # fmt: skip
        copying.request_copy("live")
        until(lambda: phases(copying) == ["done"], f"the copy; {unit.output()[-3000:]}", 200)
        end_xa(server, "open")
        until(lambda: copying.equal("live"), f"its rows; {unit.output()[-3000:]}", 200)
        assert copying.stops() == {}
        assert unit.stop() == 0
    server.drop_database(unique)
