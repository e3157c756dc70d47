"""The cluster of tests.servers.spark_hosts, with a plain PySpark driver: what tests of executors on other
machines rely upon."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil
import pytest

from deploy.embedded.services import Kafka, MariaDB, MySQL, PostgreSQL
from tests.kits.waiting import until
from tests.servers.network_spaces import Network, Space, call, find_obstacle
from tests.servers.spark_host import HostOptions
from tests.servers.spark_hosts import PYTHON, SparkHosts, admit_hosts, spark_hosts
from tests.servers.traffic import TrafficCapture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
needs_namespaces = pytest.mark.skipif(find_obstacle() is not None, reason=str(find_obstacle()))

#: For each line of its input, a number, it runs that many tasks and prints where they ran.
DRIVER = """
import json, os, socket, sys, time
from pyspark import SparkConf, SparkContext
context = SparkContext(conf=SparkConf().setAll(json.loads(sys.argv[1]).items()))
context.setLogLevel("WARN")
def place(_):
    time.sleep(0.3)
    words = os.environ.get("PYTHONPATH", ""), "traffic-marker" + os.getcwd()
    return socket.gethostname(), os.getuid(), os.getpid(), *words
for line in sys.stdin:
    places = context.parallelize(range(int(line)), int(line)).map(place).collect()
    print("places " + json.dumps(places), flush=True)
"""
CONNECT = "import socket; socket.create_connection(('{}', {}), 2).recv(9) == b'hello' and print(1)"
CLIENTS = """
import sys, psycopg, pymysql
from confluent_kafka.admin import AdminClient
bootstrap, mariadb, mysql, postgres = sys.argv[1:]
print(len(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers))
for port in (mariadb, mysql):
    cursor = pymysql.connect(host="127.0.0.1", port=int(port), user="root").cursor()
    print(cursor.execute("SELECT 1"))
