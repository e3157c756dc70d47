"""`check` warns two weeks before the certificate expires that a source, a target or a broker presents."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.embedded.services import MariaDB
from rowlock.inspect.check import list_findings
from schemas.config.model import load_config
from tests.servers.certificates import Authority, Issued
from tests.servers.secure_kafka import PLAIN_PASSWORD, PLAIN_USER, SecureKafka

pytestmark = pytest.mark.timeout(400)

DAYS = {"soon": 5, "later": 60}


@contextlib.contextmanager
def database_with(issued: Issued) -> Iterator[MariaDB]:
    """A server that presents the certificate, with the two databases of the test."""
    files = [f"--ssl-ca={issued.ca}", f"--ssl-cert={issued.cert}", f"--ssl-key={issued.key}"]
    with contextlib.closing(MariaDB(extra=["--ssl", *files])) as server:
        server.start()
        for name in ("bank", "hq"):
            server.execute(f"CREATE DATABASE {name}")
        server.execute("CREATE TABLE bank.acct (id INT PRIMARY KEY)")
        server.execute("CREATE USER app@'%' IDENTIFIED BY 'secret'")
        server.execute("GRANT ALL ON *.* TO app@'%'")
        yield server


@pytest.mark.parametrize("when", DAYS)
def test_certificates_of_servers_are_reported_before_they_expire(when: str, tmp_path: Path) -> None:
    until = datetime.now(UTC) + timedelta(days=DAYS[when])
    issued = Authority(tmp_path).issue("127.0.0.1", "localhost", until=until)
    with database_with(issued) as server, SecureKafka(issued) as broker:
        login: dict[str, Any] = {
            "type": "mariadb", "host": "127.0.0.1", "port": server.port, "user": "app", "password": "secret",
        }  # fmt: skip
        kafka_options = {
            "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": PLAIN_USER,
            "sasl.password": PLAIN_PASSWORD, "ssl.ca.location": str(issued.ca),
        }  # fmt: skip
        raw = {
            "kafka": {"bootstrap": broker.secure, "options": kafka_options},
            "sources": {
                "b": {**login, "tables": ["bank.*"], "tls": {"ca": str(issued.ca)}},
                "plain": {**login, "tables": ["bank.*"]},
                "unverified": {**login, "tables": ["bank.*"], "tls": {"verify": "none"}},
            },
            "targets": {"hq": {**login, "database": "hq", "tls": {"ca": str(issued.ca)}}},
            "pipelines": {
                "p": {"sources": ["b"], "target": "hq", "routes": [{"from": "bank.*", "to": "hq.{table}"}]}
            },
        }
        file = tmp_path / "c.yaml"
        file.write_text(yaml.safe_dump(raw))
        found = [each for each in list_findings(load_config(file)) if "certificate that it" in each.message]
    expected = [f"broker {broker.secure}", "source b", "target hq"] if when == "soon" else []
    assert [each.message.partition(": ")[0] for each in found] == expected
    for each in found:
        assert f"expires at {until:%Y-%m-%d %H:%M} UTC" in each.message
        assert (each.level, each.remedy) == ("warning", "renew the server's certificate before")
