"""Check of open XA transactions: those in a source's log that the server does not know, those that are old,
and those that were prepared before capture began.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from producer.checks.recovered_xa import read_prepared_xids
from producer.errors import CaptureError
from rowlock.inspect.observed.source_status import SourceStatus
from rowlock.views.retention import format_period
from rowlock.views.source import has_view
from schemas.config.model import SourceConfig
from schemas.findings import END_LOST_XA, Finding

OLD_S = 600.0
"""An XA transaction that is prepared for this many seconds is a warning."""
_COMMITTING_S = 60.0
"""A server may write XA PREPARE to its log before it knows the transaction."""


def check_open_xa(config: SourceConfig, source: SourceStatus, now_ms: int) -> Iterator[Finding]:
    """Yield a warning for each. Queries the server."""
    if has_view(config):
        return
    try:
        known = read_prepared_xids(config)
    except CaptureError as error:
        yield Finding("warning", f"source {source.name}", error.problem.what, error.problem.action)
        return
    if known is not None:
        yield from judge_open_xa(source, known, now_ms)


def judge_open_xa(source: SourceStatus, known: Collection[str], now_ms: int) -> Iterator[Finding]:
    """Yield a warning for each. `known`: the XIDs that the server knows as prepared. Pure."""
    place = f"source {source.name}"
    if source.state == "new":
        for xid in sorted(known):
            yield Finding(
                "warning", place,
                f"XA transaction {xid} is prepared already: if it is committed after capture has begun, "
                "all tables stop, because its rows are not known",
                "end it by XA COMMIT or XA ROLLBACK before the first start",
            )  # fmt: skip
    for each in source.prepared:
        age_s = (now_ms - each.since_ms) / 1000
        if source.idle and each.xid not in known and age_s > _COMMITTING_S:
            yield Finding(
                "warning", place,
                f"XA transaction {each.xid} is prepared in the log ({each.at}), and the server does not know "
                "it: it was lost in a crash of the server, and its rows are not published",
                END_LOST_XA,
            )  # fmt: skip
        elif age_s > OLD_S:
            yield Finding(
                "warning", place,
                f"XA transaction {each.xid} has been prepared for {format_period(age_s)}: it locks its rows, "
                f"and capture needs the log from {each.at} on",
                "end it by XA COMMIT or XA ROLLBACK",
            )  # fmt: skip
