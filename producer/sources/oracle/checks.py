"""Checks that Oracle meets the requirements of capture, in `rowlock check`, at each start and at each
reconnect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from producer.errors import CaptureError, SourceRefusedError
from producer.sources.oracle import sql
from producer.sources.oracle.catalog import OracleCatalog
from producer.sources.oracle.session import OracleSession
from producer.sources.oracle.table_checks import LoggedTable
from producer.sources.protocols import SourceCheckResult
from producer.tables import format_table_name
from schemas.findings import (
    Finding,
    build_error_finding,
    build_no_table_finding,
    merge_findings,
)

MIN_ORACLE_VERSION = (12, 1)


def list_grant_statements(user: str, logged: Sequence[LoggedTable]) -> list[str]:
    """Return the statements that grant what capture needs: for the server, then for each table."""
    grantee = _quote_grantee(user)
    own = [f"GRANT CREATE SESSION TO {grantee}"]
    own += [_build_view_grant(view, user) for view in ("V_$DATABASE", "GV_$INSTANCE")]
    for each in logged:
        own.append(f"GRANT SELECT ON {sql.quote_names(each.table.db, each.table.name)} TO {grantee}")
        own.append(f"GRANT SELECT, DELETE ON {sql.quote_names(*each.log)} TO {grantee}")
    return own


def _build_view_grant(view: str, user: str) -> str:
    return f"GRANT SELECT ON SYS.{view} TO {_quote_grantee(user)}"


def _quote_grantee(user: str) -> str:
    """Quote a user as the catalog names it: in upper case, unless the name is in quotation marks."""
    return sql.quote_names(user[1:-1] if user[:1] == user[-1:] == '"' else user.upper())


def require_oracle(catalog: OracleCatalog, place: str, user: str) -> None:
    """Raise SourceRefusedError with all errors of the server."""
    if findings := [*_check_server(catalog, place), *_find_hidden_views(catalog, place, user)]:
        raise SourceRefusedError.from_problem(merge_findings(findings))


def _check_server(catalog: OracleCatalog, place: str) -> list[Finding]:
    """Return what is wrong with the server's version. Raises the errors of the query."""
    version = catalog.read_version()
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if number < MIN_ORACLE_VERSION:
        return [Finding("error", place, f"the server is Oracle {version or '?'}", "12.1 or later is needed")]
    return []


def _find_hidden_views(catalog: OracleCatalog, place: str, user: str) -> list[Finding]:
    """Return the necessary views of the server that the user may not read. Raises TransientSourceError."""
    findings = []
    for view, ask in (("V_$DATABASE", catalog.read_identity), ("GV_$INSTANCE", catalog.count_instances)):
        try:
            ask()
        except SourceRefusedError as error:
            findings.append(Finding("error", place, error.problem.what, _build_view_grant(view, user)))
    return findings


def check_oracle(
    session: OracleSession, catalog: OracleCatalog, place: str, user: str, patterns: Sequence[str]
) -> SourceCheckResult:
    """Return all that is wrong with the server, the user's rights and the tables; raises nothing."""
    try:
        findings = _check_server(catalog, place)
        if hidden := _find_hidden_views(catalog, place, user):
            return SourceCheckResult([*findings, *hidden], None)
        names = catalog.list_table_names(patterns)
        if not names:
            return SourceCheckResult([*findings, build_no_table_finding(place, patterns)], [])
        surveyed = catalog.examine_tables(names)
        findings += [
            Finding(
                "error",
                f"{place}, table {format_table_name(name)}",
                survey.problem.what,
                survey.problem.action,
            )
            for name, (survey, _) in surveyed.items()
            if survey.problem is not None
        ]
        logged = {name: found for name, (_, found) in surveyed.items() if found is not None}
        for name, each in logged.items():
            if each.remark is not None:
                findings.append(Finding("warning", f"{place}, table {format_table_name(name)}", *each.remark))
            findings += _probe_rights(session, f"{place}, table {format_table_name(name)}", user, each)
    except CaptureError as error:
        return SourceCheckResult([build_error_finding(place, error.problem)], None)
    return SourceCheckResult(findings, names)


def _probe_rights(session: OracleSession, place: str, user: str, logged: LoggedTable) -> list[Finding]:
    """Try the statements of capture on a table and its log, on no row."""
    try:
        for table in ((logged.table.db, logged.table.name), logged.log):
            session.fetch_rows(*sql.select_no_row(table))
        session.change_many(sql.delete_no_row(logged.log), [(0,)])
    except SourceRefusedError as error:
        remedy = "; ".join(list_grant_statements(user, [logged]))
        return [Finding("error", place, error.problem.what, remedy)]
    return []
