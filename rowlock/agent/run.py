"""`rowlock agent`: runs the units that the leading coordinator assigns to it, until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from coordinator.agent.shell import SUPERSEDED, AgentShell
from rowlock import __version__
from rowlock.agent.configuration import AgentConfiguration
from rowlock.agent.workers import LocalWorkers
from rowlock.credentials import load_agent_token, load_security
from rowlock.errors import CommandError
from schemas.config.model import Config
from schemas.io.signals import stopped_by_signals
from schemas.problems import decode_problem

_LOG = structlog.get_logger()
AGENT_REFUSED_CODE = 2


def run_agent(config: Config, name: str, peers: Sequence[str], *, end_on_refusal: bool = False) -> int:
    """Work until SIGTERM or SIGINT and until all workers have ended, and return the exit code. `peers`:
    the coordinators.

    `end_on_refusal`: also end when a unit refuses to run because a person must act (exit code 2);
    otherwise it is retried, with a growing delay. Raises CommandError if another process has this name.
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
        )  # fmt: skip
        code = agent.run(stop)
    if code == SUPERSEDED:
        raise CommandError(f"another process is agent {name} now; give each agent a --name of its own")
    return AGENT_REFUSED_CODE if refused else code
