"""The agent's end: finds the leader, keeps a stream to it, and finds the next leader when the stream
ends.

One thread asks, connects and reads; gRPC's own thread writes the messages. Nothing is kept beyond a lost
stream: the agent's core repeats what is still true.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import grpc
import structlog

from coordinator.core.messages import Down, Up
from coordinator.transport.channel import open_channel
from coordinator.transport.client_stream import ClientStream
from coordinator.transport.events import LeaderInfo
from coordinator.transport.leader_search import Caller, LeaderSearch, ask_leader
from coordinator.transport.leader_search import describe_call_error as failure
from coordinator.transport.security import Security
from coordinator.transport.wire import FromLeader, NotLeader, Opening, Serving, WireError, decode_leader_frame
from schemas.backoff import pause_after
from schemas.io.grpc_settings import Keepalive

__all__ = ["ClientTiming", "HeartbeatClient", "LeaderInfo", "Security", "ask_leader"]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClientTiming:
    """The client's timeouts, in seconds. Their sum from a lost leader to the next stream must be below
    the lease.
    """

    ask: float = 1.0
    """For all peers together."""
    opening: float = 2.0
    """Until a new stream is served."""
    quiet: float = 5.0
    """Without a message of the leader although the agent has sent one; then the stream is given up."""
    retry_first: float = 0.05
    """The first back-off; doubled each time, with full jitter."""
    retry_most: float = 1.0
    """The longest back-off."""
    retry_unknown: float = 0.2
    """The longest back-off until a leader is known, because at a start everything waits for it."""
    keepalive: Keepalive = field(default_factory=Keepalive)


class HeartbeatClient:
    """An agent's connection to the leading coordinator.

    `peers`: every coordinator's "host:port". `on_message` is called from the client's thread, in order,
    and should be quick; an exception in it ends the stream. `on_open` is called when a stream is served.
    `on_outdated` is called when the coordinators' terms began anew, so that none will serve this agent.
    `system`: the Kafka prefix. `token`: authenticates the agent.
    """

    def __init__(
        self,
        agent: str,
        peers: Sequence[str],
        on_message: Callable[[Down], None],
        *,
        on_open: Callable[[], None] = lambda: None,
        on_outdated: Callable[[], None] = lambda: None,
        security: Security | None = None,
        system: str = "",
        token: str = "",
        timing: ClientTiming | None = None,
    ) -> None:
        self._on_message, self._on_open, self._on_outdated = on_message, on_open, on_outdated
        self._timing = timing or ClientTiming()
        self._caller = Caller(agent, security, system, token)
        self.search = LeaderSearch(self._caller, peers, self._timing.ask)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name=f"heartbeat-of-{agent}", daemon=True)
        self._stream: ClientStream | None = None
        self._last_logged = ("", "")
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Up) -> bool:
        """Queue a message, and return whether it was queued: not without a served stream, nor if too
        many wait. Never blocks.
        """
        stream = self._stream
        if stream is None or not stream.served:
            self.counts["not sent: no stream"] += 1
            return False
        silent_s = stream.begin_wait(time.monotonic())
        if silent_s > self._timing.quiet:
            _log.warning("leader silent", agent=self._caller.agent, seconds=round(silent_s, 1))
            stream.cancel()
        if not stream.put_message(message):
            self.counts["not sent: queue full"] += 1
            return False
        return True

    def close(self, grace: float = 1.0) -> None:
        """Send the waiting messages, for at most `grace` seconds, then end."""
        self._closing.set()
        stream = self._stream
        is_served = stream is not None and stream.served
        if stream is not None and is_served:
            stream.end_stream()
        if self._thread is threading.current_thread() or not self._thread.is_alive():
            return
        if is_served:
            self._thread.join(grace)
        if self._thread.is_alive() and (stream := self._stream) is not None:
            stream.cancel()
        self._thread.join(self._timing.ask + self._timing.opening + 1)

    # the thread

    def _run_thread(self) -> None:
        failures, search = 0, self.search
        while not self._closing.is_set():
            leader = search.ask_peers()
            served = False
            if leader is not None and leader.address and not self._closing.is_set():
                search.note_rev(leader.rev)
                served = self._serve_stream(leader)
            failures = 0 if served else failures + 1
            search.note_round(served=served)
            if search.terms_began_anew:
                self._on_outdated()
            most = self._timing.retry_most if search.known_rev else self._timing.retry_unknown
            wait = pause_after(failures + 1, self._timing.retry_first, most)
            self._closing.wait(random.uniform(wait / 4, wait))  # noqa: S311  # not all at once

    def _serve_stream(self, leader: LeaderInfo) -> bool:
        """Keep a stream to the leader until it ends, and return whether it was served at all."""
        agent, instance = self._caller.agent, self._caller.instance
        channel = open_channel(leader.address, self._caller.security, self._timing.keepalive)
        stream = ClientStream(channel, Opening(agent, instance), self._caller.build_metadata())
        self._stream = stream
        try:
            why = self._read_stream(stream)
        except grpc.RpcError as error:
            why = failure(error)
        except WireError as error:
            why = f"unreadable: {error}"
        except Exception as error:  # noqa: BLE001  # an error of `on_message`: logged, and the stream ends
            _log.exception("stream failed", agent=agent)
            why = failure(error)
        finally:
            self._stream = None
            stream.end_stream()
            stream.cancel()
            channel.close()
        served, logged = stream.served, (leader.address, why)
        if not self._closing.is_set() and (served or logged != self._last_logged):
            self._last_logged = logged
            _log.info(
                "stream to the leader ended", agent=agent, leader=leader.address, reason=why, served=served
            )
        return served

    def _read_stream(self, stream: ClientStream) -> str:
        """Process the leader's messages, and return why the stream has ended."""
        late = threading.Timer(self._timing.opening, stream.cancel)
        late.name, late.daemon = f"heartbeat-opening-{self._caller.agent}", True
        late.start()
        try:
            for data in stream.call:
                late.cancel()
                for message in decode_leader_frame(data):
                    if (why := self._handle_message(message, stream)) is not None:
                        return why
        finally:
            late.cancel()
        return "the coordinator ended it"

    def _handle_message(self, message: FromLeader, stream: ClientStream) -> str | None:
        """Process one message, and return why the stream has to end; None: it goes on."""
        known_rev = self.search.known_rev
        match message:
            case NotLeader():
                self.search.follow_hint(message)
                self.counts["not leader"] += 1
                return "no longer the leader"
            case Serving(owner_rev) if owner_rev < known_rev:
                self.counts["stale leader"] += 1
                return f"it leads term {owner_rev}, but {known_rev} has begun"
            case Serving(owner_rev):
                self.search.note_rev(owner_rev)
                stream.begin_service()
                self.counts["streams"] += 1
                self._on_open()
            case _:
                stream.note_message()
                self.search.note_rev(message.header.owner_rev)
                self._on_message(message)
        return None
