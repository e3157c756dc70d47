"""`rowlock agent`: runs the units that the leading coordinator assigns to it, until it is stopped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import structlog

from coordinator.agent.shell import OUTDATED, SUPERSEDED, AgentShell
from rowlock import __version__
from rowlock.agent.workers import LocalWorkers
from rowlock.credentials import load_agent_token, load_security
from rowlock.errors import CommandError
from rowlock.processes.run import build_agent_name
from rowlock.secret_files import follow_secret_files
from schemas.config.changes.handed import reload_config_file
from schemas.config.changes.parts import compute_config_digest
from schemas.config.changes.plan import ConfigPlan, plan_config_change
from schemas.config.model import Config, ConfigErrors
from schemas.io.signals import stopped_by_signals
from schemas.problems import decode_problem

_LOG = structlog.get_logger()


LEADER_START_S = 15.0
"""A leader that has just started names the configuration of an earlier one until it has activated that of its
own file. It takes less time than this."""


class AgentConfiguration:
    """The configuration of an agent; implements coordinator.agent.shell.ConfigFile.

    `use(config)` makes the workers run the units that are prepared from now on under it.
    """

    def __init__(self, config: Config, use: Callable[[Config], None]) -> None:
        self._held, self._use = config, use
        self._mutex = threading.Lock()
        self.digest = compute_config_digest(config)
        self._differs_from = ""
        """The active configuration that the file did not hold at the last attempt."""
        self._differs_since = 0.0

    @property
    def config(self) -> Config:
        """The present configuration."""
        return self._held

    def read_file(self) -> tuple[str, tuple[str, ...]]:
        """Return the digest of the file's configuration, and why it could not be used, one line each.
        Nothing changes.
        """
        try:
            found, planned = self._load_file()
        except ConfigErrors as errors:
            return "", tuple(errors.lines)
        return compute_config_digest(found), planned.refused

    def adopt_config(self, digest: str) -> bool:
        """Read the file and, if it holds the configuration with this digest, use it. Return False if that
        configuration is not in use afterwards.

        If the present configuration has the same digest, only secrets can differ. It is then kept when
        the file has become invalid, or is just being edited.
        """
        try:
            found, planned = self._load_file()
        except ConfigErrors as errors:
            return self._keep_current(digest, errors.lines)
        if compute_config_digest(found) != digest or planned.refused:
            return self._keep_current(
                digest, planned.refused or (f"{found.path} holds {compute_config_digest(found)}",)
            )
        with self._mutex:
            self._held, self.digest = found, digest
            self._use(found)
        _LOG.info("configuration adopted", digest=digest, changes=[str(each) for each in planned.changes])
        return True

    def replace_secrets(self, used: Config, found: Config) -> bool:
        """Use `found`, which differs from `used` in secrets alone. False: `used` is not in use any more."""
        with self._mutex:
            if self._held is not used:
                return False
            self._held = found
            self._use(found)
            return True

    def _keep_current(self, digest: str, why: Sequence[str]) -> bool:
        """Keep the present configuration. False: it is not the active one."""
        if self.digest == digest:
            _LOG.warning("configuration file refused", reason=list(why))
            return True
        now = time.monotonic()
        if self._differs_from != digest:
            self._differs_from, self._differs_since = digest, now
        is_lasting = now - self._differs_since >= LEADER_START_S
        log = _LOG.error if is_lasting else _LOG.info
        log("configuration file differs from the active one", active=digest, reason=list(why))
        return False

    def _load_file(self) -> tuple[Config, ConfigPlan]:
        """Return the file's configuration and what it changes. Raises ConfigErrors."""
        found = reload_config_file(self._held)
        return found, plan_config_change(self._held, found)


AGENT_REFUSED_CODE = 2


@contextlib.contextmanager
def _serve_metrics(
    config: Config, workers: LocalWorkers, agent: AgentShell, file: AgentConfiguration
) -> Iterator[None]:
    """Serve `GET /metrics` if the configuration has an address for it. Raises CommandError."""
    if config.coordination.agent_metrics is None:
        yield
        return
    from rowlock.agent.metrics import AgentNumbers, MetricsServer  # FastAPI is needed by nothing else here
    from rowlock.agent.retention import RetentionReader

    retention = RetentionReader(lambda: file.config, agent.list_units, workers.figures)
    numbers = AgentNumbers(
        workers.figures, agent.list_units, config.coordination.metrics_per_topic, lambda: retention.kept
    )
    server = MetricsServer(config, config.coordination.agent_metrics, numbers)
    server.start()
    retention.start()
    try:
        yield
    finally:
        retention.close()
        server.close()


def run_agent(config: Config, name: str, peers: Sequence[str], *, end_on_refusal: bool = False) -> int:
    """Work until SIGTERM or SIGINT and until all workers have ended, and return the exit code. `peers`:
    the coordinators.

    `end_on_refusal`: also end when a unit refuses to run because a person must act (exit code 2);
    otherwise it is retried, with a growing delay. Raises CommandError if another process has this name, or
    the coordinators' terms began anew.
    """
    security = load_security(config.coordination.tls)
    refused: list[str] = []
    with stopped_by_signals() as stop:

        def on_refusal(unit: str, error: str) -> None:
            _LOG.error("unit needs an operator", unit=unit, error=str(decode_problem(error)))
            if end_on_refusal:
                refused.append(unit)
                stop.set()

        workers = LocalWorkers(config, on_refusal=on_refusal)
        token = load_agent_token(config.coordination)
        file = AgentConfiguration(config, workers.use_config)
        agent = AgentShell.connect(
            name, peers, workers,
            security=security, system=config.kafka.prefix, token=token, file=file, version=__version__,
            on_oldest_agents=workers.use_oldest_agents,
            get_slots=workers.figures.get_slots,
        )  # fmt: skip
        with (
            _serve_metrics(config, workers, agent, file),
            follow_secret_files(lambda: file.config, file.replace_secrets),
        ):
            code = agent.run(stop)
    if code == SUPERSEDED:
        raise _build_superseded_error(name)
    if code == OUTDATED:
        raise CommandError(
            f"agent {name} knows a later term than the coordinator that leads: Kafka's control topic has "
            "begun anew since this agent has started",
            "start the agent again",
        )
    return AGENT_REFUSED_CODE if refused else code


def _build_superseded_error(name: str) -> CommandError:
    """Return the error of an agent whose name another process has taken. `rowlock run` has no --name."""
    if name == build_agent_name():
        return CommandError(
            f"another run of this system has started on this machine and is agent {name} now",
            "let only one of them run",
        )
    return CommandError(f"another process is agent {name} now", "give each agent a --name of its own")
