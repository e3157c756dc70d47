"""`rowlock coordinator`: a candidate that follows, or leads; joins election, owner, transport and REST of one process."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

import structlog

from coordinator.control.topic import ControlTopicError
from coordinator.core.health import HealthConfig
from coordinator.core.owner_state import OwnerConfig
from coordinator.core.schedulers import Limits
from coordinator.rest import RestServer, create_app
from coordinator.rest.server import Certificate
from coordinator.server.config import ServerConfig
from coordinator.server.coordinator import Coordinator
from rowlock.catalogue import CatalogueReader
from rowlock.errors import CommandError
from rowlock.fences import Fences
from rowlock.leader import agent_token, security_of
from schemas.addresses import join_address, split_address
from schemas.config import Config, CoordinationConfig
from schemas.signals import stopped_by_signals

_LOG = structlog.get_logger()


def default_name() -> str:
    """Return a name that no other coordinator process has."""
    return f"{socket.gethostname()}-{os.getpid()}"


def server_config(config: CoordinationConfig, name: str) -> ServerConfig:
    """Return what the coordinator is told of the configuration. Raises CommandError for a file that cannot be read."""
    return ServerConfig(
        name=name,
        listen=config.listen,
        rest=config.advertised_rest,
        advertise=config.advertise,
        security=security_of(config.tls),
        token=agent_token(config),
        streams=2 * config.agents + 100,
        owner=owner_config(config),
    )


def owner_config(config: CoordinationConfig) -> OwnerConfig:
    """Return how the owner's core is to be: times, limits, when agents back off."""
    return OwnerConfig(
        interval=config.interval_s,
        agents=config.agents,
        lease=config.lease_s,
        prepare_timeout=config.prepare_timeout_s,
        prepare_most=config.prepare_most_s,
        balance_every=config.balance_every_s,
        retry_first=config.retry_first_s,
        retry_most=config.retry_most_s,
        limits=Limits(
            burst=config.burst,
            agent_burst=config.burst_per_agent,
            concurrent=config.concurrent_moves,
            per_agent=config.moves_per_agent,
        ),
        health=HealthConfig(
            failures=config.agent_failures,
            retry_first=config.agent_retry_first_s,
            retry_most=config.agent_retry_most_s,
        ),
    )


def run(config: Config, name: str, *, or_any_port: bool = False, without: Sequence[str] = ()) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code; raises CommandError when it cannot begin.

    `or_any_port`: REST takes a free port where the one that it shall have is taken. `without`: see rowlock.catalogue.
    """
    wanted = config.coordination
    with stopped_by_signals() as stop:
        coordinator = Coordinator(
            server_config(wanted, name),
            config.kafka,
            CatalogueReader(config, without=without),
            Fences(config),
        )
        rest = serve_rest(wanted, coordinator, config.kafka.prefix, or_any_port=or_any_port)
        try:
            coordinator.start(rest=_reachable(wanted, rest.address))
        except OSError as error:
            rest.close()
            raise CommandError(f"coordinator cannot listen on {wanted.listen}: {error}; {_FREE}") from error
        except ControlTopicError as error:
            rest.close()
            raise CommandError(str(error)) from error
        _LOG.info("coordinator serves REST", name=name, address=rest.address)
        try:
            return coordinator.run(stop)
        finally:
            rest.close()


_FREE = "choose a free address of this machine with --listen, --rest or in the configuration"


def serve_rest(
    config: CoordinationConfig, coordinator: Coordinator, prefix: str, *, or_any_port: bool
) -> RestServer:
    """Return REST that serves. Raises CommandError when it cannot listen. `or_any_port`: see `run`."""
    certificate = Certificate(config.tls.cert, config.tls.key) if config.tls else None
    host, _ = split_address(config.rest)
    for listen in (config.rest, *([join_address(host, 0)] if or_any_port else [])):
        app = create_app(coordinator, token=config.token, prefix=prefix)
        server = RestServer(app, listen, certificate)
        try:
            server.start()
        except OSError as error:
            refused = error
        else:
            return server
    raise CommandError(f"REST cannot listen on {config.rest}: {refused}; {_FREE}") from refused


def _reachable(config: CoordinationConfig, listening: str) -> str:
    host, port = split_address(listening)
    return join_address(config.advertise or host, port)
