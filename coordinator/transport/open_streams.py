"""The open streams of a coordinator."""

from __future__ import annotations

import itertools
import threading
from collections import Counter

from coordinator.core.messages import Down
from coordinator.transport.events import LeaderInfo
from coordinator.transport.stream import AgentStream, StreamRegistry
from coordinator.transport.wire import NotLeader, Opening

#: Concurrent streams of one agent: a superseded process may have one besides that of its successor, and
#: both may reconnect.
PER_AGENT = 4
_COUNTED = (
    "up messages",
    "up bytes",
    "down messages",
    "down bytes",
    "down dropped",
    "no stream",
    "dispatch waiting",
)


class OpenStreams:
    """The streams that a coordinator has open while it leads, with their readers. Any thread may use it."""

    def __init__(self, capacity: int, answer_within: float) -> None:
        """`capacity`: the most messages that wait on a stream. `answer_within`: seconds in which an agent
        has to answer a dispatch.
        """
        self._capacity, self._answer_within = capacity, answer_within
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._leader = LeaderInfo()
        self._registry = StreamRegistry()
        self._readers: dict[int, threading.Thread] = {}
        self._past: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))  # of streams that have ended
        self._closing = False

    def get_leader(self) -> LeaderInfo:
        with self._lock:
            return self._leader

    def set_leader(self, leader: LeaderInfo) -> None:
        """Set the leader. If it is not this coordinator (`mine`), all streams end with that answer."""
        with self._lock:
            self._leader = leader
            streams = [] if leader.mine else self._registry.list_streams()
        for stream in streams:
            stream.end_stream("not the leader", NotLeader(leader.rev, leader.address))

    def admit_stream(self, opening: Opening) -> tuple[AgentStream, int] | NotLeader | None:
        """Register a stream if this coordinator leads, and end earlier ones of the same client. None:
        the agent has too many streams.
        """
        with self._lock:
            leader = self._leader
            if not leader.mine or self._closing:
                return NotLeader(leader.rev, leader.address)
            number = next(self._numbers)
            stream = AgentStream(opening.agent, opening.instance, number, self._capacity, self._answer_within)
            if self._registry.count_other_streams(stream) >= PER_AGENT:
                return None
            replaced = self._registry.add_stream(stream)
        for older in replaced:
            older.end_stream("replaced by a newer stream")
        return stream, leader.rev

    def start_reader(self, stream: AgentStream, reader: threading.Thread) -> None:
        """Start the thread that reads a stream. It calls `remove_stream` at its end."""
        with self._lock:
            self._readers[stream.number] = reader
        reader.start()

    def remove_stream(self, stream: AgentStream) -> None:
        """Forget a stream that has ended, but for its counters."""
        with self._lock:
            self._registry.remove_stream(stream)
            self._past.update(stream.get_counters())
            self._readers.pop(stream.number, None)

    def push_messages(self, agent: str, messages: list[Down]) -> int:
        """Queue messages, and return how many were queued: not without a stream, nor if the queue is
        full. Never blocks.
        """
        taken = 0
        for _, run in itertools.groupby(messages, key=lambda one: one.header.agent_epoch):
            same = list(run)
            stream = self._registry.find_stream(agent, same[0])
            if stream is None:
                self._past["no stream"] += len(same)
            else:
                taken += stream.put_messages(same)
        return taken

    def get_counters(self) -> dict[str, int]:
        """Return streams, messages and bytes each way, drops, and how dispatches ended."""
        with self._lock:
            streams, found = self._registry.list_streams(), Counter(self._past)
        for stream in streams:
            found.update(stream.get_counters())
        return {**found, "streams": len(streams)}

    def close(self) -> list[threading.Thread]:
        """Admit no more streams, end all, and return the readers that are still at work."""
        with self._lock:
            self._closing = True
            streams, readers = self._registry.list_streams(), list(self._readers.values())
        for stream in streams:
            stream.end_stream("the server closes")
        return readers
