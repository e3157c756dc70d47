"""Executors on other hosts, with users and folders of their own, apply every row whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.spark_executors import RunOnHosts, find_opened_slots, make_package, run_on_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def system(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, package: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunOnHosts]:  # fmt: skip
    folder = tmp_path_factory.mktemp("hosts")
    with run_on_hosts(folder, package, mariadb, kafka, postgres, "hosts") as made:
        yield made


def test_slots_open_on_both_hosts(system: RunOnHosts) -> None:
    def on_both() -> bool:
        opened = "".join(find_opened_slots(system.run))
        return all(host.name in opened for host in system.cluster.hosts)

    system.run.until(on_both, "a slot on each host", 300)
    system.under_load(lambda: None, seed=1)
