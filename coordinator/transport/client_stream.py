"""One stream of an agent to the leader, at the agent's end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import grpc

from coordinator.core.messages import Up
from coordinator.transport.channel import HEARTBEAT_METHOD
from coordinator.transport.stream import FramePacing
from coordinator.transport.wire import FRAME, FromAgent, Opening, encode_frame

#: The most messages that wait on a stream.
CAPACITY = 10_000


class ClientStream:
    """One stream to the leader with the messages that wait for it. Any thread may send; gRPC's own thread
    writes.
    """

    def __init__(
        self, channel: grpc.Channel, opening: Opening, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        self._queue: deque[FromAgent] = deque([opening])
        self._changed = threading.Condition()
        self._served = self._ended = False
        self._asked_at: float | None = None
        """When the first message since the leader's last one was sent; None: there is none."""
        self.call: grpc.Call = channel.stream_stream(HEARTBEAT_METHOD)(
            self._yield_frames(), metadata=metadata
        )

    @property
    def served(self) -> bool:
        """True once the leader has taken the stream, so that messages can be sent."""
        return self._served

    def begin_service(self) -> None:
        """Send messages from now on: the leader has taken the stream."""
        with self._changed:
            self._served = True

    def note_message(self) -> None:
        """Note that the leader has sent a message."""
        with self._changed:
            self._asked_at = None

    def begin_wait(self, now: float) -> float:
        """Return for how long the leader has been silent although messages were sent, in seconds, and wait
        for it from now on.
        """
        with self._changed:
            self._asked_at = now if self._asked_at is None else self._asked_at
            return now - self._asked_at

    def put_message(self, message: Up) -> bool:
        """Queue a message, and return whether it was queued: not if the stream ends, or too many wait."""
        with self._changed:
            if self._ended or len(self._queue) >= CAPACITY:
                return False
            self._queue.append(message)
            self._changed.notify()
            return True

    def end_stream(self) -> None:
        """Send the waiting messages, then half-close the stream."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def cancel(self) -> None:
        """End the stream at once."""
        self.call.cancel()

    def _yield_frames(self) -> Iterator[bytes]:
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
