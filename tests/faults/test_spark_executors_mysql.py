"""Executors on other hosts apply every row whatever happens: MariaDB to MySQL."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL
from tests.faults.spark_executors import RunOnHosts, make_package, run_on_hosts
from tests.servers.spark_hosts import admit_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BOTH = "host1", "host2"
LEASE_S = 10.0


@pytest.fixture(scope="module")
def system(
    mariadb: MariaDB, mysql: MySQL, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunOnHosts]:
    folder = tmp_path_factory.mktemp("hosts")
    package: Path = make_package(folder)
    admit_hosts(mariadb)
    with run_on_hosts(folder, package, mariadb, kafka, mysql, "hostsmy") as made:
        yield made


def test_topics_of_a_killed_executor_resume_elsewhere(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    waited = system.measure(system.cluster.hosts[0].kill_executor, seed=1)
    assert waited < 5


def test_topics_of_a_host_that_is_cut_off_for_a_minute_resume_elsewhere(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[1]

    def cut() -> None:
        host.cut()
        time.sleep(60)
        host.connect()

    waited = system.measure(cut, seed=2)
    assert waited < 5


def test_no_table_waits_longer_than_the_lease_if_an_executor_is_cut_from_the_target(
    system: RunOnHosts,
) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[0]

    def cut() -> None:
        host.cut(system.office.port)
        time.sleep(40)
        host.connect()

    waited = system.measure(cut, seed=3)
    assert waited < LEASE_S + 10
