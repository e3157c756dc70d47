"""Nothing arrives and nothing is closed, on each way of the data: to the source, to the broker, to the
target, under load.

A process that holds a connection on which nothing arrives has to give it up, or to go on with what was held
back: the rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from deploy.embedded.ports import pick_port
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from tests.faults.whole_system import RunUnderFaults, run_under_faults
from tests.kits.running import rows
from tests.servers.proxy import TcpProxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Not ("source", "up"): a server that sends its log waits for nothing that its reader says.
CUTS = [
    *(("source", direction) for direction in ("both", "down")),
    *((way, direction) for way in ("broker", "target") for direction in ("both", "up", "down")),
]
#: Of changes that the source has and the target has not: the cut was felt.
HELD_BACK = 200


class Way(NamedTuple):
    """How rowlock reaches a server. A tests.kits.running.DatabaseServer but for the connection, which the
    tests open past the network."""

    host: str
    port: int
    user: str
    connect: object


@dataclass
class Networks:
    """One proxy on each way."""

    system: RunUnderFaults
    source: TcpProxy
    broker: TcpProxy
    target: TcpProxy


def _broker_behind(way: TcpProxy, port: int) -> Kafka:
    """A broker that refers the clients of `port` to `way`: clients connect to the address that a broker
    advertises."""
    broker = Kafka()
    own = f"BROKER://{broker.host}:{broker.port}"
    broker.extra = [
        f"listeners={own},FAR://{broker.host}:{port},CONTROLLER://{broker.host}:{broker.controller_port}",
        f"advertised.listeners={own},FAR://{way.address}",
        "listener.security.protocol.map=BROKER:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ]
    return broker


@pytest.fixture(scope="module")
def networks(
    mariadb: MariaDB, postgres: PostgreSQL, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Networks]:
    far = pick_port()
    with (
        TcpProxy(mariadb.port, host=mariadb.host) as source,
        TcpProxy(far) as broker,
        TcpProxy(postgres.port, host=postgres.host) as target,
        _broker_behind(broker, far) as kafka,
    ):
        ways = (
            Way("127.0.0.1", source.port, mariadb.user, mariadb.connect),
            broker.address,
            Way("127.0.0.1", target.port, postgres.user, postgres.connect),
        )
        with run_under_faults(
            tmp_path_factory.mktemp("cut"), mariadb, kafka, postgres, "cut", ways
        ) as system:
            yield Networks(system, source, broker, target)


def _behind(system: RunUnderFaults) -> bool:
    """The target lacks much of what the source has."""
    versions = [
        max((row[1] for row in rows(server, system.db)), default=0)
        for server in (system.source, system.office)
    ]
    return versions[0] - versions[1] > HELD_BACK


@pytest.mark.parametrize("end", ["heals", "is reset"])
@pytest.mark.parametrize(("way", "direction"), CUTS)
def test_source_equals_target_after_a_cut(way: str, direction: str, end: str, networks: Networks) -> None:
    """The cut lasts until the target lags, then what was held back arrives, or the connections are closed."""
    network: TcpProxy = getattr(networks, way)

    def cut() -> None:
        network.cut(up=direction != "down", down=direction != "up")
        try:
            networks.system.run.until(lambda: _behind(networks.system), "the cut is felt", 300)
        finally:
            if end == "is reset":
                network.close_connections()
            network.heal()

    networks.system.under_load(cut, seed=len(way + direction + end))
