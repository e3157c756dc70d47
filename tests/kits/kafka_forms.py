"""Columns and values for the forms of keys and values in topics."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from consumer.targets.kafka.formats import FORMATS
from schemas.table.model import Column, ColumnType, Kind

WORDS = tuple(sorted(FORMATS))


JSON = ("plain", "rowlock")


DEBEZIUM = ("debezium", "debezium-schemas")


SCHEMAS = ("debezium-schemas",)


def nothing() -> Any:
    raise AssertionError("what the topic holds is asked for")


def type_of(kind: Kind, **facts: Any) -> ColumnType:
    return ColumnType(kind=kind, **facts)


def integer(bits: int, **facts: Any) -> ColumnType:
    return type_of(Kind.INT, bits=bits, **facts)


def decimal(precision: int, scale: int) -> ColumnType:
    return type_of(Kind.DECIMAL, precision=precision, scale=scale)


def text(kind: Kind = Kind.VARCHAR, length: int = 9) -> ColumnType:
    return type_of(kind, length=length, charset="utf8mb4")


def labels(kind: Kind, *members: str) -> ColumnType:
    return type_of(kind, members=members, charset="utf8mb4")


INT, NOTE = integer(32), Column(name="note", type=text())


def id_of(type_: ColumnType, **facts: Any) -> Column:
    return Column(name="id", type=type_, **{"nullable": False, **facts})


TYPES: list[tuple[ColumnType, Any, ColumnType, Any, tuple[str, ...]]] = [
    (INT, 5, integer(64), 5, SCHEMAS),
    (INT, 5, integer(32, unsigned=True), 5, SCHEMAS),
    (INT, 5, decimal(12, 2), "5.00", WORDS),
    (INT, 5, decimal(12, 0), "5", (*JSON, *DEBEZIUM)),
    (decimal(10, 2), "5.00", decimal(12, 4), "5.0000", WORDS),
    (decimal(10, 2), "5.00", decimal(12, 2), "5.00", SCHEMAS),
    (decimal(10, 2), "5.00", decimal(0, 0), "5", WORDS),
    (INT, 5, type_of(Kind.YEAR), 5, ("canal-json", *SCHEMAS)),
    (type_of(Kind.BIT, length=1), 1, type_of(Kind.BIT, length=9), 1, DEBEZIUM),
    (type_of(Kind.BIT, length=1), 1, type_of(Kind.BIT, length=8), 1, DEBEZIUM),
    (type_of(Kind.BIT, length=8), 1, type_of(Kind.BIT, length=16), 1, DEBEZIUM),
    (type_of(Kind.BIT, length=9), 1, type_of(Kind.BIT, length=10), 1, SCHEMAS),
    (type_of(Kind.FLOAT), 0.10000000149011612, type_of(Kind.DOUBLE), 0.10000000149011612, DEBEZIUM),
    (INT, 5, type_of(Kind.DOUBLE), 5.0, WORDS),
    (text(), "a", text(length=99), "a", ()),
    (text(), "a", text(Kind.TEXT, 65535), "a", ()),
    (text(), "a", replace(text(), charset="latin1"), "a", ()),
    (type_of(Kind.BINARY, length=1), "YQ==", type_of(Kind.BINARY, length=2), "YQA=", WORDS),
    (type_of(Kind.VARBINARY, length=1), "YQ==", type_of(Kind.VARBINARY, length=2), "YQ==", ()),
    (type_of(Kind.TIME), "01:02:03", type_of(Kind.TIME, fsp=3), "01:02:03.000", (*JSON, "canal-json")),
    (type_of(Kind.DATETIME), "2020-01-02 03:04:05", type_of(Kind.DATETIME, fsp=3), "2020-01-02 03:04:05.000",
     (*JSON, "canal-json")),
    (type_of(Kind.DATETIME), "2020-01-02 03:04:05", type_of(Kind.DATETIME, fsp=6),
     "2020-01-02 03:04:05.000000", WORDS),
    (type_of(Kind.TIMESTAMP), "2020-01-02T03:04:05Z", type_of(Kind.TIMESTAMP, fsp=3),
     "2020-01-02T03:04:05.000Z", WORDS),
    (type_of(Kind.DATE), "2020-01-02", type_of(Kind.DATETIME), "2020-01-02 00:00:00", WORDS),
    (labels(Kind.ENUM, "a", "b"), "b", labels(Kind.ENUM, "a", "b", "c"), "b", SCHEMAS),
    (labels(Kind.ENUM, "a", "b"), "b", labels(Kind.ENUM, "b", "a"), "b", ("canal-json", *SCHEMAS)),
    (labels(Kind.SET, "a", "b"), "a,b", labels(Kind.SET, "a", "b", "c"), "a,b", SCHEMAS),
    (labels(Kind.SET, "a", "b", "c"), "a,b", labels(Kind.SET, "b", "c", "a"), "b,a", WORDS),
    (labels(Kind.ENUM, "a", "b"), "b", text(), "b", ("canal-json", *SCHEMAS)),
    (labels(Kind.ENUM_NUMBER, "", "b"), 2, labels(Kind.ENUM_NUMBER, "", "b", "c"), 2, ()),
    (labels(Kind.ENUM_NUMBER, "", "b"), 2, labels(Kind.ENUM_NUMBER, "b", ""), 1, WORDS),
    (labels(Kind.SET_NUMBER, "", "b"), 2, labels(Kind.SET_NUMBER, "b", ""), 1, WORDS),
    (labels(Kind.SET, "a", "b"), "a", labels(Kind.SET_NUMBER, "a", "b", ""), 1, (*JSON, *DEBEZIUM)),
]  # fmt: skip
