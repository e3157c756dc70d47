"""The check of a table against the schema that the JSON converter writes with each Debezium event
(`schemas.enable=true`).

Debezium's values are bare numbers with a meaning that depends on the column's type and the connector's
modes: 1234 is 12.34 or 1.234, milliseconds or microseconds. The schema, where present, states the
meaning, and an altered column, or a mode that rowlock does not read, is refused instead of misread.
"""

from __future__ import annotations

import msgspec

from schemas.problems import Problem
from schemas.table.model import Column, Kind, Table

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_TEXTS = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.TEXT, Kind.JSON, Kind.ENUM, Kind.SET})
_LABELS = frozenset({Kind.ENUM_NUMBER, Kind.SET_NUMBER})
"""Kinds that are labels in Debezium's topics, and numbers in rowlock's own format."""
_BYTES = frozenset({Kind.BINARY, Kind.VARBINARY, Kind.BLOB})
_INTEGERS = ("int8", "int16", "int32", "int64", "boolean")
_TIMES = {
    Kind.DATE: "io.debezium.time.Date",
    Kind.TIME: "io.debezium.time.MicroTime",
    Kind.TIMESTAMP: "io.debezium.time.ZonedTimestamp",
}
_MODES = {
    Kind.DECIMAL: "`decimal.handling.mode` and this source's `decimals`",
    Kind.DATE: "`time.precision.mode` (adaptive_time_microseconds)",
    Kind.TIME: "`time.precision.mode` (adaptive_time_microseconds)",
    Kind.DATETIME: "`time.precision.mode` (adaptive_time_microseconds)",
    Kind.TIMESTAMP: "`time.precision.mode` (adaptive_time_microseconds)",
    **dict.fromkeys(_BYTES, "`binary.handling.mode` and this source's `binaries`"),
}


class _Field(msgspec.Struct):
    type: str = msgspec.field(name="type")
    field: str = msgspec.field(name="field", default="")
    name: str | None = msgspec.field(name="name", default=None)
    parameters: dict[str, str] = msgspec.field(name="parameters", default_factory=dict)
    fields: list[_Field] = msgspec.field(name="fields", default_factory=list)


_SCHEMA = msgspec.json.Decoder(_Field)


def explain_schema_problem(
    raw: bytes, table: Table, *, decimal_strings: bool, binaries: str | None = None
) -> Problem | None:
    """Return why values of this schema cannot be read as rows of `table`; None: they can, or the schema
    describes no rows.
    """
    try:
        images = {each.field: each.fields for each in _SCHEMA.decode(raw).fields}
    except msgspec.DecodeError as error:
        return Problem(f"the event's schema is not one of Kafka Connect's JSON converter: {error}")
    fields = {each.field: each for each in images.get("after", []) or images.get("before", [])}
    for column in table.columns:
        field = fields.get(column.name)  # the reader of values reports a missing column
        if field is not None and not _is_fitting_field(
            column, field, decimal_strings=decimal_strings, binaries=binaries
        ):
            return Problem(
                f"column {column.name}: Debezium's schema has it as {_describe_field(field)}, which is no "
                f"{_describe_kind(column)}: the table was altered, or the connector has another mode",
                f"look at {_MODES.get(column.type.kind, 'its converters')}",
            )
    return None


def _is_fitting_field(column: Column, field: _Field, *, decimal_strings: bool, binaries: str | None) -> bool:
    kind = column.type.kind
    if kind is Kind.DECIMAL:
        if decimal_strings:
            return field.type == "string"
        return field.name == _DECIMAL and field.parameters.get("scale") == str(column.type.scale)
    if kind is Kind.INT:
        return field.type in _INTEGERS or field.name == _DECIMAL
    if kind is Kind.DATETIME:
        return field.name == f"io.debezium.time.{'Timestamp' if column.type.fsp <= 3 else 'MicroTimestamp'}"
    if kind in _TIMES:
        return field.name == _TIMES[kind]
    if kind in _TEXTS:
        return field.type == "string"
    if kind in _LABELS:
        return field.type == "string" or field.type in _INTEGERS
    if kind in _BYTES:
        return field.type == ("bytes" if binaries in (None, "bytes") else "string")
    return True


def _describe_kind(column: Column) -> str:
    type_ = column.type
    if type_.kind is Kind.DECIMAL:
        return f"decimal of {type_.scale} digits after the point"
    return f"{type_.kind}({type_.fsp})" if type_.kind is Kind.DATETIME else str(type_.kind)


def _describe_field(field: _Field) -> str:
    scale = field.parameters.get("scale")
    return (field.name or field.type) + (f" of scale {scale}" if scale is not None else "")
