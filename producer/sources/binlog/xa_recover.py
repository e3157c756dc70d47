"""Asks the server which XA transactions it knows as prepared."""

from __future__ import annotations

import pymysql

from producer.sources.binlog.prepared_xa import RecoveredXa
from producer.sources.catalog import Catalog
from producer.sources.source_session import SourceSession
from schemas.wire.position import LogPoint, parse_binlog_file_number

_DENIED = frozenset({1227, 1401})
"""The answers of MySQL to a user without XA_RECOVER_ADMIN: ER_SPECIFIC_ACCESS_DENIED_ERROR, XAER_RMERR."""


def read_recovered_xa(catalog: Catalog) -> RecoveredXa | None:
    """Ask the server. None: it has no log, or the user may not ask (MySQL: XA_RECOVER_ADMIN). Raises pymysql
    errors.
    """
    before, xids, after = catalog.server.log_end(), list_recovered(catalog.session), catalog.server.log_end()
    if before is None or after is None or xids is None:
        return None
    return RecoveredXa(_build_point(before), xids, _build_point(after))


def list_recovered(session: SourceSession) -> frozenset[str] | None:
    """Return the XIDs that the server knows as prepared; None: the user may not ask."""
    try:
        rows = session.run_query(session.flavour.xa_recover)
    except pymysql.MySQLError as error:
        if error.args[0] not in _DENIED:
            raise
        return None
    return frozenset(
        format_xid(row["data"], row["gtrid_length"], row["bqual_length"], row["formatID"]) for row in rows
    )


def format_xid(data: bytes | str, first: int, second: int, form: int) -> str:
    """Return an XID of XA RECOVER as XA COMMIT in the log names it."""
    if isinstance(data, str):
        data = bytes.fromhex(data[2:]) if data.startswith("0x") else data.encode()
    return f"X{data[:first].hex()},X{data[first : first + second].hex()},{form}"


def _build_point(end: tuple[str, int]) -> LogPoint:
    return parse_binlog_file_number(end[0]), end[1]
