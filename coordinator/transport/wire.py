"""The core's messages (coordinator/core/messages.py) to bytes and back; schemas/coordination.proto is the format.

A frame is what gRPC carries: one message, or several that were waiting together (a gRPC message costs more than most of
ours). Unknown fields are ignored. Of a message of a newer major version only header and sender are read: the core
refuses it by its version. A kind of message that this version does not know is left out of what a frame holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from coordinator.core.messages import (
    VERSION,
    Announce,
    Checkpoint,
    Dispatch,
    DispatchResponse,
    Down,
    Header,
    Heartbeat,
    HeartbeatResponse,
    Hello,
    Liveness,
    Op,
    Rejected,
    Superseded,
    Sync,
    Up,
)
from coordinator.transport.columns import (
    WireError,
    get_mark,
    get_marks,
    get_statuses,
    put_mark,
    put_marks,
    put_statuses,
)
from coordinator.transport.events import LeaderInfo
from schemas import coordination_pb2 as pb


@dataclass(frozen=True, slots=True)
class Opening:
    """The first message of every stream. `instance` names the client object: its next stream replaces this one."""

    agent: str
    instance: str


@dataclass(frozen=True, slots=True)
class Serving:
    """The answer to an Opening: the stream is served by the leader of `owner_rev`."""

    owner_rev: int


@dataclass(frozen=True, slots=True)
class NotLeader:
    """The stream ends: ask again. `address` "": no leader is known."""

    known_rev: int
    address: str


_M = TypeVar("_M", pb.AgentMessage, pb.OwnerMessage)

FromAgent = Opening | Up
FromOwner = Serving | NotLeader | Down

_OPS: tuple[Op | None, ...] = (None, Op.PREPARE, Op.START, Op.REMOVE, Op.FORGET)
_OP_NUMBER: dict[Op | None, Any] = {op: number for number, op in enumerate(_OPS)}


# frames


def frame_up(messages: Sequence[FromAgent]) -> bytes:
    """Return one frame of messages, in order."""
    if len(messages) == 1:
        return encode_up(messages[0])
    frame = pb.AgentMessage()
    for message in messages:
        _put_up(frame.several.messages.add(), message)
    data: bytes = frame.SerializeToString()
    return data


def frame_down(messages: Sequence[FromOwner]) -> bytes:
    """Return one frame of messages, in order."""
    if len(messages) == 1:
        return encode_down(messages[0])
    frame = pb.OwnerMessage()
    for message in messages:
        _put_down(frame.several.messages.add(), message)
    data: bytes = frame.SerializeToString()
    return data


def unframe_up(data: bytes) -> list[FromAgent]:
    """Return what a frame holds. Raises WireError for bytes that are none."""
    frame = _parsed(pb.AgentMessage, data)
    several = frame.several.messages if frame.WhichOneof("body") == "several" else (frame,)
    return [message for part in several if (message := _get_up(part)) is not None]


def unframe_down(data: bytes) -> list[FromOwner]:
    """Return what a frame holds. Raises WireError for bytes that are none."""
    frame = _parsed(pb.OwnerMessage, data)
    several = frame.several.messages if frame.WhichOneof("body") == "several" else (frame,)
    return [message for part in several if (message := _get_down(part)) is not None]


def encode_up(message: FromAgent) -> bytes:
    out = pb.AgentMessage()
    _put_up(out, message)
    data: bytes = out.SerializeToString()
    return data


def encode_down(message: FromOwner) -> bytes:
    out = pb.OwnerMessage()
    _put_down(out, message)
    data: bytes = out.SerializeToString()
    return data


def decode_up(data: bytes) -> FromAgent | None:
    """Return one message, None for a kind that this version does not know. Raises WireError."""
    return _get_up(_parsed(pb.AgentMessage, data))


def decode_down(data: bytes) -> FromOwner | None:
    """Return one message, None for a kind that this version does not know. Raises WireError."""
    return _get_down(_parsed(pb.OwnerMessage, data))


def _parsed(kind: type[_M], data: bytes) -> _M:
    try:
        parsed: _M = kind.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes that are no {kind.__name__}: {error}") from error
    return parsed


# up


def _put_up(out: pb.AgentMessage, message: FromAgent) -> None:
    out.agent = message.agent
    if isinstance(message, Opening):
        out.header.version = VERSION
        out.opening.instance = message.instance
        return
    _put_header(out.header, message.header)
    match message:
        case Hello():
            out.hello.incarnation = message.incarnation
        case Heartbeat():
            beat = out.heartbeat
            beat.sent, beat.stopping = message.sent, message.liveness is Liveness.STOPPING
            put_statuses(beat.statuses, message.statuses)
        case Sync():
            sync = out.sync
            sync.sent, sync.stopping = message.sent, message.liveness is Liveness.STOPPING
            put_statuses(sync.running, message.running)
            put_statuses(sync.adding, message.adding)
            put_statuses(sync.removing, message.removing)
        case DispatchResponse():
            response = out.dispatch_response
            response.answers = message.answers
            response.operation = _OP_NUMBER[message.op]
            put_statuses(response.status, (message.status,))
        case Checkpoint():
            progress = out.checkpoint
            progress.units.unit.extend([unit for unit, _, _ in message.marks])
            progress.units.epoch.extend([epoch for _, epoch, _ in message.marks])
            put_marks(progress.marks, [mark for _, _, mark in message.marks])
        case Rejected():
            out.rejected.known_rev = message.known_rev


def _get_up(message: pb.AgentMessage) -> FromAgent | None:
    header, agent = _get_header(message.header), message.agent
    if header.version > VERSION:
        return Rejected(header, agent, 0)
    kind = message.WhichOneof("body")
    reader = _UP.get(kind) if kind is not None else None
    return None if reader is None else reader(header, agent, message)


def _liveness(message: pb.Heartbeat | pb.Sync) -> Liveness:
    return Liveness.STOPPING if message.stopping else Liveness.ALIVE


def _heartbeat(header: Header, agent: str, message: pb.AgentMessage) -> Up:
    beat = message.heartbeat
    return Heartbeat(header, agent, beat.sent, get_statuses(beat.statuses), _liveness(beat))


def _sync(header: Header, agent: str, message: pb.AgentMessage) -> Up:
    sync = message.sync
    parts = (get_statuses(sync.running), get_statuses(sync.adding), get_statuses(sync.removing))
    return Sync(header, agent, sync.sent, *parts, _liveness(sync))


def _dispatch_response(header: Header, agent: str, message: pb.AgentMessage) -> Up:
    response = message.dispatch_response
    statuses = get_statuses(response.status)
    if len(statuses) != 1:
        raise WireError(f"a dispatch response with {len(statuses)} statuses instead of 1")
    return DispatchResponse(header, agent, response.answers, statuses[0], _op(response.operation))


def _checkpoint(header: Header, agent: str, message: pb.AgentMessage) -> Up:
    progress = message.checkpoint
    marks = [mark for mark in get_marks(progress.marks) if mark is not None]
    units, epochs = list(progress.units.unit), list(progress.units.epoch)
    if not len(units) == len(epochs) == len(marks):
        raise WireError(f"a checkpoint of {len(units)} units, {len(epochs)} epochs and {len(marks)} marks")
    return Checkpoint(header, agent, tuple(zip(units, epochs, marks, strict=True)))


_UP: dict[str, Callable[[Header, str, pb.AgentMessage], FromAgent]] = {
    "opening": lambda header, agent, message: Opening(agent, message.opening.instance),
    "hello": lambda header, agent, message: Hello(header, agent, message.hello.incarnation),
    "sync": _sync,
    "heartbeat": _heartbeat,
    "dispatch_response": _dispatch_response,
    "checkpoint": _checkpoint,
    "rejected": lambda header, agent, message: Rejected(header, agent, message.rejected.known_rev),
}


# down


def _put_down(out: pb.OwnerMessage, message: FromOwner) -> None:
    if isinstance(message, Serving | NotLeader):
        _put_own(out, message)
        return
    _put_header(out.header, message.header)
    match message:
        case HeartbeatResponse():
            response = out.heartbeat_response
            response.echo, response.lease, response.interval = message.echo, message.lease, message.interval
            response.draining = message.draining
            response.granted.unit.extend([unit for unit, _ in message.granted])
            response.granted.epoch.extend([epoch for _, epoch in message.granted])
        case Dispatch():
            dispatch = out.dispatch
            dispatch.unit, dispatch.operation = message.unit, _OP_NUMBER[message.op]
            dispatch.echo, dispatch.lease = message.echo, message.lease
            if message.mark is not None:
                put_mark(dispatch.mark, message.mark)
        case Announce():
            announce = out.announce
            announce.owner, announce.incarnation = message.owner, message.incarnation
            announce.interval, announce.lease = message.interval, message.lease
        case Superseded():
            out.superseded.SetInParent()


def _put_own(out: pb.OwnerMessage, message: Serving | NotLeader) -> None:
    out.header.version = VERSION
    if isinstance(message, Serving):
        out.opened.owner_rev = message.owner_rev
    else:
        out.not_leader.known_rev, out.not_leader.address = message.known_rev, message.address


def _get_down(message: pb.OwnerMessage) -> FromOwner | None:
    header = _get_header(message.header)
    if header.version > VERSION:
        return Superseded(header)
    kind = message.WhichOneof("body")
    reader = _DOWN.get(kind) if kind is not None else None
    return None if reader is None else reader(header, message)


def _heartbeat_response(header: Header, message: pb.OwnerMessage) -> Down:
    said = message.heartbeat_response
    units, epochs = list(said.granted.unit), list(said.granted.epoch)
    if len(units) != len(epochs):
        raise WireError(f"leases for {len(units)} units and {len(epochs)} epochs")
    granted = tuple(zip(units, epochs, strict=True))
    return HeartbeatResponse(header, said.echo, said.lease, said.interval, granted, said.draining)


def _dispatch(header: Header, message: pb.OwnerMessage) -> Down:
    said = message.dispatch
    op = _op(said.operation)
    if op is None:
        raise WireError(f"a dispatch of {said.unit} without operation")
    mark = get_mark(said.mark) if said.HasField("mark") else None
    return Dispatch(header, said.unit, op, mark, said.echo, said.lease)


def _announce(header: Header, message: pb.OwnerMessage) -> Down:
    said = message.announce
    return Announce(header, said.owner, said.incarnation, said.interval, said.lease)


_DOWN: dict[str, Callable[[Header, pb.OwnerMessage], FromOwner]] = {
    "opened": lambda header, message: Serving(message.opened.owner_rev),
    "not_leader": lambda header, message: NotLeader(message.not_leader.known_rev, message.not_leader.address),
    "announce": _announce,
    "heartbeat_response": _heartbeat_response,
    "dispatch": _dispatch,
    "superseded": lambda header, message: Superseded(header),
}


# parts, and who leads


def _put_header(out: pb.Header, header: Header) -> None:
    out.owner_rev, out.agent_epoch, out.unit_epoch = header.owner_rev, header.agent_epoch, header.unit_epoch
    out.op_seq, out.version = header.op_seq, header.version


def _get_header(header: pb.Header) -> Header:
    if header.version == 0:
        raise WireError("a message without header")
    return Header(header.owner_rev, header.agent_epoch, header.unit_epoch, header.op_seq, header.version)


def _op(number: int) -> Op | None:
    if not 0 <= number < len(_OPS):
        raise WireError(f"an operation {number} that this version does not know")
    return _OPS[number]


def put_leader(leader: LeaderInfo) -> bytes:
    """Return the answer to AskLeader."""
    out = pb.LeaderInfo(rev=leader.rev, address=leader.address, rest=leader.rest, mine=leader.mine)
    data: bytes = out.SerializeToString()
    return data


def get_leader(data: bytes) -> LeaderInfo:
    """Return what `put_leader` was given. Raises WireError."""
    try:
        said = pb.LeaderInfo.FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes that are no LeaderInfo: {error}") from error
    return LeaderInfo(said.rev, said.address, said.rest, said.mine)
