"""Kafka's password is changed while a run works: its clients log in with the new one, without a reload."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.embedded.services import MariaDB, PostgreSQL
from tests.kits.whole_run import whole_run
from tests.servers.certificates import Authority
from tests.servers.secure_kafka import SecureKafka

pytestmark = pytest.mark.timeout(1500)

NAMES = "SELECT id, name FROM acct ORDER BY id"
USER = "app"


class OpenedKafka(SecureKafka):
    """A broker whose user `app` may do everything."""

    def _mine(self) -> dict[str, str]:
        return super()._mine() | {"super.users": f"User:ANONYMOUS;User:{USER}"}


def test_a_run_continues_with_kafka_s_new_password_without_a_reload(
    mariadb: MariaDB, postgres: PostgreSQL, unique: str, tmp_path: Path
) -> None:
    """The restart of the broker ends every connection, so each client has to log in again."""
    issued = Authority(tmp_path).issue("127.0.0.1", "localhost")
    pipelines = {
        "p": {"sources": ["b"], "target": "hq", "routes": [{"from": f"{unique}.*", "to": "public.{table}"}]}
    }
    with (
        OpenedKafka(issued) as broker,
        whole_run(tmp_path, unique, broker, {"b": mariadb}, {"hq": postgres}, pipelines) as run,
    ):
        broker.add_user(USER, "first password")
        (tmp_path / "kafka.password").write_text("first password")
        run.parts["kafka"] |= {
            "bootstrap": broker.secure,
            "options": {
                "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER,
                "sasl.password_file": "kafka.password", "ssl.ca.location": str(issued.ca),
            },
        }  # fmt: skip
        run.write_parts()
        run.change(
            "b",
            "CREATE TABLE acct (id INT PRIMARY KEY, name VARCHAR(20))",
            "INSERT INTO acct VALUES (1, 'a')",
        )
        run.run.start()
        run.arrives(NAMES, [(1, "a")])

        broker.add_user(USER, "another password")
        broker.stop()
        broker.start()
        run.change("b", "INSERT INTO acct VALUES (2, 'b')")
        run.run.until(lambda: "uthentication fail" in run.run.log.read_text(), "a refused log-in", 300)
        assert run.read("hq", NAMES) == [(1, "a")]

        (tmp_path / "kafka.password").write_text("another password")
        run.arrives(NAMES, [(1, "a"), (2, "b")])
        log = run.run.log.read_text()
        assert "secrets of changed files used" in log
        assert "configuration reloaded" not in log
        run.change("b", "CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (7)")
        run.arrives("SELECT id FROM later", [(7,)])
