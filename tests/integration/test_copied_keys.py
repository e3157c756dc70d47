"""What a copy deletes in each real target, by type of the key: a living row stays however the target shows
its key, a row that the source no longer has is deleted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.table.model import Column, ColumnType, Kind, Table
from tests.kits.apply import FakeSource, account_table
from tests.kits.attempts import Real, RealUnit, reals
from tests.kits.copy import CopyOf
from tests.kits.targets import KINDS

real = reals(*KINDS)

BIN = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
CI = {"charset": "utf8mb4", "collation": "utf8mb4_general_ci"}
UUIDS = [f"{digit * 8}-0000-4000-8000-00000000000{n}" for n, digit in enumerate("9aBcDef0")]


@dataclass(frozen=True)
class KeyType:
    """`living`, `missing`: keys; together, in this order, they are what the source chunks by. `ordered`:
    source and target order it alike. `made`: how the target's column is altered before the rows come
    (PostgreSQL, the others; "": not possible there)."""

    type: ColumnType
    living: list[Any]
    missing: list[Any]
    ordered: bool = False
    made: tuple[str, str] | None = None


def text(kind: Kind, length: int = 20, **more: str) -> ColumnType:
    return ColumnType(kind=kind, length=length, **(more or BIN))  # type: ignore[arg-type]


TYPES: dict[str, KeyType] = {
    "bigint": KeyType(
        ColumnType(kind=Kind.INT, bits=64), [-5, 2, 10, 200, "9007199254740993"],
        [-9, 3, 11, "9007199254740995"], True
    ),
    "unsigned": KeyType(
        ColumnType(kind=Kind.INT, bits=64, unsigned=True), [0, 7, 10, "18446744073709551615"],
        [1, "18446744073709551614"], True
    ),
    "decimal": KeyType(
        ColumnType(kind=Kind.DECIMAL, precision=8, scale=2), ["-1.50", "0.10", "2.00", "10.00"],
        ["-0.50", "3.30", "11.00"], True
    ),
    "decimal in a finer one": KeyType(
        ColumnType(kind=Kind.DECIMAL, precision=8, scale=2), ["-1.50", "0.10", "2.00", "10.00"],
        ["-0.50", "3.30"], True, ("numeric(20,6)", "decimal(20,6)"),
    ),
    "date": KeyType(ColumnType(kind=Kind.DATE), ["1999-12-31", "2024-02-29", "2026-01-01"],
     ["2000-01-01", "2025-05-05"], True),
    "datetime": KeyType(
        ColumnType(kind=Kind.DATETIME, fsp=3), [f"2026-01-01 00:00:0{n}.100" for n in range(4)],
        ["2026-01-01 00:00:02.200"], True
    ),
    "datetime in a finer one": KeyType(
        ColumnType(kind=Kind.DATETIME, fsp=0), [f"2026-01-01 00:00:0{n}" for n in range(4)],
        ["2026-01-01 00:01:02"], True, ("timestamp(6)", "datetime(6)"),
    ),
    "timestamp": KeyType(
        ColumnType(kind=Kind.TIMESTAMP, fsp=6), [f"2026-01-01T00:00:0{n}.000001Z" for n in range(4)],
        ["2026-01-01T00:00:02.000002Z"], True,
    ),
    "time": KeyType(ColumnType(kind=Kind.TIME), ["-10:00:00", "00:00:01", "101:00:00"],
     ["-09:59:59", "100:00:00"], True),
    "year": KeyType(ColumnType(kind=Kind.YEAR), [1999, 2024, 2026], [2000, 2025], True),
    "binary": KeyType(ColumnType(kind=Kind.BINARY, length=3), ["AAAA", "YQAA", "YWEA", "////"],
     ["AAAB", "YWFh"], True),
    "varbinary": KeyType(ColumnType(kind=Kind.VARBINARY, length=9), ["YQ==", "YQA=", "YSA=", "Yg=="],
     ["YQAA", "/w=="], True),
    "bit": KeyType(ColumnType(kind=Kind.BIT, length=12), [0, 3, 2048, 4095], [1, 4094]),
    "double": KeyType(ColumnType(kind=Kind.DOUBLE), [0.1, 1.0, -2.5, 1e100], [0.2, 3.0]),
    "float": KeyType(ColumnType(kind=Kind.FLOAT), [0.5, 0.10000000149011612, -2.5],
     [1.5, 0.20000000298023224]),
    "varchar": KeyType(text(Kind.VARCHAR), ["a", "A", "é", "E", "b b", "Z", "ß"], ["e", "z", "É", "ss"]),
    "varchar with blanks at its end": KeyType(text(Kind.VARCHAR), ["a ", "b", "B  ", " c", "c d "],
     ["d ", "D", "e"]),
    "varchar ci": KeyType(text(Kind.VARCHAR, **CI), ["a", "É", "Zz", "b b"], ["c", "D", "ö"]),
    "char": KeyType(text(Kind.CHAR, 8), ["a", "A", "é", "bb"], ["B", "e"]),
    "char ci": KeyType(text(Kind.CHAR, 8, **CI), ["a", "É", "Bb"], ["c", "D"]),
    "varchar in a padded one": KeyType(
        text(Kind.VARCHAR), ["a", "A", "é", "b b"], ["B", "e", "c"],
        made=("char(30)", "char(30) COLLATE utf8mb4_bin")
    ),
    "char in a free one": KeyType(
        text(Kind.CHAR, 8), ["a", "A", "é", "bb"], ["B", "e"],
        made=("text", "varchar(30) COLLATE utf8mb4_bin")
    ),
    "enum": KeyType(
        ColumnType(kind=Kind.ENUM, members=("zero", "One", "alpha", "b", "É"), **BIN),  # type: ignore[arg-type]
        ["zero", "alpha", "É"], ["One", "b"],
    ),
    "uuid": KeyType(text(Kind.CHAR, 36), UUIDS[:5], UUIDS[5:]),
    "uuid in one that knows no case": KeyType(text(Kind.CHAR, 36), UUIDS[:5], UUIDS[5:],
     made=("uuid USING id::uuid", "")),
}  # fmt: skip


@dataclass
class KeyedSource(FakeSource):
    """Its rows are numbered by `keys`."""

    keys: list[Any] = field(default_factory=list)

    def row(self, key: int, email: str | None, version: int, note: str = "") -> dict[str, Any]:
        return {**super().row(key, email, version, note), "id": self.keys[key]}

    def add(self, number: int, version: int) -> Any:
        before = self.rows.get(number)
        self.rows[number] = row = self.row(number, None, version)
        return self.event("c" if before is None else "u", before, row)


def keyed(of: ColumnType) -> Table:
    table = account_table()
    return replace(table, columns=(Column(name="id", type=of, nullable=False), *table.columns[1:]))


def altered(real: Real, of: tuple[str, str]) -> bool:
    """Alter the target's key column; returns whether that is possible there."""
    postgres = real.target.kind == "postgres"
    change = of[0] if postgres else of[1]
    if change:
        real.execute(
            f"ALTER TABLE {real.target.name('acct')} "
            + (f"ALTER id TYPE {change}" if postgres else f"MODIFY id {change} NOT NULL")
        )
        real.tables.clear()
    return bool(change)


