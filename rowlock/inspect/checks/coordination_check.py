"""Check of the section `coordination`: all that would keep a coordinator or agent from starting."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.credentials import load_security
from rowlock.errors import CommandError
from schemas.config.model import Config
from schemas.findings import Finding, build_error_finding


def yield_coordination_findings(config: Config) -> Iterator[Finding]:
    """Yield findings. Only files are read; no connection is made."""
    settings = config.coordination
    try:
        load_security(settings.tls)
    except CommandError as error:
        yield build_error_finding(config.find_line("coordination", "tls"), error.problem)
