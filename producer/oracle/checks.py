"""Is Oracle as capture needs it? Run by `check`, at each start and at each reconnect."""

from __future__ import annotations

import re
from collections.abc import Sequence

from producer.errors import CaptureError, SourceRefusedError
from producer.oracle.catalog import OracleCatalog
from producer.oracle.session import OracleSession
from producer.source import SourceCheck
from producer.sources.oracle import sql
from producer.sources.oracle.catalogue import Logged
from producer.tables import dotted
from schemas.findings import Finding, no_table_yet, refusal, seen_and_remedy

OLDEST = (12, 1)


def grants(user: str, logged: Sequence[Logged]) -> list[str]:
    """Return the statements that grant what capture needs: of the server, then of each table."""
    whom = sql.quoted(user)
    own = [f"GRANT CREATE SESSION TO {whom}"]
    own += [f"GRANT SELECT ON SYS.{view} TO {whom}" for view in ("V_$DATABASE", "GV_$INSTANCE")]
    for each in logged:
        own.append(f"GRANT SELECT ON {sql.quoted(each.table.db, each.table.name)} TO {whom}")
        own.append(f"GRANT SELECT, DELETE ON {sql.quoted(*each.log)} TO {whom}")
    return own


def require_oracle(catalog: OracleCatalog, place: str) -> None:
    """Raise SourceRefusedError with all errors of the server."""
    if findings := _server(catalog, place):
        raise SourceRefusedError(refusal(findings))


def _server(catalog: OracleCatalog, place: str) -> list[Finding]:
    """Raises what asking raises."""
    version = catalog.version()
    catalog.identity()
    catalog.instances()
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if number < OLDEST:
        return [Finding("error", place, f"the server is Oracle {version or '?'}", "12.1 or later is needed")]
    return []


def check_oracle(
    session: OracleSession, catalog: OracleCatalog, place: str, user: str, patterns: Sequence[str]
) -> SourceCheck:
    """Return all that is wrong with the server, the user's rights and the tables; raises nothing."""
    try:
        findings = _server(catalog, place)
        names = catalog.table_names(patterns)
        if not names:
            return SourceCheck([*findings, no_table_yet(place, patterns)], [])
        surveyed = catalog.survey(names)
        findings += [
            Finding("error", f"{place}, table {dotted(name)}", *seen_and_remedy(survey.reason))
            for name, (survey, _) in surveyed.items()
            if survey.reason is not None
        ]
        logged = {name: found for name, (_, found) in surveyed.items() if found is not None}
        for name, each in logged.items():
            if each.remark is not None:
                findings.append(Finding("warning", f"{place}, table {dotted(name)}", *each.remark))
            findings += _rights(session, f"{place}, table {dotted(name)}", user, each)
    except CaptureError as error:
        return SourceCheck([Finding("error", place, *seen_and_remedy(str(error)))], None)
    return SourceCheck(findings, names)


def _rights(session: OracleSession, place: str, user: str, logged: Logged) -> list[Finding]:
    """Try what capture will do to a table and its log, on no row."""
    try:
        session.rows(*sql.no_row((logged.table.db, logged.table.name)))
        session.change_many(sql.delete_no_row(logged.log), [(0,)])
    except SourceRefusedError as error:
        remedy = "; ".join(grants(user, [logged]))
        return [Finding("error", place, seen_and_remedy(str(error))[0], remedy)]
    return []
