"""Rules of the section `coordination` that concern several values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.config.addresses import is_any, is_loopback, split_address
from schemas.config.yaml_lines import YamlDocument

if TYPE_CHECKING:
    from schemas.config.coordination import CoordinationConfig

_PLACE = "coordination"


def check_coordination(config: CoordinationConfig, sources: Sequence[str], document: YamlDocument) -> None:
    """Add a problem to `document` for every broken rule."""
    for i, address in enumerate(config.coordinators):
        host = _read_host(address, ("coordinators", str(i)), document)
        if host is not None and is_any(host):
            right = "name the host that agents can connect to"
            document.add_problem(
                (_PLACE, "coordinators", str(i)), f"{address!r} is no place to connect to", right
            )
    _check_servers(config, document)
    if config.interval_s * 3 > config.lease_s:
        seen = f"heartbeats every {config.interval_s:g} s are too few for a lease of {config.lease_s:g} s"
        right = "make lease_s at least three times interval_s: a lost heartbeat or two must not end a lease"
        document.add_problem((_PLACE, "interval_s"), seen, right)
    for first, most in (("retry_first_s", "retry_most_s"), ("agent_retry_first_s", "agent_retry_most_s")):
        if getattr(config, first) > getattr(config, most):
            seen = f"{getattr(config, first):g} s is more than {most}, {getattr(config, most):g} s"
            document.add_problem((_PLACE, first), seen, f"make {most} at least as long")
    for source in config.apart:
        if source not in sources:
            document.add_unknown_name((_PLACE, "apart", source), "source", source, sources)


def _check_servers(config: CoordinationConfig, document: YamlDocument) -> None:
    listen = _read_host(config.listen, ("listen",), document)
    rest = _read_host(config.rest, ("rest",), document)
    for name, host in (("listen", listen), ("rest", rest)):
        if host is not None and is_any(host) and config.advertise is None:
            seen = f"{host} means every address of this machine, so agents cannot learn where to connect"
            document.add_problem((_PLACE, name), seen, "set coordination.advertise to this machine's name")
    if listen is not None and not is_loopback(listen):
        _check_listen(config, listen, document)
    if rest is not None and not is_loopback(rest) and not _get_secret(config):
        seen = f"{rest} can be reached from other machines and requires no token"
        document.add_problem((_PLACE, "rest"), seen, "set coordination.token or token_file")


def _check_listen(config: CoordinationConfig, host: str, document: YamlDocument) -> None:
    """Require TLS and authentication for an open address, because an agent receives units and so the
    databases' rows.
    """
    if config.tls is None:
        seen = f"{host} can be reached from other machines without TLS: any of them can act as an agent, and read the messages"
        document.add_problem((_PLACE, "listen"), seen, "set coordination.tls, or listen on 127.0.0.1")
    elif not config.tls.mutual and not _get_secret(config):
        seen = f"{host} can be reached from other machines, and agents are not authenticated"
        document.add_problem(
            (_PLACE, "tls"), seen, "set coordination.tls.mutual: true, or coordination.token or token_file"
        )


def _get_secret(config: CoordinationConfig) -> str:
    return config.token.get_secret_value() if config.token else ""


def _read_host(address: str, place: tuple[str, ...], document: YamlDocument) -> str | None:
    try:
        return split_address(address)[0]
    except ValueError as error:
        seen, _, right = str(error).partition("; ")
        document.add_problem((_PLACE, *place), seen, right)
        return None
