"""Executors on other hosts, with users and folders of their own, apply every row whatever happens: 20 topics,
from each kind of source to each kind of target."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from deploy.embedded.services import Kafka, MySQL
from tests.faults.pulse import INTERVAL_S
from tests.faults.spark_clock import PROGRAM, build_clock, move_clock, permit_program
from tests.faults.spark_executors import RunOnHosts, build_host, make_package, run_on_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

BOTH = "host1", "host2"
LEASE_S = 10.0


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(
    scope="module",
    params=[("mariadb", "postgres"), ("mariadb", "mysql"), ("mysql", "mariadb")],
    ids="-to-".join,
)
def system(
    request: pytest.FixtureRequest, kafka: Kafka, package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunOnHosts]:
    source, target = (request.getfixturevalue(name) for name in request.param)
    database = f"hosts{request.param[1]}"  # the topics of each pair stay in Kafka
    folder = tmp_path_factory.mktemp("hosts")
    host = build_host(folder / "executor-token", files=build_clock(folder))
    with run_on_hosts(
        folder, package, source, kafka, target, database, tables=19, hosts=[host, host],
        configure=permit_programs, python=str(folder / PROGRAM),
    ) as made:  # fmt: skip
        yield made


def permit_programs(system: RunOnHosts) -> None:
    """Let all hosts run their Python."""
    for host in system.cluster.hosts:
        permit_program(host, system.token.parent)


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


@pytest.mark.parametrize("cut_s", [12, 60])
def test_topics_of_a_host_that_is_cut_off_resume_elsewhere(system: RunOnHosts, cut_s: int) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[1]

    def cut() -> None:
        host.cut()
        time.sleep(cut_s)
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
    began = datetime.now(UTC)

    def cut() -> None:
        host.cut(*ports)
        time.sleep(40 if what == "target" else 25)
        host.connect()

    waited = system.measure(cut, seed=4)
    # over TLS, as MySQL's sessions are, the end of a connection has no reason, and a new one is tried first
    assert waited < LEASE_S + (10 if what != "target" or not isinstance(system.office, MySQL) else 25)
    report = "slot lost" if what == "driver" else "slot cannot reach a server"
    assert system.list_lines(report, host, began)


def test_paused_executors_continue(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[0]

    def pause() -> None:
        host.send_signal(signal.SIGSTOP)
        time.sleep(10)
        host.send_signal(signal.SIGCONT)

    waited = system.measure(pause, seed=5)
    assert waited < LEASE_S


def test_paused_executors_do_not_write_what_others_have_continued(system: RunOnHosts) -> None:
    """The pause begins in the middle of a transaction on each table, and ends when other slots have written
    later changes of all tables."""
    system.until_open(*BOTH)
    host = system.cluster.hosts[0]
    began = datetime.now(UTC)

    def pause() -> None:
        with system.lock_counts():
            time.sleep(4 * INTERVAL_S)  # each table has a change that waits
            host.send_signal(signal.SIGSTOP)
            system.run.until(lambda: system.list_lines("slot lost", host, began), "the slot is lost")
        system.until_counts_continue()
        host.send_signal(signal.SIGCONT)

    waited = system.measure(pause, seed=11)
    assert waited < LEASE_S + 10


def test_a_worker_stops_and_starts(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    host = system.cluster.hosts[1]

    def restart() -> None:
        host.stop()
        host.start()

    waited = system.measure(restart, seed=6)
    assert waited < LEASE_S


@pytest.mark.parametrize("offset_s", [3600, -3600])
def test_no_table_waits_while_the_clock_of_a_host_is_an_hour_off(system: RunOnHosts, offset_s: int) -> None:
    """The host whose clock is moved, and moved back, also gets the topics of the other one."""
    system.until_open(*BOTH)
    moved, other = system.cluster.hosts
    began = datetime.now(UTC)

    def move() -> None:
        move_clock(moved, system.token.parent, offset_s)
        time.sleep(3)
        assert other.kill_executor() == 1
        time.sleep(3)
        move_clock(moved, system.token.parent, 0)

    waited = system.measure(move, seed=10)
    assert waited < 5
    assert not system.list_lines("slot lost", moved, began)


@pytest.mark.parametrize("words", ["consumer.main", "org.apache.spark.deploy.SparkSubmit"])
def test_the_driver_is_killed(system: RunOnHosts, words: str) -> None:
    """Its Python process, or its Java process. The wait has no limit: it is the start of a process, and the
    machine may be busy."""
    system.until_open(*BOTH)
    system.measure(lambda: system.run.kill_processes(words), seed=7)


def test_an_added_host_replaces_one_that_stops(system: RunOnHosts) -> None:
    system.until_open(*BOTH)
    added = system.cluster.add_host(system.build_options(files=build_clock(system.token.parent)))
    permit_program(added, system.token.parent)
    stopped = system.cluster.hosts[0]
    waited = system.measure(stopped.stop, seed=9)
    assert waited < LEASE_S
    system.until_open("host2", added.name)
    # the tests run in any order, and each expects the first two hosts
    system.cluster.hosts.remove(added)
    added.close()
    stopped.start()
    system.until_open(*BOTH)
