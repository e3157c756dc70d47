"""Addresses of rowlock's own servers, as text "host:port". Pure: no name is looked up."""

from __future__ import annotations

from ipaddress import ip_address

SYSTEM = "rowlock-prefix"
"""Header of REST and gRPC: the caller's `kafka.prefix`.

It distinguishes two systems on one machine, which may use the same names for units and pipelines. A
request without the header is accepted.
"""

CALLER_KAFKA = "rowlock-kafka"
"""Header of REST: the caller's `kafka.bootstrap`.

Systems with the same prefix, which is the usual one, have different Kafkas. A request without the header is
accepted.
"""

ASKED_BY = "rowlock-by"
"""Header of REST: the name of the person who gives a command, as they state it; the leader's events and
log show it.
"""


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[v6]:port".

    Raises ValueError when it is neither; port 0 is allowed.
    """
    host, _, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} is no address; write host:port (IPv6: [address]:port)")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is no address; write host:port")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return "host:port", an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`. A name other than localhost counts as reachable."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_any(host: str) -> bool:
    """Return whether `host` means all addresses of the machine, which can be listened on but not
    connected to.
    """
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def explain_other_kafka(own: str, theirs: str) -> str | None:
    """Return why a coordinator with `kafka.bootstrap` `own` refuses a caller with `theirs`; None: they have a
    broker in common, or one of them is not known ("").
    """
    if not own or not theirs or _list_brokers(own) & _list_brokers(theirs):
        return None
    return (
        f"this coordinator has kafka.bootstrap {own}, the request has {theirs}; correct the addresses under "
        "coordination, or give each system addresses of its own"
    )


def _list_brokers(bootstrap: str) -> set[str]:
    brokers = (each.strip().lower() for each in bootstrap.split(","))
    return {
        f"127.0.0.1:{each.rpartition(':')[2]}" if each.startswith("localhost:") else each for each in brokers
    }


def explain_other_system(asked: str, theirs: str) -> str | None:
    """Return why a coordinator of `kafka.prefix` `asked` refuses a caller of `theirs`; None: it
    accepts. "": unknown.
    """
    if not asked or not theirs or asked == theirs:
        return None
    return (
        f"this coordinator has kafka.prefix {asked!r}, the request has {theirs!r}; correct the addresses "
        "under coordination, or give each system addresses of its own"
    )
