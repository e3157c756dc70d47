"""Bytes of Kafka records ↔ the structures of event.py and records.py; the only module that depends on
the JSON.

The same structure always has the same bytes (golden files pin them). Unknown fields are ignored, so
that a newer minor version can be read; a newer major version is refused. Decoders are built once:
building one costs more than decoding ten thousand events.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from schemas.errors import EnvelopeError
from schemas.findings import START_OVER
from schemas.table.model import Table
from schemas.table.names import find_meant_tables, format_table_text
from schemas.wire.copies import CopyRequest
from schemas.wire.event import ENVELOPE_VERSION, NEWEST_VERSION, EventEnvelope, Undecodable
from schemas.wire.records import StoredPosition, Watermark
from schemas.wire.topic_names import is_former

EVENT_MAJOR_VERSION = int(NEWEST_VERSION.partition(".")[0])

POSITION_FORMAT = 4
"""The newest format of position records that this version reads; 2 has names of topics that older
versions do not compute, 3 has rows that a statement removed (`CopyState.removed`, `CopyState.keys`), which
older versions would forget; 4 has a history of several eras (`StoredPosition.began`), of which older versions
would know only the last one.
"""


class _RequiredFormat(msgspec.Struct):
    """A position record from which older versions must not continue.

    `needs`: the lowest format that a reader must support.
    """

    needs: int = msgspec.field(name="needs")
    record: msgspec.Raw = msgspec.field(name="record")


_T = TypeVar("_T")
#: Debezium's are "3.0.1.Final": its records are foreign, not newer.
_OWN_VERSION = re.compile(r"([0-9]+)\.[0-9]+")
_ENCODER = msgspec.json.Encoder()
_EVENT = msgspec.json.Decoder(EventEnvelope)
_TABLE = msgspec.json.Decoder(Table)
_STORED_POSITION = msgspec.json.Decoder(StoredPosition)
_WATERMARK = msgspec.json.Decoder(Watermark)
_NEEDS = msgspec.json.Decoder(_RequiredFormat)
_COPY_REQUEST = msgspec.json.Decoder(CopyRequest)
#: Fields that only `m` events have. They are the last ones, so empty ones are cut off the end of an
#: encoding: first the newer ones (an event without them keeps its former bytes), then all.
_LEFT_OUT = (
    b',"copy":null,"columns":null}',
    b',"effect":null,"stop":null}',
    b',"definition":null,"ddl":null,"chunk":null}',
)
_ALL_DECODED = b',"undecodable":null}'
_NO_LOG = b',"log":null}'
_NO_KEYS = b',"keys":null}'
_NO_LEFT_OUT_COLUMNS = b',"left_out":null}'


class _Version(msgspec.Struct):
    version: str = msgspec.field(name="version")


class _Versioned(msgspec.Struct):
    source: _Version = msgspec.field(name="source")


_VERSIONED = msgspec.json.Decoder(_Versioned)


def encode_event_value(event: EventEnvelope) -> bytes:
    """Return the Kafka value of `event`: compact UTF-8 JSON, fields in the order of the structure."""
    if event.left_out is not None:
        whole = encode_event_value(msgspec.structs.replace(event, left_out=None))
        return b'%b,"left_out":%b}' % (whole[:-1], _ENCODER.encode(event.left_out))
    if event.keys is not None:
        whole = encode_event_value(msgspec.structs.replace(event, keys=None))
        return b'%b,"keys":%b}' % (whole[:-1], _ENCODER.encode(event.keys))
    if event.log is not None:
        whole = encode_event_value(msgspec.structs.replace(event, log=None))
        return b'%b,"log":%b}' % (whole[:-1], _ENCODER.encode(event.log))
    if event.undecodable is not None:
        whole = encode_event_value(msgspec.structs.replace(event, undecodable=None))
        return mark_undecodable(whole, event.undecodable)
    raw = _ENCODER.encode(event)
    for nothing in (_NO_LEFT_OUT_COLUMNS, _NO_KEYS, _NO_LOG, _ALL_DECODED):
        raw = raw.removesuffix(nothing) + b"}"
    for nothing in _LEFT_OUT:
        if not raw.endswith(nothing):
            break
        raw = raw[: -len(nothing)] + b"}"
    return raw


def mark_undecodable(raw: bytes, columns: Undecodable) -> bytes:
    """Return the value of an event, `raw`, with the names of its undecodable columns as its last member."""
    return b'%b,"undecodable":%b}' % (raw[:-1], _ENCODER.encode(columns))


def decode_event(raw: bytes) -> EventEnvelope:
    """Return the event of a Kafka value. Raises EnvelopeError (newer major version, or not an envelope)."""
    try:
        event = _EVENT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse_newer(_read_version(raw))
        raise EnvelopeError(
            f"not a rowlock event: {error}; the record begins {raw[:16]!r}. "
            f"Something else writes to this topic, or the record is damaged",
            f"end that, and {START_OVER}",
        ) from error
    if event.source.version != ENVELOPE_VERSION:
        _refuse_newer(event.source.version)
    return event


def _read_version(raw: bytes) -> str:
    """Return the version of a record that cannot be decoded otherwise; "" if even that is missing."""
    try:
        return _VERSIONED.decode(raw).source.version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _refuse_newer(version: str) -> None:
    match = _OWN_VERSION.fullmatch(version)
    if match and int(match[1]) > EVENT_MAJOR_VERSION:
        raise EnvelopeError(
            f"the event was written in envelope version {version}, this reader "
            f"knows up to {EVENT_MAJOR_VERSION}.x",
            "upgrade the reading side before the capturing side",
        )


def encode_table(table: Table) -> bytes:
    """Return the JSON of a table definition, as definition events and progress rows hold it."""
    return _ENCODER.encode(table)


def decode_table(raw: bytes | str) -> Table:
    """Return the table of `encode_table`'s JSON. Raises EnvelopeError."""
    return _decode_json(_TABLE, raw, "a table definition")


