"""Checks the servers of a source with `hosts`: each of them, and what a failover between them would meet."""

from __future__ import annotations

from collections.abc import Iterator

from producer.checks.binlog_server import check_binlog_server
from producer.errors import CaptureError
from producer.sources.binlog.hosts import HostAnswers, HostRole, ask_hosts, choose_host
from producer.sources.binlog.resume_search import shorten_gtids
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.sources.protocols import SourceCheckResult
from schemas.config.addresses import join_address
from schemas.config.model import SourceConfig
from schemas.findings import Finding, build_error_finding

_LAST = 2**63 - 2
"""The highest number of a GTID."""


def check_hosts(section: SourceConfig, place: str) -> SourceCheckResult:
    """Return everything that is wrong with the servers, and the tables of the one that would be read.

    A server that does not answer is a warning as long as there is one to read.
    """
    servers = section.list_servers()
    answers = ask_hosts(servers)
    findings, tables = list(judge_roles(answers, place)), None
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


def judge_roles(answers: HostAnswers, place: str) -> Iterator[Finding]:
    """Yield what is wrong with the roles of the servers and with their transactions. Pure."""
    try:
        chosen = answers[choose_host(answers)]
    except CaptureError as error:
        yield build_error_finding(place, error.problem)
        return
    if not isinstance(chosen, HostRole):
        return
    primary = GtidSet.parse(chosen.gtids)
    for address, each in answers.items():
        if isinstance(each, str) or each.own == chosen.own:
            continue
        # The primary may have committed since it was asked.
        errant = (
            GtidSet.parse(each.gtids).subtract(primary).subtract(GtidSet.parse(f"{chosen.own}:1-{_LAST}"))
        )
        if errant.count():
            yield Finding(
                "warning", place,
                f"{address} has transactions that the primary lacks ({shorten_gtids(errant)}): after a "
                "failover to it, the tables that they changed stop until they are copied",
                "if they are harmless, commit an empty transaction with each of these GTIDs at the primary; "
                "do not write to replicas directly (super_read_only = ON)",
            )  # fmt: skip
