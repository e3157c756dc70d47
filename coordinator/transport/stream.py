"""One agent's stream at the coordinator: what waits to go down it, and which streams there are.

A stream is known by agent *and* number: what cleans up after an old stream can never remove a newer one
(GreptimeDB's registry was keyed by the agent alone).
"""

from __future__ import annotations

import threading
from collections import deque

from coordinator.core.messages import Down
from coordinator.transport.wire import FromOwner, NotLeader

#: Messages that go into one frame at most.
FRAME = 256


class Stream:
    """`agent_epoch`: of the last message that came up (0: none yet). Any thread may put, one takes."""

    def __init__(self, agent: str, instance: str, number: int, capacity: int) -> None:
        self.agent, self.instance, self.number = agent, instance, number
        self.agent_epoch = 0
        self.dropped = 0
        self.why: str | None = None
        self.farewell: NotLeader | None = None
        self._capacity = capacity
        self._queue: deque[FromOwner] = deque()
        self._changed = threading.Condition()

    def put(self, message: FromOwner) -> bool:
        """Whether the message was taken: not when the stream has ended, nor (counted) when too many wait already."""
        with self._changed:
            if self.why is not None:
                return False
            if len(self._queue) >= self._capacity:
                self.dropped += 1
                return False
            self._queue.append(message)
            self._changed.notify()
            return True

    def take(self) -> list[FromOwner]:
        """Return what waits, in order, at most a frame; block until there is something. Empty: the stream has ended."""
        with self._changed:
            while not self._queue and self.why is None:
                self._changed.wait()
            if self.why is not None:
                return []
            return [self._queue.popleft() for _ in range(min(FRAME, len(self._queue)))]

    def end(self, why: str, farewell: NotLeader | None = None) -> None:
        """What waits is dropped. The first reason counts."""
        with self._changed:
            if self.why is None:
                self.why, self.farewell = why, farewell
            self._changed.notify_all()


class Registry:
    """The streams there are. Not locked: its owner does that."""

    def __init__(self) -> None:
        self._streams: dict[int, Stream] = {}
        self._by_agent: dict[str, list[Stream]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def all(self) -> list[Stream]:
        return list(self._streams.values())

    def add(self, stream: Stream) -> list[Stream]:
        """Return the older streams that this one replaces: those of the same client."""
        others = self._by_agent.setdefault(stream.agent, [])
        replaced = [other for other in others if other.instance == stream.instance]
        others.append(stream)
        self._streams[stream.number] = stream
        return replaced

    def remove(self, stream: Stream) -> None:
        if self._streams.pop(stream.number, None) is None:
            return
        left = [other for other in self._by_agent[stream.agent] if other is not stream]
        if left:
            self._by_agent[stream.agent] = left
        else:
            del self._by_agent[stream.agent]

    def find(self, agent: str, message: Down) -> Stream | None:
        """Return the stream for a message: of the incarnation that it is for, else the agent's newest.

        Two processes of one name have a stream each; the one that is superseded has to hear of it.
        """
        streams = self._by_agent.get(agent)
        if not streams:
            return None
        wanted = message.header.agent_epoch
        for stream in reversed(streams):
            if stream.agent_epoch == wanted and stream.why is None:
                return stream
        return streams[-1]
