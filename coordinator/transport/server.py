"""The coordinator's end of the heartbeat streams.

Each stream has two threads: gRPC's, which writes what was pushed, and a reader, which decodes what arrives and tells the
user. The user decides; the server only refuses what cannot be served: an agent when we do not lead, a name that is not in
the certificate, bytes that are no message.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import structlog

from coordinator.core.messages import Dispatch, DispatchResponse, Down, Up
from coordinator.transport import security as certificates
from coordinator.transport.channel import ASK_LEADER, HEARTBEAT, Keepalive, Threads
from coordinator.transport.columns import WireError
from coordinator.transport.events import Arrived, Closed, LeaderInfo, Opened, TransportEvent
from coordinator.transport.mailbox import Mailbox
from coordinator.transport.security import Security
from coordinator.transport.stream import Registry, Stream
from coordinator.transport.wire import (
    FromAgent,
    FromOwner,
    NotLeader,
    Opening,
    Serving,
    frame_down,
    put_leader,
    unframe_up,
)

__all__ = ["Arrived", "Closed", "HeartbeatServer", "LeaderInfo", "Opened", "Security", "TransportEvent"]

_log = structlog.get_logger(__name__)


class HeartbeatServer:
    """`listen`: "host:port", port 0 for any. `on_event` is called from the streams' threads and should be quick: while it
    runs, nothing more is read from that stream. An exception that leaves it ends the stream."""

    def __init__(
        self,
        listen: str,
        on_event: Callable[[TransportEvent], None],
        *,
        security: Security | None = None,
        name: str = "",
        capacity: int = 20_000,
        keepalive: Keepalive | None = None,
        answer_within: float = 5.0,
    ) -> None:
        self._listen, self._on_event, self._security = listen, on_event, security
        self._name = name or listen
        self._capacity, self._keepalive = capacity, keepalive or Keepalive()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._leader = LeaderInfo()
        self._registry = Registry()
        self._mailbox = Mailbox(answer_within)
        self._counts: Counter[str] = Counter()
        self._readers: dict[int, threading.Thread] = {}
        self._server: grpc.Server | None = None
        self._closing = False

    def start(self) -> int:
        """Serve; return the port. Raises OSError when the address cannot be had."""
        options = [("grpc.so_reuseport", 0), *self._keepalive.options()]
        server = grpc.server(Threads(f"heartbeat-{self._name}"), options=options)
        server.add_generic_rpc_handlers((_Methods(self._heartbeat, self._ask_leader),))
        try:
            if self._security is None:
                port = server.add_insecure_port(self._listen)
            else:
                port = server.add_secure_port(self._listen, self._security.server_credentials())
        except RuntimeError as error:
            raise OSError(
                f"the coordinator cannot listen on {self._listen}: {error}; is the port in use?"
            ) from error
        server.start()
        self._server = server
        return int(port)

    def close(self) -> None:
        """End all streams; return when their `Closed` have been delivered."""
        with self._lock:
            self._closing = True
            streams, readers = self._registry.all(), list(self._readers.values())
        for stream in streams:
            stream.end("the server closes")
        if self._server is not None:
            self._server.stop(0.5).wait()
        for reader in readers:
            if reader is not threading.current_thread():
                reader.join(5)

    def set_leader(self, leader: LeaderInfo) -> None:
        """Say who leads from now on. If it is not this server (`mine`), all streams end with that answer."""
        with self._lock:
            self._leader = leader
            streams = [] if leader.mine else self._registry.all()
        for stream in streams:
            stream.end("not the leader", NotLeader(leader.rev, leader.address))

    def push(self, agent: str, message: Down) -> bool:
        """Whether the message was queued: not when the agent has no stream, or its queue is full. Never blocks."""
        with self._lock:
            stream = self._registry.find(agent, message)
            if stream is None:
                self._counts["no stream"] += 1
                return False
            if isinstance(message, Dispatch):
                self._sweep()
                self._mailbox.register(
                    agent, stream.number, message.header.op_seq, message.unit, time.monotonic()
                )
        return stream.put(message)

    def counters(self) -> dict[str, int]:
        """Return streams, messages and bytes each way, drops, and how dispatches ended."""
        with self._lock:
            self._sweep()
            found = Counter(self._counts)
            found["streams"] = len(self._registry)
            found["dispatch waiting"] = len(self._mailbox)
            found["down dropped"] += sum(stream.dropped for stream in self._registry.all())
            found.update({f"dispatch {how}": count for how, count in self._mailbox.ended.items()})
        return dict(found)

    # one call

    def _ask_leader(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        with self._lock:
            return put_leader(self._leader)

    def _heartbeat(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """gRPC's thread: write until the stream ends. The reader ends when gRPC ends the call after this."""
        opening, rest = self._opening(frames, context)
        admitted = self._admit(opening)
        if isinstance(admitted, NotLeader):
            yield frame_down([admitted])
            return
        stream, revision = admitted
        if not context.add_callback(lambda: stream.end("the connection was lost")):
            stream.end("the connection was lost")
        reader = threading.Thread(
            target=self._read,
            args=(stream, rest, frames, context),
            name=f"heartbeat-from-{stream.agent}",
            daemon=True,
        )
        with self._lock:
            self._readers[stream.number] = reader
        reader.start()
        yield from self._framed([Serving(revision)])
        while waiting := stream.take():
            yield from self._framed(waiting)
        if stream.farewell is not None:
            yield frame_down([stream.farewell])

    def _framed(self, messages: list[FromOwner]) -> Iterator[bytes]:
        frame = frame_down(messages)
        with self._lock:
            self._counts["down messages"] += len(messages)
            self._counts["down bytes"] += len(frame)
        yield frame

    def _opening(
        self, frames: Iterator[bytes], context: grpc.ServicerContext
    ) -> tuple[Opening, list[FromAgent]]:
        """Return the first message and what came with it; abort the call if it is not one that can be served."""
        try:
            first, *rest = unframe_up(next(frames))
        except (StopIteration, ValueError, WireError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a stream begins with an Opening: {error}")
            raise
        if not isinstance(first, Opening) or not first.agent:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with an Opening that names the agent"
            )
            raise WireError("no opening")
        if self._security is not None and self._security.mutual:
            known = certificates.names(context.auth_context())
            if first.agent not in known:
                _log.warning("agent refused", agent=first.agent, certificate=sorted(known))
                why = f"agent {first.agent} is not in its certificate, which names {', '.join(sorted(known))}"
                context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return first, rest

    def _admit(self, opening: Opening) -> tuple[Stream, int] | NotLeader:
        """Register a stream, if we lead; earlier ones of the same client end."""
        with self._lock:
            leader = self._leader
            if not leader.mine or self._closing:
                return NotLeader(leader.rev, leader.address)
            stream = Stream(opening.agent, opening.instance, next(self._numbers), self._capacity)
            replaced = self._registry.add(stream)
        for older in replaced:
            older.end("replaced by a newer stream")
        return stream, leader.rev

    # what arrives

    def _read(
        self,
        stream: Stream,
        messages: list[FromAgent],
        frames: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> None:
        """The reader's thread, from Opened to Closed."""
        try:
            self._on_event(Opened(stream.agent, stream.number))
            self._arrived(stream, messages, 0)
            for frame in frames:
                if stream.why is not None:
                    break
                self._arrived(stream, unframe_up(frame), len(frame))
            stream.end("the agent ended it" if context.is_active() else "the connection was lost")
        except grpc.RpcError:
            stream.end("the connection was lost")
        except WireError as error:
            _log.error("agent's message is unreadable", agent=stream.agent, error=str(error))
            stream.end(f"unreadable: {error}")
        except Exception as error:  # noqa: BLE001  # the user's: said, and the stream ends
            _log.exception("stream ended by an error", agent=stream.agent)
            stream.end(f"{type(error).__name__}: {error}")
        finally:
            self._ended(stream)

    def _arrived(self, stream: Stream, messages: list[FromAgent], size: int) -> None:
        with self._lock:
            self._counts["up messages"] += len(messages)
            self._counts["up bytes"] += size
            self._sweep()
            for message in messages:
                if isinstance(message, DispatchResponse) and message.answers:
                    self._answered(message)
        for message in messages:
            if isinstance(message, Opening) or message.agent != stream.agent:
                raise WireError(f"a message of {message.agent} in the stream of {stream.agent}")
            self._deliver(stream, message)

    def _deliver(self, stream: Stream, message: Up) -> None:
        stream.agent_epoch = message.header.agent_epoch
        self._on_event(Arrived(stream.agent, stream.number, message))

    def _answered(self, message: DispatchResponse) -> None:
        if not self._mailbox.answered(message.agent, message.answers):
            _log.debug("late answer", agent=message.agent, unit=message.status.unit, answers=message.answers)

    def _sweep(self) -> None:
        over = self._mailbox.sweep(time.monotonic())
        if over:
            agents = sorted({entry.agent for entry in over})
            _log.warning("dispatches were not answered", count=len(over), agents=agents[:10])

    def _ended(self, stream: Stream) -> None:
        with self._lock:
            self._registry.remove(stream)
            self._mailbox.closed(stream.number)
            self._counts["down dropped"] += stream.dropped
            self._readers.pop(stream.number, None)
        self._on_event(Closed(stream.agent, stream.number, stream.why or ""))


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types
    """The service, with bytes in and out."""

    def __init__(
        self,
        heartbeat: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
        ask_leader: Callable[[bytes, grpc.ServicerContext], bytes],
    ) -> None:
        self._handlers = {
            HEARTBEAT: grpc.stream_stream_rpc_method_handler(heartbeat),
            ASK_LEADER: grpc.unary_unary_rpc_method_handler(ask_leader),
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(details.method)
