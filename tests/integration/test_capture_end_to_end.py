"""Capture against real servers and a real broker: what is in the topics replays to exactly what the source
holds."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.services import Kafka, MariaDB
from producer.binlog_format.log_event import DECODABLE_ROW_EVENTS
from producer.capture import run_capture
from producer.snapshot.reader import ChunkReader
from producer.sources.binlog.log_stream import LogStream, open_stream
from producer.sources.chunk_data import ReadChunk
from schemas.config.model import load_config
from schemas.wire.records import Watermark
from tests.kits.capture import (
    events,
    messages,
    position,
    replay,
    running,
    size,
    source,
    source_rows,
    topic_rows,
    transactions_are_whole,
    watermarks,
    write_config,
)
from tests.kits.waiting import until

ACCOUNT = "CREATE TABLE {db}.acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, age INT)"
COLUMNS = ["id", "name", "age"]


def _caught_up(kafka: Kafka, prefix: str, name: str, database: Any) -> bool:
    """The last watermark stands at the end of the source's log, nothing is pending."""
    found = watermarks(kafka.bootstrap, prefix, name)
    if not found or found[-1].snapshot_pending:
        return False
    end = database.execute(database.log_status)[0]
    return (found[-1].file, found[-1].position[2]) == (end[0], int(end[1]))


def test_snapshot_and_log_replay_to_the_source(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> None:
    database.execute(ACCOUNT.format(db=db))
    database.execute(f"CREATE TABLE {db}.other (a INT NOT NULL, b VARCHAR(9) NOT NULL, UNIQUE KEY ab (a, b))")
    database.execute(f"CREATE TABLE {db}.skipped (id INT PRIMARY KEY, x BLOB)")
    database.execute(
        f"INSERT INTO {db}.acct SELECT seq, CONCAT('n', seq), 1 FROM (WITH RECURSIVE s(seq) AS (SELECT 1 "
        f"UNION ALL SELECT seq + 1 FROM s WHERE seq < 500) SELECT seq FROM s) q"
    )
    database.execute(f"INSERT INTO {db}.other VALUES (1, 'x'), (1, 'y')")
    config = write_config(
        tmp_path, kafka.bootstrap, db, {"s": source(database, [f"{db}.*", f"!{db}.skipped"])}
    )
    with running(config, "s") as unit, database.connect(db) as connection, connection.cursor() as cursor:
        until(lambda: size(kafka.bootstrap, f"{db}.s.{db}.acct"), "the first events")
        connection.begin()
        cursor.execute("INSERT INTO skipped VALUES (1, 'x'), (2, 'y')")
        cursor.execute("INSERT INTO acct VALUES (1001, 'lucy', 18), (1002, 'tom', 20)")
        cursor.execute("UPDATE other SET b = 'z' WHERE b = 'y'")
        cursor.execute("DELETE FROM acct WHERE id = 7")
        connection.commit()
        cursor.execute("UPDATE acct SET id = 2000 WHERE id = 1001")
        until(lambda: _caught_up(kafka, db, "s", database), "capture of everything")
        assert unit.stop() == 0, unit.output()
    acct, other = (replay(events(kafka.bootstrap, f"{db}.s.{db}.{table}")) for table in ("acct", "other"))
    assert topic_rows(acct, db, "acct", COLUMNS) == source_rows(database, db, "acct")
    assert topic_rows(other, db, "other", ["a", "b"]) == sorted(source_rows(database, db, "other"))
    assert transactions_are_whole([acct, other])
    inserted = next(e for e in acct.accepted if e.op == "c")
    assert inserted.source.row == 2, "rows of uncaptured tables count"
    assert acct.definitions[db, "acct"].unique[0].columns == ("name",)
    assert other.definitions[db, "other"].key.columns == ("a", "b"), "a unique NOT NULL index serves as key"
    assert not size(kafka.bootstrap, f"{db}.s.{db}.skipped")


def test_no_row_goes_back_while_a_snapshot_is_under_way(
    kafka: Kafka, database: Any, db: str, tmp_path: Path
) -> None:
    """The load touches every row once: what a chunk brings back of it nothing overwrites. `events` looks at
    each version."""
    rows = 8000  # four chunks
    database.execute(f"CREATE TABLE {db}.acct (id INT PRIMARY KEY, version INT NOT NULL)")
    database.execute(f"INSERT INTO {db}.acct VALUES " + ", ".join(f"({n}, 0)" for n in range(rows)))
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(database, [f"{db}.acct"])})
    topic, keys = f"{db}.s.{db}.acct", list(range(rows))
    random.Random(7).shuffle(keys)
    with running(config, "s") as unit, database.connect(db) as connection, connection.cursor() as cursor:
        until(lambda: watermarks(kafka.bootstrap, db, "s"), "the start")
        for at in range(0, rows, 20):
            listed = ", ".join(map(str, keys[at : at + 20]))
            cursor.execute(f"UPDATE acct SET version = 1 WHERE id IN ({listed})")
            connection.commit()
        until(lambda: _caught_up(kafka, db, "s", database), "capture of everything")
        assert unit.stop() == 0, unit.output()
    acct = replay(events(kafka.bootstrap, topic))
    assert topic_rows(acct, db, "acct", ["id", "version"]) == [(n, 1) for n in range(rows)]


