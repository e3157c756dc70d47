"""Events of the transport, as values: who leads, and what happens on a coordinator's streams.

A stream's events come in order (`StreamOpened`, any number of `MessagesArrived`, `StreamClosed`), from a thread of that stream; events of
different streams come at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.messages import Up, WirePart
from schemas.units import Int64


class LeaderInfo(WirePart, frozen=True):
    """The leader, as one coordinator knows it. `rev`: its owner_rev, 0 if nobody is known to lead. `address`, `rest`: "host:port"
    of its gRPC and of its REST server, may be empty. `mine`: whoever says this is the leader itself."""

    rev: Int64 = 0
    address: str = ""
    rest: str = ""
    mine: bool = False


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """An agent has a stream. `stream` is never given twice by a server."""

    agent: str
    stream: int


@dataclass(frozen=True, slots=True)
class MessagesArrived:
    agent: str
    stream: int
    message: Up


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The stream has ended; a newer one of the same agent may be there already. `why` is for people."""

    agent: str
    stream: int
    why: str


TransportEvent = StreamOpened | MessagesArrived | StreamClosed
