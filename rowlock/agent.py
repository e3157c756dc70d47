"""`rowlock agent`: runs the units that the leading coordinator gives it, until it is told to stop."""

from __future__ import annotations

from coordinator.agent.shell import SUPERSEDED, Agent
from rowlock.errors import CommandError
from rowlock.leader import security_of
from rowlock.stopping import stopped_by_signals
from rowlock.workers import LocalWorkers
from schemas.config import Config


def run(config: Config, name: str) -> int:
    """Work until SIGTERM or SIGINT; all workers have ended then. Returns the exit code.

    Raises CommandError when another process has this name.
    """
    wanted = config.coordination
    security = security_of(wanted.tls)
    with stopped_by_signals() as stop:
        agent = Agent.connect(name, wanted.coordinators, LocalWorkers(config), security=security)
        code = agent.run(stop)
    if code == SUPERSEDED:
        raise CommandError(f"another process is agent {name} now; give each agent a --name of its own")
    return code
