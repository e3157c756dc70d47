"""A table that is copied again by a whole running system, from each source into each target: what is stale
goes, what lives is never away."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from rowlock.coordinator.leader_client import LeaderClient
from schemas.config.model import load_config
from schemas.io.send_record import send_record
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import CopyRequest, copy_topic
from tests.kits.whole_way import SOURCES, TARGETS, WholeWay, whole_way

pytestmark = pytest.mark.timeout(1800)  # three Sparks start, perhaps on a busy machine

UUIDS = [f"{digit * 8}-0000-4000-8000-00000000000{n}" for n, digit in enumerate("9aBcDeF01")]
#: Table → its key's type, the keys at the source, and what stands in the targets without being there.
KEYS: dict[str, tuple[str, list[str], list[str]]] = {
    "words": ("VARCHAR(20) CHARACTER SET utf8mb4",
     ["alpha", "Beta", "Éclair", "delta x", "ÖL", "zulu", "Zebra", "eta", "œuf"],
      ["Bravo", "ypsilon", "Übel"]),
    "cases": (
        "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        ["a", "A", "b", "B", "é", "E", "e", "É", "z z"], ["ä", "Z", "aa"],
    ),
    "padded": ("CHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", ["a", "A", "ab", "b", "é"], ["B", "e"]),
    "labels": ("ENUM('zero', 'One', 'alpha', 'b', 'y') CHARACTER SET utf8mb4", ["zero", "alpha", "y"],
     ["One", "b"]),
    "ids": ("CHAR(36) CHARACTER SET utf8mb4", UUIDS[:6], UUIDS[6:]),
    "numbers": ("BIGINT", ["1", "2", "9", "10", "11", "100", "-5"], ["3", "99", "-6", "101"]),
}  # fmt: skip
STEADY = {table: keys[:2] for table, (_, keys, _) in KEYS.items()}
"""Keys that are never changed: no reader may miss them."""
PACED = 120


@pytest.fixture(scope="module")
def system(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, mysql: MySQL, mariadb: MariaDB,
    postgres: PostgreSQL
) -> Iterator[WholeWay]:  # fmt: skip
    folder = tmp_path_factory.mktemp("copies")
    with whole_way(folder, kafka, mysql, mariadb, postgres) as made:
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
                "CREATE TABLE paced (k INT PRIMARY KEY, v INT)",
                f"INSERT INTO paced VALUES {', '.join(f'({key}, 1)' for key in range(PACED))}",
            )
        made.run.start()
        yield made


def ask(system: WholeWay, source: str, table: str) -> None:
    """Ask for a copy in chunks of 3."""
    request = CopyRequest(
        id=secrets.token_hex(6), db=system.db, table=table, by="operator",
        requested_ms=time.time_ns() // 10**6, max_rows_per_second=3,
    )  # fmt: skip
    kafka = load_config(system.config).kafka
    send_record(kafka, copy_topic(system.db, source), request.id.encode(), encode_copy_request(request))


def at_source(system: WholeWay, source: str, table: str) -> set[tuple[str, Any]]:
    rows = system.sources[source].execute(f"SELECT k, v FROM {table}", database=system.db)
    return {(str(row[0]), row[1]) for row in rows}


def at_target(system: WholeWay, target: str, table: str) -> set[tuple[str, Any]] | None:
    rows = system.read(target, f"SELECT k, v FROM {table}")
    return None if rows is None else {(str(row[0]).rstrip(), row[1]) for row in rows}


def pairs(table: str) -> list[tuple[str, str, str]]:
    return [(source, target, f"{table}_{source}") for source in SOURCES for target in TARGETS]


def arrived(system: WholeWay, table: str) -> None:
    for source, target, name in pairs(table):
        system.run.until(
            lambda source=source, target=target,
            name=name: at_target(system, target, name) == at_source(system, source, table),  # type: ignore[misc]
            f"{name} in {target}", 400,
        )  # fmt: skip


class Readers:
    """Looks at all targets all the time: which rows that never changed were away."""

    def __init__(self, system: WholeWay, steady: Mapping[str, Sequence[str]]) -> None:
        self._steady = steady
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
                for table, keys in self._steady.items():
                    for source in SOURCES:
                        with connection.cursor() as cursor:
                            cursor.execute(f"SELECT k FROM {table}_{source}")
                            there = {str(row[0]).rstrip() for row in cursor.fetchall()}
                        self.missed += [
                            f"{target} {table}_{source} {key}" for key in keys if key not in there
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


def test_stale_rows_go_and_living_ones_are_never_away(system: WholeWay) -> None:
    for table, (_, _, stale) in KEYS.items():
        arrived(system, table)
        for _, target, name in pairs(table):
            server, database = system.target(target)
            for key in stale:
                server.execute(f"INSERT INTO {name} (k, v) VALUES (%s, -1)", (key,), database=database)
    readers = Readers(system, STEADY)
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


def test_a_stop_is_healed_by_a_copy_that_nobody_asked_for(system: WholeWay) -> None:
    """TRUNCATE PARTITION removes rows that the log does not show; the rows written after it arrive all
    the same."""
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


def test_a_quarantine_is_empty_once_the_source_is_mended_and_copied(system: WholeWay) -> None:
    """PostgreSQL takes no NUL; the other targets take it."""
    system.arrives("SELECT k, note FROM odd_my ORDER BY k", [(1, "a"), (3, "c")])
    system.change("my", ("INSERT INTO odd VALUES (2, %s)", ("b\0",)), "INSERT INTO odd VALUES (4, 'd')")
    system.arrives("SELECT k FROM odd_my WHERE k <> 2 ORDER BY k", [(1,), (3,), (4,)])
    held = "SELECT count(*) FROM rowlock_quarantine"
    # Another lane's rows say nothing of this one's.
    system.run.until(lambda: system.read("pg", held) == [(1,)], "the row that PostgreSQL refuses is held")
    system.change("my", "UPDATE odd SET note = 'mended' WHERE k = 2")
    ask(system, "my", "odd")
    rows = [(1, "a"), (2, "mended"), (3, "c"), (4, "d")]
    system.arrives("SELECT k, note FROM odd_my ORDER BY k", rows)
    system.run.until(lambda: system.read("pg", held) == [(0,)], "nothing is held any more")


# --- as people ask for it


def shown(system: WholeWay, source: str, table: str) -> dict[str, Any]:
    """Return what `rowlock copy` says of the last copy of a table; {}: nothing yet."""
    listed = system.invoke("copy", "--output", "json")
    assert listed.exit_code in (0, 1), listed.output
    found = json.loads(listed.stdout)["copies"]
    name = f"{system.db}.{table}"
    return next((each for each in found if (each["source"], each["table"]) == (source, name)), {})


def became(system: WholeWay, source: str, table: str, expected: str, copy: str) -> dict[str, Any]:
    """Await a phase of the copy with this id; it must not have come to another end."""

    def look() -> dict[str, Any] | None:
        now = shown(system, source, table)
        if now.get("id") != copy:
            return None
        assert now["phase"] in ("waiting", "running", expected), now
        return now if now["phase"] == expected and (expected != "running" or now["rows"]) else None

    found: dict[str, Any] = system.run.until(look, f"the copy of {table} at {source} is {expected}", 400)
    return found


def by_rest(system: WholeWay, path: str, **body: Any) -> dict[str, Any]:
    with LeaderClient.from_config(load_config(system.config)) as leader:
        return leader.post_new(path, body)


def by_command(system: WholeWay, source: str, *words: str) -> str:
    """Ask for a copy of `paced`, or change one; returns the id of the last one that the leader told of."""
    taken = system.invoke("copy", f"{system.db}.paced", "--source", source, *words)
    assert taken.exit_code == 0, taken.output
    events = json.loads(system.invoke("events", "--last", "1000", "--output", "json").stdout)["events"]
    return str([each["about"]["id"] for each in events if each["what"].startswith("cop")][-1])


def spoil(system: WholeWay, *statements: str) -> None:
    """Run statements on the tables of `paced` in all targets."""
    for _, target, name in pairs("paced"):
        server, database = system.target(target)
        for each in statements:
            server.execute(each.format(t=name), database=database)


@pytest.mark.slow  # a minute
def test_copies_as_people_ask_for_them(system: WholeWay) -> None:
    """By command and by REST: a part, the rate changed while it runs, taken back; the whole is equal then,
    and no reader missed a row."""
    arrived(system, "paced")
    readers = Readers(system, {"paced": [str(key) for key in range(0, PACED, 7)]})
    with readers.looking():
        spoil(
            system,
            "UPDATE {t} SET v = -1 WHERE k IN (5, 70)",
            "INSERT INTO {t} (k, v) VALUES (1000, -1)",
            "DELETE FROM {t} WHERE k IN (6, 71)",
        )
        for source in SOURCES:
            of_a_part(system, source)
            taken_back(system, source)
            at_another_rate(system, source)
        arrived(system, "paced")
    assert readers.missed == []
    assert readers.looks > 100


def of_a_part(system: WholeWay, source: str) -> None:
    """Only the rows of the condition are copied, and nothing is deleted."""
    refused = by_command(system, source, "--where", "nonsense = 1")
    assert "nonsense" in became(system, source, "paced", "refused", refused)["reason"]
    ended = system.invoke(
        "copy",
        f"{system.db}.paced",
        "--source",
        source,
        "--where",
        "k < 10 OR k > 100",
        "--wait",
        "--output",
        "json",
    )
    assert ended.exit_code == 0, ended.output
    (row,) = json.loads(ended.stdout[ended.stdout.index("{") :])["copies"]
    assert (row["phase"], row["where"], row["rows"]) == ("done", "k < 10 OR k > 100", 29)
    expected = {pair for pair in at_source(system, source, "paced") if pair[0] != "71"} | {
        ("70", -1),
        ("1000", -1),
    }
    expected.discard(("70", 1))
    for target in TARGETS:
        system.run.until(
            lambda target=target: at_target(system, target, f"paced_{source}") == expected,
            f"a part in {target}",
            400,
        )  # type: ignore[misc]


def taken_back(system: WholeWay, source: str) -> None:
    """A copy that runs is taken back: what it would have deleted stays, and the table goes on."""
    copy = by_command(system, source, "--max-rows-per-second", "1")
    assert became(system, source, "paced", "running", copy)["max_rows_per_second"] == 1
    by_rest(system, "/v1/copies/cancel", table=f"{system.db}.paced", source=source)
    became(system, source, "paced", "cancelled", copy)
    system.change(source, f"INSERT INTO paced VALUES ({PACED}, 1)", "UPDATE paced SET v = 3 WHERE k = 7")
    for target in TARGETS:
        seen = f"SELECT k, v FROM paced_{source} WHERE k IN (7, 1000, {PACED}) ORDER BY k"
        system.arrives(seen, [(7, 3), (PACED, 1), (1000, -1)], [target])


def at_another_rate(system: WholeWay, source: str) -> None:
    """A copy that would take minutes goes on faster: it is the same copy, and does not begin anew."""
    table = f"{system.db}.paced"
    copy = by_rest(system, "/v1/copies", table=table, source=source, max_rows_per_second=1)["id"]
    slow = became(system, source, "paced", "running", copy)
    assert slow["eta_s"] is not None
    by_rest(system, "/v1/copies/rate", table=table, source=source, max_rows_per_second=7)
    system.run.until(
        lambda: shown(system, source, "paced")["max_rows_per_second"] == 7, "the other rate is shown"
    )
    by_command(system, source, "--rate-only")
    done = became(system, source, "paced", "done", copy)
    assert (done["max_rows_per_second"], done["restarts"], done["began_ms"]) == (None, 0, slow["began_ms"])
    assert done["rows"] == PACED + 1
