"""Formats of dates and times: DATE, TIME, DATETIME and TIMESTAMP, with fractions and in their forms before MySQL 5.6."""

from __future__ import annotations

from producer.binlog_format import types as t
from producer.binlog_format.table_map import ColumnMap
from producer.decoders import scalars
from producer.decoders.fragments import Fixed, Format, Part, big_endian, digits, text
from schemas.table.model import ColumnType


def date_format(_i: int, logged: ColumnMap, _column: ColumnType) -> Format | None:
    if logged.type not in (t.DATE, t.NEWDATE):
        return None
    return Fixed(
        parts=(("<", "H"), ("", "B")),
        render=lambda n, v: [f"{v} = {text(f'{{DATE3[{n[1]} << 16 | {n[0]}]}}')}"],
        names={"DATE3": scalars.DATE3},
    )


def _fraction_bytes(fsp: int) -> int:
    return (fsp + 1) // 2


def _fraction(value: str, fsp: int) -> str:
    """Return what stands in an f-string for ".ffff": the stored number has an even number of digits, the text `fsp`."""
    value = f"(({value}) // 10)" if fsp % 2 else f"({value})"
    return "." + digits(value, fsp)


_FRACTION_NAMES = {"D1": scalars.D1, "D2": scalars.D2, "D3": scalars.D3}


def datetime_format(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type == t.DATETIME and not column.fsp:
        names = {"OLD_DATETIME": scalars.OLD_DATETIME}
        return Fixed(
            parts=(("<", "Q"),),
            render=lambda n, v: [f"{v} = {text(f'{{OLD_DATETIME[{n[0]}]}}')}"],
            names=names,
        )
    if logged.type != t.DATETIME2 or logged.metadata != column.fsp:
        return None
    size = _fraction_bytes(column.fsp)
    parts, join = big_endian(5 + size)

    def render(n: list[str], v: str) -> list[str]:
        if not size:
            return [f"{v} = {text(f'{{DATETIME_SECOND[{join(n)}]}}')}"]
        second = f"{{DATETIME_SECOND[{v} >> {8 * size}]}}"
        fraction = _fraction(f"{v}f", column.fsp)
        return [
            f"{v} = {join(n)}",
            f"{v}f = {v} & {(1 << 8 * size) - 1}",
            f"{v} = {text(second + fraction)}",
        ]

    return Fixed(
        parts=parts, render=render, names={"DATETIME_SECOND": scalars.DATETIME_SECOND, **_FRACTION_NAMES}
    )


def timestamp_format(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type == t.TIMESTAMP and not column.fsp:
        parts: tuple[Part, ...] = (("<", "I"),)
    elif logged.type == t.TIMESTAMP2 and logged.metadata == column.fsp:
        parts = ((">", "I"), *(big_endian(_fraction_bytes(column.fsp))[0] if column.fsp else ()))
    else:
        return None
    zero = "0000-00-00 00:00:00" + ("." + "0" * column.fsp if column.fsp else "")

    def render(n: list[str], v: str) -> list[str]:
        fraction = ""
        if column.fsp:
            join = big_endian(_fraction_bytes(column.fsp))[1]
            fraction = _fraction(join(n[1:]), column.fsp)
        return [f"""{v} = {text(f"{{UTC_SECOND[{n[0]}]}}{fraction}Z")} if {n[0]} else '"{zero}"'"""]

    return Fixed(parts=parts, render=render, names={"UTC_SECOND": scalars.UTC_SECOND, **_FRACTION_NAMES})


def time_format(_i: int, logged: ColumnMap, column: ColumnType) -> Format | None:
    if logged.type == t.TIME and not column.fsp:
        names = {"OLD_TIME": scalars.OLD_TIME}
        return Fixed(
            parts=(("<", "H"), ("", "b")),
            render=lambda n, v: [f"{v} = {text(f'{{OLD_TIME[{n[1]} << 16 | {n[0]}]}}')}"],
            names=names,
        )
    if logged.type != t.TIME2 or logged.metadata != column.fsp:
        return None
    size = _fraction_bytes(column.fsp)
    parts, join = big_endian(3 + size)

    def render(n: list[str], v: str) -> list[str]:
        fraction = _fraction(f"{v} & {(1 << 8 * size) - 1}", column.fsp) if size else ""
        clock = f"{{CLOCK[{v} >> {8 * size}]}}{fraction}"
        return [
            f"{v} = {join(n)} - {0x800000 << 8 * size}",
            f"if {v} < 0:",
            f"    {v} = -{v}",
            f"    {v} = {text('-' + clock)}",
            "else:",
            f"    {v} = {text(clock)}",
        ]

    return Fixed(parts=parts, render=render, names={"CLOCK": scalars.CLOCK, **_FRACTION_NAMES})
