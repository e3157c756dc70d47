"""The core's messages (coordinator/core/messages.py) to bytes and back: msgpack, as those classes describe it.

A frame is what gRPC carries: the version of the protocol, then one message, or several that were waiting together (a gRPC message
costs more than most of ours). The question who leads and its answer begin with the version as well. So this side knows bytes of
another version whatever else is in them, and refuses them with an error that names both. Within the version it ignores fields that
it does not know, and leaves out messages of a kind that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from coordinator.core.messages import PROTOCOL_VERSION, Down, Up, WireMessage
from coordinator.transport.events import LeaderInfo
from schemas.units import Int64

#: Messages in one frame at most.
FRAME = 256
#: Characters of a decoder's message that an error repeats: the sender's words may be in it.
_LONGEST = 200


class WireError(Exception):
    """Bytes that no sender of this version of the protocol can have meant."""


class Opening(WireMessage, frozen=True):
    """The first message of every stream. `instance` names the client object: its next stream replaces this one."""

    agent: str
    instance: str


class Serving(WireMessage, frozen=True):
    """The answer to an Opening: the stream is served by the leader of `owner_rev`."""

    owner_rev: Int64


class NotLeader(WireMessage, frozen=True):
    """The stream ends: ask again. `address` "": no leader is known."""

    known_rev: Int64
    address: str


FromAgent = Opening | Up
FromOwner = Serving | NotLeader | Down

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
#: What msgspec raises for bytes. Its own errors and UnicodeDecodeError are ValueErrors; a field that is not known may be nested too deep to be passed over.
_UNDECODABLE = (ValueError, RecursionError)


class _FrameReader(Generic[_T]):
    """Reads frames of one direction. `union`: of the kinds that it carries."""

    def __init__(self, union: Any) -> None:
        self._frames: msgspec.msgpack.Decoder[_Frame[_T]] = msgspec.msgpack.Decoder(_Frame[union])
        self._one: msgspec.msgpack.Decoder[_T] = msgspec.msgpack.Decoder(union)
        self._known = {kind.__struct_config__.tag for kind in union.__args__}

    def read_frame(self, data: bytes) -> list[_T]:
        """Return the messages of a frame, in order. Raises WireError."""
        try:
            return self._frames.decode(data).messages
        except msgspec.ValidationError:  # perhaps there is only a message of a kind that is not known
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
_down = _FrameReader[FromOwner](FromOwner)


def encode_frame(messages: Sequence[FromAgent] | Sequence[FromOwner]) -> bytes:
    """Return one frame of messages, in order; `FRAME` of them at most."""
    return _encoder.encode((PROTOCOL_VERSION, messages))


def decode_agent_frame(data: bytes) -> list[FromAgent]:
    """Return what a frame holds. Raises WireError for bytes that are none."""
    return _up.read_frame(data)


def decode_owner_frame(data: bytes) -> list[FromOwner]:
    """Return what a frame holds. Raises WireError for bytes that are none."""
    return _down.read_frame(data)


def put_question() -> bytes:
    """Return what AskLeader is called with."""
    return _encoder.encode((PROTOCOL_VERSION,))


def check_question(data: bytes) -> None:
    """Raises WireError for the question of another version: its caller could not read the answer."""
    if _peek_version(data) != PROTOCOL_VERSION:
        raise _build_unreadable_error("question", data, None)


def put_leader(leader: LeaderInfo) -> bytes:
    """Return the answer to AskLeader."""
    return _encoder.encode((PROTOCOL_VERSION, leader))


def get_leader(data: bytes) -> LeaderInfo:
    """Return what `put_leader` was given. Raises WireError."""
    try:
        return _answers.decode(data).leader
    except _UNDECODABLE as error:
        raise _build_unreadable_error("answer", data, error) from error


def _peek_version(data: bytes) -> int | None:
    """Return the version that bytes begin with, whatever follows; None: they are of no version that says which.

    All that is said is a short list (its head is one byte), and its first entry a number below 128 (one byte as well).
    """
    says = len(data) > 1 and 0x90 < data[0] < 0xA0 and data[1] < 0x80
    return data[1] if says else None


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