print(psycopg.connect(f"host=127.0.0.1 port={postgres} user=postgres").execute("SELECT 1").fetchone()[0])
"""
KILLED = """
import sys, time
from pathlib import Path
from tests.servers.network_spaces import Network, Space
network = Network(Path(sys.argv[1]))
network.attach(Space("machine", Path(sys.argv[1])))
print(network.interface, flush=True)
time.sleep(600)
"""


class Driver:
    """A process with a SparkContext; `log`: the file for Spark's log."""

    def __init__(self, cluster: SparkHosts, log: Path, **settings: str) -> None:
        chosen = {
            "spark.master": cluster.master.url,
            "spark.driver.host": cluster.address,
            "spark.driver.bindAddress": cluster.address,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            # A lost host is noticed after seconds.
            "spark.network.timeout": "6s",
            "spark.network.timeoutInterval": "1s",
            "spark.executor.heartbeatInterval": "1s",
            **settings,
        }
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", DRIVER, json.dumps(chosen)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**kept, **cluster.driver_environment},
                text=True,
            )

    def places(self, tasks: int = 4) -> list[list[object]]:
        """Run tasks; return host name, user, pid, PYTHONPATH and working folder of each."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{tasks}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("places "):
                found: list[list[object]] = json.loads(line[7:])
                return found
        raise AssertionError("the driver ended")

    def names(self) -> set[object]:
        return {place[0] for place in self.places()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        family = (
            psutil.Process(self.process.pid).children(recursive=True) if self.process.poll() is None else []
        )
        self.process.kill()
        self.process.communicate()
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


@contextlib.contextmanager
def greeter(address: str) -> Iterator[int]:
    """A service that sends one word; yields its port."""
    with socket.create_server((address, 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        client.sendall(b"hello")

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@needs_namespaces
def test_hosts_run_tasks_through_kill_cut_and_growth(tmp_path: Path) -> None:
    token = tmp_path / "token"
    options = HostOptions(files={token: b"proof"}, environment={"SITE": "north"})
    with (
        spark_hosts(tmp_path, options, options, settings={"spark.worker.timeout": "5"}) as cluster,
        TrafficCapture(cluster.network, tmp_path / "clear.pcap") as capture,
        Driver(cluster, tmp_path / "driver.log") as driver,
    ):
        first, second = cluster.hosts
        until(lambda: driver.names() == {"host1", "host2"}, "tasks on both hosts")
        places = driver.places()
        assert {(place[0], place[1]) for place in places} == {
            (host.name, host.user) for host in cluster.hosts
        }
        assert not any(str(Path(__file__).parents[2]) in str(place[3]) for place in places)
        assert first.call("cat", token) == "proof"
        assert (
            first.call("ls", Path(__file__).parents[2]).strip() == ""
            if not str(Path(__file__)).startswith("/tmp")
            else True
        )
        with pytest.raises(RuntimeError):
            first.call("ls", second.folder)
        environment = first.executors()[0].environ()
        assert environment["SITE"] == "north"

        assert first.kill_executor() == 1
        until(lambda: driver.names() == {"host1", "host2"}, "the executor is replaced")

        third = cluster.add_host(options)
        until(third.executors, "the new host gets an executor")
        until(lambda: driver.names() == {"host1", "host2", "host3"}, "tasks on the new host")

        second.cut()
        began = time.monotonic()
        assert driver.names() <= {"host1", "host3", "host2"}
        until(lambda: driver.names() == {"host1", "host3"}, "the driver does without the host")
        print("without the host after", time.monotonic() - began)
        second.connect()
        began = time.monotonic()
        until(lambda: driver.names() == {"host1", "host2", "host3"}, "the host is used again")
        print("with it after", time.monotonic() - began)
        capture.stop()
        assert capture.find(b"traffic-marker")
    assert "rowlock" not in call("ip", "-o", "link")


@needs_namespaces
def test_cuts_can_be_limited_to_ports(tmp_path: Path) -> None:
    with (
        Network(tmp_path / "network.log") as network,
        contextlib.closing(Space("machine", tmp_path / "machine.log")) as machine,
        greeter("127.0.0.1") as far,
        greeter(network.address) as near,
    ):
        _, link = network.attach(machine)

        def reached() -> tuple[bool, bool]:
            found = []
            for place in (("127.0.0.1", far), (network.address, near)):
                with contextlib.suppress(RuntimeError):
                    found.append(machine.call(PYTHON, "-c", CONNECT.format(*place), user=12345) and place)
            return ("127.0.0.1", far) in found, (network.address, near) in found

        assert reached() == (False, True)
        network.expose(far)
        assert reached() == (True, True)
        link.cut()
        assert reached() == (False, False)
        link.cut([far, 1])
        assert reached() == (False, True)
        link.cut(but=[far, 1])
        assert reached() == (True, False)
        link.cut([near], up=False)
        assert reached() == (True, False)
        link.heal()
        assert reached() == (True, True)


@needs_namespaces
def test_services_answer_hosts_at_their_own_address(
    kafka: Kafka, mariadb: MariaDB, mysql: MySQL, postgres: PostgreSQL, tmp_path: Path
) -> None:
    databases = (mariadb, mysql, postgres)
    with (
        Network(tmp_path / "network.log") as network,
        contextlib.closing(Space("machine", tmp_path / "machine.log")) as machine,
    ):
        network.attach(machine)
        network.expose(kafka.port, *(server.port for server in databases))
        for server in databases:
            admit_hosts(server)
            admit_hosts(server)  # also twice, in tests that share a server
        words = (f"{kafka.bootstrap}", *map(str, (mariadb.port, mysql.port, postgres.port)))
        assert machine.call(sys.executable, "-c", CLIENTS, *words).split() == ["1", "1", "1", "1"]


@needs_namespaces
def test_encrypted_traffic_is_unreadable(tmp_path: Path) -> None:
    with (
        spark_hosts(tmp_path, HostOptions(cpu=0.5), encrypted=True) as cluster,
        TrafficCapture(cluster.network, tmp_path / "encrypted.pcap") as capture,
        Driver(cluster, tmp_path / "driver.log") as driver,
    ):
        assert driver.names() == {"host1"}
        (host,) = cluster.hosts
        assert host.cpu is not None
        assert host.cpu.used_s > 0
        capture.stop()
        assert sum(map(len, capture.streams().values())) > 10_000
        assert not capture.find(b"traffic-marker", cluster.secret.encode())
        for process in host.processes():
            assert cluster.secret not in " ".join(process.cmdline())


def test_loopback_replaces_hosts_without_root(tmp_path: Path) -> None:
    with (
        spark_hosts(tmp_path, HostOptions(cores=1), HostOptions(cores=1), loopback=True) as cluster,
        Driver(cluster, tmp_path / "driver.log") as driver,
    ):
        until(lambda: len({place[2] for place in driver.places()}) == 2, "tasks in two executors")
        assert [len(host.executors()) for host in cluster.hosts] == [1, 1]
        first = cluster.hosts[0]
        first.stop()
        assert first.processes() == []
        first.start()
        assert first.state["masterurl"] == cluster.master.url
        with pytest.raises(pytest.skip.Exception):
            first.cut()


@needs_namespaces
def test_nothing_remains_of_a_killed_test(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, tmp_path / "log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        interface = process.stdout.readline().strip()
        assert interface in call("ip", "-o", "link")
        process.kill()
    until(lambda: interface not in call("ip", "-o", "link"), "the interface is removed", 20)
