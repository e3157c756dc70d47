"""Bytes of Kafka records ↔ the structures of event.py and records.py; the one place that knows the JSON.

The same structure always gives the same bytes (golden files pin them). Unknown fields are ignored, so that a newer
minor version can be read; a newer major version is refused. Decoders are built once: building one costs more than
decoding ten thousand events.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from schemas.errors import EnvelopeError
from schemas.event import ENVELOPE_VERSION, Event
from schemas.records import StoredPosition, Watermark
from schemas.table import Table, Value

MAJOR = int(ENVELOPE_VERSION.partition(".")[0])

_T = TypeVar("_T")
#: Debezium's are "3.0.1.Final": its records are foreign, not newer.
_OWN_VERSION = re.compile(r"([0-9]+)\.[0-9]+")
_ENCODER = msgspec.json.Encoder()
_EVENT = msgspec.json.Decoder(Event)
_KEY = msgspec.json.Decoder(dict[str, Value])
_TABLE = msgspec.json.Decoder(Table)
_STORED_POSITION = msgspec.json.Decoder(StoredPosition)
_WATERMARK = msgspec.json.Decoder(Watermark)
#: What only `m` events have. They are the last fields, so a row event's encoding simply ends before them.
_ONLY_M = b',"definition":null,"ddl":null,"chunk":null}'


class _Version(msgspec.Struct):
    version: str


class _Versioned(msgspec.Struct):
    source: _Version


_VERSIONED = msgspec.json.Decoder(_Versioned)


def encode_event(event: Event) -> bytes:
    """Return the Kafka value of `event`: compact UTF-8 JSON, fields in the order of the structure."""
    raw = _ENCODER.encode(event)
    return raw[: -len(_ONLY_M)] + b"}" if raw.endswith(_ONLY_M) else raw


def decode_event(raw: bytes) -> Event:
    """Return the event of a Kafka value. Raises EnvelopeError (newer major version, or not an envelope)."""
    try:
        event = _EVENT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse_newer(_version_of(raw))
        raise EnvelopeError(
            f"not a rowlock event: {error}; the record begins {raw[:16]!r}. "
            "Something else writes to this topic, or the record is damaged: look at it, then skip or remove it"
        ) from error
    if event.source.version != ENVELOPE_VERSION:
        _refuse_newer(event.source.version)
    return event


def _version_of(raw: bytes) -> str:
    """The version of a record that cannot be read otherwise, or "" when not even that is there."""
    try:
        return _VERSIONED.decode(raw).source.version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _refuse_newer(version: str) -> None:
    match = _OWN_VERSION.fullmatch(version)
    if match and int(match[1]) > MAJOR:
        raise EnvelopeError(
            f"the event was written in envelope version {version}, this reader knows up to {MAJOR}.x: "
            "upgrade the reading side before the capturing side"
        )


def encode_key(key: dict[str, Value]) -> bytes:
    """Return the Kafka key: a JSON object of the key columns, in the order of `key` (which is the key's order)."""
    return _ENCODER.encode(key)


def decode_key(raw: bytes) -> dict[str, Value]:
    """Return the key columns, in key order. Raises EnvelopeError."""
    return _decode(_KEY, raw, "a key")


def encode_table(table: Table) -> bytes:
    """Return the JSON of a table definition, as definition events and progress rows hold it."""
    return _ENCODER.encode(table)


def decode_table(raw: bytes | str) -> Table:
    """Return the table of `encode_table`'s JSON. Raises EnvelopeError."""
    return _decode(_TABLE, raw, "a table definition")


def encode_stored_position(record: StoredPosition) -> bytes:
    """Return the Kafka value of a position record."""
    return _ENCODER.encode(record)


def decode_stored_position(raw: bytes) -> StoredPosition:
    """Return the position record. Raises EnvelopeError."""
    return _decode(_STORED_POSITION, raw, "a position record")


def encode_watermark(record: Watermark) -> bytes:
    """Return the Kafka value of a watermark."""
    return _ENCODER.encode(record)


def decode_watermark(raw: bytes) -> Watermark:
    """Return the watermark. Raises EnvelopeError."""
    return _decode(_WATERMARK, raw, "a watermark")


def _decode(decoder: msgspec.json.Decoder[_T], raw: bytes | str, what: str) -> _T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnvelopeError(
            f"not {what} of rowlock: {error}; it begins {raw[:16]!r}. Something else wrote it, or it is damaged"
        ) from error
