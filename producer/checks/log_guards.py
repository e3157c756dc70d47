"""Checks that a source writes all of its changes to its log.

Other changes would be missing in the topics without an error.

`log_findings` judges the facts, and is pure; `read_facts` queries the server. `check`, every start and
every reconnect use it: a server may be restarted with other settings, or made a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pymysql

from producer.sources.catalog import Catalog
from producer.sources.grants import Grants
from producer.sources.source_session import SourceSession
from schemas.findings import Finding

_DENIED = 1227  # ER_SPECIFIC_ACCESS_DENIED_ERROR
_PARSE_ERROR = 1064
_LOST = "changes that were not logged are in no topic, so run `rowlock verify` afterwards, or start over"
_ON = frozenset({"ON", "1"})


@dataclass(frozen=True)
class LogFacts:
    """Facts about a server's log.

    `variables`: names in lower case. `do_db`, `ignore_db`: the log's filters. `sources`: the servers
    that this one replicates; None: the user may not see it without `right`, and `denied` is the server's
    error. Both are queried only where they matter.
    """

    variables: Mapping[str, str]
    do_db: str = ""
    ignore_db: str = ""
    sources: tuple[str, ...] | None = ()
    denied: str = ""
    account: str = ""
    right: str = ""

    @property
    def logs_replicated(self) -> bool:
        """True if changes that arrive by replication are written to this server's own log."""
        shown = self.variables.get("log_replica_updates", self.variables.get("log_slave_updates", "ON"))
        return shown.upper() in _ON


def log_findings(facts: LogFacts, place: str) -> Iterator[Finding]:
    """Yield an error for everything that keeps changes out of the log, and a warning for possible losses
    in a crash.
    """
    yield from _check_log_filters(facts, place)
    yield from _check_replica(facts, place)
    if facts.variables.get("binlog_error_action", "").upper() == "IGNORE_ERROR":
        yield Finding(
            "error", place,
            "binlog_error_action is IGNORE_ERROR: if the server cannot write its "
            "log, it continues without one",
            "SET GLOBAL binlog_error_action = ABORT_SERVER; and set it in the server's configuration",
        )  # fmt: skip
    yield from _check_crash_safety(facts, place)


def _check_log_filters(facts: LogFacts, place: str) -> Iterator[Finding]:
    shown = [
        f"{name} is {value}"
        for name, value in (("binlog_do_db", facts.do_db), ("binlog_ignore_db", facts.ignore_db))
        if value
    ]
    if shown:
        yield Finding(
            "error", place,
            f"the server filters its log ({', '.join(shown)}), by databases or by the default database",
            f"remove these options from the server's configuration and restart it; {_LOST}",
        )  # fmt: skip


def _check_replica(facts: LogFacts, place: str) -> Iterator[Finding]:
    if facts.logs_replicated:
        return
    remedy = (
        "set log_slave_updates (on MySQL log_replica_updates) to ON in the server's configuration and "
        f"restart it, or capture from the server that it replicates; {_LOST}"
    )
    if facts.sources is None:
        yield Finding(
            "error", place,
            ("log_slave_updates is OFF, so a replica would not log what it replicates; rowlock's user "
f"cannot see whether the server is a replica ({facts.denied})"),
            f"GRANT {facts.right} ON *.* TO {facts.account};",
        )  # fmt: skip
    elif facts.sources:
        yield Finding(
            "error", place,
            f"the server is a replica of {', '.join(facts.sources)} and does not log what it replicates "
            "(log_slave_updates or log_replica_updates is OFF)",
            remedy,
        )  # fmt: skip
    if facts.variables.get("wsrep_on", "OFF").upper() in _ON:
        yield Finding(
            "error", place,
            "the server is a node of a Galera cluster and does not log what the other nodes change "
            "(log_slave_updates is OFF)", remedy,
        )  # fmt: skip


def _check_crash_safety(facts: LogFacts, place: str) -> Iterator[Finding]:
    costs = {
        "sync_binlog": "after a crash of the machine the log may lack the last transactions that the tables "
        "have, and they are never captured; or capture has read transactions that the log has "
        "lost, and refuses to continue",
        "innodb_flush_log_at_trx_commit": (
            "after a crash the source's tables may lack the last transactions of its log, while the "
            "targets have them"
        ),
    }
    for name, cost in costs.items():
        value = facts.variables.get(name, "1")
        if value != "1":
            yield Finding(
                "warning", place, f"{name} is {value}: {cost}",
                f"SET GLOBAL {name} = 1; and set it in the server's configuration; after a crash "
                "let `rowlock verify` compare",
            )  # fmt: skip


def read_facts(catalog: Catalog) -> LogFacts:
    """Query the server. Raises pymysql errors.

    A user without the right to read where the log ends, which is an error of its own, does not see the
    log's filters; the other facts are read all the same.
    """
    rights, grants = catalog.server.rights, Grants.parse_grants(catalog.server.read_grants())
    sees_log = grants.has_everywhere(*rights.gives_status)
    facts = LogFacts(
        catalog.server.read_variables(), *(catalog.server.log_filters() if sees_log else ("", ""))
    )
    if facts.logs_replicated or not (sees_log or rights.sources != rights.status):
        return facts
    account = grants.account or "the user"
    try:
        sources: tuple[str, ...] | None = _list_replica_sources(catalog.session)
        denied = ""
    except pymysql.MySQLError as error:
        if error.args[0] != _DENIED:
            raise
        sources, denied = None, str(error.args[1])
    return replace(facts, sources=sources, denied=denied, account=account, right=rights.sources)


def _list_replica_sources(session: SourceSession) -> tuple[str, ...]:
    """Return the servers that this one is configured to replicate, running or not."""
    statements = session.flavour.replicates_from
    for statement in statements:
        try:
            rows = session.run_query(statement)
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != _PARSE_ERROR or statement == statements[-1]:
                raise
            continue
        return tuple(
            ":".join(str(row.get(f"Source_{part}") or row.get(f"Master_{part}")) for part in ("Host", "Port"))
            for row in rows
        )
    return ()
