"""Formats of DATE, TIME, DATETIME and TIMESTAMP, with fractions, and in their forms before MySQL 5.6."""

from __future__ import annotations

from producer.binlog_format import types as t
from producer.binlog_format.errors import UndecodableRow
from producer.binlog_format.row_events import ColumnMap
from producer.decoders import scalars
from producer.decoders.fragments import (
    ColumnFormat,
    FixedFormat,
    StructPart,
    build_big_endian,
    render_digits,
    render_json_string,
)
from schemas.table.model import ColumnType


def _refuse_old_fraction(logged: ColumnMap, old: int, column: ColumnType) -> None:
    """Raise UndecodableRow for a fraction in the form of MariaDB before 10.1: the log does not show its
    length.
    """
    if logged.type == old and column.fsp:
        raise UndecodableRow(
            f"{column.kind.value}({column.fsp}) is logged in the form of before MariaDB 10.1 "
            "(mysql56_temporal_format)",
            "set mysql56_temporal_format = ON and ALTER TABLE … MODIFY the column to its own type (or "
            "exclude the table)",
        )


def build_date_format(_i: int, logged: ColumnMap, _column: ColumnType) -> ColumnFormat | None:
    if logged.type not in (t.DATE, t.NEWDATE):
        return None
    return FixedFormat(
        parts=(("<", "H"), ("", "B")),
        render=lambda n, v: [f"{v} = {render_json_string(f'{{DATE3[{n[1]} << 16 | {n[0]}]}}')}"],
        names={"DATE3": scalars.DATE3},
    )


def _count_fraction_bytes(fsp: int) -> int:
    return (fsp + 1) // 2


def _render_fraction(value: str, fsp: int) -> str:
    """Return the f-string content for ".ffff".

    The stored number has an even number of digits, the text `fsp`.
    """
    value = f"(({value}) // 10)" if fsp % 2 else f"({value})"
    return "." + render_digits(value, fsp)


_FRACTION_NAMES = {"D1": scalars.D1, "D2": scalars.D2, "D3": scalars.D3}


def build_datetime_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    _refuse_old_fraction(logged, t.DATETIME, column)
    if logged.type == t.DATETIME and not column.fsp:
        names = {"OLD_DATETIME": scalars.OLD_DATETIME}
        return FixedFormat(
            parts=(("<", "Q"),),
            render=lambda n, v: [f"{v} = {render_json_string(f'{{OLD_DATETIME[{n[0]}]}}')}"],
            names=names,
        )
    if logged.type != t.DATETIME2 or logged.metadata != column.fsp:
        return None
    size = _count_fraction_bytes(column.fsp)
    parts, join = build_big_endian(5 + size)

    def render(n: list[str], v: str) -> list[str]:
        if not size:
            return [f"{v} = {render_json_string(f'{{DATETIME_SECOND[{join(n)}]}}')}"]
        second = f"{{DATETIME_SECOND[{v} >> {8 * size}]}}"
        fraction = _render_fraction(f"{v}f", column.fsp)
        return [
            f"{v} = {join(n)}",
            f"{v}f = {v} & {(1 << 8 * size) - 1}",
            f"{v} = {render_json_string(second + fraction)}",
        ]

    return FixedFormat(
        parts=parts, render=render, names={"DATETIME_SECOND": scalars.DATETIME_SECOND, **_FRACTION_NAMES}
    )


def build_timestamp_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    _refuse_old_fraction(logged, t.TIMESTAMP, column)
    if logged.type == t.TIMESTAMP and not column.fsp:
        parts: tuple[StructPart, ...] = (("<", "I"),)
    elif logged.type == t.TIMESTAMP2 and logged.metadata == column.fsp:
        parts = ((">", "I"), *(build_big_endian(_count_fraction_bytes(column.fsp))[0] if column.fsp else ()))
    else:
        return None
    zero = "0000-00-00 00:00:00" + ("." + "0" * column.fsp if column.fsp else "")

    def render(n: list[str], v: str) -> list[str]:
        fraction = ""
        if column.fsp:
            join = build_big_endian(_count_fraction_bytes(column.fsp))[1]
            fraction = _render_fraction(join(n[1:]), column.fsp)
        return [
            f"""{v} = {render_json_string(f"{{UTC_SECOND[{n[0]}]}}{fraction}Z")} if {n[0]} else '"{zero}"'"""
        ]

    return FixedFormat(
        parts=parts, render=render, names={"UTC_SECOND": scalars.UTC_SECOND, **_FRACTION_NAMES}
    )


def build_time_format(_i: int, logged: ColumnMap, column: ColumnType) -> ColumnFormat | None:
    _refuse_old_fraction(logged, t.TIME, column)
    if logged.type == t.TIME and not column.fsp:
        names = {"OLD_TIME": scalars.OLD_TIME}
        return FixedFormat(
            parts=(("<", "H"), ("", "b")),
            render=lambda n, v: [f"{v} = {render_json_string(f'{{OLD_TIME[{n[1]} << 16 | {n[0]}]}}')}"],
            names=names,
        )
    if logged.type != t.TIME2 or logged.metadata != column.fsp:
        return None
    size = _count_fraction_bytes(column.fsp)
    parts, join = build_big_endian(3 + size)

    def render(n: list[str], v: str) -> list[str]:
        fraction = _render_fraction(f"{v} & {(1 << 8 * size) - 1}", column.fsp) if size else ""
        clock = f"{{CLOCK[{v} >> {8 * size}]}}{fraction}"
        return [
            f"{v} = {join(n)} - {0x800000 << 8 * size}",
            f"if {v} < 0:",
            f"    {v} = -{v}",
            f"    {v} = {render_json_string('-' + clock)}",
            "else:",
            f"    {v} = {render_json_string(clock)}",
        ]

    return FixedFormat(parts=parts, render=render, names={"CLOCK": scalars.CLOCK, **_FRACTION_NAMES})
