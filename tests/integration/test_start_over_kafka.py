"""docs/how-to/start-over.md for a Kafka target, done as written, by the user that is documented: a changed
key, and rows that were not captured."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, ResourceType

from deploy.embedded.services import MariaDB
from rowlock.cli import main
from schemas.findings import START_OVER
from tests.kits.kafka_target import messages
from tests.kits.kafka_users import PASSWORD, RIGHTS
from tests.kits.running import Run, running, source_config, write_config
from tests.servers.certificates import Authority, Issued
from tests.servers.secure_kafka import SecureKafka

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

USER = "feeder"
TABLES = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(40), since DATE)",
    "INSERT INTO accounts VALUES (1, 'ann', '2020-01-02'), (2, 'bob', NULL)",
    "SET STATEMENT sql_mode='' FOR INSERT INTO accounts VALUES (3, 'eve', '0000-00-00')",  # no form for it
)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "start-over.md"
MISSED = ("DELETE FROM accounts WHERE id = 1", "UPDATE accounts SET since = '2021-01-01' WHERE id = 3")


@pytest.fixture
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("certificates")).issue("127.0.0.1", "localhost")


@pytest.fixture
def broker(certificate: Issued) -> Iterator[SecureKafka]:
    with SecureKafka(certificate) as made:
        made.add_user(USER, PASSWORD)
        yield made


def allow(broker: SecureKafka, topics: str, prefix: str) -> None:
    """Give the user what the page of Kafka targets asks for, on topics of the routes and on what begins with
    the target's prefix."""
    for kind, operation in RIGHTS:
        names = {prefix} if kind is ResourceType.TRANSACTIONAL_ID else {topics, prefix}
        broker.allow(USER, *((kind, f"{name}.", operation) for name in names))


def rows(broker: SecureKafka, topic: str) -> set[int]:
    """The keys that a reader of committed records has."""
    found: dict[str, Any] = {}
    for each in messages(broker, topic):  # type: ignore[arg-type]
        found[each.key()] = each.value()
    missing = (b'"op":"d"',)
    return {
        number(json.loads(key)["id"])
        for key, value in found.items()
        if key is not None and value is not None and not any(word in value for word in missing)
    }


def number(key: int | str) -> int:
    """An INT is a number, a DECIMAL(12,2) its unscaled value in bytes."""
    return key if isinstance(key, int) else int.from_bytes(base64.b64decode(key), signed=True) // 100


def invoke(config: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "-c", str(config)])


def started_over(config: Path, db: str) -> None:
    """Steps 3 and 4 of the page, with the page's own lines."""
    raw = yaml.safe_load(config.read_text())
    raw["kafka"]["prefix"] += "2"
    (block,) = re.findall(r"```yaml\n( *targets:\n.*?)```", PAGE.read_text(), re.DOTALL)
    reported = yaml.safe_load(block.replace("bank.*", f"{db}.*"))
    assert reported["targets"]["feed"].pop("type") == "kafka"
    raw["targets"]["feed"] |= reported["targets"]["feed"]
    (route,) = reported["pipelines"]["out"]["routes"]
    raw["pipelines"]["out"]["routes"][0] |= route
    config.write_text(yaml.safe_dump(raw))


def test_starting_over_writes_every_row_to_other_topics(
    broker: SecureKafka, certificate: Issued, mariadb2: MariaDB, unique: str, tmp_path: Path
) -> None:
    mariadb2.create_database(unique)

    def change(*statements: str) -> None:
        for each in statements:
            mariadb2.execute(each, database=unique)

    change(*TABLES)
    allow(broker, "head", "feed")
    options = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER,
        "sasl.password": PASSWORD, "ssl.ca.location": str(certificate.ca),
    }  # fmt: skip
    route = {"from": f"{unique}.*", "to": "head.{table}", "kafka": {"format": "debezium"}}
    config = write_config(
        tmp_path,
        kafka={"bootstrap": broker.bootstrap, "prefix": unique},
        spark={"memory": "512m"},
        sources={"s": source_config(mariadb2, "mariadb", unique)},
        targets={"feed": {"type": "kafka", "bootstrap": broker.secure, "prefix": "feed", "options": options}},
        pipelines={"out": {"sources": ["s"], "target": "feed", "schema_changes": "lenient",
         "routes": [route]}},
    )  # fmt: skip

    def stop(run: Run) -> str:
        def reason() -> str:
            found = invoke(config, "status", "--output", "json")
            return "".join(each["stopped"] or "" for each in json.loads(found.stdout)["units"])

        return run.until(reason, "the unit stops", 240)

    with running(config, tmp_path) as run:
        run.until(
            lambda: "accounts" in invoke(config, "quarantine", "list").stdout,
            "a row is held",
            240,
        )
        change("ALTER TABLE accounts MODIFY id DECIMAL(12,2)", "INSERT INTO accounts VALUES (4, 'dan', NULL)")
        why = stop(run)
        assert f"{START_OVER} with another topic" in why, why
        assert run.stop() == 0
    assert rows(broker, "head.accounts") == {1, 2}
    before = len(messages(broker, "head.accounts"))  # type: ignore[arg-type]
    change(*MISSED)
    started_over(config, unique)
    allow(broker, "head2", "feed2")
    checked = invoke(config, "check")
    assert checked.exit_code == 0, checked.output
    with running(config, tmp_path) as run:
        run.until(lambda: equal(config), "equal", 240)
        assert rows(broker, "head2.accounts") == {2, 3, 4}
        assert invoke(config, "quarantine", "list").stdout == "nothing is held\n"
        assert len(messages(broker, "head.accounts")) == before, "the old topic is left alone"  # type: ignore[arg-type]
        old = ["head.accounts", "feed.rowlock_progress"]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.delete_topics(old).values():
            future.result(60)
        change("INSERT INTO accounts VALUES (5, 'fay', NULL)")
        run.until(lambda: 5 in rows(broker, "head2.accounts"), "it goes on without the old topics")
        assert run.stop() == 0
    verdict = invoke(config, "verify", "--settle", "0")
    assert verdict.exit_code == 0, verdict.output
    mariadb2.drop_database(unique)


def equal(config: Path) -> bool:
    return invoke(config, "verify", "--settle", "0").exit_code == 0