def test_statements(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> None:
    """Definitions before the rows they govern, TRUNCATE, new tables; DDL on others never disturbs."""
    database.execute(ACCOUNT.format(db=db))
    config = write_config(
        tmp_path, kafka.bootstrap, db, {"s": source(database, [f"{db}.acct", f"{db}.new*"])}
    )
    with running(config, "s") as unit, database.connect(db) as connection, connection.cursor() as cursor:
        until(lambda: watermarks(kafka.bootstrap, db, "s"), "the start")
        for statement in (
            "INSERT INTO acct VALUES (1, 'a', 1)",
            "CREATE TABLE apart (x POINT NOT NULL, y INT)",
            "ALTER TABLE apart ADD z JSON",
            "INSERT INTO acct VALUES (2, 'b', 2)",
            "TRUNCATE TABLE acct",
            "INSERT INTO acct VALUES (3, 'c', 3)",
            "CREATE TABLE new1 (id INT PRIMARY KEY, v VARCHAR(9))",
            "INSERT INTO new1 VALUES (1, 'x')",
            "DROP TABLE apart",
        ):
            cursor.execute(statement)
        until(lambda: _caught_up(kafka, db, "s", database), "capture before the ALTER")
        cursor.execute("ALTER TABLE acct ADD COLUMN city VARCHAR(20)")
        cursor.execute("INSERT INTO acct VALUES (4, 'd', 4, 'Ulm')")
        until(lambda: _caught_up(kafka, db, "s", database), "capture of everything")
        assert unit.stop() == 0, unit.output()
    acct = replay(events(kafka.bootstrap, f"{db}.s.{db}.acct"))
    log = [e.op for e in acct.accepted if e.source.snapshot == "false"]
    assert log == ["m", "c", "c", "t", "c", "m", "c"]
    assert acct.definitions[db, "acct"].column_names == ("id", "name", "age", "city")
    assert [e.ddl for e in acct.accepted if e.ddl and e.op == "m"] == [
        "ALTER TABLE acct ADD COLUMN city VARCHAR(20)"
    ]
    assert sorted(row["id"] for row in acct.tables[db, "acct"].values()) == [3, 4]
    new = replay(events(kafka.bootstrap, f"{db}.s.{db}.new1"))
    assert topic_rows(new, db, "new1", ["id", "v"]) == [(1, "x")]


@pytest.mark.parametrize("rows", [0, 3])
def test_an_idle_capture_waits_for_the_log(
    kafka: Kafka, mariadb: MariaDB, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Also when the last thing it did was to finish a snapshot: it did not wait at all then, and used up a
    core."""
    mariadb.create_database(unique)
    mariadb.execute(ACCOUNT.format(db=unique))
    for key in range(rows):
        mariadb.execute(f"INSERT INTO {unique}.acct VALUES ({key}, NULL, 1)")
    config = load_config(
        write_config(tmp_path, kafka.bootstrap, unique, {"s": source(mariadb, [f"{unique}.*"])}), {}
    )
    waits: list[float] = []
    read = LogStream.read_events

    def noted(stream: LogStream, timeout: float) -> Any:
        waits.append(timeout)
        return read(stream, timeout)

    monkeypatch.setattr(LogStream, "read_events", noted)
    stop, done = threading.Event(), []

    def watermark(mark: Watermark) -> None:
        if not mark.snapshot_pending:
            done.append(len(waits))
            if len(done) == 3:
                stop.set()

    run_capture(config, "s", stop, on_watermark=watermark)
    assert min(waits[done[0] :]) > 0
    mariadb.drop_database(unique)


def test_it_does_not_matter_how_much_is_read_at_once(
    kafka: Kafka, mariadb: MariaDB, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event of the log at a time, so that everything is flushed in the middle of transactions over two
    tables."""
    mariadb.create_database(unique)
    for name in ("acct", "other"):
        mariadb.execute(ACCOUNT.replace("acct", name).format(db=unique))
    config = load_config(
        write_config(
            tmp_path, kafka.bootstrap, unique, {"s": source(mariadb, [f"{unique}.*"], snapshot="never")}
        ),
        {},
    )
    left: list[Any] = []
    read = LogStream.read_events

    def one(stream: LogStream, timeout: float) -> Any:
        if not left:
            left.extend(read(stream, timeout))
        return [left.pop(0)] if left else []

    monkeypatch.setattr(LogStream, "read_events", one)
    stop = threading.Event()
    topics = [f"{unique}.s.{unique}.{name}" for name in ("acct", "other")]

    def work() -> None:
        with mariadb.connect(unique, autocommit=False) as connection, connection.cursor() as cursor:
            until(lambda: all(size(kafka.bootstrap, topic) for topic in topics), "the definitions")
            for key in range(5):
                for name in ("acct", "other", "acct"):
                    cursor.execute(f"REPLACE INTO {name} VALUES ({key}, 'n{key}', 1)")
                connection.commit()
            until(lambda: _caught_up(kafka, unique, "s", mariadb), "capture of everything")
        stop.set()

    worker = threading.Thread(target=work)
    worker.start()
    run_capture(config, "s", stop)
    worker.join()
    for name, topic in zip(("acct", "other"), topics, strict=True):
        assert topic_rows(replay(events(kafka.bootstrap, topic)), unique, name, COLUMNS) == source_rows(
            mariadb, unique, name
        )
    mariadb.drop_database(unique)


def test_restart_goes_on_where_it_stopped(
    kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    db = mariadb_db
    mariadb.execute(ACCOUNT.format(db=db))
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    for gen in (1, 2, 3):
        with running(config, "s") as unit:
            until(
                lambda gen=gen: [w for w in watermarks(kafka.bootstrap, db, "s") if w.gen == gen], "the start"
            )
            mariadb.execute(f"INSERT INTO {db}.acct VALUES ({gen}, 'n{gen}', 1)")
            mariadb.execute("FLUSH BINARY LOGS")
            until(lambda: _caught_up(kafka, db, "s", mariadb), "capture")
            assert unit.stop() == 0, unit.output()
        mariadb.execute(f"INSERT INTO {db}.acct VALUES ({gen + 10}, 'm{gen}', 1)")
    with running(config, "s"):
        until(lambda: _caught_up(kafka, db, "s", mariadb), "capture of the rest")
    result = replay(events(kafka.bootstrap, f"{db}.s.{db}.acct"))
    assert topic_rows(result, db, "acct", COLUMNS) == source_rows(mariadb, db, "acct")
    assert len([e for e in result.accepted if e.op == "c"]) == 6
    stored = position(kafka.bootstrap, db, "s")
    assert (stored.gen, stored.snapshot_done) == (4, (f"{db}.acct",))


def test_equal_keys_in_two_sources_stay_apart(
    kafka: Kafka, mariadb: MariaDB, mariadb2: MariaDB, unique: str, tmp_path: Path
) -> None:
    servers = {"one": mariadb, "two": mariadb2}
    for server in servers.values():
        server.create_database(unique)
        server.execute(ACCOUNT.format(db=unique))
        server.execute(f"CREATE TABLE {unique}.b (id INT PRIMARY KEY)")
        server.execute(f"INSERT INTO {unique}.acct VALUES (1, '{server.port}', 1)")
    expected = {name: source(server, [f"{unique}.*"]) for name, server in servers.items()}
    config = write_config(tmp_path, kafka.bootstrap, unique, expected)
    with running(config, "one") as one, running(config, "two") as two:
        for name, server in servers.items():
            server.execute(f"INSERT INTO {unique}.b VALUES (5)")
            until(
                lambda name=name, server=server: _caught_up(kafka, unique, name, server), f"capture of {name}"
            )
        assert (one.stop(), two.stop()) == (0, 0)
    for name, server in servers.items():
        accounts = replay(events(kafka.bootstrap, f"{unique}.{name}.{unique}.acct"))
        assert topic_rows(accounts, unique, "acct", COLUMNS) == [(1, str(server.port), 1)]
        assert list(replay(events(kafka.bootstrap, f"{unique}.{name}.{unique}.b")).tables[unique, "b"]) == [
            (5,)
        ]
        server.drop_database(unique)


def test_snapshot_only_ends_by_itself(
    kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    db = mariadb_db
    mariadb.execute(ACCOUNT.format(db=db))
    mariadb.execute(f"INSERT INTO {db}.acct VALUES (1, 'a', 1), (2, 'b', 2)")
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"], snapshot="only")})
    with running(config, "s") as unit:
        assert unit.wait() == 0, unit.output()
    result = replay(events(kafka.bootstrap, f"{db}.s.{db}.acct"))
    assert topic_rows(result, db, "acct", COLUMNS) == source_rows(mariadb, db, "acct")
    assert [e.chunk.last for e in result.accepted if e.chunk] == [True]


def test_keys_of_topics_are_the_rows_keys(
    kafka: Kafka, mariadb: MariaDB, mariadb_db: str, tmp_path: Path
) -> None:
    db = mariadb_db
    mariadb.execute(ACCOUNT.format(db=db))
    config = write_config(
        tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"], snapshot="never")}
    )
    with running(config, "s") as unit:
        until(lambda: watermarks(kafka.bootstrap, db, "s"), "the start")
        mariadb.execute(f"INSERT INTO {db}.acct VALUES (1, 'a', 1)")
        until(lambda: _caught_up(kafka, db, "s", mariadb), "capture")
        unit.stop()
    assert [m.key() for m in messages(kafka.bootstrap, f"{db}.s.{db}.acct")][-1] == b'{"id":1}'


def test_a_snapshot_goes_on_in_any_later_generation_on_an_idle_source(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2^20 generations later the rows' numbers began anew, below those in the topic: it waited for the source
    to change."""
    database.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY)")
    database.execute(
        f"INSERT INTO {db}.t SELECT seq FROM (WITH RECURSIVE d AS (SELECT 0 AS n UNION ALL SELECT n + 1 "
        "FROM d WHERE n < 199) SELECT a.n * 200 + b.n AS seq FROM d a, d b) q"
    )
    file = write_config(tmp_path, kafka.bootstrap, db, {"s": source(database, [f"{db}.*"])})
    config = load_config(file, {})
    topic = f"{db}.s.{db}.t"
    for gen in (2**20, 2**20 + 1):
        stop, whole = threading.Event(), threading.Event()
        if gen == 2**20:
            monkeypatch.setattr(ChunkReader, "read_chunk", _from_the_third_chunk_on_behind(stop))
        else:
            monkeypatch.undo()

        def see(watermark: Watermark, whole: threading.Event = whole) -> None:
            if not watermark.snapshot_pending:
                whole.set()

        thread = threading.Thread(
            target=run_capture, args=(config, "s", stop), kwargs={"gen_at_least": gen, "on_watermark": see}
        )
        thread.start()
        try:
            if gen == 2**20:
                until(lambda: size(kafka.bootstrap, topic) > 2000, "the first chunk", 120)
            else:
                assert whole.wait(120), "the whole snapshot"
        finally:
            stop.set()
            thread.join()
        assert whole.is_set() == (gen != 2**20), "the first run is to be stopped within the snapshot"
    assert len(replay(events(kafka.bootstrap, topic)).tables[db, "t"]) == 40_000


def _from_the_third_chunk_on_behind(stop: threading.Event) -> Callable[[ChunkReader, ReadChunk], Any]:
    """Return a `read` whose third call waits for `stop`: however fast the machine, the run ends within the
    snapshot."""
    read, calls = ChunkReader.read_chunk, itertools.count(1)

    def held(self: ChunkReader, request: ReadChunk) -> Any:
        if next(calls) > 2:
            stop.wait()
        return read(self, request)

    return held


def test_the_server_waits_for_a_reader_that_pauses(database: Any, db: str) -> None:
    """While a large transaction is published, capture does not read the connection; the server used to give
    up after a minute."""
    database.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY AUTO_INCREMENT, x LONGTEXT)")
    file, pos = database.execute(database.log_status)[0][:2]
    for _ in range(40):
        database.execute(f"INSERT INTO {db}.t (x) VALUES (REPEAT('x', 1000000))")
    (patience,) = database.execute("SELECT @@GLOBAL.net_write_timeout")[0]
    database.execute("SET GLOBAL net_write_timeout = 1")
    try:
        stream = open_stream(
            {"host": database.host, "port": database.port, "user": database.user, "password": ""},
            server_id=1 << 30, file=file, pos=int(pos),
        )  # fmt: skip
        time.sleep(5)  # the pause itself
        found = 0
        deadline = time.monotonic() + 60
        while found < 40 and time.monotonic() < deadline:
            found += sum(1 for event in stream.read_events(1) if event.type in DECODABLE_ROW_EVENTS)
        stream.close()
    finally:
        database.execute(f"SET GLOBAL net_write_timeout = {patience}")
    assert found == 40