@pytest.mark.parametrize("name", TYPES)
def test_what_lives_stays_and_what_is_gone_goes(real: Real, name: str) -> None:
    of = TYPES[name]
    keys = [*of.living, *of.missing]
    source = KeyedSource(table=keyed(of.type), keys=keys)
    unit = RealUnit(real, source, unit_route(real), patient=True)
    assert unit.apply().state == "ok"
    if of.made is not None and not altered(real, of.made):
        return
    unit.write([source.add(number, 1) for number in range(len(keys))])
    assert unit.apply(1).state == "ok"
    real.execute(f"ALTER TABLE {real.target.name('acct')} ADD bank varchar(20) DEFAULT 'lost'")
    real.execute(f"UPDATE {real.target.name('acct')} SET bank = 'its own'")
    for number in range(len(of.living), len(keys)):
        del source.rows[number]  # and nobody says so
    start = len(unit.topic)
    copy = CopyOf(
        source,
        unit.topic,
        order=sorts(of, keys),
        index=lambda row: keys.index(row["id"]),
        value=keys.__getitem__,
    )
    copy.begin()
    copy.emit()
    unit.write([source.add(0, 2)])
    while not copy.done:
        copy.emit()
    report = unit.apply(start)
    assert report.state == "ok", report.message
    in_force = next(iter(real.tables.values()))
    assert in_force.ordered == of.ordered
    rows = [(row[0], row[4]) for row in real.session.fetch_rows(in_force.target, None, 1000)]
    expected = [(source.keys[number], row["version"]) for number, row in source.rows.items()]
    look = plain if of.made else repr
    assert sorted(look(row) for row in rows) == sorted(look(row) for row in expected)
    assert set(real.execute(f"SELECT bank FROM {real.target.name('acct')}")) == {("its own",)}, (
        "a copy empties no column"
    )


