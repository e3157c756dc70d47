"""A table that is copied again by a whole running system, from each source into each target: what is stale goes, what lives is never away."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from schemas.config.model import load_config
from schemas.io.send_record import send_record
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import CopyRequest, copy_topic
from tests.running import Run
from tests.waiting import until
from tests.whole_way_kit import SOURCES, TARGETS, System, configuration

pytestmark = pytest.mark.timeout(1800)  # three Sparks start, perhaps on a busy machine

UUIDS = [f"{digit * 8}-0000-4000-8000-00000000000{n}" for n, digit in enumerate("9aBcDeF01")]
#: Table → its key's type, the keys at the source, and what stands in the targets without being there.
KEYS: dict[str, tuple[str, list[str], list[str]]] = {
    "words": ("VARCHAR(20) CHARACTER SET utf8mb4", ["alpha", "Beta", "Éclair", "delta x", "ÖL", "zulu", "Zebra", "eta", "œuf"], ["Bravo", "ypsilon", "Übel"]),
    "cases": (
        "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", ["a", "A", "b", "B", "é", "E", "e", "É", "z z"], ["ä", "Z", "aa"],
    ),
    "padded": ("CHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", ["a", "A", "ab", "b", "é"], ["B", "e"]),
    "labels": ("ENUM('zero', 'One', 'alpha', 'b', 'y') CHARACTER SET utf8mb4", ["zero", "alpha", "y"], ["One", "b"]),
    "ids": ("CHAR(36) CHARACTER SET utf8mb4", UUIDS[:6], UUIDS[6:]),
    "numbers": ("BIGINT", ["1", "2", "9", "10", "11", "100", "-5"], ["3", "99", "-6", "101"]),
}  # fmt: skip
STEADY = 2
"""The first keys of each table are never changed: no reader may miss them."""


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, mysql: MySQL, mariadb: MariaDB, postgres: PostgreSQL
) -> Iterator[System]:  # fmt: skip
    folder = tmp_path_factory.mktemp("copies")
    config, db = folder / "c.yaml", f"c{secrets.token_hex(4)}"
    made = System(config, db, kafka, mysql, mariadb, postgres, Run(config, folder / "run.log"))
    places: list[tuple[Any, str]] = [(postgres, db), *((each, name) for each in (mysql, mariadb) for name in (db, f"{db}_t"))]  # fmt: skip
    for server, name in places:
        server.create_database(name)
    try:
        for source in SOURCES:
            for table, (kind, keys, _) in KEYS.items():
                made.change(source, f"CREATE TABLE {table} (k {kind} PRIMARY KEY, v INT)")
                made.change(source, *((f"INSERT INTO {table} VALUES (%s, 1)", (key,)) for key in keys))
            made.change(
                source,
                "CREATE TABLE parts (k INT PRIMARY KEY, v INT) PARTITION BY RANGE (k) "
                "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
                *(f"INSERT INTO parts VALUES ({key}, 1)" for key in range(20)),
                "CREATE TABLE odd (k INT PRIMARY KEY, note VARCHAR(20) CHARACTER SET utf8mb4)",
                "INSERT INTO odd VALUES (1, 'a'), (3, 'c')",
            )
        config.write_text(yaml.safe_dump(configuration(made)))
        made.run.start()
        yield made
    finally:
        made.run.close()
        for server, name in places:
            server.start()
            server.drop_database(name)


def ask(system: System, source: str, table: str) -> None:
    """Ask for a copy in chunks of 3."""
    request = CopyRequest(
        id=secrets.token_hex(6), db=system.db, table=table, by="operator", requested_ms=time.time_ns() // 10**6,
        max_rows_per_second=3,
    )  # fmt: skip
    kafka = load_config(system.config).kafka
    send_record(kafka, copy_topic(system.db, source), request.id.encode(), encode_copy_request(request))


def at_source(system: System, source: str, table: str) -> set[tuple[str, Any]]:
    rows = system.source(source).execute(f"SELECT k, v FROM {table}", database=system.db)
    return {(str(row[0]), row[1]) for row in rows}


def at_target(system: System, target: str, table: str) -> set[tuple[str, Any]] | None:
    rows = system.read(target, f"SELECT k, v FROM {table}")
    return None if rows is None else {(str(row[0]).rstrip(), row[1]) for row in rows}


def pairs(table: str) -> list[tuple[str, str, str]]:
    return [(source, target, f"{table}_{source}") for source in SOURCES for target in TARGETS]


def arrived(system: System, table: str) -> None:
    for source, target, name in pairs(table):
        until(
            lambda source=source, target=target, name=name: at_target(system, target, name) == at_source(system, source, table),  # type: ignore[misc]
            f"{name} in {target}; see {system.run.log}", 400,
        )  # fmt: skip


class Readers:
    """Looks at all targets all the time: which rows that never changed were away."""

    def __init__(self, system: System) -> None:
        self.missed: list[str] = []
        self.looks = 0
        self._system, self._ended = system, threading.Event()
        self._threads = [
            threading.Thread(target=self._look, args=(target,), daemon=True) for target in TARGETS
        ]

    def _look(self, target: str) -> None:
        server, database = self._system.target(target)
        with contextlib.closing(server.connect(database, autocommit=True)) as connection:
            while not self._ended.wait(0.02):
                for table, (_, keys, _) in KEYS.items():
                    for source in SOURCES:
                        with connection.cursor() as cursor:
                            cursor.execute(f"SELECT k FROM {table}_{source}")
                            there = {str(row[0]).rstrip() for row in cursor.fetchall()}
                        self.missed += [
                            f"{target} {table}_{source} {key}" for key in keys[:STEADY] if key not in there
                        ]
                        self.looks += 1

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in self._threads:
                thread.join(60)


def test_stale_rows_go_and_living_ones_are_never_away(system: System) -> None:
    for table, (_, _, stale) in KEYS.items():
        arrived(system, table)
        for _, target, name in pairs(table):
            server, database = system.target(target)
            for key in stale:
                server.execute(f"INSERT INTO {name} (k, v) VALUES (%s, -1)", (key,), database=database)
    readers = Readers(system)
    with readers.looking():
        for source in SOURCES:
            for table, (_, keys, _) in KEYS.items():
                ask(system, source, table)
                system.change(
                    source,
                    (f"UPDATE {table} SET v = 2 WHERE k = %s", (keys[-1],)),
                    (f"DELETE FROM {table} WHERE k = %s", (keys[-2],)) if len(keys) > 3 else "DO 1",
                )
        for table in KEYS:
            arrived(system, table)
    assert readers.missed == []
    assert readers.looks > 100


def test_a_stop_is_healed_by_a_copy_that_nobody_asked_for(system: System) -> None:
    """TRUNCATE PARTITION removes rows that the log does not show; what stands behind it comes all the same."""
    arrived(system, "parts")
    for source in SOURCES:
        system.change(
            source, "ALTER TABLE parts TRUNCATE PARTITION p0", "INSERT INTO parts VALUES (5, 2), (30, 2)"
        )
    arrived(system, "parts")
    for source in SOURCES:
        assert {key for key, _ in at_source(system, source, "parts")} == {"5", *map(str, range(10, 20)), "30"}
        system.change(source, "INSERT INTO parts VALUES (31, 3)")
    arrived(system, "parts")


def test_a_quarantine_is_empty_once_the_source_is_mended_and_copied(system: System) -> None:
    """PostgreSQL takes no NUL; the other targets take it."""
    system.arrives("SELECT k, note FROM odd_my ORDER BY k", [(1, "a"), (3, "c")])
    system.change("my", ("INSERT INTO odd VALUES (2, %s)", ("b\0",)), "INSERT INTO odd VALUES (4, 'd')")
    system.arrives("SELECT k FROM odd_my WHERE k <> 2 ORDER BY k", [(1,), (3,), (4,)])
    held = "SELECT count(*) FROM rowlock_quarantine"
    # Another lane's rows say nothing of this one's.
    until(lambda: system.read("pg", held) == [(1,)], "the row that PostgreSQL refuses is held")
    system.change("my", "UPDATE odd SET note = 'mended' WHERE k = 2")
    ask(system, "my", "odd")
    rows = [(1, "a"), (2, "mended"), (3, "c"), (4, "d")]
    system.arrives("SELECT k, note FROM odd_my ORDER BY k", rows)
    until(lambda: system.read("pg", held) == [(0,)], "nothing is held any more")
