"""A standalone Spark cluster whose Workers are on machines of their own, with other users and folders.

The Master and the driver are on this machine, whose address is `SparkHosts.address`. Without root there are
no such machines: the Workers then are processes of this one at 127.0.0.1, and what needs a network skips its
test.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.embedded.ports import HOST
from deploy.guard.processes import make_temporary_folder
from tests.servers.network_spaces import Network, find_obstacle
from tests.servers.spark_cluster import Master
from tests.servers.spark_host import HostOptions, Site, SparkHost

PYTHON = "/usr/bin/python3"


class _Master(Master):
    def __init__(self, logs: Path, address: str, settings: Path) -> None:
        super().__init__(logs)
        self.host = address
        self._settings = settings

    def _prepare_data(self) -> None:
        super()._prepare_data()
        self.process.environment["SPARK_LOCAL_IP"] = self.host

    def _build_command(self) -> list[str | Path]:
        return [*super()._build_command(), "--properties-file", self._settings]


class SparkHosts:
    """The cluster. `settings_file`: Spark's settings of Master and Workers, which authenticated drivers need,
    too; its folder can be a driver's SPARK_CONF_DIR."""

    def __init__(self, logs: Path, settings: Mapping[str, str], *, encrypted: bool, loopback: bool) -> None:
        self.logs = logs
        self.obstacle = "the cluster is on loopback" if loopback else find_obstacle()
        self.hosts: list[SparkHost] = []
        self.network: Network | None = None
        self.secret = secrets.token_hex(24)
        self.settings = dict(settings)
        if encrypted:
            self.settings |= {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
            self.settings["spark.authenticate.secret"] = self.secret
        self._folder = make_temporary_folder("rowlock-spark-conf-")
        self.settings_file = self._folder / "spark-defaults.conf"
        self.settings_file.touch(mode=0o600)
        self.settings_file.write_text("".join(f"{key} {value}\n" for key, value in self.settings.items()))
        self._count = 0
        try:
            if self.obstacle is None:
                self.network = Network(logs / "network.log")
            self.address = HOST if self.network is None else self.network.address
            self.master = _Master(logs, self.address, self.settings_file)
            self.master.start()
        except BaseException:
            self.close()
            raise

    @property
    def driver_environment(self) -> dict[str, str]:
        """Variables for a plain PySpark driver."""
        return {
            "SPARK_CONF_DIR": str(self._folder),
            "SPARK_LOCAL_IP": self.address,
            "PYSPARK_PYTHON": PYTHON,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def add_host(self, options: HostOptions | None = None) -> SparkHost:
        """Add a host at run time. Its name is `host1`, `host2`, …"""
        self._count += 1
        site = Site(self.logs, self.settings_file, self.network, self.obstacle, self.master)
        host = SparkHost(site, f"host{self._count}", self._count, options or HostOptions())
        self.hosts.append(host)
        return host

    def expose(self, *ports: int) -> None:
        """Make services of this machine's 127.0.0.1 reachable from all hosts at the same address."""
        if self.network is not None:
            self.network.expose(*ports)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # the last is closed first, and all are
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            if self.network is not None:
                stack.callback(self.network.close)
            if (master := getattr(self, "master", None)) is not None:
                stack.callback(master.close)
            for host in self.hosts:
                stack.callback(host.close)


@contextlib.contextmanager
def spark_hosts(
    logs: Path,
    *hosts: HostOptions,
    encrypted: bool = False,
    settings: Mapping[str, str] | None = None,
    loopback: bool = False,
) -> Iterator[SparkHosts]:
    """Start a Master and a Worker for each of `hosts`. `encrypted`: authenticated and encrypted RPC."""
    cluster = SparkHosts(logs, settings or {}, encrypted=encrypted, loopback=loopback)
    try:
        for options in hosts or (HostOptions(), HostOptions()):
            cluster.add_host(options)
        yield cluster
    finally:
        cluster.close()


def admit_hosts(service: Any) -> None:
    """Let an embedded database server accept its user from hosts, without a password as from here."""
    if hasattr(service, "home") and (rules := service.home.data / "pg_hba.conf").exists():
        if "10.77.0.0/16" not in rules.read_text():
            with rules.open("a") as file:
                file.write("host all all 10.77.0.0/16 trust\n")
            service.execute("SELECT pg_reload_conf()")
        return
    account = f"'{service.user}'@'10.77.%'"
    service.execute(f"CREATE USER IF NOT EXISTS {account}")
    service.execute(f"GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION")