def encode_stored_position(record: StoredPosition) -> bytes:
    """Return the Kafka value of a position record.

    Versions that do not know what it contains cannot decode it.
    """
    raw = _ENCODER.encode(record)
    if record.topics is None:
        raw = raw.removesuffix(b',"topics":null}') + b"}"
    if record.began is None:
        raw = raw.replace(b',"began":null', b"", 1)
    needs = _find_needed_format(record)
    return raw if needs is None else b'{"needs":%d,"record":%b}' % (needs, raw)


def _find_needed_format(record: StoredPosition) -> int | None:
    """Return the lowest format that a reader of the record must support; None: any."""
    if record.began is not None:
        return 4
    if any(state.keys or state.removed is not None for state in record.copies.values()):
        return 3
    names = (record.topics or {}).items()
    if all(is_former(record.source, find_meant_tables(text)[0], topic) for text, topic in names):
        return None
    return 2


def decode_stored_position(raw: bytes) -> StoredPosition:
    """Return the position record. Raises EnvelopeError.

    An older version wrote the same text for two tables if a name contains a dot; the entry is then
    taken for both (`find_meant_tables`).
    """
    if raw.startswith(b'{"needs":'):
        wrapped = _decode_json(_NEEDS, raw, "a position record")
        if wrapped.needs > POSITION_FORMAT:
            raise EnvelopeError(
                f"a newer version of rowlock wrote the position record (format {wrapped.needs}, this "
                f"version reads {POSITION_FORMAT})",
                "run that version or a later one",
            )
        raw = bytes(wrapped.record)
    record = _decode_json(_STORED_POSITION, raw, "a position record")
    return msgspec.structs.replace(
        record,
        snapshot_done=tuple(_split_ambiguous_names(dict.fromkeys(record.snapshot_done))),
        anchors=_split_ambiguous_names(record.anchors),
        stops=_split_ambiguous_names(record.stops),
        copies={format_table_text(state.db, state.table): state for state in record.copies.values()},
    )


def _split_ambiguous_names(by_text: dict[str, _T]) -> dict[str, _T]:
    return {
        format_table_text(*name): what for text, what in by_text.items() for name in find_meant_tables(text)
    }


def encode_watermark(record: Watermark) -> bytes:
    """Return the Kafka value of a watermark."""
    return _ENCODER.encode(record)


def decode_watermark(raw: bytes) -> Watermark:
    """Return the watermark. Raises EnvelopeError."""
    return _decode_json(_WATERMARK, raw, "a watermark")


def encode_copy_request(record: CopyRequest) -> bytes:
    """Return the Kafka value of a request for a copy."""
    return _ENCODER.encode(record)


def decode_copy_request(raw: bytes) -> CopyRequest:
    """Return the request for a copy. Raises EnvelopeError."""
    return _decode_json(_COPY_REQUEST, raw, "a request for a copy")


def _decode_json(decoder: msgspec.json.Decoder[_T], raw: bytes | str, what: str) -> _T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnvelopeError(
            f"not {what} of rowlock: {error}; it begins {raw[:16]!r}. Something "
            "else wrote it, or it is damaged"
        ) from error
