"""Another history at the same file and offset is refused, whatever gave it; the same history is gone on with.

A server that is reset, restored or replaced writes other rows into a log of the same name, and reaches the
stored offset again: under the same uuid, and with the same GTIDs. Each server here is one of its own, with
GTIDs and without, with checksums in the log and without.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from deploy.embedded.services import EmbeddedError, Kafka, MariaDB, MySQL
from tests.kits.capture import (
    events,
    position,
    refused,
    replay,
    running,
    source,
    source_findings,
    watermarks,
    write_config,
)
from tests.kits.waiting import until

NONE = "--binlog-checksum=NONE"


@dataclass
class Site:
    """A server of its own with a table, and a capture of it; the log is as a reset leaves it."""

    server: MariaDB | MySQL
    kafka: Kafka
    db: str
    folder: Path
    config: Path = field(init=False)

    def __post_init__(self) -> None:
        self.write_config(self.server)

    def write_config(self, server: MariaDB | MySQL) -> None:
        more = {} if isinstance(server, MariaDB) or server.gtid_mode == "ON" else {"snapshot": "never"}
        self.config = write_config(
            self.folder, self.kafka.bootstrap, self.db, {"s": source(server, [f"{self.db}.*"], **more)}
        )

    def insert(self, *ids: int) -> None:
        for each in ids:
            self.server.execute(f"INSERT INTO {self.db}.acct VALUES ({each}, 'name')")

    def reset(self) -> None:
        mariadb = isinstance(self.server, MariaDB)
        self.server.execute("RESET MASTER" if mariadb else "RESET BINARY LOGS AND GTIDS")

    def end(self) -> tuple[str, int]:
        row = self.server.execute(self.server.log_status)[0]
        return str(row[0]), int(row[1])

    def captured(self) -> list[int]:
        found = replay(events(self.kafka.bootstrap, f"{self.db}.s.{self.db}.acct"))
        return sorted(row["id"] for row in found.tables.get((self.db, "acct"), {}).values())

    def ready(self) -> bool:
        return any(not mark.snapshot_pending for mark in watermarks(self.kafka.bootstrap, self.db, "s"))

    def stored(self) -> Any:
        return position(self.kafka.bootstrap, self.db, "s")

    def capture(self, *ids: int, arguments: tuple[str, ...] = ()) -> None:
        """Run capture, insert these while it runs, and stop it with all of them in the topic."""
        gens = self.stored().gen if watermarks(self.kafka.bootstrap, self.db, "s") else 0
        with running(self.config, "s", *arguments) as unit:

            def started() -> bool:
                assert unit.process is not None
                assert unit.process.poll() is None, unit.output()
                marks = watermarks(self.kafka.bootstrap, self.db, "s")
                return any(mark.gen > gens and not mark.snapshot_pending for mark in marks)

            until(started, "the start")
            self.insert(*ids)
            until(lambda: set(ids) <= set(self.captured()), "the rows")
            assert unit.stop() == 0, unit.output()

    def refused_as_another_history(self) -> None:
        before = self.captured()
        reported = refused(self.config)
        assert "not the one that was captured" in reported
        assert "start over" in reported
        notified = source_findings(self.config)
        assert ["not the one that was captured" in each.message for each in notified] == [True], notified
        assert self.captured() == before, "nothing was written"


KINDS = {
    "mariadb": lambda: MariaDB(durable=False),
    "mariadb-no-checksum": lambda: MariaDB(durable=False, extra=[NONE]),
    "mysql": lambda: MySQL(durable=False),
    "mysql-no-gtid-no-checksum": lambda: MySQL(durable=False, gtid_mode="OFF", extra=[NONE]),
}


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[MariaDB | MySQL]:
    made = KINDS[request.param]()
    try:
        type(made).fetch()
    except EmbeddedError as error:
        pytest.skip(error.seen)
    with made as started:
        yield started


@pytest.fixture
def site(server: MariaDB | MySQL, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Site]:
    server.create_database(unique)
    server.execute(f"CREATE TABLE {unique}.acct (id INT PRIMARY KEY, name VARCHAR(20))")
    made = Site(server, kafka, unique, tmp_path)
    made.reset()
    yield made
    server.start()
    server.drop_database(unique)


def test_reset_and_other_rows_up_to_the_same_offset(site: Site) -> None:
    site.capture(31, 32, 33)
    stood = site.end()
    assert (site.stored().file, site.stored().pos) == stood
    assert site.stored().proof[0].end == stood[1]
    site.reset()
    site.insert(11, 12, 13)
    assert site.end() == stood, "the very same file and offset, and an event ends there"
    site.refused_as_another_history()
    site.insert(14, 15)
    site.refused_as_another_history()
    site.capture(16, arguments=("--new-snapshot",))
    if "never" not in site.config.read_text():
        assert site.captured() == [11, 12, 13, 14, 15, 16, 31, 32, 33]
    assert site.stored().epoch == 1


def test_reset_while_capture_is_connected_and_idle(site: Site) -> None:
    """The server goes on sending heartbeats from the file that it has deleted."""
    with running(site.config, "s") as unit:
        until(site.ready, "the start")
        site.insert(*range(1, 9))
        until(lambda: len(site.captured()) >= 8, "the rows")
        until(lambda: site.stored().pos == site.end()[1], "the position")
        site.reset()
        site.insert(11)
        assert unit.wait(90) == 2, unit.output()
    assert "start over" in unit.output()
    assert 11 not in site.captured()


def test_a_restored_data_directory(site: Site, tmp_path: Path) -> None:
    site.server.stop()
    backup = tmp_path / "backup"
    shutil.copytree(site.server.home.data, backup, symlinks=True)
    site.server.start()
    site.capture(1, 2, 3)
    stood = site.end()
    site.server.stop()
    for kept in site.server.home.data.iterdir():
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    copy_back(backup, site.server.home.data)
    site.server.start()
    site.insert(11, 12, 13, 14)
    assert site.end()[0] == stood[0]
    assert site.end()[1] > stood[1]
    site.refused_as_another_history()


def copy_back(backup: Path, data: Path) -> None:
    """As a restore does: the files belong to the server's own user."""
    import os

    owner = data.stat()
    shutil.copytree(backup, data, symlinks=True, dirs_exist_ok=True)
    for path in (data, *data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)


