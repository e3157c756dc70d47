"""A source of two real servers, one of which replicates the other: load, failovers, and its topics."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pymysql
from confluent_kafka import Producer

from deploy.embedded.services import Kafka
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import CopyRequest, copy_topic
from schemas.wire.event import EventEnvelope
from schemas.wire.records import StoredPosition, Watermark, format_former_table_topic
from tests.kits.capture import (
    Replay,
    messages,
    position,
    replay,
    row_that_goes_back,
    size,
    source_rows,
    topic_rows,
    watermarks,
    write_config,
)
from tests.kits.documented_user import PASSWORD
from tests.kits.waiting import until
from tests.servers.mysql_replicas import ReplicatedServer

TABLES = ("a", "b", "c", "d")
KEYS = 40
_decode = msgspec.json.Decoder(EventEnvelope).decode


@contextlib.contextmanager
def start_replicas(first: ReplicatedServer, second: ReplicatedServer) -> Iterator[list[ReplicatedServer]]:
    """Start a primary and its replica."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(first), stack.enter_context(second)]
        first.accept_writes()
        second.replicate(first)
        yield made
        for each in made:  # one may have taken another one's place
            stack.callback(each.close)


class Site:
    """A source of two servers: `primary` accepts writes, `replica` replicates it. Tables have a `version`
    that grows with every change of any row."""

    def __init__(
        self, servers: list[ReplicatedServer], kafka: Kafka, db: str, folder: Path, *, user: str = ""
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

    @property
    def kind(self) -> str:
        return self.primary.kind

    def execute(self, sql: str) -> list[Any]:
        """Run a statement at the primary."""
        return self.primary.execute(sql)

    @property
    def primary(self) -> ReplicatedServer:
        return self.servers[0]

    @property
    def replica(self) -> ReplicatedServer:
        return self.servers[1]

    def next(self) -> int:
        with self._lock:
            self.version += 1
            return self.version

    def config(self, **more: Any) -> Path:
        hosts = sorted(f"{each.host}:{each.port}" for each in self.servers)
        section = {
            "type": self.kind.lower(), "hosts": hosts, "user": self.user,
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
        former.refuse_writes()
        if self.primary.has_all_of(former):
            former.replicate(self.primary)
        else:
            former.close()
            self.servers[1] = former.replace_it().start()
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

    def find_lost(self, healed: Collection[str] = ()) -> dict[str, set[str]]:
        """Return the transactions of the topics that the primary lacks, by table, but those `healed`: lost in
        an earlier failover, and replaced by a copy."""
        executed = self.primary.make_set.parse(self.primary.executed)
        lost = defaultdict[str, set[str]](set)
        for table in TABLES:
            for _, event in self.events(table):
                gtid = event.source.gtid
                if gtid is not None and gtid not in executed and gtid not in healed:
                    lost[table].add(gtid)
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
