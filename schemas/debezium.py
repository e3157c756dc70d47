"""Events of Debezium's MySQL and MariaDB connectors (JSON converter, schemas on or off) as rowlock's events.

Debezium's numbers mean what the column's type says they mean, and its topics carry no definition: the caller gives
the table. Understood are Debezium's default modes (time adaptive_time_microseconds, binary bytes), decimal `precise`
or `string`, bigint.unsigned `long` or `precise`.

What a reader must know:
- `source.position` is `(0, file, pos, row)` of the row event. Snapshot rows (op r) all share one in Debezium, so
  theirs is ZERO: they are deduplicated by Kafka offset only. `prev` is None and `gen` 0: gaps and zombies of
  Debezium's cannot be noticed.
- Debezium has already replaced zero dates (by null, or the epoch in NOT NULL columns): that loss is not undone.
"""

from __future__ import annotations

import binascii
import datetime
import struct
from collections.abc import Callable
from typing import Any

import msgspec

from schemas.converter import wire_int
from schemas.errors import EnvelopeError
from schemas.event import ENVELOPE_VERSION, Event, Op, Source, Transaction
from schemas.position import ZERO, Position, binlog_file_number
from schemas.table import Column, ColumnType, Kind, Table, Value

Convert = Callable[[Any, ColumnType], Value]
Converters = dict[Kind, Convert]

_OPS: dict[str, Op] = {"c": "c", "u": "u", "d": "d", "r": "r", "t": "t"}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class _DebeziumSource(msgspec.Struct):
    connector: str
    name: str
    db: str
    ts_ms: int
    version: str = ""
    table: str | None = None
    snapshot: str | bool | None = None
    server_id: int = 0
    gtid: str | None = None
    file: str = ""
    pos: int = 0
    row: int = 0


class _DebeziumTransaction(msgspec.Struct):
    id: str
    total_order: int


class _Payload(msgspec.Struct):
    op: str
    source: _DebeziumSource
    ts_ms: int | None = None
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    transaction: _DebeziumTransaction | None = None


class _WithSchema(msgspec.Struct):
    payload: msgspec.Raw
    schema: msgspec.Raw


_PAYLOAD = msgspec.json.Decoder(_Payload)
_WITH_SCHEMA = msgspec.json.Decoder(_WithSchema)


def from_debezium(raw: bytes, table: Table, *, decimal_strings: bool = False) -> Event:
    """Return the event of a Debezium record of `table`. Tombstones (no value) are the caller's to skip.

    `decimal_strings`: the connector has decimal.handling.mode=string. It cannot be seen: "1234" is base64, too.

    Raises EnvelopeError: not Debezium's envelope, or values that do not fit the table.
    """
    payload = _payload(raw)
    converters = _DECIMAL_STRINGS if decimal_strings else _CONVERT
    op = _OPS.get(payload.op)
    if op is None:
        raise EnvelopeError(
            f"Debezium's op {payload.op!r} is none of a MySQL table: look at what writes to this topic"
        )
    return Event(
        op=op,
        before=_row(payload.before, table, converters) if op in "ud" else None,
        after=_row(payload.after, table, converters) if op in "cru" else None,
        source=_source(payload.source, op, table),
        transaction=_transaction(payload.transaction),
        ts_ms=payload.ts_ms or payload.source.ts_ms,
    )


def _payload(raw: bytes) -> _Payload:
    try:
        return _PAYLOAD.decode(_unwrapped(raw))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnvelopeError(
            f"not an event of Debezium's MySQL connector: {error}. Its JSON converter without flattening "
            "(no ExtractNewRecordState) is understood"
        ) from error


def _unwrapped(raw: bytes) -> bytes | msgspec.Raw:
    """The payload, with the JSON converter's schemas on or off."""
    try:
        return _WITH_SCHEMA.decode(raw).payload
    except msgspec.ValidationError:
        return raw


def _source(source: _DebeziumSource, op: Op, table: Table) -> Source:
    return Source(
        version=ENVELOPE_VERSION, connector=source.connector, name=source.name, ts_ms=source.ts_ms,
        snapshot="true" if op == "r" else "false", db=source.db, table=source.table or table.name,
        server_id=source.server_id, gtid=source.gtid, file=source.file, pos=source.pos, row=source.row,
        position=_position(source, op), prev=None, gen=0,
    )  # fmt: skip


