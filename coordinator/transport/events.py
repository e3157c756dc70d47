"""The events of the transport, as values: which coordinator leads, and what happens on a coordinator's
streams.

The events of a stream come in order (`StreamOpened`, any number of `MessagesArrived`, `StreamClosed`),
from a thread of that stream. Events of different streams come concurrently.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.core.messages import Up, WirePart
from schemas.units import Int64


class LeaderInfo(WirePart, frozen=True):
    """The leader, as one coordinator knows it."""

    rev: Int64 = 0
    """Its term (owner_rev); 0: no leader is known."""
    address: str = ""
    """"host:port" of its gRPC server; may be empty."""
    rest: str = ""
    """"host:port" of its REST server; may be empty."""
    mine: bool = False
    """Whether the coordinator that sends this is the leader itself."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """An agent has opened a stream. A server gives each number `stream` only once."""

    agent: str
    stream: int


@dataclass(frozen=True, slots=True)
class MessagesArrived:
    agent: str
    stream: int
    message: Up


@dataclass(frozen=True, slots=True)
class StreamClosed:
    """The stream has ended; a newer one of the same agent may exist already. `why` is for people."""

    agent: str
    stream: int
    why: str


TransportEvent = StreamOpened | MessagesArrived | StreamClosed
