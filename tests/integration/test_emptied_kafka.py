"""A `rowlock run` with a Kafka whose data are removed meanwhile: it ends and names the cause, and the next
one copies every table again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.kits.waiting import until
from tests.kits.whole_run import WholeRun, whole_run

pytestmark = [pytest.mark.timeout(1200)]
ROWS = "SELECT id, v FROM acct ORDER BY id"


@pytest.fixture
def own_kafka(creates: bool) -> Iterator[Kafka]:
    """A broker of this test. `creates`: it creates topics that are asked for, as Kafka does by default."""
    with Kafka(extra=[f"auto.create.topics.enable={str(creates).lower()}"]) as made:
        yield made


@pytest.fixture
def system(
    tmp_path: Path, own_kafka: Kafka, mariadb: MariaDB, postgres: PostgreSQL, unique: str
) -> Iterator[WholeRun]:
    routes = [{"from": f"{unique}.*", "to": "public.{table}"}]
    pipelines = {"p": {"sources": ["s"], "target": "pg", "routes": routes}}
    with whole_run(tmp_path, unique, own_kafka, {"s": mariadb}, {"pg": postgres}, pipelines) as made:
        made.change("s", "CREATE TABLE acct (id INT PRIMARY KEY, v INT)")
        made.change("s", "INSERT INTO acct VALUES (1, 1), (2, 1), (3, 1)")
        yield made


def correct_created_topics(system: WholeRun, kafka: Kafka) -> None:
    """Do what `check` asks for: capture's clients have had topics created with Kafka's defaults."""
    checked = json.loads(system.invoke("check", "--output", "json").stdout)["findings"]
    (topic,) = [f"{system.db}.s.position" for each in checked if "cleanup.policy=delete" in each["what"]]
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([change])[change].result(60)


@pytest.mark.parametrize("creates", [False, True])
def test_a_run_ends_with_a_remedy_and_the_next_one_copies(
    system: WholeRun, own_kafka: Kafka, creates: bool
) -> None:
    system.run.start()
    system.arrives(ROWS, system.read_source("s", ROWS))
    own_kafka.stop()
    shutil.rmtree(own_kafka.home.data)
    own_kafka.start()
    assert system.run.process is not None
    until(lambda: system.run.process.poll() is not None, "the end of the run", 180)  # type: ignore[union-attr]
    assert system.run.process.poll() == 2
    log = system.run.log.read_text()
    for text in ("has lost its data, or another Kafka has that address", "all tables are copied again"):
        assert text in log
    system.run.process = None
    assert system.status()["problems"][0].startswith("nothing runs")
    system.change("s", "DELETE FROM acct WHERE id = 1", "UPDATE acct SET v = 2 WHERE id = 2")
    if creates:
        correct_created_topics(system, own_kafka)
    system.run.start()
    system.arrives(ROWS, [(2, 2), (3, 1)])
    assert system.run.stop() == 0
