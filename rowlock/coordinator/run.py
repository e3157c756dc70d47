"""`rowlock coordinator`: a candidate that follows or leads. Joins election, leader, transport and REST
in one process.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import structlog

from coordinator.control.topic import ControlTopicError
from coordinator.core.health import HealthConfig
from coordinator.core.leader.state import LeaderConfig
from coordinator.core.schedulers import MoveLimits
from coordinator.server.config import ServerConfig
from coordinator.server.coordinator import Coordinator
from coordinator.server.listening import open_listening_socket
from coordinator.server.operators.configuration import ConfigurationRefusedError, FoundConfiguration
from coordinator.server.operators.copies import CopyRequests
from rowlock import __version__
from rowlock.coordinator.fences import UnitFencer
from rowlock.coordinator.inventory import InventoryReader
from rowlock.credentials import load_agent_token, load_security
from rowlock.errors import CommandError
from rowlock.secret_files import follow_secret_files
from schemas.config.addresses import join_address, split_address
from schemas.config.changes.handed import reload_config_file
from schemas.config.changes.parts import compute_config_digest, compute_part_digests
from schemas.config.changes.plan import ConfigPlan, find_judged_pipelines, plan_config_change
from schemas.config.model import Config, ConfigErrors, CoordinationConfig, KafkaConfig
from schemas.findings import Finding
from schemas.io.kafka_passwords import use_kafka_passwords
from schemas.io.signals import stopped_by_signals

if TYPE_CHECKING:
    from coordinator.rest import RestServer


_LOG = structlog.get_logger()


FollowConfig = Callable[[Config, Collection[str]], None]
"""Takes each new configuration, and the parts that differ from before. Never waits."""


CheckPipelines = Callable[[Config, Collection[str]], Sequence[Finding]]
"""(configuration, pipelines) → the errors for which a start would leave out tables of the pipelines."""


def _list_no_errors(_config: Config, _pipelines: Collection[str]) -> Sequence[Finding]:
    return ()


class ActiveConfiguration:
    """The configuration of a coordinator; implements
    coordinator.server.operators.configuration.Configuration.

    It can be used from any thread, because the present configuration is replaced as a whole.
    """

    def __init__(
        self,
        config: Config,
        followers: Sequence[FollowConfig],
        on_taken: Callable[[Config], None] | None = None,
        check_pipelines: CheckPipelines = _list_no_errors,
    ) -> None:
        """`on_taken(config)` is called after a new configuration is adopted. `check_pipelines` judges a file
        before a reload.
        """
        self._held, self._followers, self._on_taken = config, followers, on_taken
        self._check_pipelines = check_pipelines
        self._found: tuple[str, Config, ConfigPlan] | None = None
        self._mutex = threading.Lock()

    @property
    def config(self) -> Config:
        """The present configuration."""
        return self._held

    def read_checked_file(self) -> FoundConfiguration:
        """Like `read_file`, for a reload: the file is refused, too, if a start would leave out tables or
        pipelines that it changes.
        """
        found = self.read_file()
        read = None if self._found is None else self._found[1]
        if read is not None and (judged := find_judged_pipelines(read, found.changed)):
            errors = self._check_pipelines(read, judged)
            if errors:
                self._found = None
                raise ConfigurationRefusedError(tuple(str(each) for each in errors))
        return found

    def read_file(self) -> FoundConfiguration:
        """Read the file and keep its content for `adopt_config`. Raises ConfigurationRefusedError."""
        try:
            found = reload_config_file(self._held)
        except ConfigErrors as errors:
            raise ConfigurationRefusedError(tuple(errors.lines)) from errors
        planned = plan_config_change(self._held, found)
        if planned.refused:
            raise ConfigurationRefusedError(planned.refused)
        self._found = (compute_config_digest(found), found, planned)
        changes = tuple(str(each) for each in planned.changes)
        return FoundConfiguration(
            compute_config_digest(found), compute_part_digests(found), planned.parts, planned.removed, changes
        )

    def adopt_config(self, digest: str) -> None:
        """Use the configuration that was read last, if it has this digest. Never waits."""
        if self._found is None or self._found[0] != digest:
            _LOG.error("configuration file differs from the active one", active=digest)
            return
        _, found, planned = self._found
        self._found = None
        with self._mutex:
            self._use(found, planned.parts)
        _LOG.info("configuration adopted", digest=digest, changes=[str(each) for each in planned.changes])

    def replace_secrets(self, used: Config, found: Config) -> bool:
        """Use `found`, which differs from `used` in secrets alone. False: `used` is not in use any more."""
        with self._mutex:
            if self._held is not used:
                return False
            self._use(found, plan_config_change(used, found).parts)
            return True

    def _use(self, config: Config, parts: Collection[str]) -> None:
        self._held = config
        use_kafka_passwords(config)
        for follow in self._followers:
            follow(config, parts)
        if self._on_taken is not None:
            self._on_taken(config)

    def catch_up(self, digest: str) -> None:
        """Use the configuration that an earlier leader activated, if the file holds it."""
        if compute_config_digest(self._held) == digest:
            return
        try:
            found = self.read_file()
        except ConfigurationRefusedError as refused:
            _LOG.error("configuration file refused", errors=refused.lines)
            return
        if found.digest == digest:
            self.adopt_config(digest)


def build_default_name() -> str:
    """Return a name that no other coordinator process has."""
    return f"{socket.gethostname()}-{os.getpid()}"


def build_server_config(config: CoordinationConfig, name: str) -> ServerConfig:
    """Return the coordinator's settings from the configuration. Raises CommandError if a file cannot be
    read.
    """
    return ServerConfig(
        name=name,
        listen=config.listen,
        rest=config.advertised_rest,
        advertise=config.advertise,
        security=load_security(config.tls),
        token=load_agent_token(config),
        streams=2 * config.agents + 100,
        leader=build_leader_config(config),
        version=__version__,
    )


def build_leader_config(config: CoordinationConfig) -> LeaderConfig:
    """Return the settings of the leader's core: times, limits, and when agents back off."""
    return LeaderConfig(
        interval=config.interval_s,
        agents=config.agents,
        lease=config.lease_s,
        prepare_timeout=config.prepare_timeout_s,
        prepare_most=config.prepare_most_s,
        balance_every=config.balance_every_s,
        retry_first=config.retry_first_s,
        retry_most=config.retry_most_s,
        limits=MoveLimits(
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


def run_coordinator(
    config: Config,
    name: str,
    copies: CopyRequests,
    *,
    followers: Sequence[FollowConfig] = (),
    or_any_port: bool = False,
    without: Sequence[str] = (),
    on_taken: Callable[[Config], None] | None = None,
    check_pipelines: CheckPipelines = _list_no_errors,
) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Raises CommandError if it cannot begin, or
    cannot go on without its control topic.

    `copies`: stores requests for copies. `followers`: follow the configuration in addition to the
    coordinator itself. `or_any_port`: REST uses a free port if the configured one is
    taken. `without`: see rowlock.coordinator.inventory. `on_taken(config)` is called when another
    configuration becomes active. `check_pipelines` judges a file before a reload.
    """
    settings = config.coordination
    with stopped_by_signals() as stop:
        listening, address = listen_for_rest(settings, or_any_port=or_any_port)
        inventory, fences = InventoryReader(config, without=without), UnitFencer(config)
        held = ActiveConfiguration(
            config, (inventory.use_config, fences.use_config, *followers), on_taken, check_pipelines
        )
        coordinator = Coordinator(build_server_config(settings, name), config.kafka, inventory, fences, held)
        try:
            coordinator.start(rest=settings.get_reachable_address(address))
        except OSError as error:
            listening.close()
            raise CommandError(f"coordinator cannot listen on {settings.listen}: {error}", _FREE) from error
        except ControlTopicError as error:
            listening.close()
            raise CommandError.from_problem(error.problem) from error
        return _serve_until_stopped(held, name, coordinator, listening, stop, copies=copies)


def _serve_until_stopped(
    held: ActiveConfiguration,
    name: str,
    coordinator: Coordinator,
    listening: socket.socket,
    stop: threading.Event,
    *,
    copies: CopyRequests,
) -> int:
    config = held.config
    try:
        rest = serve_rest(config.coordination, coordinator, copies, config.kafka, listening)
    except BaseException:
        listening.close()
        coordinator.close()
        raise
    _LOG.info("REST server started", name=name, address=rest.address)
    try:
        with follow_secret_files(lambda: held.config, held.replace_secrets):
            return coordinator.run(stop)
    except ControlTopicError as error:
        raise CommandError.from_problem(error.problem) from error
    finally:
        rest.close()


_FREE = "choose a free address of this machine with --listen, --rest or in the configuration"


def listen_for_rest(config: CoordinationConfig, *, or_any_port: bool) -> tuple[socket.socket, str]:
    """Return a listening socket for REST, and its address. Raises CommandError if that is not possible.

    `or_any_port`: see `run_coordinator`.
    """
    host, _ = split_address(config.rest)
    for address in (config.rest, *([join_address(host, 0)] if or_any_port else [])):
        try:
            listening = open_listening_socket(address)
        except OSError as error:
            refused = error
        else:
            return listening, join_address(host, listening.getsockname()[1])
    raise CommandError(f"REST cannot listen on {config.rest}: {refused}", _FREE) from refused


def serve_rest(
    config: CoordinationConfig,
    coordinator: Coordinator,
    copies: CopyRequests,
    kafka: KafkaConfig,
    listening: socket.socket,
) -> RestServer:
    """Return the REST server on `listening`. Raises CommandError if a certificate cannot be used."""
    # Imported here: FastAPI is a third of this process's imports, and the election waits for Kafka
    # meanwhile.
    from coordinator.rest import RestServer, create_app
    from coordinator.rest.server import Certificate

    certificate = Certificate(config.tls.cert, config.tls.key) if config.tls else None
    app = create_app(
        coordinator, copies,
        token=config.token, prefix=kafka.prefix, bootstrap=kafka.bootstrap, version=__version__,
        per_topic=config.metrics_per_topic,
    )  # fmt: skip
    server = RestServer(app, config.rest, certificate, listening)
    try:
        server.start()
    except OSError as error:
        raise CommandError(f"REST cannot be served on {config.rest}: {error}", _FREE) from error
    return server
