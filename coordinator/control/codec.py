"""The records of the control topic and their encoding: versioned JSON. No other module knows the format.

A message is a claim, a beat, a batch of records, the beginning of a snapshot, or a resignation. A
snapshot is its marker and the batches that follow it in the same transaction, so readers of committed
messages see all of it or none. The kind of a record is the first part of its key
(`core.records.build_record_key`). A kind that is not known here is skipped: a newer minor version has
written it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from coordinator.core.records import (
    AgentRecord,
    ConfigRecord,
    CounterRecord,
    DurableRecord,
    MoveRecord,
    PausedRecord,
    PipelineRecord,
    StoredRecord,
    UnitRecord,
    UnreadableRecord,
)

CONTROL_FORMAT_VERSION = "1.1"
CONTROL_MAJOR_VERSION = 1
#: The largest payload of one message, well below the 1 MB that brokers accept by default.
MESSAGE_BYTES = 512 * 1024

RecordChange = tuple[str, DurableRecord | None]
"""A key and its new record; None deletes it."""


class Candidate(msgspec.Struct, frozen=True):
    """A coordinator that can lead."""

    name: str = msgspec.field(name="name")
    address: str = msgspec.field(name="address")
    """"host:port" of its gRPC interface, as others reach it."""
    rest: str = msgspec.field(name="rest", default="")
    """"host:port" of its REST interface, as others reach it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The candidate leads from this message on; the message's offset is the term (owner_rev). `nonce`
    identifies the attempt.
    """

    candidate: Candidate
    nonce: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The batches that follow replace everything before. It repeats the claim, which may be deleted then."""

    rev: int
    candidate: Candidate
    nonce: str


@dataclass(frozen=True, slots=True)
class Changes:
    rev: int
    changes: tuple[RecordChange, ...]


@dataclass(frozen=True, slots=True)
class Beat:
    """The leader of this term is alive."""

    rev: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """The leader of this term has given it up, so that candidates need not wait."""

    rev: int


Message = Claim | Snapshot | Changes | Beat | Resigned


class UndecodableError(ValueError):
    """The message is not in this format: another program has written to the topic."""


class NewerVersionError(ValueError):
    """A newer major version wrote the message. This program must not lead, because it would lose what it
    cannot read.
    """


class _Wire(msgspec.Struct, omit_defaults=True):
    v: str = msgspec.field(name="v")
    kind: str = msgspec.field(name="kind")
    rev: int = msgspec.field(name="rev", default=0)
    nonce: str = msgspec.field(name="nonce", default="")
    candidate: Candidate | None = msgspec.field(name="candidate", default=None)
    records: list[tuple[str, msgspec.Raw]] = msgspec.field(name="records", default_factory=list)


_RECORDS: dict[str, type[StoredRecord]] = {
    "counter": CounterRecord,
    "agent": AgentRecord,
    "unit": UnitRecord,
    "paused": PausedRecord,
    "move": MoveRecord,
    "pipeline": PipelineRecord,
    "configuration": ConfigRecord,
}
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_Wire)
_RECORD_DECODERS: dict[str, msgspec.json.Decoder[DurableRecord]] = {
    kind: msgspec.json.Decoder(cls) for kind, cls in _RECORDS.items()
}
_NOTHING = msgspec.Raw(b"null")
_OVERHEAD = 16


def encode_message(message: Message) -> bytes:
    """Return the bytes of a message. `Changes` that could be too large for one message must be split
    before (`encode_batches`).
    """
    match message:
        case Claim(candidate, nonce):
            wire = _Wire(CONTROL_FORMAT_VERSION, "claim", nonce=nonce, candidate=candidate)
        case Snapshot(rev, candidate, nonce):
            wire = _Wire(CONTROL_FORMAT_VERSION, "snapshot", rev, nonce, candidate)
        case Changes(rev, changes):
            wire = _Wire(
                CONTROL_FORMAT_VERSION,
                "records",
                rev,
                records=[(key, _encode_record(record)) for key, record in changes],
            )
        case Beat(rev):
            wire = _Wire(CONTROL_FORMAT_VERSION, "beat", rev)
        case Resigned(rev):
            wire = _Wire(CONTROL_FORMAT_VERSION, "resigned", rev)
    return _ENCODER.encode(wire)


def _encode_record(record: DurableRecord | None) -> msgspec.Raw:
    if isinstance(record, UnreadableRecord):
        return msgspec.Raw(record.data)
    return _NOTHING if record is None else msgspec.Raw(_ENCODER.encode(record))


def decode_message(data: bytes | None) -> Message:
    """Return the message. Raises UndecodableError, NewerVersionError."""
    try:
        wire = _DECODER.decode(data or b"")
        major = int(wire.v.partition(".")[0])
        if major > CONTROL_MAJOR_VERSION:
            raise NewerVersionError(
                f"the control topic has a record of version {wire.v}, this is {CONTROL_FORMAT_VERSION}"
            )
        return _build_message(wire)
    except NewerVersionError:
        raise
    except ValueError as error:  # msgspec's errors are ValueErrors, too
        raise UndecodableError(f"not a record of the control topic: {error}") from error


def _build_message(wire: _Wire) -> Message:
    if wire.kind == "records":
        return Changes(wire.rev, tuple(_decode_changes(wire.records)))
    if wire.kind == "beat":
        return Beat(wire.rev)
    if wire.kind == "resigned":
        return Resigned(wire.rev)
    if wire.candidate is not None and wire.kind == "claim":
        return Claim(wire.candidate, wire.nonce)
    if wire.candidate is not None and wire.kind == "snapshot":
        return Snapshot(wire.rev, wire.candidate, wire.nonce)
    raise UndecodableError(f"unknown kind {wire.kind!r}")


def _decode_changes(records: Sequence[tuple[str, msgspec.Raw]]) -> Iterator[RecordChange]:
    for key, raw in records:
        decoder = _RECORD_DECODERS.get(key.partition("/")[0])
        if decoder is not None:
            yield key, None if bytes(raw) == b"null" else _decode_record(decoder, key, raw)


def _decode_record(decoder: msgspec.json.Decoder[DurableRecord], key: str, raw: msgspec.Raw) -> DurableRecord:
    """Return the record. One that cannot be decoded must not take the others of its message with it."""
    try:
        return decoder.decode(raw)
    except ValueError as error:
        return UnreadableRecord(key, bytes(raw), f"it cannot be decoded: {error}")


def encode_batches(rev: int, changes: Sequence[RecordChange], limit: int = MESSAGE_BYTES) -> Iterator[bytes]:
    """Yield the messages with `changes` in order, each of at most about `limit` bytes (a record is never
    split).
    """
    gathered: list[tuple[str, msgspec.Raw]] = []
    size = 0
    for key, record in changes:
        raw = _encode_record(record)
        cost = len(key) + len(bytes(raw)) + _OVERHEAD
        if gathered and size + cost > limit:
            yield _ENCODER.encode(_Wire(CONTROL_FORMAT_VERSION, "records", rev, records=gathered))
            gathered, size = [], 0
        gathered.append((key, raw))
        size += cost
    if gathered:
        yield _ENCODER.encode(_Wire(CONTROL_FORMAT_VERSION, "records", rev, records=gathered))


def encode_control_snapshot(
    rev: int, candidate: Candidate, nonce: str, records: Mapping[str, DurableRecord]
) -> Iterator[bytes]:
    """Yield the messages of a snapshot, for one transaction."""
    yield encode_message(Snapshot(rev, candidate, nonce))
    yield from encode_batches(rev, [(key, record) for key, record in sorted(records.items())])
