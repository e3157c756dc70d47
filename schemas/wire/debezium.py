"""Events of Debezium's MySQL and MariaDB connectors (JSON converter, schemas on or off) as changes of
rows.

The meaning of Debezium's numbers depends on the column's type, and its topics contain no definition:
the caller gives the table. Supported are Debezium's default modes (time adaptive_time_microseconds,
binary bytes), decimal `precise` or `string`, bigint.unsigned `long` or `precise`. With schemas on, the
schema is compared with the table: another mode or another scale is then refused, which bare numbers
would not reveal (schemas/wire/debezium_schema.py).

What a reader must know:

- `position` is `(0, file, pos, 2 * row + half)` of the row event. Debezium writes an update that moves
  the key as a delete and an insert with the same source fields: the insert is the second half of the
  row (1), all else the first.
- Snapshot rows have no position: all of them share one in Debezium, and only their Kafka offsets
  differ. Nor do they have a commit time: their `ts_ms` is the time at which they were read, which may
  be long after the state that they show. They are recognised by their op `r` alone: a connector that
  was killed in a blocking snapshot marks events of the log with `snapshot: true`, too (observed with
  3.5.0).
- There is no counterpart of `prev` and `gen`: gaps and zombies of Debezium cannot be detected.
- Debezium has already replaced zero dates (by null, or the epoch in NOT NULL columns): that loss is not
  undone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from schemas.errors import EnvelopeError
from schemas.problems import Problem
from schemas.table.model import Row, Table
from schemas.values.converter import compile_row
from schemas.wire.debezium_schema import explain_schema_problem
from schemas.wire.debezium_values import CONVERSION_ERRORS, DoubtfulValueError, make_debezium_converter
from schemas.wire.images import has_plain_names, make_image_reader, make_image_type
from schemas.wire.position import Position, parse_binlog_file_number


class ConnectorModes(msgspec.Struct, frozen=True):
    """Settings of the connector that events do not show, as far as the configuration states them."""

    decimal_strings: bool = False
    """Whether decimal.handling.mode=string."""
    binaries: str | None = None
    """binary.handling.mode; None: not configured."""
    times: bool = False
    """Whether time.precision.mode is declared to be adaptive_time_microseconds."""


class EventOrigin(msgspec.Struct, gc=False):
    """The origin of an event.

    A snapshot row has no `position`, and `ts_ms` (the commit time at the source) 0.
    """

    db: str
    table: str
    ts_ms: int
    position: Position | None


class DebeziumChange(msgspec.Struct, gc=False):
    """One event.

    `op`: c, u, d, r (snapshot read) or t (truncate); images are wire values in the order of the
    columns.
    """

    op: str
    before: Row | None
    after: Row | None
    source: EventOrigin


class _Source(msgspec.Struct, gc=False):
    db: str = msgspec.field(name="db")
    ts_ms: int = msgspec.field(name="ts_ms")
    table: str | None = msgspec.field(name="table", default=None)
    file: str = msgspec.field(name="file", default="")
    pos: int = msgspec.field(name="pos", default=0)
    row: int = msgspec.field(name="row", default=0)


class _LooseEvent(msgspec.Struct):
    """An event decoded without a table, to explain what is wrong with it."""

    op: str = msgspec.field(name="op")
    source: _Source = msgspec.field(name="source")
    before: dict[str, Any] | None = msgspec.field(name="before", default=None)
    after: dict[str, Any] | None = msgspec.field(name="after", default=None)


class _LooseEventWithSchema(msgspec.Struct):
    payload: _LooseEvent = msgspec.field(name="payload")


_LOOSE = msgspec.json.Decoder(_LooseEvent)
_LOOSE_WITH_SCHEMA = msgspec.json.Decoder(_LooseEventWithSchema)
_file_number = functools.lru_cache(maxsize=16)(parse_binlog_file_number)

#: The JSON converter writes the schema first; without schemas an event begins otherwise.
_HAS_SCHEMA = b'{"schema":'


def read_debezium_commit_ms(raw: bytes) -> int | None:
    """Return the source's commit time of a record in ms; None for a snapshot row or a record that is
    not Debezium's.
    """
    try:
        event = _decode_loosely(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if event.op == "r" else event.source.ts_ms


def _decode_loosely(raw: bytes) -> _LooseEvent:
    try:
        return _LOOSE.decode(raw)
    except msgspec.ValidationError:
        return _LOOSE_WITH_SCHEMA.decode(raw).payload


class _Converters:
    """Converts a table's images to wire values.

    `schema`: the event came with its schema, which states the form of the values.
    """

    def __init__(self, table: Table, modes: ConnectorModes, *, schema: bool) -> None:
        known = "bytes" if schema and modes.binaries is None else modes.binaries
        self.each = [
            make_debezium_converter(
                column.type,
                decimal_strings=modes.decimal_strings,
                binaries=known,
                times_known=schema or modes.times,
            )
            for column in table.columns
        ]
        self.row = compile_row(self.each)


class DebeziumDecoder:
    """Decodes a record's value to a DebeziumChange of `table`. The caller skips tombstones (records
    without a value).

    Raises EnvelopeError if the envelope is not Debezium's, if the columns are not the table's, or if
    values or the schema do not fit.
    """

    def __init__(self, table: Table, modes: ConnectorModes) -> None:
        self._table, self._modes = table, modes
        self._bare = _Converters(table, modes, schema=False)
        self._shown = _Converters(table, modes, schema=True)
        event = _make_payload_type(table)
        with_schema = msgspec.defstruct("WithSchema", [("payload", event), ("schema", msgspec.Raw, b"")])
        self._image_values = make_image_reader(table.column_names)
        self._exact = None if has_plain_names(table.column_names) else set(table.column_names)
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(event).decode
        self._decode_with_schema: Callable[[bytes], Any] = msgspec.json.Decoder(with_schema).decode
        self._schema = b""

    def __call__(self, raw: bytes) -> DebeziumChange:
        schema = raw.startswith(_HAS_SCHEMA)
        try:
            event = self._with_schema(raw) if schema else self._decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._explain_misfit(raw, error) from error
        op, before, after = event.op, event.before, event.after
        if op not in _IMAGES:
            raise EnvelopeError(
                f"Debezium's op {op!r} does not belong to a MySQL table", "find out what writes to this topic"
            )
        with_before, with_after = _IMAGES[op]
        converters = self._shown if schema else self._bare
        return DebeziumChange(
            op,
            self._convert_values(before, converters) if with_before else None,
            self._convert_values(after, converters) if with_after else None,
            _build_origin(event.source, op, self._table),
        )

    def _with_schema(self, raw: bytes) -> Any:
        whole = self._decode_with_schema(raw)
        schema = bytes(whole.schema)
        if schema != self._schema:  # the same bytes for every event, until the table or the connector changes
            problem = explain_schema_problem(
                schema,
                self._table,
                decimal_strings=self._modes.decimal_strings,
                binaries=self._modes.binaries,
            )
            if problem:
                raise EnvelopeError.from_problem(problem)
            self._schema = schema
        return whole.payload

    def _convert_values(self, image: Any, converters: _Converters) -> Row:
        if image is None:
            raise EnvelopeError(
                f"Debezium's event of {self._table.db}.{self._table.name} lacks a row image",
                "set binlog_row_image=FULL at the source",
            )
        if self._exact is not None and image.keys() != self._exact:
            raise self._explain_other_columns(set(image))
        values = self._image_values(image)
        try:
            return converters.row(values)
        except CONVERSION_ERRORS as error:
            raise self._explain_unconverted(values, error, converters) from error

    def _explain_unconverted(
        self, values: tuple[Any, ...], error: Exception, converters: _Converters
    ) -> EnvelopeError:
        for column, convert, value in zip(self._table.columns, converters.each, values, strict=True):
            try:
                if value is not None:
                    convert(value)
            except CONVERSION_ERRORS as found:
                problem = found.problem if isinstance(found, DoubtfulValueError) else Problem(str(found))
                return EnvelopeError(
                    f"column {column.name}: Debezium's value is no {column.type.kind} in its "
                    f"default modes ({problem.what})",
                    problem.remedy,
                )
        return EnvelopeError(f"Debezium's values cannot be read: {error}")

    def _explain_misfit(self, raw: bytes, error: Exception) -> EnvelopeError:
        """Return an error that explains why the event does not belong to this table."""
        try:
            event = _decode_loosely(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return EnvelopeError(
                f"not an event of Debezium's MySQL connector: {error}. Its JSON converter without flattening "
                "(no ExtractNewRecordState) is understood"
            )
        return self._explain_other_columns(set(event.after or event.before or self._table.column_names))

    def _explain_other_columns(self, seen: set[str]) -> EnvelopeError:
        expected = set(self._table.column_names)
        lacks, more = sorted(expected - seen), sorted(seen - expected)
        difference = f"no column {', '.join(lacks)}" if lacks else f"a column {', '.join(more)}"
        return EnvelopeError(
            f"Debezium's event has {difference}: the table's active definition and the topic do not fit (an "
            "ALTER TABLE, or columns that the connector leaves out)"
        )


#: op → (it has a before-image, an after-image)
_IMAGES = {"c": (False, True), "r": (False, True), "u": (True, True), "d": (True, False), "t": (False, False)}


def _make_payload_type(table: Table) -> type[msgspec.Struct]:
    """Return the structure of an event with exactly the columns of `table`, no fewer and no more."""
    names = table.column_names
    image = make_image_type(names, names, exact=True)
    return msgspec.defstruct(
        "Payload",
        [("op", str), ("source", _Source), ("before", image | None, None), ("after", image | None, None)],
        gc=False,
    )


def _build_origin(source: _Source, op: str, table: Table) -> EventOrigin:
    name = source.table or table.name
    if op == "r":
        return EventOrigin(source.db, name, 0, None)
    try:
        file = _file_number(source.file)
    except ValueError as error:
        raise EnvelopeError(f"Debezium's event has no usable position: {error}") from error
    return EventOrigin(source.db, name, source.ts_ms, (0, file, source.pos, 2 * source.row + (op == "c")))


def format_debezium_topic(prefix: str, source: str, db: str, table: str) -> str:
    """Return the topic that Debezium uses for a table: characters that Kafka refuses in a name are
    replaced by "_".
    """
    return f"{prefix}.{source}.{_escape_topic_part(db)}.{_escape_topic_part(table)}"


def _escape_topic_part(name: str) -> str:
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
