"""Ports where something else answers, or nothing speaks: `check` names it, and ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from producer.checks.preflight import check_source
from rowlock.inspect.check import list_findings
from schemas.config.model import load_config
from schemas.errors import ServerConnectError
from schemas.io.mysql_connection import connect_mysql
from tests.kits.capture import source, write_config
from tests.kits.listening import http, listening, silent


def of_source(folder: Path, kafka: Kafka, mariadb: MariaDB, port: int) -> str:
    config = write_config(folder, kafka.bootstrap, "p", {"s": {**source(mariadb, ["a.*"]), "port": port}})
    (found,) = check_source(load_config(config, {}), "s")
    assert found.remedy
    return found.message


def test_a_source_s_port_is_another_server_s(
    kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, tmp_path: Path
) -> None:
    assert "answers a Kafka broker" in of_source(tmp_path, kafka, mariadb, kafka.port)
    assert "answers a PostgreSQL server" in of_source(tmp_path, kafka, mariadb, postgres.port)
    with listening(http) as port:
        assert "answers an HTTP server" in of_source(tmp_path, kafka, mariadb, port)
    with listening(silent) as port:
        assert "accepts connections and sends nothing" in of_source(tmp_path, kafka, mariadb, port)


def test_a_source_that_hangs_is_not_waited_for(kafka: Kafka, mariadb2: MariaDB, tmp_path: Path) -> None:
    mariadb2.process.pause()
    try:
        notified = of_source(tmp_path, kafka, mariadb2, mariadb2.port)
        assert "accepts connections and sends nothing" in notified
    finally:
        mariadb2.process.resume()


def whole(folder: Path, kafka: str, mariadb: MariaDB, target: dict[str, Any]) -> list[str]:
    file = folder / "c.yaml"
    login = {"user": "root", "password": "x", "host": "127.0.0.1"}
    file.write_text(
        yaml.safe_dump(
            {
                "kafka": {"bootstrap": kafka, "prefix": "p"},
                "state_dir": str(folder / "state"),
                "sources": {"s": source(mariadb, ["nowhere.*"])},
                "targets": {"hq": {**login, **target}},
                "pipelines": {
                    "p": {"sources": ["s"], "target": "hq", "routes": [{"from": "*.*", "to": "a.{table}"}]}
                },
            }
        )
    )
    return [
        f"{each.message}: {each.remedy}"
        for each in list_findings(load_config(file, {}))
        if each.level == "error"
    ]


@pytest.mark.parametrize("kind", ["postgres", "mariadb", "mysql"])
def test_a_target_s_and_kafka_s_ports_are_other_servers_(
    kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, tmp_path: Path, kind: str
) -> None:
    other = mariadb.port if kind == "postgres" else postgres.port
    name = "a MySQL or MariaDB server" if kind == "postgres" else "a PostgreSQL server"
    with listening(http) as port:
        notified = whole(
            tmp_path, f"127.0.0.1:{port}", mariadb, {"type": kind, "port": other, "database": "d"}
        )
    assert any("answers an HTTP server, not a Kafka broker" in each for each in notified), notified
    assert any(f"answers {name}" in each for each in notified), notified


def test_a_server_that_can_encrypts_and_only_settings_of_tls_verify_it(mysql: MySQL) -> None:
    """Its certificate is its own, signed by nobody that this machine knows. (The tests' MariaDB cannot.)"""
    reached = (mysql.host, mysql.port, "root", "")
    contexts = []
    for _ in range(2):
        with contextlib.closing(connect_mysql(*reached)) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
            assert all(row[1] for row in cursor.fetchall()), "what passes between them is encrypted"
            contexts.append(cast("Any", connection).ctx)
    assert contexts[0] is contexts[1], "the machine's certificates are not read for each connection"
    with pytest.raises(ServerConnectError, match=r"CERTIFICATE_VERIFY_FAILED") as refused:
        connect_mysql(*reached, ssl={}, ssl_verify_cert=True, ssl_verify_identity=True)
    assert not refused.value.transient
    assert "`tls.ca`" in refused.value.problem.action
