"""Chooses the server of a source with `hosts`: the only one that accepts writes.

Pure rules, and the questions to the servers. A server is recognised by its own identity (MySQL: its uuid;
MariaDB: its host name, port and server_id), not by its address: two addresses may lead to one server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import pymysql

from producer.errors import SourceRefusedError, TransientSourceError
from producer.sources.catalog import Catalog, get_flavour
from producer.sources.source_session import connect_settings
from schemas.config.addresses import join_address
from schemas.config.model import SourceConfig
from schemas.errors import SchemaError
from schemas.io.mysql_connection import open_connection
from schemas.io.server_errors import format_mysql_error
from schemas.problems import Problem

_CONNECT_S = 3
_READ_S = 10


class HostRole(NamedTuple):
    """The answer of a server. `own`: its identity. `gtids`: what it has executed. `writer`: its name in
    GTIDs. `unfit`: why capture cannot continue there; None: it can.
    """

    own: str
    is_writable: bool
    gtids: str
    writer: str = ""
    unfit: Problem | None = None


HostAnswers = Mapping[str, HostRole | str]
"""Address → the answer, or why there is none."""


def choose_host(answers: HostAnswers) -> str:
    """Return the address of the server to read.

    Raises SourceRefusedError if several accept writes or that one is unfit, and TransientSourceError if none
    does.
    """
    writable = {
        address: each for address, each in answers.items() if isinstance(each, HostRole) and each.is_writable
    }
    if len({each.own for each in writable.values()}) > 1:
        raise SourceRefusedError(
            f"several servers of the source accept writes: {_list_positions(writable)}",
            "let one of them accept writes, and set super_read_only = ON on the others; capture then "
            "continues by itself",
        )
    if not writable:
        seen = ", ".join(
            f"{address} {each if isinstance(each, str) else 'is read-only'}"
            for address, each in answers.items()
        )
        raise TransientSourceError(f"no server of the source accepts writes: {seen}")
    chosen, answer = next(iter(writable.items()))
    if answer.unfit is not None:
        raise SourceRefusedError(f"{chosen} {answer.unfit.what}", answer.unfit.remedy)
    return chosen


def find_other_server(answers: HostAnswers, reading: str) -> str | None:
    """Return the address of the server to which capture must move from the server `reading`; None: it stays.

    It stays on a read-only server while no other accepts writes: nothing is missing in its log. Raises
    SourceRefusedError like `choose_host`.
    """
    try:
        chosen = choose_host(answers)
    except TransientSourceError:
        return None
    answer = answers[chosen]
    return None if isinstance(answer, HostRole) and answer.own == reading else chosen


def _list_positions(servers: Mapping[str, HostRole]) -> str:
    return "; ".join(f"{address} has {each.gtids}" for address, each in servers.items())


def ask_hosts(servers: Sequence[SourceConfig]) -> dict[str, HostRole | str]:
    """Ask each server for its role; one that does not answer within seconds is unreachable."""
    return {join_address(each.host, each.port): _ask_host(each) for each in servers}


def select_server(section: SourceConfig) -> SourceConfig:
    """Return the section for the server to read: of `hosts` the only one that accepts writes.

    Raises like `choose_host`.
    """
    servers = section.list_servers()
    if not section.hosts:
        return servers[0]
    chosen = choose_host(ask_hosts(servers))
    return next(each for each in servers if join_address(each.host, each.port) == chosen)


def _ask_host(server: SourceConfig) -> HostRole | str:
    settings = {**connect_settings(server), "connect_timeout": _CONNECT_S, "read_timeout": _READ_S}
    try:
        with closing(Catalog(open_connection(**settings), get_flavour(server))) as catalog:
            return read_role(catalog)
    except pymysql.MySQLError as error:
        return f"does not answer ({format_mysql_error(error)})"
    except (SchemaError, RuntimeError, OSError) as error:  # as producer.checks.binlog_server lists them
        return f"does not answer ({error})"


def identify_host(catalog: Catalog) -> str:
    """Return the server's identity, which no other server of the source has. Raises pymysql errors."""
    found = catalog.server.identify_server()
    return f"{found.own}/{found.server_id}"


def read_role(catalog: Catalog) -> HostRole:
    """Ask the server for its role. Raises pymysql errors."""
    identity, rules = catalog.server.read_identity(), catalog.session.flavour.failover
    unfit = None
    if not catalog.server.has_failover_setting():
        unfit = Problem(f"has {rules.setting} = OFF: {rules.without}", rules.remedy)
    return HostRole(
        identify_host(catalog), catalog.server.is_writable(), identity.gtid_set or "",
        catalog.server.name_writer(), unfit,
    )  # fmt: skip


def find_unapplied(catalog: Catalog) -> str | None:
    """Return why the server may still get transactions from other servers; None: it gets none.

    Raises pymysql errors.
    """
    if not catalog.server.is_writable():
        return "it is read-only"
    parse = catalog.session.flavour.captured_gtids
    for channel in catalog.server.list_channels():
        if channel.receives:
            return f"it replicates {channel.origin}"
        received = parse(channel.received)
        found = catalog.server.read_executed(received)
        unapplied = received.subtract(found.executed).subtract(found.applied)
        if unapplied.count() or not (channel.received or channel.is_applied):
            shown = f" ({unapplied})" if unapplied.count() else ""
            return f"it has received transactions of {channel.origin} that it has not applied{shown}"
    return None
