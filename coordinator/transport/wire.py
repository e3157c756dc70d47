"""Encoding and decoding of the core's messages (coordinator/core/messages.py) as msgpack.

A frame is what gRPC carries: the version of the protocol, then one message or several that were waiting
together (a gRPC message costs more than most of these). The question for the leader and its answer begin
with the version as well. So bytes of another version are recognised whatever they contain, and are
refused with an error that names both versions. Within the version, unknown fields are ignored and
messages of an unknown kind are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from coordinator.core.messages import PROTOCOL_VERSION, Down, Up, WireMessage
from coordinator.transport.events import LeaderInfo
from schemas.units import Int64

#: The most messages in one frame.
FRAME = 256
#: The most characters of a decoder's message that an error repeats, because it may contain data of the
#: sender.
_LONGEST = 200


class WireError(Exception):
    """Bytes that no sender of this version of the protocol can have sent."""


class Opening(WireMessage, frozen=True):
    """The first message of every stream. `instance` identifies the client object: its next stream
    replaces this one.
    """

    agent: str
    instance: str


class Serving(WireMessage, frozen=True):
    """The answer to an Opening: the leader of term `owner_rev` serves the stream."""

    owner_rev: Int64


class NotLeader(WireMessage, frozen=True):
    """The stream ends, and the agent has to ask again. `address` "": no leader is known."""

    known_rev: Int64
    address: str


FromAgent = Opening | Up
FromLeader = Serving | NotLeader | Down

_T = TypeVar("_T")
_Ours = Annotated[int, msgspec.Meta(ge=PROTOCOL_VERSION, le=PROTOCOL_VERSION)]


class _Answer(msgspec.Struct, array_like=True):
    version: _Ours
    leader: LeaderInfo


class _Frame(msgspec.Struct, Generic[_T], array_like=True):
    version: _Ours
    messages: Annotated[list[_T], msgspec.Meta(max_length=FRAME)]


class _Kind(msgspec.Struct, array_like=True):
    kind: str


_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(_Answer)
_kinds = msgspec.msgpack.Decoder(_Kind)
_raw_frames = msgspec.msgpack.Decoder(_Frame[msgspec.Raw])
#: The errors of msgspec. Its own errors and UnicodeDecodeError are ValueErrors; an unknown field may be
#: nested too deep to be skipped.
_UNDECODABLE = (ValueError, RecursionError)


class _FrameReader(Generic[_T]):
    """Reads the frames of one direction. `union`: the kinds of messages in them."""

    def __init__(self, union: Any) -> None:
        self._frames: msgspec.msgpack.Decoder[_Frame[_T]] = msgspec.msgpack.Decoder(_Frame[union])
        self._one: msgspec.msgpack.Decoder[_T] = msgspec.msgpack.Decoder(union)
        self._known = {kind.__struct_config__.tag for kind in union.__args__}

    def read_frame(self, data: bytes) -> list[_T]:
        """Return the messages of a frame, in order. Raises WireError."""
        try:
            return self._frames.decode(data).messages
        except msgspec.ValidationError:  # possibly only a message of an unknown kind
            return self._read_one_by_one(data)
        except _UNDECODABLE as error:
            raise _build_unreadable_error("frame", data, error) from error

    def _read_one_by_one(self, data: bytes) -> list[_T]:
        try:
            found = _raw_frames.decode(data).messages
            return [self._one.decode(raw) for raw in found if _kinds.decode(raw).kind in self._known]
        except _UNDECODABLE as error:
            raise _build_unreadable_error("frame", data, error) from error


_up = _FrameReader[FromAgent](FromAgent)
_down = _FrameReader[FromLeader](FromLeader)


def encode_frame(messages: Sequence[FromAgent] | Sequence[FromLeader]) -> bytes:
    """Return one frame of messages, in order; at most `FRAME` of them."""
    return _encoder.encode((PROTOCOL_VERSION, messages))


def decode_agent_frame(data: bytes) -> list[FromAgent]:
    """Return the messages in a frame of an agent. Raises WireError."""
    return _up.read_frame(data)


def decode_leader_frame(data: bytes) -> list[FromLeader]:
    """Return the messages in a frame of the leader. Raises WireError."""
    return _down.read_frame(data)


def put_question() -> bytes:
    """Return the request of AskLeader."""
    return _encoder.encode((PROTOCOL_VERSION,))


def check_question(data: bytes) -> None:
    """Raise WireError for a question of another version, because its caller could not read the answer."""
    if _peek_version(data) != PROTOCOL_VERSION:
        raise _build_unreadable_error("question", data, None)


def put_leader(leader: LeaderInfo) -> bytes:
    """Return the answer to AskLeader."""
    return _encoder.encode((PROTOCOL_VERSION, leader))


def get_leader(data: bytes) -> LeaderInfo:
    """Return the leader in an answer to AskLeader. Raises WireError."""
    try:
        return _answers.decode(data).leader
    except _UNDECODABLE as error:
        raise _build_unreadable_error("answer", data, error) from error


def _peek_version(data: bytes) -> int | None:
    """Return the version at the beginning of the bytes; None: they contain none.

    Every frame, question and answer is a short list (its head is one byte), and its first entry a number
    below 128 (one byte as well).
    """
    has_version = len(data) > 1 and 0x90 < data[0] < 0xA0 and data[1] < 0x80
    return data[1] if has_version else None


def _build_unreadable_error(what: str, data: bytes, error: Exception | None) -> WireError:
    version = _peek_version(data)
    if version == PROTOCOL_VERSION:
        return WireError(f"{len(data)} bytes that are no {what}: {str(error)[:_LONGEST]}")
    theirs = (
        f"version {version} of the protocol" if version is not None else "version 1 of the protocol, or none"
    )
    return WireError(
        f"a {what} of {theirs}, and this side speaks version {PROTOCOL_VERSION}: "
        "agents and coordinators have to be of the same version"
    )
