"""Records as Debezium's connectors write them (2.x and 3.x, JSON converter): a table's changes, and what
follows from a restart.

Every value is converted from rowlock's wire form to Debezium's, so that a test writes a row once. The code
follows Debezium's documentation of its events; the connector itself is not here.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from schemas.table.model import Column, Kind, Table, Value

Values = Mapping[str, Value]
Record = bytes | None
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - wall time
_NAMES = {
    Kind.DATE: ("int32", "io.debezium.time.Date"),
    Kind.TIME: ("int64", "io.debezium.time.MicroTime"),
    Kind.TIMESTAMP: ("string", "io.debezium.time.ZonedTimestamp"),
    Kind.DECIMAL: ("bytes", "org.apache.kafka.connect.data.Decimal"),
    Kind.JSON: ("string", "io.debezium.data.Json"),
    Kind.DOUBLE: ("double", None),
    Kind.FLOAT: ("float", None),
    Kind.INT: ("int64", None),
    Kind.YEAR: ("int32", "io.debezium.time.Year"),
    Kind.BIT: ("bytes", "io.debezium.data.Bits"),
    **dict.fromkeys((Kind.BINARY, Kind.VARBINARY, Kind.BLOB), ("bytes", None)),
}


@dataclass
class Connector:
    """Writes the events of one table. `at`: the position in the log; `records`: the topic."""

    table: Table
    name: str = "rowlock.b1"
    kind: str = "mariadb"
    schemas: bool = False
    at: int = 100
    file: str = "binlog.000003"
    ts_ms: int = 1_790_000_000_000
    records: list[Record] = field(default_factory=list)

    # -- what a connector does

    def snapshot(self, *rows: Values) -> None:
        """Write rows as they are read: all at one place of the log, with the time of reading."""
        for i, row in enumerate(rows, 1):
            mark = "last" if i == len(rows) else "first" if i == 1 else "true"
            self._write("r", None, row, snapshot=mark, ts_ms=self.ts_ms + 3_600_000)

    def read_again(self, *rows: Values) -> None:
        """Write rows as an incremental snapshot does, which its signal asks for: within the log, without an
        end that the topic would show."""
        for row in rows:
            self._write("r", None, row, snapshot="incremental", ts_ms=self.ts_ms + 3_600_000)

    def insert(self, *rows: Values) -> None:
        self._logged([("c", None, row) for row in rows])

    def update(self, before: Values, after: Values) -> None:
        """Write an update; one that moves the key is a delete and an insert, at the same place."""
        key = self.table.key.columns
        if all(before[name] == after[name] for name in key):
            self._logged([("u", before, after)])
        else:
            self._next()
            self._write("d", before, None)
            self.records.append(None)
            self._write("c", None, after)

    def delete(self, row: Values) -> None:
        self._next()
        self._write("d", row, None)
        self.records.append(None)

    def truncate(self) -> None:
        self._next()
        self._write("t", None, None)

    def again(self, start: int, upto: int | None = None) -> None:
        """Write records once more, as after a restart from an older offset."""
        self.records += self.records[start:upto]

    # -- records

    def _next(self) -> None:
        self.at += 50
        self.ts_ms += 1000

    def _logged(self, changes: list[tuple[str, Values | None, Values | None]]) -> None:
        """Write the rows of one event of the log."""
        self._next()
        for row, (op, before, after) in enumerate(changes):
            self._write(op, before, after, row=row)

    def _write(self, op: str, before: Values | None, after: Values | None, **source: Any) -> None:
        ts_ms = source.pop("ts_ms", self.ts_ms)
        payload = {
            "before": self._image(before),
            "after": self._image(after),
            "source": {
                "version": "3.0.8.Final", "connector": self.kind, "name": self.name, "ts_ms": ts_ms,
                "snapshot": "false", "db": self.table.db, "sequence": None, "ts_us": ts_ms * 1000,
                "ts_ns": ts_ms * 1_000_000, "table": self.table.name, "server_id": 1, "gtid": None,
                "file": self.file, "pos": self.at, "row": 0, "thread": 7, "query": None, **source,
            },
            "transaction": None, "op": op, "ts_ms": ts_ms + 40, "ts_us": ts_ms * 1000 + 40_000,
            "ts_ns": ts_ms * 1_000_000 + 40_000_000,
        }  # fmt: skip
        whole = {"schema": self._schema(), "payload": payload} if self.schemas else payload
        self.records.append(json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode())

    def _image(self, row: Values | None) -> dict[str, Any] | None:
        if row is None:
            return None
        return {column.name: _foreign(column, row[column.name]) for column in self.table.columns}

    def _schema(self) -> dict[str, Any]:
        image = {
            "type": "struct",
            "fields": [_field(column) for column in self.table.columns],
            "optional": True,
            "name": f"{self.name}.{self.table.db}.{self.table.name}.Value",
        }
        return {
            "type": "struct",
            "fields": [
                {**image, "field": "before"},
                {**image, "field": "after"},
                {"type": "struct", "fields": [], "optional": False, "field": "source"},
                {"type": "string", "optional": False, "field": "op"},
            ],
            "optional": False,
            "name": f"{self.name}.{self.table.db}.{self.table.name}.Envelope",
        }


def _field(column: Column) -> dict[str, Any]:
    kind, name = _NAMES.get(column.type.kind, ("string", None))
    if column.type.kind is Kind.DATETIME:
        kind, name = "int64", f"io.debezium.time.{'Timestamp' if column.type.fsp <= 3 else 'MicroTimestamp'}"
    reported: dict[str, Any] = {"type": kind, "optional": column.nullable, "field": column.name}
    if name:
        reported |= {"name": name, "version": 1}
    if column.type.kind is Kind.DECIMAL:
        reported["parameters"] = {"scale": str(column.type.scale), "connect.decimal.precision": "12"}
    return reported


def _foreign(column: Column, value: Value) -> Any:
    """Return what Debezium writes for a wire value."""
    type_ = column.type
    if value is None:
        return None
    match type_.kind:
        case Kind.DECIMAL:
            number = int(Decimal(str(value)).scaleb(type_.scale))
            return base64.b64encode(number.to_bytes(9, "big", signed=True)).decode()
        case Kind.INT if type_.bits == 64:
            number = int(str(value))
            return number - 2**64 if number >= 2**63 else number
        case Kind.DATETIME:
            wall = datetime.datetime.fromisoformat(str(value)) - _EPOCH
            return wall // datetime.timedelta(microseconds=1000 if type_.fsp <= 3 else 1)
        case Kind.TIME:
            hours, minutes, seconds = str(value).lstrip("-").split(":")
            micros = int((Decimal(hours) * 3600 + Decimal(minutes) * 60 + Decimal(seconds)) * 1_000_000)
            return -micros if str(value).startswith("-") else micros
        case Kind.FLOAT:
            return float(f"{float(str(value)):.6g}")
        case Kind.BIT if type_.length == 1:
            return bool(value)
        case Kind.BIT:
            return base64.b64encode(int(str(value)).to_bytes((type_.length + 7) // 8, "little")).decode()
        case Kind.DATE:
            return (datetime.datetime.fromisoformat(str(value)) - _EPOCH).days
    return value
