"""Finds out whether a statement may have changed rows by its session's settings
(producer/statements/conversions.py).

A row that the statement changed still has the changed value, or a row event after the statement brings
its present values or its deletion. So if no present row can be a changed one, capture misses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pymysql

from producer.statements.conversions import GLOBAL, DoubtedValues, is_fixed_zone
from schemas.io.mysql_connection import MYSQL_SESSION_SQL
from schemas.values.mysql import quote_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from producer.sources.source_session import SourceSession

TableName = tuple[str, str]
MAX_CONVERSION_QUERY_S = 3
"""Seconds that the query may take; nothing is captured meanwhile."""
_SHIFTS = (3600, 1800, 7200)
"""Seconds by which time zones have set their clocks back."""


def may_be_converted(session: SourceSession, name: TableName, doubt: DoubtedValues) -> bool:
    """Return whether the table may have a row that was changed.

    Raises pymysql errors when the connection is lost.
    """
    begun = session.run_query(
        "SELECT @@global.time_zone AS zone, @@system_time_zone AS of_system, @@global.sql_mode AS mode"
    )[0]
    if doubt.certain or (doubt.unpadded and "PAD_CHAR_TO_FULL_LENGTH" in str(begun["mode"])):
        return True
    zone = str(begun["zone"]) if doubt.zone == GLOBAL else doubt.zone
    if zone.upper() == "SYSTEM" and is_fixed_zone(str(begun["of_system"])):
        zone = "+00:00"
    times = (
        () if not doubt.times or not session.flavour.converts_times or is_fixed_zone(zone) else doubt.times
    )
    conditions = [
        *(_build_repeated_predicate(column) for column in times),
        *(f"{quote_name(column)} = '0000-00-00'" for column in doubt.dates),
    ]
    if not conditions:
        return False
    table = ".".join(quote_name(part) for part in name)
    try:
        with _in_zone(session, zone):
            return bool(
                session.run_query(f"SELECT 1 AS found FROM {table} WHERE {' OR '.join(conditions)} LIMIT 1")
            )
    except (pymysql.err.ProgrammingError, pymysql.err.OperationalError):
        if not session.alive:
            raise
        return True  # it takes too long, or the table has changed meanwhile


def _build_repeated_predicate(column: str) -> str:
    """Return the predicate that the local time of a TIMESTAMP is also the local time of another instant."""
    name, found = quote_name(column), []
    for seconds in _SHIFTS:
        found += [f"FROM_UNIXTIME(UNIX_TIMESTAMP({name}) {sign} {seconds}) = {name}" for sign in "-+"]
    return f"({' OR '.join(found)})"


@contextmanager
def _in_zone(session: SourceSession, zone: str) -> Iterator[None]:
    """Run the queries of the block with `zone` as the local time zone, and with a limit of a few
    seconds.
    """
    begin, end = session.flavour.limits_reads(MAX_CONVERSION_QUERY_S)
    _run_each(session, [begin, *([f"SET SESSION time_zone = {_quote_literal(zone)}"] if zone else [])])
    try:
        yield
    finally:
        if session.alive:
            _run_each(session, [end, MYSQL_SESSION_SQL])


def _run_each(session: SourceSession, statements: Iterable[str]) -> None:
    for statement in statements:
        session.run_query(statement)


def _quote_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
