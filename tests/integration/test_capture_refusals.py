"""What capture refuses: one clear message each, exit code 2, a last line for machines, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.embedded.services import Kafka, MariaDB, MySQL
from tests.kits.capture import (
    events,
    refused,
    replay,
    running,
    source,
    source_findings,
    watermarks,
    write_config,
)
from tests.kits.waiting import until

ACCOUNT = "CREATE TABLE {db}.acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE, age INT)"


@pytest.fixture
def db(mariadb: MariaDB, mariadb_db: str) -> str:
    mariadb.execute(ACCOUNT.format(db=mariadb_db))
    return mariadb_db


findings = source_findings


@pytest.mark.parametrize(
    ("statement", "back", "reported"),
    [
        ("SET GLOBAL binlog_format = MIXED", "SET GLOBAL binlog_format = ROW", "SET GLOBAL binlog_format = ROW"),  # noqa: E501
        (
            "SET GLOBAL binlog_row_image = MINIMAL", "SET GLOBAL binlog_row_image = FULL",
            "SET GLOBAL binlog_row_image = FULL",
        ),
    ],
)  # fmt: skip
def test_settings(
    kafka: Kafka, mariadb: MariaDB, db: str, tmp_path: Path, statement: str, back: str, reported: str
) -> None:
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    assert findings(config) == []
    mariadb.execute(statement)
    try:
        assert reported in refused(config)
        assert [reported in finding.remedy for finding in findings(config)] == [True]
    finally:
        mariadb.execute(back)


def test_settings_of_mysql(kafka: Kafka, mysql: MySQL, mysql_db: str, tmp_path: Path) -> None:
    mysql.execute(ACCOUNT.format(db=mysql_db))
    config = write_config(tmp_path, kafka.bootstrap, mysql_db, {"s": source(mysql, [f"{mysql_db}.*"])})
    assert findings(config) == []
    mysql.execute("SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
    mysql.execute("SET GLOBAL binlog_transaction_compression = ON")
    try:
        found = " ".join(finding.remedy for finding in findings(config))
        assert "binlog_row_value_options = ''" in found
        assert "compression" not in found, "compressed transactions are read"
    finally:
        mysql.execute("SET GLOBAL binlog_row_value_options = ''")
        mysql.execute("SET GLOBAL binlog_transaction_compression = OFF")


@pytest.fixture
def user(mariadb: MariaDB, unique: str) -> Iterator[str]:
    mariadb.execute(f"CREATE USER '{unique}'@'%' IDENTIFIED BY 'secret'")
    yield unique
    mariadb.execute(f"DROP USER '{unique}'@'%'")


def test_missing_grants_are_printed(
    kafka: Kafka, mariadb: MariaDB, db: str, user: str, tmp_path: Path
) -> None:
    expected = {**source(mariadb, [f"{db}.*"]), "user": user, "password": "secret"}
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": expected})
    statements = [f.remedy for f in findings(config) if f.remedy.startswith("GRANT")]
    assert len(statements) == 4, "one round names them all"
    for statement in statements:
        mariadb.execute(statement)
    assert findings(config) == [], "what was printed is enough"
    with running(config, "s") as unit:
        until(lambda: watermarks(kafka.bootstrap, db, "s"), "capture with these grants alone")
        assert unit.stop() == 0, unit.output()


def test_wrong_password(kafka: Kafka, mariadb: MariaDB, db: str, user: str, tmp_path: Path) -> None:
    expected = {**source(mariadb, [f"{db}.*"]), "user": user, "password": "guess"}
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": expected})
    reported = refused(config)
    assert "Access denied" in reported
    assert "guess" not in reported
    assert [f.level for f in findings(config)] == ["error"]


def test_unreachable_host_is_a_finding_and_is_waited_for(
    kafka: Kafka, db: str, mariadb: MariaDB, tmp_path: Path
) -> None:
    expected = {**source(mariadb, [f"{db}.*"]), "port": 1}
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": expected})
    assert "no database answers at 127.0.0.1:1" in findings(config)[0].message
    with running(config, "s") as unit:
        until(lambda: unit.output().count("capture restarts") > 1, "two attempts")
        assert unit.stop() == 0


def test_tables_that_cannot_be_captured(kafka: Kafka, mariadb: MariaDB, db: str, tmp_path: Path) -> None:
    mariadb.execute(f"CREATE TABLE {db}.nokey (a INT, UNIQUE KEY a (a))")
    mariadb.execute(
        f"CREATE TABLE {db}.child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES "
        "acct (id) ON DELETE CASCADE)".replace("REFERENCES acct", f"REFERENCES {db}.acct")
    )
    mariadb.execute(f"CREATE TABLE {db}.old (id INT PRIMARY KEY) ENGINE=MyISAM")
    mariadb.execute(f"CREATE TABLE {db}.doubtful (id INT PRIMARY KEY, e ENUM('a?') CHARACTER SET utf8mb4)")
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*", "nowhere.*"])})
    found = {(f.level, f.place.rpartition(".")[2]): f.message for f in findings(config)}
    assert "primary key" in found["error", "nokey"]
    assert "CASCADE" in found["error", "child"]
    assert "MyISAM" in found["error", "old"]
    assert "a label holds '?'" in found["error", "doubtful"]
    assert any("nowhere" in message for (level, _), message in found.items() if level == "warning")
    with running(config, "s") as unit:
        mark = until(lambda: watermarks(kafka.bootstrap, db, "s"), "the start")[-1]
        assert "nokey" in (mark.error or "")
        mariadb.execute(f"INSERT INTO {db}.nokey VALUES (1)")
        mariadb.execute(f"INSERT INTO {db}.acct VALUES (1, 'a', 1)")
        until(lambda: watermarks(kafka.bootstrap, db, "s")[-1].events == 1, "the row of the good table")
        assert unit.stop() == 0, unit.output()


def _captured_once(kafka: Kafka, mariadb: MariaDB, db: str, config: Path) -> None:
    with running(config, "s") as unit:
        mariadb.execute(f"INSERT INTO {db}.acct VALUES (1, 'a', 1)")
        until(lambda: [w for w in watermarks(kafka.bootstrap, db, "s") if not w.snapshot_pending], "capture")
        assert unit.stop() == 0, unit.output()


def test_purged_log_is_refused_and_a_new_snapshot_heals(
    kafka: Kafka, mariadb2: MariaDB, unique: str, tmp_path: Path
) -> None:
    mariadb2.create_database(unique)
    mariadb2.execute(ACCOUNT.format(db=unique))
    config = write_config(tmp_path, kafka.bootstrap, unique, {"s": source(mariadb2, [f"{unique}.*"])})
    _captured_once(kafka, mariadb2, unique, config)
    mariadb2.execute(f"INSERT INTO {unique}.acct VALUES (2, 'b', 2)")
    mariadb2.execute("FLUSH BINARY LOGS")
    last = mariadb2.execute("SHOW MASTER STATUS")[0][0]

    def purged() -> bool:
        """The server keeps files until it notices that their reader is gone."""
        mariadb2.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(mariadb2.execute("SHOW BINARY LOGS")[0][0] == last)

    until(purged, "the purge")
    assert "purged" in refused(config)
    assert "purged" in findings(config)[0].message
    with running(config, "s", "--new-snapshot") as unit:
        until(
            lambda: [
                w
                for w in watermarks(kafka.bootstrap, unique, "s")
                if w.position[0] == 1 and not w.snapshot_pending
            ],
            "the new snapshot",
        )
        assert unit.stop() == 0, unit.output()
    result = replay(events(kafka.bootstrap, f"{unique}.s.{unique}.acct"))
    assert sorted(row["id"] for row in result.tables[unique, "acct"].values()) == [1, 2]
    assert [e.chunk.repeated for e in result.accepted if e.chunk] == [False, True]
    mariadb2.drop_database(unique)


def test_another_server_is_refused(
    kafka: Kafka, mariadb: MariaDB, mariadb2: MariaDB, db: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    _captured_once(kafka, mariadb, db, config)
    mariadb2.create_database(db)
    mariadb2.execute(ACCOUNT.format(db=db))
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb2, [f"{db}.*"])})
    assert "another server" in refused(config)
    mariadb2.drop_database(db)


def test_topic_with_more_partitions(kafka: Kafka, mariadb: MariaDB, db: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(f"{db}.s.{db}.acct", 3, 1)]).values():
        future.result()
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    found, small = sorted(findings(config), key=lambda each: each.level)
    assert (found.place, "acct has 3 partitions" in found.message) == (f"source s, table {db}.acct", True)
    assert (small.level, "max.message.bytes" in small.message) == ("warning", True), "Kafka's default is 1 MB"
    with running(config, "s"):
        until(
            lambda: any(f"{db}.acct" in mark.left_out for mark in watermarks(kafka.bootstrap, db, "s")),
            "the table is left out",
        )


def test_own_topic_with_more_partitions(kafka: Kafka, mariadb: MariaDB, db: str, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.create_topics([NewTopic(f"{db}.s.position", 3, 1)]).values():
        future.result()
    config = write_config(tmp_path, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])})
    assert "position (3)" in refused(config)
    assert "position (3)" in findings(config)[0].message


def test_options_that_break_guarantees(kafka: Kafka, mariadb: MariaDB, db: str, tmp_path: Path) -> None:
    from producer.errors import ConfigError
    from producer.kafka.settings import build_capture_producer_settings
    from schemas.config.model import KafkaConfig

    for name in ("acks", "enable.idempotence", "message.timeout.ms", "enable.gapless.guarantee", "retries"):
        with pytest.raises(ConfigError, match=name):
            build_capture_producer_settings(KafkaConfig(bootstrap=kafka.bootstrap, options={name: "1"}))
