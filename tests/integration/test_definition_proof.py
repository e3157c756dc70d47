"""Capture lags the catalog: what it publishes is right, or the table is stopped or waits; never a
wrong value, never the whole source.

A definition is published only from a proven reading of the catalog, one search of the log proves it for every
statement, and of MariaDB's two-phase ALTER only the COMMIT changes the definition.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymysql.constants.COMMAND import COM_QUERY

from deploy.embedded.services import Kafka
from schemas.wire.event import EventEnvelope
from tests.kits.capture import Replay, Unit, events, running, size, source, watermarks, write_config
from tests.kits.waiting import until

_PATIENCE = 240

pytestmark = pytest.mark.timeout(1200)


class Source:
    """A database with a table `beat`, whose rows show how far capture has come, and capture of it in
    stretches."""

    def __init__(self, kafka: Kafka, database: Any, db: str, folder: Path) -> None:
        self.kafka, self.database, self.db, self.folder = kafka, database, db, folder
        self.beats = 0
        self.change("CREATE TABLE beat (id INT PRIMARY KEY, v INT)")

    def config(self, snapshot: str) -> Path:
        tables = [f"{self.db}.*"]
        sources = {"s": source(self.database, tables, snapshot=snapshot)}
        return write_config(self.folder, self.kafka.bootstrap, self.db, sources)

    def change(self, *statements: str, session: str = "") -> None:
        with self.database.connect(self.db) as connection, connection.cursor() as cursor:
            for statement in (session, *statements):
                if statement:
                    cursor.execute(statement)

    @contextlib.contextmanager
    def running(self, snapshot: str = "never") -> Iterator[Unit]:
        """Capture that has begun: what is written from now on is after its position."""
        before = self._gen()
        with running(self.config(snapshot), "s") as unit:
            until(lambda: self._gen() > before, f"a start; {unit.output()[-3000:]}", _PATIENCE)
            yield unit

    def _gen(self) -> int:
        found = watermarks(self.kafka.bootstrap, self.db, "s")
        return found[-1].gen if found else 0

    def caught_up(self, unit: Unit) -> None:
        """Wait until everything so far is captured, and every snapshot complete."""
        self.beats += 1
        self.change(f"REPLACE INTO beat VALUES (1, {self.beats})")
        until(
            lambda: any(event.after == {"id": 1, "v": self.beats} for event in self.events("beat")),
            f"beat {self.beats}; {unit.output()[-3000:]}",
            _PATIENCE,
        )
        until(lambda: not self._pending(), f"snapshots complete; {unit.output()[-3000:]}", _PATIENCE)

    def _pending(self) -> tuple[str, ...]:
        return watermarks(self.kafka.bootstrap, self.db, "s")[-1].snapshot_pending

    def capture(self, *statements: str, snapshot: str = "never") -> None:
        """Start capture, change, catch up, stop."""
        with self.running(snapshot) as unit:
            self.change(*statements)
            self.caught_up(unit)
            assert unit.stop() == 0, unit.output()

    def events(self, table: str) -> list[EventEnvelope]:
        topic = f"{self.db}.s.{self.db}.{table}"
        return events(self.kafka.bootstrap, topic) if size(self.kafka.bootstrap, topic) else []

    def images(self, table: str) -> dict[int, dict[str, Any]]:
        """Every image after a change that was ever published, by id."""
        return {event.after["id"]: event.after for event in self.events(table) if event.after is not None}

    def stopped(self, table: str) -> str | None:
        """The cause that topic and watermark agree on."""
        causes = {event.stop.cause for event in self.events(table) if event.stop is not None}
        notified = watermarks(self.kafka.bootstrap, self.db, "s")[-1].stops.get(f"{self.db}.{table}")
        assert causes == ({notified.cause} if notified else set())
        return notified.cause if notified else None

    def equal(self, table: str) -> bool:
        """Whether a reader of the topic ends with the source's rows."""
        replay = Replay()
        for event in self.events(table):
            replay.take(event)
        rows = self.database.execute(f"SELECT * FROM {self.db}.{table}")
        found = replay.tables.get((self.db, table), {})
        return sorted(map(tuple, (row.values() for row in found.values()))) == sorted(map(tuple, rows))


