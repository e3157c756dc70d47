"""What MariaDB before 10.5 does otherwise than later versions, and what capture makes of it: XA transactions
that a crash takes out of the log, times in an old form, and what its catalog does not show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.mariadb import MySQLFamily
from deploy.embedded.services import Kafka
from producer.checks.preflight import check_source
from schemas.config.model import load_config
from tests.capturing import Capturing
from tests.kits.capture import Unit
from tests.kits.documented_user import PASSWORD, documented_user

pytestmark = pytest.mark.parametrize("version", ["mariadb-10.1.23", "mariadb-10.2.11"], indirect=True)


@pytest.fixture
def capture(version: MySQLFamily, kafka: Kafka, unique: str, tmp_path: Path) -> Iterator[Capturing]:
    version.create_database(unique)
    yield Capturing(kafka, version, unique, tmp_path)
    for row in version.execute("XA RECOVER"):
        version.execute(f"XA ROLLBACK '{row[3]}'")
    version.drop_database(unique)


def prepare(capture: Capturing, xid: str, statement: str) -> Any:
    """Prepare a transaction; returns the connection that holds it."""
    connection = capture.database.connect(capture.db)
    with connection.cursor() as cursor:
        for each in (f"XA START '{xid}'", statement, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            cursor.execute(each)
    return connection


def refusal(config: Path) -> str:
    """Return what a start of capture prints that is refused; `check` finds the same."""
    unit = Unit(config, "s").start()
    assert unit.wait() == 2, unit.output()
    assert any("prepared XA" in each.message for each in check_source(load_config(config, {}), "s"))
    return unit.output()


def test_xa_transactions_are_ordinary_ones(capture: Capturing) -> None:
    capture.run()
    ended = [prepare(capture, f"x{n}", f"INSERT INTO a VALUES ({n}, 'xa {n}')") for n in range(4)]
    with closing(ended[3]):
        pass  # a session that ends rolls its transaction back
    for n, verb in ((2, "COMMIT"), (0, "COMMIT"), (1, "ROLLBACK")):
        with closing(ended[n]), ended[n].cursor() as cursor:
            cursor.execute(f"XA {verb} 'x{n}'")
    capture.run()
    assert [event.after["v"] for event in capture.events("a") if event.after] == ["xa 2", "xa 0"]
    capture.holds_source_rows("a", "b")


def test_recovered_transaction_is_refused_until_it_has_ended(capture: Capturing) -> None:
    """Its COMMIT is not in the log: this is why capture does not start before it."""
    capture.run("INSERT INTO a VALUES (1, 'before')")
    session = prepare(capture, "lost", "INSERT INTO a VALUES (2, 'lost')")
    capture.database.kill()
    session.close()
    capture.database.start()
    assert len(capture.database.execute("XA RECOVER")) == 1
    for _ in range(2):
        assert "prepared XA transactions (X6c6f7374,X,1)" in refusal(capture.config())
    capture.database.execute("XA COMMIT 'lost'")
    capture.run("INSERT INTO a VALUES (3, 'after')")
    assert capture.values("a") == {"before", "after"}
    assert capture.database.execute(f"SELECT COUNT(*) FROM {capture.db}.a") == [(3,)]


def test_first_start_is_refused_with_recovered_transactions(capture: Capturing) -> None:
    session = prepare(capture, "lost", "INSERT INTO a VALUES (2, 'lost')")
    capture.database.kill()
    session.close()
    capture.database.start()
    unit = Unit(capture.config(), "s").start()
    assert unit.wait() == 2, unit.output()
    assert "prepared XA transactions (X6c6f7374,X,1)" in unit.output()


@pytest.mark.parametrize("right", ["PROCESS", ""])
def test_transaction_of_a_living_session_is_no_reason_if_the_user_sees_it(
    capture: Capturing, unique: str, right: str
) -> None:
    capture.run("INSERT INTO a VALUES (1, 'before')")
    with (
        documented_user(capture.database, unique, capture.db) as user,
        closing(prepare(capture, "live", "INSERT INTO a VALUES (2, 'live')")) as session,
    ):
        if right:
            capture.database.execute(f"GRANT {right} ON *.* TO '{user}'@'%'")
        capture.options |= {"user": user, "password": PASSWORD}
        capture.run("INSERT INTO a VALUES (3, 'same file')")
        capture.database.execute("FLUSH BINARY LOGS")
        if not right:
            assert "GRANT PROCESS" in refusal(capture.config())
            capture.database.execute(f"GRANT PROCESS ON *.* TO '{user}'@'%'")
        capture.run()
        with session.cursor() as cursor:
            cursor.execute("XA COMMIT 'live'")
        capture.run()
    assert capture.values("a") == {"before", "same file", "live"}


def test_times_in_the_old_form(capture: Capturing) -> None:
    """Without a fraction they are read; with one the table stops: the log does not show its length."""
    columns = "t TIME, d DATETIME, s TIMESTAMP NULL"
    capture.database.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        capture.change(
            f"CREATE TABLE old_form (id INT PRIMARY KEY, {columns})",
            "CREATE TABLE fractions (id INT PRIMARY KEY, d DATETIME(3))",
        )
    finally:
        capture.database.execute("SET GLOBAL mysql56_temporal_format = ON")
    row = "'-838:59:59', '2001-02-03 04:05:06', '2001-02-03 04:05:06'"
    capture.run(
        "SET SESSION time_zone = '+00:00'",
        f"INSERT INTO old_form VALUES (1, {row}), (2, '00:00:00', '0000-00-00', NULL)",
        "INSERT INTO fractions VALUES (1, '2001-02-03 04:05:06.789')",
    )
    found = [event.after for event in capture.events("old_form") if event.after]
    assert found == [
        {"id": 1, "t": "-838:59:59", "d": "2001-02-03 04:05:06", "s": "2001-02-03T04:05:06Z"},
        {"id": 2, "t": "00:00:00", "d": "0000-00-00 00:00:00", "s": None},
    ]
    capture.stopped("fractions", "value")


def test_signs_and_character_sets_follow_from_the_proven_definition(capture: Capturing) -> None:
    """The log of these versions has neither, before and after an ALTER."""
    capture.run()
    values = "(1, 18446744073709551615, 'é漢', 'ÿ', 'zwei')"
    capture.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n BIGINT UNSIGNED, g VARCHAR(9) CHARACTER SET gbk, "
        "l VARCHAR(9) CHARACTER SET latin1, e ENUM('eins', 'zwei'))",
        f"INSERT INTO t VALUES {values.replace('é', 'e')}",
    )
    capture.run("ALTER TABLE t MODIFY g VARCHAR(9) CHARACTER SET utf8mb4")
    capture.run(
        "UPDATE t SET g = 'é漢', l = 'þ'", "INSERT INTO t VALUES (2, 9223372036854775808, '漢', 'é', 'eins')"
    )
    last = {event.after["id"]: event.after for event in capture.events("t") if event.after}
    assert last == {
        1: {"id": 1, "n": "18446744073709551615", "g": "é漢", "l": "þ", "e": "zwei"},
        2: {"id": 2, "n": "9223372036854775808", "g": "漢", "l": "é", "e": "eins"},
    }


def test_computed_columns(capture: Capturing) -> None:
    """A table is left out where the catalog hides how they are computed, or the log lacks their values."""
    capture.change(
        "CREATE TABLE stored (id INT PRIMARY KEY, v INT AS (id + 1) PERSISTENT)",
        "CREATE TABLE computed (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL)",
    )
    capture.run("INSERT INTO stored (id) VALUES (1)", "INSERT INTO computed (id) VALUES (1)")
    found = " ".join(each.message for each in check_source(load_config(capture.config(), {}), "s"))
    assert capture.events("computed") == []
    if capture.database.execute("SELECT VERSION()")[0][0].startswith("10.1."):
        assert capture.events("stored") == []
        assert "v is computed (PERSISTENT)" in found
        assert "v is computed (VIRTUAL)" in found
    else:
        assert [event.after for event in capture.events("stored") if event.after] == [{"id": 1, "v": 2}]
        assert "v: the log of this version of the server has NULL" in found


def test_compressed_events(capture: Capturing) -> None:
    if capture.database.execute("SELECT VERSION()")[0][0].startswith("10.1."):
        pytest.skip("MariaDB compresses events from 10.2.3 on")
    capture.database.execute("SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10")
    try:
        capture.run(
            "INSERT INTO a VALUES (1, REPEAT('z', 20))",
            "ALTER TABLE a ADD COLUMN w VARCHAR(50) DEFAULT 'w'",
            "UPDATE a SET v = REPEAT('y', 20)",
        )
    finally:
        capture.database.execute("SET GLOBAL log_bin_compress = OFF")
    assert capture.values("a") == {"z" * 20, "y" * 20}
