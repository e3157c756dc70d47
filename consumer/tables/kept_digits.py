"""Values of which the target's column would keep a part: digits behind the point, spaces at the end. Pure.

Servers refuse a number or a text that is too long for its column, but not these: MySQL, MariaDB, PostgreSQL and Oracle round a DECIMAL and a
time to the digits that the column has, MySQL, MariaDB and PostgreSQL drop spaces behind a text's last place. Nobody would be told.
"""

from __future__ import annotations

from collections.abc import Iterator

from consumer.errors import RefusedError
from consumer.ordering.model import KeptPart, NetChange, Reduced
from schemas.table.model import Column, Kind, Table, Value

_TIMES = (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP)
_TEXTS = (Kind.CHAR, Kind.VARCHAR, Kind.TEXT)


def kept_parts(wanted: Table, real: Table) -> tuple[KeptPart, ...]:
    """Return the columns of `wanted` of whose values the real table may keep a part. They are few: rows are looked at for them alone."""
    return tuple(_parts(wanted, real))


def _parts(wanted: Table, real: Table) -> Iterator[KeptPart]:
    there = {column.name: column for column in real.columns}
    for at, column in enumerate(wanted.columns):
        if (found := there.get(column.name)) is not None and (part := _part(at, column, found)) is not None:
            yield part


def _part(at: int, wanted: Column, real: Column) -> KeptPart | None:
    source, there = wanted.type, real.type
    if there.kind in _TIMES and source.fsp > there.fsp:
        return KeptPart(at, wanted.name, digits=there.fsp)
    if source.kind is there.kind is Kind.DECIMAL and there.precision:
        more = not source.precision or source.scale > there.scale
        return KeptPart(at, wanted.name, digits=there.scale) if more else None
    if source.kind in _TEXTS and there.kind in _TEXTS and there.length:
        longer = not source.length or source.length > there.length
        return KeptPart(at, wanted.name, length=there.length) if longer else None
    return None


def refuse_parts(net: Reduced) -> None:
    """Raise RefusedError, as the target should, where it would keep a part of a value of `net` only."""
    if not isinstance(net, NetChange) or not net.table.kept:
        return
    for row in net.rows:
        for part in net.table.kept:
            if _loses(row[part.at], part):
                raise RefusedError(_why(net, part))


def _loses(value: Value, part: KeptPart) -> bool:
    if not isinstance(value, str):
        return False
    if part.digits is None:
        rest = value[part.length :]
        return bool(rest) and not rest.strip(" ")  # anything else the target refuses itself
    return len(value.partition(".")[2].removesuffix("Z").rstrip("0")) > part.digits


def _why(net: NetChange, part: KeptPart) -> str:
    table = f"{net.table.schema}.{net.table.name}"
    if part.digits is None:
        return f"column {part.column} of {table} has room for {part.length} characters, and the value has spaces behind them, which its server would drop"
    return f"column {part.column} of {table} has {part.digits} digits behind the point, and the value has more, which its server would round"
