"""The agent's end: finds the leader, keeps a stream to it, and finds the next leader when the stream
ends.

One thread asks, connects and reads; gRPC's own thread writes the messages. Nothing is kept beyond a lost
stream: the agent's core repeats what is still true.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import grpc
import structlog

from coordinator.core.messages import Down, Up
from coordinator.transport.access import build_call_metadata
from coordinator.transport.ask import ask_leader
from coordinator.transport.ask import describe_call_error as failure
from coordinator.transport.channel import HEARTBEAT_METHOD, Keepalive, open_channel
from coordinator.transport.events import LeaderInfo
from coordinator.transport.security import Security
from coordinator.transport.stream import FramePacing
from coordinator.transport.wire import (
    FRAME,
    FromAgent,
    FromOwner,
    NotLeader,
    Opening,
    Serving,
    WireError,
    decode_owner_frame,
    encode_frame,
)
from schemas.backoff import pause_after

__all__ = ["ClientTiming", "HeartbeatClient", "LeaderInfo", "Security", "ask_leader"]

_log = structlog.get_logger(__name__)

UNLED_S = 15.0
"""Seconds between two warnings that no coordinator serves this agent."""


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


class _Outbox:
    """The messages that wait to be sent on one stream."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._queue: deque[FromAgent] = deque()
        self._changed = threading.Condition()
        self._ended = False

    def put_message(self, message: FromAgent) -> bool:
        with self._changed:
            if self._ended or len(self._queue) >= self._capacity:
                return False
            self._queue.append(message)
            self._changed.notify()
            return True

    def end_stream(self) -> None:
        """Send the waiting messages, then half-close the stream."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def yield_frames(self) -> Iterator[bytes]:
        pace = FramePacing()
        while True:
            with self._changed:
                while not self._queue and not self._ended:
                    self._changed.wait()
            pace.wait_for_turn()
            with self._changed:
                if not self._queue:
                    return
                waiting = [self._queue.popleft() for _ in range(min(FRAME, len(self._queue)))]
            yield encode_frame(waiting)


class HeartbeatClient:
    """An agent's connection to the leading coordinator.

    `peers`: every coordinator's "host:port". `on_message` is called from the client's thread, in order,
    and should be quick; an exception in it ends the stream. `on_open` may be set; it is called when a
    stream is served. `system`: the Kafka prefix. `token`: authenticates the agent.
    """

    def __init__(
        self,
        agent: str,
        peers: Sequence[str],
        on_message: Callable[[Down], None],
        *,
        security: Security | None = None,
        system: str = "",
        token: str = "",
        timing: ClientTiming | None = None,
        capacity: int = 10_000,
    ) -> None:
        self._agent, self._peers, self._on_message = agent, tuple(peers), on_message
        self._security, self._timing, self._capacity = security, timing or ClientTiming(), capacity
        self._system, self._token, self._refusals = system, token, set[tuple[str, str]]()
        self._instance = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run_thread, name=f"heartbeat-of-{agent}", daemon=True)
        self._outbox: _Outbox | None = None  # of a stream that is served
        self._call: grpc.Call | None = None
        self._hint = ""
        self._last_logged = ("", "")
        self._asked_at: float | None = None  # when the first message since the last answer was sent
        self.known_rev = 0
        self.on_open: Callable[[], None] | None = None
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Up) -> bool:
        """Queue a message, and return whether it was queued: not without a served stream, nor if too
        many wait. Never blocks.
        """
        now = time.monotonic()
        with self._lock:
            outbox, call = self._outbox, self._call
            quiet_since = self._asked_at
            if outbox is not None and self._asked_at is None:
                self._asked_at = now
        if outbox is None or call is None:
            self.counts["not sent: no stream"] += 1
            return False
        if quiet_since is not None and now - quiet_since > self._timing.quiet:
            _log.warning("leader silent", agent=self._agent, seconds=round(now - quiet_since, 1))
            call.cancel()
        if not outbox.put_message(message):
            self.counts["not sent: queue full"] += 1
            return False
        return True

    def close(self, grace: float = 1.0) -> None:
        """Send the waiting messages, for at most `grace` seconds, then end."""
        self._closing.set()
        with self._lock:
            outbox, call = self._outbox, self._call
        if outbox is not None:
            outbox.end_stream()
        if self._thread is threading.current_thread() or not self._thread.is_alive():
            return
        if outbox is not None:
            self._thread.join(grace)
        if self._thread.is_alive() and (call := self._call) is not None:
            call.cancel()
        self._thread.join(self._timing.ask + self._timing.opening + 1)

    # the thread

    def _run_thread(self) -> None:
        failures, since = 0, time.monotonic()
        while not self._closing.is_set():
            peers = tuple(dict.fromkeys([*self._peers, *([self._hint] if self._hint else [])]))
            leader = ask_leader(
                peers,
                self.known_rev,
                self._security,
                self._timing.ask,
                system=self._system,
                token=self._token,
                refused=self._log_refusal,
            )
            served = False
            if leader is not None and leader.address and not self._closing.is_set():
                self.known_rev = max(self.known_rev, leader.rev)
                served = self._serve_stream(leader)
            failures = 0 if served else failures + 1
            since = self._log_missing_leader(since, served=served)
            most = self._timing.retry_most if self.known_rev else self._timing.retry_unknown
            wait = pause_after(failures + 1, self._timing.retry_first, most)
            self._closing.wait(random.uniform(wait / 4, wait))  # noqa: S311  # not all at once

    def _log_missing_leader(self, since: float, *, served: bool) -> float:
        """Return since when no coordinator has served this agent, or when that was last logged."""
        now = time.monotonic()
        if not served and now - since < UNLED_S:
            return since
        if not served:
            _log.warning("no leading coordinator found", agent=self._agent, peers=self._peers)
        return now

    def _log_refusal(self, peer: str, why: str) -> None:
        if (peer, why) not in self._refusals:  # the peer is asked again and again
            self._refusals.add((peer, why))
            _log.error("agent refused by a coordinator", agent=self._agent, peer=peer, reason=why)

    def _serve_stream(self, leader: LeaderInfo) -> bool:
        """Keep a stream to the leader until it ends, and return whether it was served at all."""
        outbox = _Outbox(self._capacity)
        outbox.put_message(Opening(self._agent, self._instance))
        channel = open_channel(leader.address, self._security, self._timing.keepalive)
        call = channel.stream_stream(HEARTBEAT_METHOD)(
            outbox.yield_frames(), metadata=build_call_metadata(self._system, self._token)
        )
        self._call = call
        late = threading.Timer(self._timing.opening, call.cancel)
        late.name, late.daemon = f"heartbeat-opening-{self._agent}", True
        late.start()
        why = "the coordinator ended it"
        try:
            for data in call:
                late.cancel()
                over = [
                    end
                    for message in decode_owner_frame(data)
                    if (end := self._handle_message(message, outbox))
                ]
                if over:
                    why = over[0]
                    break
        except grpc.RpcError as error:
            why = failure(error)
        except WireError as error:
            why = f"unreadable: {error}"
        except Exception as error:  # noqa: BLE001  # an error of `on_message`: logged, and the stream ends
            _log.exception("stream failed", agent=self._agent)
            why = failure(error)
        finally:
            late.cancel()
            served = self._has_lost_stream(outbox)
            call.cancel()
            channel.close()
        logged = (leader.address, why)
        if not self._closing.is_set() and (served or logged != self._last_logged):
            self._last_logged = logged
            _log.info(
                "stream to the leader ended",
                agent=self._agent,
                leader=leader.address,
                reason=why,
                served=served,
            )
        return served

    def _handle_message(self, message: FromOwner, outbox: _Outbox) -> str | None:
        """Process one message, and return why the stream has to end; None: it goes on."""
        if isinstance(message, NotLeader):
            self.known_rev, self._hint = max(self.known_rev, message.known_rev), message.address
            self.counts["not leader"] += 1
            return "no longer the leader"
        if isinstance(message, Serving):
            if message.owner_rev < self.known_rev:
                self.counts["stale leader"] += 1
                return f"it leads term {message.owner_rev}, but {self.known_rev} has begun"
            self.known_rev = message.owner_rev
            with self._lock:
                self._outbox, self._asked_at = outbox, None
            self.counts["streams"] += 1
            if self.on_open is not None:
                self.on_open()
            return None
        with self._lock:
            self._asked_at = None
        self.known_rev = max(self.known_rev, message.header.owner_rev)
        self._on_message(message)
        return None

    def _has_lost_stream(self, outbox: _Outbox) -> bool:
        with self._lock:
            served = self._outbox is outbox
            self._outbox = self._call = None
        outbox.end_stream()
        return served