@pytest.fixture
def behind(kafka: Kafka, database: Any, db: str, tmp_path: Path) -> Source:
    return Source(kafka, database, db, tmp_path)


@pytest.fixture(params=["FULL", "MINIMAL"])
def metadata(request: pytest.FixtureRequest, database: Any) -> Iterator[str]:
    if not database.has_row_metadata:
        yield "NONE"
        return
    database.execute(f"SET GLOBAL binlog_row_metadata = {request.param}")
    yield request.param
    database.execute("SET GLOBAL binlog_row_metadata = FULL")


#: Table: columns, the column's other form, values written under it, and the form back. Each of the values was
#: published as another one before, under three equal definitions.
_HISTORIES = {
    "en": ("v ENUM('a','b','c')", "MODIFY v ENUM('c','b','a')", ["'a'", "'c'"], "MODIFY v ENUM('a','b','c')"),
    "st": ("v SET('x','y','z')", "MODIFY v SET('z','y','x')", ["'x'", "'x,y'"], "MODIFY v SET('x','y','z')"),
    "ch": (
        "v VARCHAR(9) CHARACTER SET latin1", "MODIFY v VARCHAR(9) CHARACTER SET utf8mb4", ["'é'"],
        "MODIFY v VARCHAR(9) CHARACTER SET latin1",
    ),
    "un": ("v INT", "MODIFY v INT UNSIGNED", ["3000000000"], "MODIFY v INT"),
    "af": ("v INT, w INT", "MODIFY v INT AFTER w", ["7"], "MODIFY v INT AFTER id"),
}  # fmt: skip


@pytest.mark.usefixtures("metadata")
def test_a_form_that_was_changed_and_changed_back_gives_no_wrong_value(behind: Source) -> None:
    behind.change(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, {form[0]})" for name, form in _HISTORIES.items())
    )
    behind.capture(*(f"INSERT INTO {name} (id) VALUES (1)" for name in _HISTORIES))
    expected: dict[str, dict[int, Any]] = {}
    for name, (_, other, values, back) in _HISTORIES.items():
        behind.change(f"ALTER TABLE {name} {other}")
        for number, value in enumerate(values, 2):
            behind.change(f"INSERT INTO {name} (id, v) VALUES ({number}, {value})")
        expected[name] = dict(behind.database.execute(f"SELECT id, v FROM {behind.db}.{name} WHERE id > 1"))
        behind.change(
            *(["DELETE FROM un WHERE id > 1"] if name == "un" else []), f"ALTER TABLE {name} {back}"
        )
    behind.capture(*(f"INSERT INTO {name} (id) VALUES (9)" for name in _HISTORIES))
    behind.capture(*(f"INSERT INTO {name} (id) VALUES (10)" for name in _HISTORIES))
    for name, rows in expected.items():
        published = {number: image["v"] for number, image in behind.images(name).items() if number > 1}
        assert behind.stopped(name) == "definition"
        assert not published, "nothing is published behind the stop, whatever restarts"
        assert {key: published[key] for key in published.keys() & rows} == {}, "and no wrong value before it"


