"""Checks the servers of a source with `hosts`: each of them, and what a failover between them would meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from producer.checks.binlog_server import check_binlog_server
from producer.errors import CaptureError
from producer.sources.binlog.flavour import BinlogFlavour
from producer.sources.binlog.hosts import HostAnswers, HostRole, ask_hosts, choose_host
from producer.sources.binlog.resume_search import shorten_gtids
from producer.sources.catalog import get_flavour
from producer.sources.protocols import SourceCheckResult
from schemas.config.addresses import join_address
from schemas.config.model import SourceConfig
from schemas.findings import Finding, build_error_finding


def check_hosts(section: SourceConfig, place: str) -> SourceCheckResult:
    """Return everything that is wrong with the servers, and the tables of the one that would be read.

    A server that does not answer is a warning as long as there is one to read.
    """
    servers = section.list_servers()
    answers = ask_hosts(servers)
    findings, tables = list(judge_roles(answers, place, get_flavour(section))), None
    chosen = next((a for a, each in answers.items() if isinstance(each, HostRole) and each.is_writable), None)
    for server in servers:
        address = join_address(server.host, server.port)
        if isinstance(answers[address], str) and chosen is not None:
            findings.append(
                Finding(
                    "warning",
                    place,
                    f"{address} {answers[address]}: capture could not continue there",
                    "start the server, or take it out of `hosts`",
                )
            )
            continue
        checked = check_binlog_server(server, f"{place}, {address}")
        findings += checked.findings
        tables = checked.tables if address == chosen else tables
    return SourceCheckResult(findings, tables)


def judge_roles(answers: HostAnswers, place: str, flavour: BinlogFlavour) -> Iterator[Finding]:
    """Yield what is wrong with the roles of the servers and with their transactions. Pure."""
    parse = flavour.captured_gtids
    roles = {address: each for address, each in answers.items() if isinstance(each, HostRole)}
    yield from _judge_names(roles, place)
    try:
        chosen = roles[choose_host(answers)]
    except CaptureError as error:
        yield build_error_finding(place, error.problem)
        return
    primary = parse(chosen.gtids)
    for address, each in roles.items():
        if each.own == chosen.own:
            continue
        if each.unfit is not None:
            yield Finding("error", place, f"{address} {each.unfit.what}", each.unfit.remedy)
        errant = parse(each.gtids).subtract(primary)
        errant.remove_server(chosen.writer)  # the primary may have committed since it was asked
        if errant.count():
            yield Finding(
                "warning", place,
                f"{address} has transactions that the primary lacks ({shorten_gtids(errant)}): after a "
                "failover to it, the tables that they changed stop until they are copied",
                flavour.failover.errant_remedy,
            )  # fmt: skip


def _judge_names(roles: Mapping[str, HostRole], place: str) -> Iterator[Finding]:
    """Yield an error for servers that have the same name in GTIDs."""
    named = dict[str, tuple[str, HostRole]]()
    for address, each in roles.items():
        other, role = named.setdefault(each.writer, (address, each))
        if role.own != each.own:
            yield Finding(
                "error", place,
                f"{other} and {address} write their transactions under one name ({each.writer}): a failover "
                "cannot distinguish them",
                "give each server of the source a server_id of its own, and restart it",
            )  # fmt: skip
