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
    whom = _grantee(user)
    own = [f"GRANT CREATE SESSION TO {whom}"]
    own += [_shown(view, user) for view in ("V_$DATABASE", "GV_$INSTANCE")]
    for each in logged:
        own.append(f"GRANT SELECT ON {sql.quoted(each.table.db, each.table.name)} TO {whom}")
        own.append(f"GRANT SELECT, DELETE ON {sql.quoted(*each.log)} TO {whom}")
    return own


def _shown(view: str, user: str) -> str:
    return f"GRANT SELECT ON SYS.{view} TO {_grantee(user)}"


def _grantee(user: str) -> str:
    """Quote a user as the catalogue has it: a name that is not in quotation marks is in upper case there, however it is written."""
    return sql.quoted(user[1:-1] if user[:1] == user[-1:] == '"' else user.upper())


def require_oracle(catalog: OracleCatalog, place: str, user: str) -> None:
    """Raise SourceRefusedError with all errors of the server."""
    if findings := [*_server(catalog, place), *_hidden(catalog, place, user)]:
        raise SourceRefusedError(refusal(findings))


def _server(catalog: OracleCatalog, place: str) -> list[Finding]:
    """Raises what asking raises."""
    version = catalog.version()
    number = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if number < OLDEST:
        return [Finding("error", place, f"the server is Oracle {version or '?'}", "12.1 or later is needed")]
    return []


def _hidden(catalog: OracleCatalog, place: str, user: str) -> list[Finding]:
    """Return the views of the server that the user may not read, without which nothing can be told. Raises TransientSourceError."""
    findings = []
    for view, ask in (("V_$DATABASE", catalog.identity), ("GV_$INSTANCE", catalog.instances)):
        try:
            ask()
        except SourceRefusedError as error:
            findings.append(Finding("error", place, seen_and_remedy(str(error))[0], _shown(view, user)))
    return findings


def check_oracle(
    session: OracleSession, catalog: OracleCatalog, place: str, user: str, patterns: Sequence[str]
) -> SourceCheck:
    """Return all that is wrong with the server, the user's rights and the tables; raises nothing."""
    try:
        findings = _server(catalog, place)
        if hidden := _hidden(catalog, place, user):
            return SourceCheck([*findings, *hidden], None)
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
        for table in ((logged.table.db, logged.table.name), logged.log):
            session.rows(*sql.no_row(table))
        session.change_many(sql.delete_no_row(logged.log), [(0,)])
    except SourceRefusedError as error:
        remedy = "; ".join(grants(user, [logged]))
        return [Finding("error", place, seen_and_remedy(str(error))[0], remedy)]
    return []