def test_one_alter_is_proven_and_followed_live_and_behind(behind: Source) -> None:
    """The catalog is ahead of the log by nothing that concerns the table: other tables' statements, and
    those that only look like one, do not matter."""
    behind.change("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    behind.capture("ALTER TABLE t ADD COLUMN w INT", "INSERT INTO t VALUES (1, 2, 3)")
    behind.change(
        "ALTER TABLE t ADD COLUMN x INT", "INSERT INTO t VALUES (2, 3, 4, 5)",
        "ALTER TABLE u ADD COLUMN w INT", "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)",
        "CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (1)",
        "CREATE TABLE latest (id INT PRIMARY KEY)", "ALTER TABLE latest ADD COLUMN v INT",
        "INSERT INTO latest VALUES (1, 2)", "TRUNCATE TABLE u", "ALTER TABLE t ADD INDEX (v)",
        "CREATE VIEW t_view AS SELECT id FROM t", "ALTER TABLE u ADD COLUMN x INT",
    )  # fmt: skip
    behind.capture("INSERT INTO t VALUES (3, 4, 5, 6)")
    assert behind.images("t") == {
        1: {"id": 1, "v": 2, "w": 3}, 2: {"id": 2, "v": 3, "w": 4, "x": 5},
        3: {"id": 3, "v": 4, "w": 5, "x": 6},
    }  # fmt: skip
    assert behind.stopped("t") is None
    assert behind.stopped("u") == "definition", "two statements on it"
    assert behind.images("later") == {1: {"id": 1}}, "no snapshot, and whole from its creation on"
    assert behind.images("latest") == {1: {"id": 1, "v": 2}}, "it had no row before its last statement"


def _born_and_altered(behind: Source) -> None:
    behind.change(
        "CREATE TABLE n (id INT PRIMARY KEY, e ENUM('a','b'))", "INSERT INTO n VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE n MODIFY e ENUM('b','a')", "INSERT INTO n VALUES (3, 'a')",
        "ALTER TABLE n ADD COLUMN w INT DEFAULT 7", "INSERT INTO n VALUES (4, 'b', 1)",
    )  # fmt: skip


def test_a_table_born_filled_and_altered_meanwhile_is_taken_up_behind_it(behind: Source) -> None:
    behind.capture(snapshot="initial")
    _born_and_altered(behind)
    behind.capture("INSERT INTO n VALUES (5, 'a', 2)", snapshot="initial")
    assert behind.stopped("n") is None
    assert behind.equal("n")


def test_a_running_capture_that_is_behind_takes_a_new_table_up_as_well(behind: Source) -> None:
    """It died of it, with all tables of the source: rows appeared without a definition that fits."""
    with behind.running("initial") as unit:
        behind.caught_up(unit)
        assert unit.process is not None
        os.kill(unit.process.pid, signal.SIGSTOP)
        try:
            _born_and_altered(behind)
        finally:
            os.kill(unit.process.pid, signal.SIGCONT)
        behind.caught_up(unit)
        behind.change("INSERT INTO n VALUES (5, 'a', 2)")
        behind.caught_up(unit)
        unit.kill()
    behind.capture("UPDATE n SET w = 9 WHERE id = 1", snapshot="initial")
    assert behind.stopped("n") is None
    assert behind.equal("n")


def test_without_a_snapshot_such_a_table_stops(behind: Source) -> None:
    """Nothing would bring the rows that were passed over; tables beside it go on, and a restart does not
    forget it."""
    behind.capture()
    _born_and_altered(behind)
    behind.capture("INSERT INTO n VALUES (5, 'a', 2)")
    behind.capture("INSERT INTO n VALUES (6, 'a', 2)")
    assert behind.stopped("n") == "definition"
    assert behind.images("n") == {}


def test_geometries_end_nothing_and_shift_nothing(behind: Source) -> None:
    """One row of such a table, captured or not, ended capture of the whole source on MariaDB with FULL
    metadata."""
    columns = (
        "(id INT PRIMARY KEY, p POINT, a VARCHAR(9) CHARACTER SET utf8mb4, b VARCHAR(9) CHARACTER SET "
        "utf8mb4, c VARCHAR(9) CHARACTER SET latin1)"
    )
    behind.database.create_database(f"{behind.db}_other")
    try:
        behind.change(f"CREATE TABLE g {columns}", f"CREATE TABLE {behind.db}_other.g {columns}")
        row = "VALUES (1, ST_GeomFromText('POINT(1 2)'), 'ж', 'ж', 'é')"
        behind.capture(f"INSERT INTO {behind.db}_other.g {row}", f"INSERT INTO g {row}")
    finally:
        behind.database.drop_database(f"{behind.db}_other")
    assert behind.stopped("g") is None
    image = behind.images("g")[1]
    assert [image[name] for name in "abc"] == ["ж", "ж", "é"]


def test_statements_in_compressed_events_count(behind: Source) -> None:
    """MariaDB: log_bin_compress packs long statements, too."""
    if behind.database.kind.lower() != "mariadb":
        pytest.skip("MySQL has no compressed statements")
    behind.change("CREATE TABLE t (id INT PRIMARY KEY, v ENUM('a','b'))")
    behind.capture("INSERT INTO t VALUES (1, 'a')")
    padding = f"/* {'x' * 1000} */"
    behind.database.execute("SET GLOBAL log_bin_compress = ON")
    try:
        behind.change(
            f"ALTER {padding} TABLE t MODIFY v ENUM('b','a')", "INSERT INTO t VALUES (2, 'a')",
            f"ALTER {padding} TABLE t MODIFY v ENUM('a','b')",
        )  # fmt: skip
    finally:
        behind.database.execute("SET GLOBAL log_bin_compress = OFF")
    behind.capture("INSERT INTO t VALUES (3, 'a')")
    assert behind.stopped("t") == "definition"
    assert set(behind.images("t")) == {1}


def test_an_alter_in_two_phases_changes_at_its_commit(behind: Source) -> None:
    """MariaDB: START ALTER and ROLLBACK ALTER change nothing, stop nothing, and are no statement that comes
    later."""
    if behind.database.kind.lower() != "mariadb":
        pytest.skip("MySQL logs an ALTER once")
    session = "SET SESSION binlog_alter_two_phase = ON"
    behind.change("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    behind.capture("INSERT INTO t VALUES (1, 1000), (2, 2000)")
    with pytest.raises(Exception, match="Duplicate entry"):
        behind.change("ALTER TABLE t ADD COLUMN w INT NOT NULL DEFAULT 5, ADD UNIQUE (w)", session=session)
    behind.change("INSERT INTO t VALUES (3, 3)", "REPLACE INTO beat VALUES (2, 2)")
    with pytest.raises(Exception, match="Out of range"):
        behind.change("ALTER TABLE t MODIFY v TINYINT", session=session)
    behind.change("INSERT INTO t VALUES (4, 4)")
    behind.change("ALTER TABLE t ADD COLUMN w INT", session=session)
    behind.change("INSERT INTO t VALUES (5, 5, 5)")
    with pytest.raises(Exception, match="Out of range"):
        behind.change("ALTER TABLE t MODIFY v TINYINT", session=session)
    behind.capture("INSERT INTO t VALUES (6, 6, 6)")
    assert behind.stopped("t") is None
    assert {number: len(image) for number, image in behind.images("t").items()} == {
        1: 2,
        2: 2,
        3: 2,
        4: 2,
        5: 3,
        6: 3,
    }
    definitions = [event.definition for event in behind.events("t") if event.ddl is not None]
    assert [len(each.columns) for each in definitions if each is not None] == [3]


def test_rows_between_the_parts_of_an_alter_have_the_old_form(behind: Source) -> None:
    """MariaDB copies a table online: others write to it, and to other tables, meanwhile."""
    if behind.database.kind.lower() != "mariadb":
        pytest.skip("MySQL logs an ALTER once")
    behind.change(
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
        "INSERT INTO t (v) SELECT seq FROM seq_1_to_300000",
    )
    behind.capture()
    with behind.database.connect(behind.db) as writer, behind.database.connect(behind.db) as altering:
        altering.cursor().execute("SET SESSION binlog_alter_two_phase = ON")
        altering._execute_command(
            COM_QUERY, "ALTER TABLE t ADD COLUMN w INT DEFAULT 7, ALGORITHM=COPY, LOCK=NONE"
        )
        cursor, written = writer.cursor(), []
        while not written or (len(written) < 2000 and not select.select([altering._sock], [], [], 0)[0]):
            cursor.execute("INSERT INTO t (v) VALUES (1)")
            written.append(cursor.lastrowid)
            cursor.execute("REPLACE INTO beat VALUES (2, %s)", (len(written),))
        altering._read_query_result()
    behind.capture("INSERT INTO t (id, v, w) VALUES (900000, 1, 1)")
    assert behind.stopped("t") is None
    found = behind.images("t")
    assert set(found) == {*written, 900000}
    assert [len(found[number]) for number in (written[0], 900000)] == [2, 3]
