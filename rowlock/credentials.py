"""Credentials with which coordinators and agents authenticate each other, from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rowlock.errors import CommandError
from schemas.config.model import CoordinationConfig, CoordinationTls

if TYPE_CHECKING:
    from coordinator.transport.security import Security


def load_agent_token(config: CoordinationConfig) -> str:
    """Return the token of agents for coordinators; "": their certificates authenticate them, or no token
    is set.
    """
    if config.tls is not None and config.tls.mutual:
        return ""
    return config.token.get_secret_value() if config.token else ""


def load_security(tls: CoordinationTls | None) -> Security | None:
    """Return the transport's security; None: none. Raises CommandError if a file cannot be read."""
    if tls is None:
        return None
    from coordinator.transport.security import Security

    for file in (tls.ca, tls.cert, tls.key):
        try:
            file.read_bytes()
        except OSError as error:
            raise build_unreadable_error(error) from error
    return Security(tls.ca, tls.cert, tls.key, tls.mutual)


def build_unreadable_error(error: OSError, file: object = None) -> CommandError:
    """Return the error for a file of coordination.tls that cannot be read."""
    return CommandError(
        f"cannot use {error.filename or file}: {error.strerror or error}",
        "correct coordination.tls in the configuration",
    )
