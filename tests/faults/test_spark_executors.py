"""Executors on other hosts, with users and folders of their own, apply every row whatever happens: MariaDB to
PostgreSQL, 20 topics."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.spark_executors import RunOnHosts, make_package, run_on_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BOTH = "host1", "host2"
LEASE_S = 10.0
CUT_S = 12.0


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def system(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, package: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunOnHosts]:  # fmt: skip
    folder = tmp_path_factory.mktemp("hosts")
    with run_on_hosts(folder, package, mariadb, kafka, postgres, "hosts", tables=19) as made:
        yield made


def test_no_table_waits_while_nothing_happens(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    waited = system.measure(lambda: time.sleep(5), seed=1)
    assert waited < LEASE_S


def test_topics_of_a_killed_executor_resume_elsewhere(system: RunOnHosts) -> None:
    system.until_open(*BOTH)

    def kill() -> None:
        assert system.cluster.hosts[0].kill_executor() == 1

    waited = system.measure(kill, seed=2)
    assert waited < 5


def test_topics_of_a_host_that_is_cut_off_resume_elsewhere(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[1]

    def cut() -> None:
        host.cut()
        time.sleep(CUT_S)
        host.connect()

    waited = system.measure(cut, seed=3)
    assert waited < 5


@pytest.mark.parametrize("what", ["driver", "target", "kafka"])
def test_no_table_waits_longer_than_the_lease_if_an_executor_is_cut_from(
    system: RunOnHosts, what: str
) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[0]
    ports = {
        "driver": system.driver_ports, "target": (system.office.port,), "kafka": (system.broker.port,),
    }[what]  # fmt: skip

    def cut() -> None:
        host.cut(*ports)
        time.sleep(40 if what == "target" else 25)
        host.connect()

    waited = system.measure(cut, seed=4)
    assert waited < LEASE_S + 10


def test_paused_executors_continue(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[0]

    def pause() -> None:
        host.send_signal(signal.SIGSTOP)
        time.sleep(10)
        host.send_signal(signal.SIGCONT)

    waited = system.measure(pause, seed=5)
    assert waited < LEASE_S


def test_a_worker_stops_and_starts(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[1]

    def restart() -> None:
        host.stop()
        host.start()

    waited = system.measure(restart, seed=6)
    assert waited < LEASE_S


def test_the_apply_process_is_killed(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    system.under_load(lambda: system.run.kill_processes("consumer.main"), seed=7)


def test_java_is_killed(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    system.under_load(lambda: system.run.kill_processes("org.apache.spark.deploy.SparkSubmit"), seed=8)


def test_an_added_host_replaces_one_that_stops(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    added = system.cluster.add_host(system.build_options())
    stopped = system.cluster.hosts[0]
    waited = system.measure(stopped.stop, seed=9)
    assert waited < LEASE_S
    system.until_open("host2", added.name)
    # the tests run in any order, and each expects the first two hosts
    system.cluster.hosts.remove(added)
    added.close()
    stopped.start()
    system.until_open(*BOTH)
