"""What `rowlock check` says of the section `coordination`: what would keep a coordinator or agent from starting, or is open."""

from __future__ import annotations

from collections.abc import Iterator

from rowlock.errors import CommandError
from rowlock.leader import security_of
from schemas.addresses import is_loopback, split_address
from schemas.config import Config
from schemas.findings import Finding


def coordination_findings(config: Config) -> Iterator[Finding]:
    """Yield findings; looks at files only, connects to nothing."""
    wanted = config.coordination
    try:
        security_of(wanted.tls)
    except CommandError as error:
        seen, _, remedy = str(error).partition("; ")
        yield Finding("error", config.where("coordination", "tls"), seen, remedy)
    if wanted.tls is None and not is_loopback(split_address(wanted.listen)[0]):
        yield Finding(
            "warning",
            config.where("coordination", "listen"),
            f"{wanted.listen} can be reached from elsewhere without TLS: whoever does can be an agent, and read what is said",
            "set coordination.tls, with mutual: true",
        )
    elif (
        wanted.tls is not None and not wanted.tls.mutual and not is_loopback(split_address(wanted.listen)[0])
    ):
        yield Finding(
            "warning",
            config.where("coordination", "tls"),
            f"{wanted.listen} can be reached from elsewhere, and an agent need not show a certificate",
            "set coordination.tls.mutual: true",
        )
