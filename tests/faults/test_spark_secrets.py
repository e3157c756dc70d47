"""No password is in what Spark stores, shows or sends: event log, pages, work folders, processes, traffic."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded.ports import pick_port
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.secret_search import find_secrets
from tests.faults.spark_executors import TOKEN, RunOnHosts, build_host, make_package, run_on_hosts
from tests.servers.certificates import Authority, Issued
from tests.servers.secure_kafka import SecureKafka
from tests.servers.traffic import TrafficCapture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

USER = "slots"
PLACES = "event log", "page", "work folder", "environ", "cmdline"
"""Where a search finds a marker that is put everywhere, if Spark's connections are encrypted."""
WAIT_S = 5.0
"""The longest time that a table may wait while a host lacks a password."""


class Broker(SecureKafka):
    """A broker on which USER may do everything."""

    def _mine(self) -> dict[str, str]:
        return super()._mine() | {"super.users": f"User:ANONYMOUS;User:{USER}"}


def make_secret(name: str) -> str:
    return f'{name} "pass\\word" {secrets.token_hex(12)}'


@dataclass
class Site:
    """The secrets of a run, and where they could be found."""

    folder: Path
    ui: int = field(default_factory=pick_port)
    secrets: dict[str, str] = field(
        default_factory=lambda: {name: make_secret(name) for name in ("target", "kafka", "coordination")}
    )
    marker: str = field(default_factory=lambda: make_secret("marker"))
    capture: TrafficCapture | None = None

    @property
    def events(self) -> Path:
        return self.folder / "events"

    def prepare_target(self, office: PostgreSQL, *, agent: str = "scram-sha-256") -> None:
        """Make a user with a password, which the server asks hosts for. `agent`: how the agent logs in."""
        password = self.secrets["target"].replace("'", "''")
        office.execute(f"DROP ROLE IF EXISTS {USER}")
        office.execute(f"CREATE ROLE {USER} LOGIN SUPERUSER PASSWORD '{password}'")
        rules = office.home.data / "pg_hba.conf"
        ways = {"10.77.0.0/16": "scram-sha-256", "127.0.0.1/32": agent}
        asks = "".join(f"host all {USER} {net} {way}\n" for net, way in ways.items())
        rules.write_text(asks + rules.read_text())  # the first line that fits counts
        office.execute("SELECT pg_reload_conf()")

    def configure(self, made: RunOnHosts) -> None:
        """Let everything of Spark that can store or show something do so."""
        self.events.mkdir()
        made.parts["targets"]["hq"] |= {"user": USER, "password": self.secrets["target"]}
        made.parts["coordination"] = {
            "token": self.secrets["coordination"],
            "coordinators": [f"127.0.0.1:{(port := pick_port())}"],
            "listen": f"127.0.0.1:{port}",
            "rest": f"127.0.0.1:{pick_port()}",
        }
        made.parts["spark"]["options"] |= {
            "spark.eventLog.enabled": True,
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.compress": False,
            "spark.ui.enabled": True,
            "spark.ui.port": str(self.ui),
            "spark.executorEnv.ROWLOCK_MARKER": self.marker,
        }
        assert made.cluster.network is not None
        self.capture = TrafficCapture(made.cluster.network, self.folder / "traffic.pcap")

    def close(self) -> None:
        """End the capture, also after a failure."""
        if self.capture is not None:
            self.capture.stop()

    def find(self, system: RunOnHosts) -> set[tuple[str, str]]:
        """Apply a load, and search. The marker is put where no setting of Spark gets."""
        assert self.capture is not None
        system.until_open("host1", "host2")
        host, word = system.cluster.hosts[0], shlex.quote(self.marker)
        host.call("sh", "-c", f"echo {word} > {shlex.quote(str(host.folder / 'work/marker'))}")
        host.call("sh", "-c", f"(sh -c 'sleep 300; :' {word} > /dev/null 2>&1 &)")
        system.under_load(lambda: None, seed=1)
        self.capture.stop()
        secrets = {**self.secrets, "token": TOKEN.decode().strip(), "marker": self.marker}
        return find_secrets(system, secrets, self.events, self.ui, self.capture)


