"""Capture continues at a promoted replica: two real MySQL servers, of which one replicates the other."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pymysql
import pytest
from confluent_kafka import Producer

from deploy.embedded.services import EmbeddedError, Kafka, MySQL
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import CopyRequest, copy_topic
from schemas.wire.event import EventEnvelope
from schemas.wire.records import StoredPosition, Watermark, format_former_table_topic
from tests.kits.capture import (
    Replay,
    messages,
    position,
    refused,
    replay,
    row_that_goes_back,
    running,
    size,
    source_findings,
    source_rows,
    topic_rows,
    watermarks,
    write_config,
)
from tests.kits.documented_user import PASSWORD, documented_user
from tests.kits.waiting import until
from tests.servers.mysql_replicas import ReplicatedMySQL
from tests.services import without_mysql

TABLES = ("a", "b", "c", "d")
KEYS = 40
_decode = msgspec.json.Decoder(EventEnvelope).decode


@pytest.fixture(scope="module", params=["semi-sync", "async"])
def servers(request: pytest.FixtureRequest) -> Iterator[list[ReplicatedMySQL]]:
    """A primary and its replica."""
    with made_servers(semi_sync=request.param == "semi-sync") as made:
        yield made


@contextlib.contextmanager
def made_servers(*, semi_sync: bool) -> Iterator[list[ReplicatedMySQL]]:
    try:
        MySQL.fetch()
    except EmbeddedError as error:
        without_mysql(error.seen)
    with contextlib.ExitStack() as stack:
        first, second = (ReplicatedMySQL(semi_sync=semi_sync) for _ in range(2))
        made = [stack.enter_context(first), stack.enter_context(second)]
        first.accept_writes()
        second.replicate(first)
        yield made
        for each in made:  # one may have taken another one's place
            stack.callback(each.close)


@pytest.fixture
def site(servers: list[ReplicatedMySQL], kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Site]:
    made: Any = Site(servers, kafka, unique, tmp_path)
    with documented_user(made, unique, unique):
        yield made
    made.primary.drop_database(unique)


class Site:
    """A source of two servers: `primary` accepts writes, `replica` replicates it. Tables have a `version`
    that grows with every change of any row."""

    def __init__(
        self, servers: list[ReplicatedMySQL], kafka: Kafka, db: str, folder: Path, *, user: str = ""
    ) -> None:
        self.kafka, self.db, self.folder = kafka, db, folder
        self.user, self.password = (user, "") if user else (db, PASSWORD)
        self.servers = servers
        self.version = 0
        self._lock = threading.Lock()
        self.primary.create_database(db)
        for table in TABLES:
            self.primary.execute(
                f"CREATE TABLE {db}.{table} (id INT PRIMARY KEY, version BIGINT NOT NULL, v VARCHAR(20))"
            )
            rows = ", ".join(f"({key}, {self.next()}, 'begun')" for key in range(1, KEYS // 2))
            self.primary.execute(f"INSERT INTO {db}.{table} VALUES {rows}")

    kind = "MySQL"

    def execute(self, sql: str) -> list[Any]:
        """Run a statement at the primary."""
        return self.primary.execute(sql)

    @property
    def primary(self) -> ReplicatedMySQL:
        return self.servers[0]

    @property
    def replica(self) -> ReplicatedMySQL:
        return self.servers[1]

    def next(self) -> int:
        with self._lock:
            self.version += 1
            return self.version

    def config(self, **more: Any) -> Path:
        hosts = sorted(f"{each.host}:{each.port}" for each in self.servers)
        section = {
            "type": "mysql", "hosts": hosts, "user": self.user,
            "password": self.password, "tables": [f"{self.db}.*"], **more,
        }  # fmt: skip
        return write_config(self.folder, self.kafka.bootstrap, self.db, {"s": section})

    def change(self, *statements: str) -> None:
        with self.primary.connect(self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextlib.contextmanager
    def writing(self, sessions: int = 3) -> Iterator[None]:
        """Change rows of all tables in several sessions, in transactions of one to three rows of one or two
        tables, at the server that is the primary; a session whose server dies goes on at the next one."""
        end = threading.Event()
        threads = [threading.Thread(target=self._write, args=(each, end)) for each in range(sessions)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            end.set()
            for thread in threads:
                thread.join()

    def _write(self, number: int, end: threading.Event) -> None:
        while not end.is_set():
            try:
                with self.primary.connect(self.db, autocommit=False) as connection:
                    while not end.is_set():
                        self._transact(connection, number)
            except (pymysql.MySQLError, OSError):  # it dies, is read-only, or is not promoted yet
                end.wait(0.05)

    def _transact(self, connection: Any, number: int) -> None:
        with connection.cursor() as cursor:
            for step in range(1 + self.version % 3):
                table = TABLES[(self.version + step) % len(TABLES)]
                key = number + 3 * (self.version % (KEYS // 3))  # sessions have keys of their own
                if self.version % 7 == 0:
                    cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
                cursor.execute(f"REPLACE INTO {table} VALUES ({key}, {self.next()}, 'live')")
        connection.commit()

    # --- failovers

    def fail_over(self) -> None:
        """Kill the primary, and promote the replica."""
        self.primary.kill()
        self.replica.promote()
        self.servers.reverse()

    def bring_back(self) -> None:
        """Let the server that was killed replicate the new primary; if it has transactions that this lacks, a
        new server takes its place, as an operator would build it anew."""
        former = self.replica.start()
        former.execute("SET GLOBAL super_read_only = ON")
        own = GtidSet.parse(former.executed)
        if GtidSet.parse(self.primary.executed).covers(own):
            former.replicate(self.primary)
        else:
            former.close()
            self.servers[1] = ReplicatedMySQL(
                semi_sync=former.semi_sync, port=former.port,
                server_id=former.server_id + 1,  # a replica leaves out what has its own id
            ).start()  # fmt: skip
            self.servers[1].replicate(self.primary)
        until(lambda: self.replica.has_all_of(self.primary), "the replica has caught up")

    # --- what is known

    def topic(self, table: str) -> str:
        return format_former_table_topic(self.db, "s", self.db, table)

    def events(self, table: str) -> list[tuple[bytes | None, EventEnvelope]]:
        topic = self.topic(table)
        if not size(self.kafka.bootstrap, topic):
            return []
        return [(each.key(), _decode(each.value())) for each in messages(self.kafka.bootstrap, topic)]

    def holds_rows(self, table: str) -> bool:
        """Whether the topic comes to the rows of the primary. Of a copied table all rows follow the begin of
        the copy: targets delete the others."""
        accepted = replay([event for _, event in self.events(table)]).accepted
        begins = [
            n for n, each in enumerate(accepted) if each.copy is not None and each.definition is not None
        ]
        found = Replay()
        for event in accepted[begins[-1] if begins else 0 :]:
            found.apply(event)
        rows = source_rows(self.primary, self.db, table, "id, version, v")
        return topic_rows(found, self.db, table, ["id", "version", "v"]) == rows

    @property
    def record(self) -> StoredPosition:
        return position(self.kafka.bootstrap, self.db, "s")

    @property
    def marks(self) -> list[Watermark]:
        return watermarks(self.kafka.bootstrap, self.db, "s")

    @property
    def stops(self) -> set[str]:
        return {name.partition(".")[2] for name in self.record.stops}

    def await_changes(self, number: int) -> None:
        version = self.version
        until(lambda: self.version > version + number, "load")

    def await_rows(self, tables: set[str] | tuple[str, ...] = TABLES) -> None:
        for table in tables:
            until(partial(self.holds_rows, table), f"topic of {table} has the source's rows")

    def find_lost(self) -> dict[str, set[str]]:
        """Return the transactions of the topics that the primary lacks, by table."""
        executed = GtidSet.parse(self.primary.executed)
        lost = defaultdict[str, set[str]](set)
        for table in TABLES:
            for _, event in self.events(table):
                if event.source.gtid is not None and event.source.gtid not in executed:
                    lost[table].add(event.source.gtid)
        return lost

    def copied(self, table: str) -> int:
        """Return how many rows the last copy of a table has read."""
        state = self.record.copies.get(f"{self.db}.{table}")
        return 0 if state is None or state.phase != "running" else state.rows

    def copy(self, *tables: str) -> None:
        self.request_copy(*tables)
        until(lambda: not self.stops, f"copies of {tables} begin")

    def request_copy(self, *tables: str) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for table in tables:
            request = CopyRequest(
                id=secrets.token_hex(4), db=self.db, table=table, by="operator", requested_ms=1
            )
            producer.produce(
                copy_topic(self.db, "s"), key=request.id.encode(), value=encode_copy_request(request)
            )
        producer.flush()

    def await_era(self, era: int) -> None:
        until(lambda: self.marks and self.marks[-1].position[0] == era, f"era {era}")

    def never_goes_back(self, *tables: str) -> None:
        for table in tables:
            assert (wrong := row_that_goes_back(self.events(table))) is None, f"{table}: {wrong}"


def published_twice(found: list[tuple[bytes | None, EventEnvelope]]) -> list[Any]:
    """Return the rows that readers get twice: under two positions, of the same transaction and key, in two
    eras."""
    seen: dict[Any, int] = {}
    accepted = replay([event for _, event in found]).accepted
    twice = []
    for event in accepted:
        if event.op not in "cud" or event.source.gtid is None:
            continue
        row = msgspec.json.encode((event.source.gtid, event.source.row, event.before, event.after))
        if seen.setdefault(row, event.source.position[0]) != event.source.position[0]:
            twice.append(event.source)
    return twice


def judge(site: Site, stopped: set[str]) -> None:
    for table in TABLES:
        assert not published_twice(site.events(table)), table
    site.never_goes_back(*(set(TABLES) - stopped))


def test_capture_follows_a_promotion_under_load_and_the_way_back(site: Site) -> None:
    ever: set[str] = set()
    with running(site.config(), "s") as unit:
        until(lambda: site.marks and site.marks[-1].idle, f"a start; {unit.output()[-3000:]}")
        for era in (1, 2):
            with site.writing():
                site.await_changes(600)
                until(lambda: len(site.events("a")) > KEYS, "capture under load")
                site.fail_over()
                site.await_era(era)
                site.await_changes(300)
            lost = site.find_lost()
            until(lambda: site.marks[-1].idle, f"the end of the log; {unit.output()[-3000:]}")
            assert site.stops == set(lost), unit.output()[-5000:]
            for table, gtids in lost.items():
                reason = site.record.stops[f"{site.db}.{table}"].reason
                assert any(gtid.partition(":")[0] in reason for gtid in gtids)
            ever |= set(lost)
            site.await_rows(set(TABLES) - set(lost))
            judge(site, ever)
            if lost:
                site.copy(*lost)
            site.await_rows()
            site.bring_back()
        assert unit.stop() == 0, unit.output()
    assert unit.starts == 1
    assert site.record.identity.server_uuid == site.primary.uuid


def test_lost_transactions_stop_exactly_their_tables_and_a_copy_heals_them(site: Site) -> None:
    if site.primary.semi_sync:
        pytest.skip("a commit that waits for the replica is not lost")
    with running(site.config(), "s") as unit:
        site.await_rows()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.replica.execute("STOP REPLICA")
        lost = [f"REPLACE INTO a VALUES ({key}, {site.next()}, 'lost')" for key in (1, 99)]
        site.change(*lost, f"UPDATE c SET v = 'lost', version = {site.next()} WHERE id = 1")
        site.await_rows()
        site.fail_over()
        site.await_era(1)
        site.change(*(f"REPLACE INTO {table} VALUES (7, {site.next()}, 'later')" for table in TABLES))
        until(lambda: site.stops == {"a", "c"}, f"stops; {unit.output()[-3000:]}")
        site.await_rows({"b", "d"})
        assert site.record.stops[f"{site.db}.a"].cause == "failover"
        assert "lacks transactions on" in site.record.stops[f"{site.db}.a"].reason
        assert "rowlock copy" in site.record.stops[f"{site.db}.a"].remedy
        site.copy("a", "c")
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    site.never_goes_back("b", "d")
    site.bring_back()


def test_errant_transactions_stop_their_table_alone(site: Site) -> None:
    with running(site.config(), "s") as unit:
        site.await_rows()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.replica.execute("SET GLOBAL super_read_only = OFF")
        site.replica.execute(f"REPLACE INTO {site.db}.b VALUES (77, {site.next()}, 'errant')")
        site.replica.execute("SET GLOBAL super_read_only = ON")
        found = [each.message for each in source_findings(site.config())]
        assert any("has transactions that the primary lacks" in each for each in found), found
        site.change(*(f"REPLACE INTO {table} VALUES (5, {site.next()}, 'x')" for table in TABLES))
        site.await_rows()
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.fail_over()
        until(lambda: site.record.epoch == 1 and site.stops == {"b"}, f"stops; {unit.output()[-3000:]}")
        assert "were not captured" in site.record.stops[f"{site.db}.b"].reason
        site.await_rows({"a", "c", "d"})
        site.copy("b")
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    judge(site, {"b"})
    site.bring_back()


def test_a_demoted_host_that_is_alive_is_left(site: Site) -> None:
    """Nothing breaks: the former primary still sends heartbeats."""
    with running(site.config(), "s") as unit:
        site.await_rows()
        site.primary.execute("SET GLOBAL super_read_only = ON")
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.replica.promote()
        site.servers.reverse()
        site.change(f"REPLACE INTO a VALUES (3, {site.next()}, 'at the new one')")
        site.await_rows()
        assert not site.stops
        assert "accepts writes now" in unit.output()
        assert unit.stop() == 0, unit.output()
    site.replica.replicate(site.primary)
    judge(site, set())


def test_two_hosts_that_accept_writes_stop_the_source(site: Site) -> None:
    until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
    site.replica.execute("SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
    why = refused(site.config())
    assert "several servers of the source accept writes" in why
    for server in site.servers:
        assert f"{server.port} has {server.executed}" in why
    site.replica.execute("SET GLOBAL super_read_only = ON")
    with running(site.config(), "s") as unit:
        site.await_rows()
        site.replica.execute("SET GLOBAL super_read_only = OFF, GLOBAL read_only = OFF")
        assert unit.wait(120) == 2, unit.output()
        assert "several servers of the source accept writes" in unit.output().splitlines()[-1]
    site.replica.execute("SET GLOBAL super_read_only = ON")


def test_a_purged_gap_is_refused(kafka: Kafka, unique: str, tmp_path: Path) -> None:
    with made_servers(
        semi_sync=False
    ) as servers:  # of its own: no other server could replicate it afterwards
        judge_purged_gap(Site(servers, kafka, unique, tmp_path, user="root"))


def judge_purged_gap(site: Site) -> None:
    with running(site.config(), "s") as unit:
        site.await_rows()
        assert unit.stop() == 0, unit.output()
    site.change(f"REPLACE INTO a VALUES (3, {site.next()}, 'purged')")
    until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
    site.replica.execute("FLUSH BINARY LOGS")
    newest = site.replica.execute("SHOW BINARY LOGS")[-1][0]
    site.replica.execute(f"PURGE BINARY LOGS TO '{newest}'")
    site.fail_over()
    why = refused(site.config())
    assert "has purged transactions that Kafka lacks" in why
    assert "start over" in why


def test_an_open_snapshot_and_an_open_xa_transaction_go_on(site: Site) -> None:
    with running(site.config(copy_rows_per_second=2000), "s") as unit:
        site.await_rows()
        rows = ", ".join(f"({key}, {site.next()}, 'many')" for key in range(1000, 21_000))
        site.change(f"INSERT INTO d VALUES {rows}")
        site.await_rows()
        site.change(
            "XA START 'kept'", f"REPLACE INTO b VALUES (8, {site.next()}, 'kept')", "XA END 'kept'",
            "XA PREPARE 'kept'",
        )  # fmt: skip
        until(lambda: site.record.prepared_at, "the open transaction is stored")
        site.request_copy("d")
        until(lambda: 0 < site.copied("d") < 15_000, "a copy under way")
        until(lambda: site.replica.has_all_of(site.primary), "the replica has all")
        site.fail_over()
        site.await_era(1)
        assert site.record.prepared_at
        until(lambda: site.record.copies[f"{site.db}.d"].phase == "done", "the copy ends")
        site.change("XA COMMIT 'kept'")
        site.await_rows()
        assert not site.stops
        until(lambda: not site.record.prepared, "the record is past XA COMMIT")
        assert unit.stop() == 0, unit.output()
    judge(site, set())
    site.bring_back()
