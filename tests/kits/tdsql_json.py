"""A model of TDSQL's JSON subscription that shares no code with its reader: values as a writer of SQL
literals prints them, and messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex

UUID = "35be190b-d019-11e7-ab7a-a0423f32c225"
_WRITTEN = {"\0": "\\0", "'": "\\'", "\n": "\\n", "\r": "\\r", "\x1a": "\\Z", "\\": "\\\\"}


def quoted(text: str) -> str:
    """Return a text as a server's client library quotes it."""
    return "'" + "".join(_WRITTEN.get(each, each) for each in text) + "'"


def table_of(*types: ColumnType, nullable: bool = True) -> Table:
    columns = (
        Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
        *(Column(name=f"c{i}", type=type_, nullable=nullable) for i, type_ in enumerate(types)),
    )
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return Table(db="bank", name="acct", columns=columns, key=key)


def message(event: str, gtid: str, index: int, **more: Any) -> dict[str, Any]:
    """Return a message as the vendor's page shows it."""
    return {
        "logtype": "mysqlbinlog",
        "eventtype": {"insert": 23, "update": 24, "delete": 25, "gtid": 33, "xid": 16}.get(event, 2),
        "eventtypestr": event,
        "db": "sysdb",
        "table": "statustableforhb",
        "localip": "127.0.0.1",
        "localport": 8810,
        "begintime": 1_511_419_963,
        "gtid": gtid,
        "event_index": str(index),
        **more,
    }


def transaction(gtid: str, rows: Iterable[Sequence[str]], table: str = "acct") -> list[dict[str, Any]]:
    """Return the messages of a transaction that inserts rows; indexes have gaps, as in the example."""
    inserted = [
        message("insert", gtid, 4 + 2 * i, db="bank", table=table, where=[], field=list(row))
        for i, row in enumerate(rows)
    ]
    return [message("gtid", gtid, 1), *inserted, message("xid", gtid, 4 + 2 * len(inserted), xid="11866")]


def encode(each: dict[str, Any]) -> bytes:
    return json.dumps(each, ensure_ascii=False).encode()


# --- values of each type: a strategy of (type, wire value, literal)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=20)


def ints() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    def build(bits: int, unsigned: bool, drawn: int) -> tuple[ColumnType, Any, str]:
        value = drawn % 2**bits - (0 if unsigned else 2 ** (bits - 1))
        wire = value if abs(value) <= 2**53 else str(value)
        return ColumnType(kind=Kind.INT, bits=bits, unsigned=unsigned), wire, str(value)

    return st.builds(build, st.sampled_from([8, 16, 24, 32, 64]), st.booleans(), st.integers(0, 2**64))


def decimals() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    def build(scale: int, unscaled: int) -> tuple[ColumnType, Any, str]:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        text = ("-" if unscaled < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)
        return ColumnType(kind=Kind.DECIMAL, precision=20, scale=scale), text, text

    return st.builds(build, st.integers(0, 10), st.integers(-(10**10), 10**10))


def floats() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    double = st.floats(allow_nan=False, allow_infinity=False)
    single = st.floats(allow_nan=False, allow_infinity=False, width=32)
    return st.one_of(
        double.map(lambda value: (ColumnType(kind=Kind.DOUBLE), value, repr(value))),
        single.map(lambda value: (ColumnType(kind=Kind.FLOAT), value, f"{value:.9g}")),
    )


def texts() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    def build(kind: Kind, value: str) -> tuple[ColumnType, Any, str]:
        wire = value.rstrip(" ") if kind is Kind.CHAR else value
        return ColumnType(kind=kind, length=80, charset="utf8mb4"), wire, quoted(value)

    return st.builds(build, st.sampled_from([Kind.CHAR, Kind.VARCHAR, Kind.TEXT]), TEXTS)


def bits() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    def build(length: int, drawn: int) -> tuple[ColumnType, Any, str]:
        value = drawn % 2**length
        wire = value if value <= 2**53 else str(value)
        return ColumnType(kind=Kind.BIT, length=length), wire, f"b'{value:0{length}b}'"

    return st.builds(build, st.integers(1, 64), st.integers(0, 2**64))


def binaries() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    def build(kind: Kind, value: bytes, short: bool) -> tuple[ColumnType, Any, str]:
        literal = f"0x{value.hex().upper()}" if short and value else f"X'{value.hex()}'"
        stored = value.ljust(30, b"\0") if kind is Kind.BINARY else value
        return ColumnType(kind=kind, length=30), ("base64", stored), literal

    return st.builds(
        build,
        st.sampled_from([Kind.BINARY, Kind.VARBINARY, Kind.BLOB]),
        st.binary(max_size=30),
        st.booleans(),
    )


def times() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    def build(kind: Kind, fsp: int, moment: Any, micros: int) -> tuple[ColumnType, Any, str]:
        fraction = f".{micros:06d}"[: fsp + 1] if fsp else ""
        wall = f"{moment:%Y-%m-%d %H:%M:%S}".rjust(19, "0") + fraction
        type_ = ColumnType(kind=kind, fsp=fsp)
        if kind is Kind.DATE:
            return ColumnType(kind=kind), wall[:10], f"'{wall[:10]}'"
        if kind is Kind.TIME:
            clock = f"-{micros % 839:02d}{wall[13:]}"
            return type_, clock, f"'{clock}'"
        if kind is Kind.DATETIME:
            return type_, wall, f"'{wall}'"
        stamp = wall if "1971" < wall < "2105" else "2000" + wall[4:]
        return type_, stamp.replace(" ", "T") + "Z", f"'{stamp}'"

    kinds = st.sampled_from([Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP])
    return st.builds(build, kinds, st.integers(0, 6), st.datetimes(), st.integers(0, 999_999))


def labels() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    members = ("a", "b c", "ü'", "1")
    enum, many = ColumnType(kind=Kind.ENUM, members=members), ColumnType(kind=Kind.SET, members=members)
    chosen = st.integers(0, 15).map(lambda mask: [each for i, each in enumerate(members) if mask >> i & 1])
    return st.one_of(
        st.sampled_from(["", *members]).map(lambda value: (enum, value, quoted(value))),
        st.integers(1, 4).map(lambda place: (enum, members[place - 1], str(place))),
        chosen.map(lambda value: (many, ",".join(value), quoted(",".join(value)))),
    )


def documents() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    leaves = st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), TEXTS)
    trees = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
        max_leaves=6,
    )

    def build(tree: Any) -> tuple[ColumnType, Any, str]:
        text = json.dumps(_in_server_order(tree), ensure_ascii=False)
        return ColumnType(kind=Kind.JSON), text, quoted(text)

    return trees.map(build)


def _in_server_order(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_in_server_order(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    names = sorted(tree, key=lambda name: (len(name.encode()), name.encode()))
    return {name: _in_server_order(tree[name]) for name in names}


def values() -> st.SearchStrategy[tuple[ColumnType, Any, str]]:
    year = st.integers(1901, 2155).map(lambda value: (ColumnType(kind=Kind.YEAR), value, str(value)))
    return st.one_of(
        ints(), decimals(), floats(), texts(), bits(), binaries(), times(), labels(), documents(), year
    )
