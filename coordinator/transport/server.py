"""The coordinator's end of the heartbeat streams.

Each stream has two threads: gRPC's, which writes the messages, and a reader, which decodes what arrives
and calls the caller's `on_event`. The caller decides; the server only refuses what cannot be served: an
agent while this coordinator does not lead, a name that is not in the certificate, bytes that are no
message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
import structlog

from coordinator.core.messages import DispatchResponse, Down
from coordinator.transport import security as certificates
from coordinator.transport.callers import CallerCheck
from coordinator.transport.channel import ASK_LEADER, HEARTBEAT_METHOD
from coordinator.transport.events import (
    LeaderInfo,
    MessagesArrived,
    StreamClosed,
    StreamOpened,
    TransportEvent,
)
from coordinator.transport.open_streams import PER_AGENT, OpenStreams
from coordinator.transport.security import Security
from coordinator.transport.stream import AgentStream
from coordinator.transport.wire import (
    FromAgent,
    FromLeader,
    NotLeader,
    Opening,
    Serving,
    WireError,
    check_question,
    decode_agent_frame,
    encode_frame,
    put_leader,
)
from schemas.io.grpc_settings import DaemonThreadExecutor, Keepalive

__all__ = [
    "HeartbeatServer",
    "LeaderInfo",
    "MessagesArrived",
    "Security",
    "StreamClosed",
    "StreamOpened",
    "TransportEvent",
]

_log = structlog.get_logger(__name__)


class HeartbeatServer:
    """The server of the agents' streams.

    `listen`: "host:port"; port 0: a free one. `on_event` is called from the streams' threads and should
    be quick: while it runs, nothing more is read from that stream. An exception in it ends the stream.
    `system`: the Kafka prefix; a caller that names another one is refused
    (schemas.config.addresses.SYSTEM).

    Messages of unauthenticated callers are not read: callers must send `token` (unless it is ""; then a
    certificate or the loopback interface authenticates them), which is checked in the metadata before
    any message. There are at most `streams` concurrent calls, `PER_AGENT` of them of one agent. A stream
    without an Opening within `opening_within` seconds is ended.
    """

    def __init__(
        self,
        listen: str,
        on_event: Callable[[TransportEvent], None],
        *,
        security: Security | None = None,
        name: str = "",
        system: str = "",
        token: str = "",
        streams: int = 2000,
        opening_within: float = 10.0,
        capacity: int = 20_000,
        keepalive: Keepalive | None = None,
        answer_within: float = 5.0,
    ) -> None:
        self._listen, self._on_event, self._security = listen, on_event, security
        self._name, self._most_calls, self._opening_within = name or listen, streams, opening_within
        self._keepalive = keepalive or Keepalive()
        self._callers = CallerCheck(system, token)
        self._streams = OpenStreams(capacity, answer_within)
        self._server: grpc.Server | None = None

    def start(self) -> int:
        """Start serving, and return the port. Raises OSError if the address is not available."""
        server = grpc.server(
            DaemonThreadExecutor(f"heartbeat-{self._name}"),
            options=self._keepalive.build_server_options(),
            maximum_concurrent_rpcs=self._most_calls,
        )
        server.add_generic_rpc_handlers(
            (_Methods(self._serve_heartbeat, self._ask_leader, self._callers.explain_refusal),)
        )
        try:
            if self._security is None:
                port = server.add_insecure_port(self._listen)
            else:
                port = server.add_secure_port(self._listen, self._security.load_server_credentials())
        except RuntimeError as error:
            raise OSError(
                f"the coordinator cannot listen on {self._listen}: {error}; is the port in use?"
            ) from error
        server.start()
        self._server = server
        return int(port)

    def close(self) -> None:
        """End all streams. Returns after their `StreamClosed` events have been delivered."""
        readers = self._streams.close()
        if self._server is not None:
            self._server.stop(0.5).wait()
        for reader in readers:
            if reader is not threading.current_thread():
                reader.join(5)

    def set_leader(self, leader: LeaderInfo) -> None:
        """Set the leader. If it is not this server (`mine`), all streams end with that answer."""
        self._streams.set_leader(leader)

    def push_messages(self, agent: str, messages: list[Down]) -> int:
        """Queue messages, and return how many were queued: not without a stream, nor if the queue is
        full. Never blocks.
        """
        return self._streams.push_messages(agent, messages)

    def get_counters(self) -> dict[str, int]:
        """Return streams, messages and bytes each way, drops, how dispatches ended, and refused callers."""
        return {**self._streams.get_counters(), **self._callers.counts}

    # one call

    def _ask_leader(self, question: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            check_question(question)
        except WireError as error:
            self._callers.count_unreadable(error, context.peer())
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return put_leader(self._streams.get_leader())

    def _serve_heartbeat(self, frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Write until the stream ends, in gRPC's thread. The reader ends when gRPC ends the call after
        this.
        """
        late = threading.Timer(self._opening_within, context.cancel)
        late.name, late.daemon = "heartbeat-opening", True
        late.start()
        try:
            opening, rest = self._read_opening(frames, context)
        finally:
            late.cancel()
        admitted = self._streams.admit_stream(opening)
        if admitted is None:
            why = f"agent {opening.agent} has {PER_AGENT} streams already"
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
            raise WireError(why)
        if isinstance(admitted, NotLeader):
            yield encode_frame([admitted])
            return
        stream, revision = admitted
        if not context.add_callback(lambda: stream.end_stream("the connection was lost")):
            stream.end_stream("the connection was lost")
        reader = threading.Thread(
            target=self._read_stream,
            args=(stream, rest, frames, context),
            name=f"heartbeat-from-{stream.agent}",
            daemon=True,
        )
        self._streams.start_reader(stream, reader)
        yield from _yield_frames(stream, [Serving(revision)])
        while waiting := stream.take_messages():
            yield from _yield_frames(stream, waiting)
        if stream.farewell is not None:
            yield encode_frame([stream.farewell])

    def _read_opening(
        self, frames: Iterator[bytes], context: grpc.ServicerContext
    ) -> tuple[Opening, list[FromAgent]]:
        """Return the first message and those that came with it. Aborts the call if it cannot be served."""
        try:
            first, *rest = decode_agent_frame(next(frames))
        except (StopIteration, ValueError, WireError, grpc.RpcError) as error:
            if isinstance(error, WireError):
                self._callers.count_unreadable(error, context.peer())
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a stream begins with an Opening: {error}")
            raise
        if not isinstance(first, Opening) or not first.agent:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "a stream begins with an Opening that names the agent"
            )
            raise WireError("no opening")
        if self._security is not None and self._security.mutual:
            known = certificates.list_peer_names(context.auth_context())
            if first.agent not in known:
                _log.warning("agent refused", agent=first.agent, certificate=sorted(known))
                why = f"agent {first.agent} is not in its certificate, which names {', '.join(sorted(known))}"
                context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        return first, rest

    # incoming messages

    def _read_stream(
        self,
        stream: AgentStream,
        messages: list[FromAgent],
        frames: Iterator[bytes],
        context: grpc.ServicerContext,
    ) -> None:
        """Read a stream in its reader thread, from StreamOpened to StreamClosed."""
        try:
            self._on_event(StreamOpened(stream.agent, stream.number))
            self._handle_arrived(stream, messages, 0)
            for data in frames:
                if stream.why is not None:
                    break
                self._handle_arrived(stream, decode_agent_frame(data), len(data))
            stream.end_stream("the agent ended it" if context.is_active() else "the connection was lost")
        except grpc.RpcError:
            stream.end_stream("the connection was lost")
        except WireError as error:
            _log.error("message of an agent not readable", agent=stream.agent, error=str(error))
            stream.end_stream(f"unreadable: {error}")
        except Exception as error:  # noqa: BLE001  # an error of `on_event`: logged, and the stream ends
            _log.exception("stream failed", agent=stream.agent)
            stream.end_stream(f"{type(error).__name__}: {error}")
        finally:
            self._streams.remove_stream(stream)
            self._on_event(StreamClosed(stream.agent, stream.number, stream.why or ""))

    def _handle_arrived(self, stream: AgentStream, messages: list[FromAgent], size: int) -> None:
        stream.up["up messages"] += len(messages)
        stream.up["up bytes"] += size
        over = stream.mark_answered(
            [m.answers for m in messages if isinstance(m, DispatchResponse) and m.answers]
        )
        if over:
            units = [entry.unit for entry in over[:10]]
            _log.warning("instructions not answered", agent=stream.agent, count=len(over), units=units)
        for message in messages:
            if isinstance(message, Opening) or message.agent != stream.agent:
                raise WireError(f"a message of {message.agent} in the stream of {stream.agent}")
            stream.record_epoch(message.header)
            self._on_event(MessagesArrived(stream.agent, stream.number, message))


def _yield_frames(stream: AgentStream, messages: list[FromLeader]) -> Iterator[bytes]:
    data = encode_frame(messages)
    stream.down["down messages"] += len(messages)
    stream.down["down bytes"] += len(data)
    yield data


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types
    """The service, with bytes in and out."""

    def __init__(
        self,
        heartbeat: Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
        ask_leader: Callable[[bytes, grpc.ServicerContext], bytes],
        why_not: Callable[[Iterable[Any]], tuple[grpc.StatusCode, str] | None],
    ) -> None:
        self._why_not = why_not
        self._handlers = {
            HEARTBEAT_METHOD: grpc.stream_stream_rpc_method_handler(heartbeat),
            ASK_LEADER: grpc.unary_unary_rpc_method_handler(ask_leader),
        }

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        refused = self._why_not(details.invocation_metadata)
        return self._handlers.get(details.method) if refused is None else _make_refusing_handler(*refused)


def _make_refusing_handler(code: grpc.StatusCode, why: str) -> grpc.RpcMethodHandler:
    """Return a handler that ends a call without reading its messages."""

    def refuse(_frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.abort(code, why)
        yield b""

    return grpc.stream_stream_rpc_method_handler(refuse)