def test_a_clone_with_the_same_uuid(site: Site) -> None:
    """A copy of the data directory is started as another server; MySQL's auto.cnf came along."""
    site.server.stop()
    made = type(site.server)(durable=False, extra=site.server.extra, server_id=site.server.server_id)
    if isinstance(made, MySQL) and isinstance(site.server, MySQL):
        made.gtid_mode = site.server.gtid_mode
    made.home.data.mkdir()
    import os

    owner = site.server.home.data.stat()
    os.chown(made.home.data, owner.st_uid, owner.st_gid)
    copy_back(site.server.home.data, made.home.data)
    site.server.start()
    site.capture(1, 2, 3)
    with made as clone:
        there = Site(clone, site.kafka, site.db, site.folder)
        there.insert(11, 12, 13, 14)
        assert there.end()[0] == site.end()[0]
        there.refused_as_another_history()


def test_the_same_history_is_gone_on_with(site: Site) -> None:
    """Restarts, crashes, rotations, purges, and another checksum from some file on; at each start the proof
    is read again."""
    before = site.server.execute("SELECT @@global.binlog_checksum")[0][0]
    other = "NONE" if before == "CRC32" else "CRC32"
    site.capture(1)
    site.insert(2)
    site.server.restart()
    site.capture(3)
    site.server.kill()
    site.server.start()
    site.capture(4)
    try:
        site.server.execute(f"SET GLOBAL binlog_checksum = {other}")
        site.capture()
        site.insert(5)
        site.server.execute(f"SET GLOBAL binlog_checksum = {before}")
        site.capture(6)
    finally:
        site.server.execute(f"SET GLOBAL binlog_checksum = {before}")
    site.server.execute("FLUSH BINARY LOGS")
    site.capture()
    assert next(proof.file for proof in site.stored().proof) == site.end()[0], "the new file's head"
    purge(site)
    site.capture(7)
    assert site.captured()[-6:] == [2, 3, 4, 5, 6, 7]
    assert source_findings(site.config) == []


def purge(site: Site) -> None:
    last = site.end()[0]

    def purged() -> bool:
        site.server.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(site.server.execute("SHOW BINARY LOGS")[0][0] == last)

    until(purged, "the purge")


def test_a_position_of_a_version_that_kept_no_proof(site: Site) -> None:
    site.capture(1, 2)
    old = msgspec.structs.replace(site.stored(), proof=())
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap})
    producer.produce(f"{site.db}.s.position", msgspec.json.encode(old), str(old.gen).encode())
    assert producer.flush(30) == 0
    with running(site.config, "s") as unit:
        until(lambda: "has no proof" in unit.output(), "the warning")
        until(lambda: site.stored().gen > old.gen and site.stored().proof, "a proof from the first moment on")
        site.insert(3)
        until(lambda: 3 in site.captured(), "the row")
        assert unit.stop() == 0, unit.output()
    assert site.stored().proof[0].end == site.stored().pos


def test_a_compressed_transaction_proves_as_well(site: Site) -> None:
    """The event of the log that ends at the position is the one that holds all others of the transaction."""
    if isinstance(site.server, MariaDB):
        pytest.skip("MariaDB compresses events, not transactions")
    with running(site.config, "s") as unit:
        until(site.ready, "the start")
        with site.server.connect(init_command="SET SESSION binlog_transaction_compression = ON") as conn:
            conn.cursor().execute(
                f"INSERT INTO {site.db}.acct VALUES (1, REPEAT('x', 20)), (2, REPEAT('y', 20))"
            )
        until(lambda: site.captured() == [1, 2], "the rows")
        assert unit.stop() == 0, unit.output()
    assert site.stored().proof[0].end == site.end()[1]
    site.capture(3)
    site.reset()
    with site.server.connect(init_command="SET SESSION binlog_transaction_compression = ON") as conn:
        conn.cursor().execute(f"INSERT INTO {site.db}.acct VALUES (4, REPEAT('x', 20)), (5, REPEAT('y', 20))")
    site.insert(6, 7)
    site.refused_as_another_history()