def _position(source: _DebeziumSource, op: Op) -> Position:
    if op == "r":
        return ZERO
    try:
        return (0, binlog_file_number(source.file), source.pos, source.row)
    except ValueError as error:
        raise EnvelopeError(f"Debezium's event has no usable position: {error}") from error


def _transaction(transaction: _DebeziumTransaction | None) -> Transaction | None:
    """Debezium does not mark the last row of a transaction."""
    return Transaction(transaction.id, transaction.total_order, last=False) if transaction else None


def _row(values: dict[str, Any] | None, table: Table, converters: Converters) -> dict[str, Value]:
    if values is None:
        raise EnvelopeError(
            f"Debezium's event of {table.db}.{table.name} lacks a row image: the source needs binlog_row_image=FULL"
        )
    return {column.name: _value(values, column, converters) for column in table.columns}


def _value(values: dict[str, Any], column: Column, converters: Converters) -> Value:
    try:
        value = values[column.name]
    except KeyError:
        raise EnvelopeError(
            f"Debezium's event has no column {column.name}: the table's definition and the topic do not fit"
        ) from None
    if value is None:
        return None
    try:
        return converters.get(column.type.kind, _as_it_is)(value, column.type)
    except (TypeError, ValueError, OverflowError, struct.error, KeyError) as error:
        raise EnvelopeError(
            f"column {column.name}: Debezium's value is no {column.type.kind} in its default modes ({error})"
        ) from error


def _as_it_is(value: Any, _: ColumnType) -> Value:
    if not isinstance(value, str):
        raise TypeError(f"a string is expected, not {type(value).__name__}")
    return value


def _int(value: Any, type_: ColumnType) -> Value:
    if isinstance(value, str):  # bigint.unsigned.handling.mode=precise: Decimal of scale 0
        return wire_int(int.from_bytes(_bytes(value), "big", signed=True))
    number = int(value)
    return wire_int(number + 2**64 if type_.unsigned and number < 0 else number)


def _decimal(value: Any, type_: ColumnType) -> Value:
    """Precise: base64 of the unscaled number, big-endian two's complement."""
    unscaled = int.from_bytes(_bytes(value), "big", signed=True)
    digits = str(abs(unscaled)).rjust(type_.scale + 1, "0")
    number = f"{digits[: -type_.scale]}.{digits[-type_.scale :]}" if type_.scale else digits
    return f"-{number}" if unscaled < 0 else number


def _bytes(value: Any) -> bytes:
    return binascii.a2b_base64(value, strict_mode=True)


def _float(value: Any, _: ColumnType) -> Value:
    """Debezium prints a float's shortest digits; the wire has the float widened exactly."""
    widened: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return widened


def _bit(value: Any, _: ColumnType) -> Value:
    """BIT(1) is a boolean, others base64 of little-endian bytes."""
    return int(value) if isinstance(value, bool) else wire_int(int.from_bytes(_bytes(value), "little"))


def _date(value: Any, _: ColumnType) -> Value:
    return _wall(int(value) * 86_400_000_000, 0)[:10]


def _time(value: Any, type_: ColumnType) -> Value:
    micros = int(value)
    seconds, rest = divmod(abs(micros), 1_000_000)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(rest, type_.fsp)}"
    return f"-{clock}" if micros < 0 else clock


def _datetime(value: Any, type_: ColumnType) -> Value:
    """Milliseconds up to DATETIME(3), microseconds beyond."""
    return _wall(int(value) * (1000 if type_.fsp <= 3 else 1), type_.fsp)


def _wall(micros: int, fsp: int) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    day = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return (
        f"{day} {moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}{_fraction(moment.microsecond, fsp)}"
    )


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def _timestamp(value: Any, type_: ColumnType) -> Value:
    moment = datetime.datetime.fromisoformat(str(value)).astimezone(datetime.UTC)
    local = _wall((moment - _EPOCH) // datetime.timedelta(microseconds=1), type_.fsp)
    return f"{local[:10]}T{local[11:]}Z"


def _geometry(value: Any, _: ColumnType) -> Value:
    return {"wkb": value["wkb"], "srid": value.get("srid") or 0}


_CONVERT: Converters = {
    Kind.INT: _int,
    Kind.YEAR: _int,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.DOUBLE: lambda value, _: float(value),
    Kind.BIT: _bit,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.DATETIME: _datetime,
    Kind.TIMESTAMP: _timestamp,
    Kind.GEOMETRY: _geometry,
}
_DECIMAL_STRINGS: Converters = {**_CONVERT, Kind.DECIMAL: _as_it_is}
