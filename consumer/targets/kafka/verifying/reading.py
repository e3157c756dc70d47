"""Readers of the records of a Kafka target, which decode a record as its users do, by the published
form of the format. Pure.

They share no code with the writers of the records (consumer/targets/kafka/formats): rowlock's events
are decoded like the events of its own topics, Debezium's values like those that Debezium itself writes,
Canal's by the types that each message contains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from consumer.targets.kafka.formats.model import Origin, State
from consumer.targets.kafka.verifying.canal import decode_canal_values, parse_deleted_origin
from schemas.errors import EnvelopeError
from schemas.table.model import Column, Table
from schemas.values.converter import Convert
from schemas.wire.codec import decode_event
from schemas.wire.debezium_values import CONVERSION_ERRORS, make_debezium_converter

RecordDecoder = Callable[[bytes | None, bytes | None], State | None]
"""(key, value) of a record → the state it leaves; None: it leaves none.

Raises EnvelopeError if the record does not have the format.
"""
_parse: Callable[[bytes], Any] = msgspec.json.decode
UNREADABLE_VALUE: Final = object()
"""The value of a column that the record has in the form of an older type, so that it cannot be decoded."""
_NOT_READ = (msgspec.DecodeError, AttributeError, IndexError, *CONVERSION_ERRORS)


def build_record_reader(word: str, table: Table, origin: Origin) -> RecordDecoder:
    """Return the reader of a table's records.

    `word`: name of the format; `table`: the table as it is written; `origin`: the origin of its own
    records.
    """
    read = _READERS[word](table, (origin.source, origin.db, origin.table))

    def read_record(key: bytes | None, value: bytes | None) -> State | None:
        try:
            return read(key, value)
        except _NOT_READ as error:
            raise EnvelopeError(
                f"a record of the topic does not have format {word} ({type(error).__name__}: {error}): "
                "another program writes there, the route's format was changed, or a key column's type "
                "was changed"
            ) from error

    return read_record


def decode_key_document(key: bytes | None) -> Any:
    """Return the document of a record's key without its schema; None: the key is not a document."""
    try:
        document: Any = None if key is None else _parse(key)
    except msgspec.DecodeError:
        return None
    if not isinstance(document, dict) or document.keys() != {"schema", "payload"}:
        return document
    return document["payload"] if isinstance(document["schema"], dict) else document


def is_key_of_row(word: str, key: bytes | None, value: bytes, names: Sequence[str]) -> bool:
    """Return whether a record's key has its row's values of the routing key's columns `names`, in their
    order.
    """
    document = _parse(value)
    if word == "debezium-schemas":
        document = document["payload"]
    row = document if word == "plain" else document["data"][0] if word == "canal-json" else document["after"]
    decoded = decode_key_document(key)
    return isinstance(decoded, dict) and list(decoded.items()) == [(name, row.get(name)) for name in names]


# --- the formats


def _make_rowlock_reader(table: Table, origin: tuple[str, str, str]) -> RecordDecoder:
    def read(key: bytes | None, value: bytes | None) -> State | None:
        if value is None:
            return State(key)
        event = decode_event(value)
        source = event.source
        whose = (source.name, source.db, source.table)
        if event.op == "m":
            return None
        if event.op == "t":
            return State(None, cleared=True, origin=whose)
        if whose != origin:
            return State(key, None if event.op == "d" else {}, origin=whose)
        if event.op == "d":
            return State(key, origin=whose, deleted=_decode_image(event.before))
        return State(key, _decode_image(event.after), origin=whose)

    return read


def _decode_image(image: Any) -> dict[str, object]:
    if not isinstance(image, dict):
        raise TypeError("the record contains no row")
    return image


def _make_plain_reader(table: Table, origin: tuple[str, str, str]) -> RecordDecoder:
    def read(key: bytes | None, value: bytes | None) -> State | None:
        if key is None:
            return None
        return State(key) if value is None else State(key, _decode_image(_parse(value)))

    return read


def _make_debezium_reader(table: Table, origin: tuple[str, str, str]) -> RecordDecoder:
    keys = frozenset(table.key.columns)
    columns = [
        (
            column.name,
            _make_key_reader(column)
            if column.name in keys
            else _make_lenient_reader(_make_debezium_value_reader(column.type)),
        )
        for column in table.columns
    ]

    def convert_image(payload: Any) -> dict[str, object]:
        row = _decode_image(payload)
        return {
            name: None if row[name] is None else convert(row[name])
            for name, convert in columns
            if name in row
        }

    def read(key: bytes | None, value: bytes | None) -> State | None:
        if value is None:
            return State(key)
        event = _parse(value)
        event = event.get("payload", event)
        op, source = event["op"], event["source"]
        whose = (source["name"], source["db"], source["table"])
        if op == "t":
            return State(None, cleared=True, origin=whose)
        if op not in ("c", "r", "u", "d"):
            raise ValueError(f"op {op!r}")
        if whose != origin:
            return State(key, None if op == "d" else {}, origin=whose)
        if op == "d":
            return State(key, origin=whose, deleted=convert_image(event["before"]))
        return State(key, convert_image(event["after"]), origin=whose)

    return read


def _make_lenient_reader(convert: Convert) -> Convert:
    """Return a reader that accepts values of another type, because a record does not state which type
    it was written by.

    Such a value is read as UNREADABLE_VALUE.
    """

    def read(value: Any) -> Any:
        try:
            return convert(value)
        except CONVERSION_ERRORS:
            return UNREADABLE_VALUE

    return read


def _make_key_reader(column: Column) -> Convert:
    """Return the reader of a column that identifies the row, which must be readable.

    The reader raises ValueError, which names the column.
    """
    convert = _make_debezium_value_reader(column.type)

    def read(value: Any) -> Any:
        try:
            return convert(value)
        except CONVERSION_ERRORS as error:
            raise ValueError(f"column {column.name}: {type(error).__name__}") from error

    return read


def _make_debezium_value_reader(type_: Any) -> Convert:
    """Return the reader of a Debezium value.

    A number without a fixed scale contains its scale with each value; a float that is not a number is
    text.
    """
    any_scale = type_.kind == "decimal" and not type_.precision
    convert = make_debezium_converter(type_, decimal_strings=False)

    def read(value: Any) -> Any:
        if any_scale:
            scaled = msgspec.structs.replace(type_, precision=1, scale=int(value["scale"]))
            return make_debezium_converter(scaled, decimal_strings=False)(value["value"])
        return value if value in ("NaN", "Infinity", "-Infinity") else convert(value)

    return read


def _make_canal_reader(table: Table, origin: tuple[str, str, str]) -> RecordDecoder:
    names = frozenset(table.column_names)

    def read(key: bytes | None, value: bytes | None) -> State | None:
        if value is None:
            return State(key)
        message = _parse(value)
        kind = message["type"]
        if message["isDdl"]:
            if kind == "TRUNCATE":
                return State(None, cleared=True)
            whose = parse_deleted_origin(message["sql"]) if kind == "QUERY" else None
            return None if whose is None else State(None, cleared=True, origin=whose)
        if kind not in ("INSERT", "UPDATE", "DELETE"):
            raise ValueError(f"type {kind!r}")
        row = decode_canal_values(message, names)
        return State(key, deleted=row) if kind == "DELETE" else State(key, row)

    return read


_READERS: dict[str, Callable[[Table, tuple[str, str, str]], RecordDecoder]] = {
    "rowlock": _make_rowlock_reader,
    "plain": _make_plain_reader,
    "debezium": _make_debezium_reader,
    "debezium-schemas": _make_debezium_reader,
    "canal-json": _make_canal_reader,
}
