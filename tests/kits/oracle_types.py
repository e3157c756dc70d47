"""Column types and Oracle's own for them."""

from __future__ import annotations

from typing import Any

from schemas.table.model import ColumnType, Kind
from schemas.table.oracle_ddl import OracleCatalogType


def kind(kind_: Kind, **more: Any) -> ColumnType:
    return ColumnType(kind=kind_, **more)


#: (ours, Oracle's, its row of ALL_TAB_COLUMNS).
TYPES = [
    (kind(Kind.INT, bits=8), "NUMBER(3)", OracleCatalogType("NUMBER", 22, 3, 0)),
    (kind(Kind.INT, bits=16, unsigned=True), "NUMBER(5)", OracleCatalogType("NUMBER", 22, 5, 0)),
    (kind(Kind.INT, bits=24), "NUMBER(8)", OracleCatalogType("NUMBER", 22, 8, 0)),
    (kind(Kind.INT, bits=32, unsigned=True), "NUMBER(10)", OracleCatalogType("NUMBER", 22, 10, 0)),
    (kind(Kind.INT, bits=64), "NUMBER(19)", OracleCatalogType("NUMBER", 22, 19, 0)),
    (kind(Kind.INT, bits=64, unsigned=True), "NUMBER(20)", OracleCatalogType("NUMBER", 22, 20, 0)),
    (kind(Kind.DECIMAL), "NUMBER", OracleCatalogType("NUMBER", 22)),
    (kind(Kind.DECIMAL, precision=38, scale=30), "NUMBER(38,30)", OracleCatalogType("NUMBER", 22, 38, 30)),
    (kind(Kind.FLOAT), "BINARY_FLOAT", OracleCatalogType("BINARY_FLOAT", 4)),
    (kind(Kind.DOUBLE), "BINARY_DOUBLE", OracleCatalogType("BINARY_DOUBLE", 8)),
    (kind(Kind.BIT, length=64), "NUMBER(*,0)", OracleCatalogType("NUMBER", 22, None, 0)),
    (kind(Kind.YEAR), "NUMBER(4)", OracleCatalogType("NUMBER", 22, 4, 0)),
    (kind(Kind.CHAR, length=10), "VARCHAR2(10 CHAR)", OracleCatalogType("VARCHAR2", 10)),
    (kind(Kind.CHAR, length=0), "VARCHAR2(1 CHAR)", OracleCatalogType("VARCHAR2", 1)),
    (kind(Kind.VARCHAR, length=1000), "VARCHAR2(1000 CHAR)", OracleCatalogType("VARCHAR2", 1000)),
    (kind(Kind.VARCHAR, length=1001), "CLOB", OracleCatalogType("CLOB", 4000)),
    (kind(Kind.TEXT, length=2**32 - 1), "CLOB", OracleCatalogType("CLOB", 4000)),
    (kind(Kind.BINARY, length=16), "RAW(16)", OracleCatalogType("RAW", 16)),
    (kind(Kind.VARBINARY, length=2001), "BLOB", OracleCatalogType("BLOB", 4000)),
    (kind(Kind.BLOB, length=65535), "BLOB", OracleCatalogType("BLOB", 4000)),
    (kind(Kind.DATE), "DATE", OracleCatalogType("DATE", 7)),
    (kind(Kind.TIME, fsp=3), "INTERVAL DAY(2) TO SECOND(3)",
     OracleCatalogType("INTERVAL DAY(2) TO SECOND(3)", 11, 2, 3)),
    (kind(Kind.DATETIME), "TIMESTAMP(0)", OracleCatalogType("TIMESTAMP(0)", 7, None, 0)),
    (kind(Kind.TIMESTAMP, fsp=6), "TIMESTAMP(6) WITH LOCAL TIME ZONE",
     OracleCatalogType("TIMESTAMP(6) WITH LOCAL TIME ZONE", 11, None, 6)),
    (kind(Kind.JSON), "CLOB", OracleCatalogType("CLOB", 4000)),
    (kind(Kind.ENUM, members=("a", "long")), "VARCHAR2(4 CHAR)", OracleCatalogType("VARCHAR2", 4)),
    (kind(Kind.SET, members=("a", "long")), "VARCHAR2(6 CHAR)", OracleCatalogType("VARCHAR2", 6)),
    (kind(Kind.ENUM_NUMBER, members=("", "long")), "VARCHAR2(1 CHAR)", OracleCatalogType("VARCHAR2", 1)),
    (kind(Kind.SET_NUMBER, members=("", "a", "b", "c")), "VARCHAR2(2 CHAR)",
     OracleCatalogType("VARCHAR2", 2)),
]  # fmt: skip