def list_clients(office: PostgreSQL) -> set[str]:
    """Return the addresses from which USER is connected."""
    query = f"SELECT DISTINCT host(client_addr) FROM pg_stat_activity WHERE usename = '{USER}'"
    return {str(address) for (address,) in office.execute(query)}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Issued:
    return Authority(tmp_path_factory.mktemp("certificates")).issue("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def broker(certificate: Issued) -> Iterator[Broker]:
    with Broker(certificate) as made:
        yield made


@pytest.mark.parametrize("encrypted", [False, True])
def test_no_password_leaves_the_channel(
    mariadb: MariaDB, postgres: PostgreSQL, broker: Broker, certificate: Issued, package: Path,
    tmp_path: Path, encrypted: bool,
) -> None:  # fmt: skip
    if postgres.home is None:
        pytest.skip("the server is not ours")
    site = Site(tmp_path)
    site.prepare_target(postgres)
    broker.add_user(USER, site.secrets["kafka"])
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificate.ca.read_bytes())
    hosts = [build_host(tmp_path / "executor-token", files={ca: ca.read_bytes()}) for _ in range(2)]

    def configure(made: RunOnHosts) -> None:
        site.configure(made)
        made.cluster.expose(broker.secure_port)
        made.parts["kafka"] |= {
            "bootstrap": broker.secure,
            "options": {
                "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER,
                "sasl.password": site.secrets["kafka"], "ssl.ca.location": str(ca),
            },
        }  # fmt: skip

    with closing(site), run_on_hosts(
        tmp_path, package, mariadb, broker, postgres, "secrets", tables=1, hosts=hosts,
        encrypted=encrypted, configure=configure,
    ) as system:  # fmt: skip
        found = site.find(system)
    places = PLACES if encrypted else (*PLACES, "traffic")
    assert found == {(place, "marker") for place in places}


def test_executors_read_a_password_that_is_sent_nowhere(
    mariadb: MariaDB, postgres: PostgreSQL, kafka: Kafka, package: Path, tmp_path: Path
) -> None:
    """The agent's file has another text, so only the hosts' own files can have served. A host that lacks the
    file is named, and costs its own slot alone, which stays open."""
    if postgres.home is None:
        pytest.skip("the server is not ours")
    site = Site(tmp_path)
    site.prepare_target(postgres, agent="trust")
    site.secrets["agent"] = make_secret("agent")
    password = tmp_path / "target-password"
    password.write_text(site.secrets["agent"])
    token = tmp_path / "executor-token"
    hosts = [build_host(token, files={password: site.secrets["target"].encode()}) for _ in range(2)]

    def configure(made: RunOnHosts) -> None:
        site.configure(made)
        target: dict[str, Any] = made.parts["targets"]["hq"]
        del target["password"]
        target["password_file"] = str(password)

    with closing(site), run_on_hosts(
        tmp_path, package, mariadb, kafka, postgres, "secrets", tables=1, hosts=hosts, configure=configure,
        secrets="executor",
    ) as system:  # fmt: skip
        found = site.find(system)
        assert found == {(place, "marker") for place in PLACES}
        assert not list_clients(postgres).isdisjoint(host.address for host in system.cluster.hosts)
        bare = system.cluster.add_host(build_host(token))
        system.cluster.hosts[0].close()

        def list_refusals() -> list[str]:
            lines = system.read_log()
            return [line["error"] for line in lines if line["event"] == "slot cannot serve a pipeline"]

        def await_refusals(count: int) -> None:
            system.run.until(lambda: len(list_refusals()) >= count, f"{count} refusals", 120)

        await_refusals(1)
        assert f"the executor on {bare.name} lacks a secret: " in list_refusals()[0]
        assert f"cannot read {password}: No such file or directory" in list_refusals()[0]
        waited = system.measure(lambda: await_refusals(2), seed=2)
        assert waited < WAIT_S
        assert system.list_open_hosts() == ["host2", bare.name]