def plain(row: tuple[Any, Any]) -> str:
    """A row as it looks without what another type of the target adds to its key."""
    key, version = row
    text = re.sub(r"(\.\d*?)0*$", r"\1", str(key).rstrip())
    return f"{text.rstrip('.').lower()} {version}"


def sorts(of: KeyType, keys: list[Any]) -> Any:
    """The source's order: that of the values where there is one, else none that anybody knows."""
    if not of.ordered:
        return lambda number: -number
    if of.type.kind in (Kind.INT, Kind.DECIMAL, Kind.YEAR):
        from decimal import Decimal

        return lambda number: Decimal(str(keys[number]))
    if of.type.kind in (Kind.BINARY, Kind.VARBINARY):
        from base64 import b64decode

        return lambda number: b64decode(keys[number])
    if of.type.kind is Kind.TIME:
        return lambda number: _seconds(keys[number])
    return lambda number: keys[number]


def _seconds(text: str) -> int:
    hours, minutes, seconds = map(int, text.removeprefix("-").split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * (-1 if text.startswith("-") else 1)


def unit_route(real: Real) -> Any:
    from consumer.tables.router import TableRoute

    return TableRoute("bank.*", f"{real.schema}.{{table}}")


@pytest.mark.parametrize("missing", [False, True])
def test_a_key_that_the_target_cannot_hold_hinders_no_copy(real: Real, missing: bool) -> None:
    """PostgreSQL has no zero date. Its row lives, and is held, or is gone, and nobody says so."""
    if real.target.kind != "postgres":
        return
    keys = ["0000-00-00", "2024-02-29", "2025-05-05", "2026-01-01", "2026-01-02"]
    source = KeyedSource(table=keyed(ColumnType(kind=Kind.DATE)), keys=keys)
    unit = RealUnit(real, source, unit_route(real), patient=True)
    unit.write([source.add(number, 1) for number in range(len(keys))])
    assert unit.apply().held == 1
    for number in (0, 2) if missing else (2,):
        del source.rows[number]
    start = len(unit.topic)
    CopyOf(
        source,
        unit.topic,
        index=lambda row: keys.index(row["id"]),
        value=keys.__getitem__,
        limit=1,  # so that it is a bound, too
    ).all()
    report = unit.apply(start)
    assert report.state == "ok", report.message
    in_force = next(iter(real.tables.values()))
    assert in_force.ordered
    rows = [row[0] for row in real.session.fetch_rows(in_force.target, None, 10)]
    assert rows == ["2024-02-29", "2026-01-01", "2026-01-02"]
    assert len(real.session.read_quarantine(unit.unit)) == (0 if missing else 1)
