"""One agent's stream at the coordinator with its waiting messages, and the registry of streams.

A stream is identified by agent *and* number, so the clean-up of an old stream can never remove a newer
one (GreptimeDB's registry was keyed by the agent alone).
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence

from coordinator.core.messages import Dispatch, Down, Header
from coordinator.transport.pending_dispatches import PendingDispatch, PendingDispatches
from coordinator.transport.wire import FRAME, FromLeader, NotLeader

#: Seconds that a message waits for others if the last frame was sent at most `BUSY` seconds ago: a frame
#: costs more than most messages.
LINGER, BUSY = 0.002, 0.1


class FramePacing:
    """Waits before a frame while messages are frequent, and not while they come one by one."""

    def __init__(self) -> None:
        self._last = 0.0

    def wait_for_turn(self) -> None:
        if time.monotonic() - self._last < BUSY:
            time.sleep(LINGER)
        self._last = time.monotonic()


class AgentStream:
    """One stream of an agent. Any thread may put messages; one thread takes them.

    Counters and the table of dispatches belong to the stream, because all streams would wait for a
    shared lock whenever one of them is slow. `up` and `down` are counted by one thread each.
    """

    def __init__(
        self, agent: str, instance: str, number: int, capacity: int, answer_within: float = 5.0
    ) -> None:
        self.agent, self.instance, self.number = agent, instance, number
        self.agent_epoch = 0
        """0: no message has come yet."""
        self.dropped = 0
        self.up: Counter[str] = Counter()
        self.down: Counter[str] = Counter()
        self.mailbox = PendingDispatches(answer_within)
        self.why: str | None = None
        self.farewell: NotLeader | None = None
        self._capacity, self._pace = capacity, FramePacing()
        self._queue: deque[FromLeader] = deque()
        self._changed = threading.Condition()

    def record_epoch(self, header: Header) -> None:
        """Record the epoch in the agent's last message."""
        self.agent_epoch = header.agent_epoch

    def put_messages(self, messages: Sequence[FromLeader]) -> int:
        """Add messages, and return how many were accepted: none if the stream has ended, and only as
        many as the queue has room for (the others are counted as dropped).
        """
        with self._changed:
            if self.why is not None:
                return 0
            taken = messages[: max(0, self._capacity - len(self._queue))]
            self.dropped += len(messages) - len(taken)
            now = time.monotonic()
            for message in taken:
                if isinstance(message, Dispatch):
                    self.mailbox.register_dispatch(message.header.op_seq, message.unit, now)
            self._queue.extend(taken)
            self._changed.notify()
            return len(taken)

    def take_messages(self) -> list[FromLeader]:
        """Return the waiting messages in order, at most one frame. Blocks until there are any; an empty
        list means that the stream has ended.
        """
        with self._changed:
            while not self._queue and self.why is None:
                self._changed.wait()
        self._pace.wait_for_turn()
        with self._changed:
            if self.why is not None:
                return []
            return [self._queue.popleft() for _ in range(min(FRAME, len(self._queue)))]

    def mark_answered(self, op_seqs: list[int]) -> list[PendingDispatch]:
        """Note the answers to dispatches, and return the overdue ones."""
        with self._changed:
            for op_seq in op_seqs:
                self.mailbox.mark_answered(op_seq)
            return self.mailbox.sweep_overdue(time.monotonic())

    def get_counters(self) -> Counter[str]:
        """Return messages and bytes each way, drops, and how dispatches ended."""
        with self._changed:
            self.mailbox.sweep_overdue(time.monotonic())
            found = self.up + self.down
            found["down dropped"] = self.dropped
            found["dispatch waiting"] = len(self.mailbox)
            found.update({f"dispatch {how}": count for how, count in self.mailbox.ended.items()})
            return found

    def end_stream(self, why: str, farewell: NotLeader | None = None) -> None:
        """End the stream and drop its waiting messages. The first reason counts."""
        with self._changed:
            if self.why is None:
                self.why, self.farewell = why, farewell
                self.mailbox.close_all()
            self._changed.notify_all()


class StreamRegistry:
    """The open streams. The caller locks changes; `find_stream` needs no lock, because an agent's
    streams are replaced as a whole.
    """

    def __init__(self) -> None:
        self._streams: dict[int, AgentStream] = {}
        self._by_agent: dict[str, tuple[AgentStream, ...]] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def list_streams(self) -> list[AgentStream]:
        return list(self._streams.values())

    def add_stream(self, stream: AgentStream) -> list[AgentStream]:
        """Add a stream, and return the older streams of the same client that it replaces."""
        others = self._by_agent.get(stream.agent, ())
        replaced = [other for other in others if other.instance == stream.instance]
        self._by_agent[stream.agent] = (*others, stream)
        self._streams[stream.number] = stream
        return replaced

    def count_other_streams(self, stream: AgentStream) -> int:
        """Return how many streams the agent has besides those that this one would replace."""
        there = self._by_agent.get(stream.agent, ())
        return len([other for other in there if other.instance != stream.instance])

    def remove_stream(self, stream: AgentStream) -> None:
        if self._streams.pop(stream.number, None) is None:
            return
        left = tuple(other for other in self._by_agent[stream.agent] if other is not stream)
        if left:
            self._by_agent[stream.agent] = left
        else:
            del self._by_agent[stream.agent]

    def find_stream(self, agent: str, message: Down) -> AgentStream | None:
        """Return the stream for a message: that of the addressed incarnation, otherwise the agent's
        newest.

        Two processes with the same name have a stream each; the superseded one must be informed.
        """
        streams = self._by_agent.get(agent)
        if not streams:
            return None
        agent_epoch = message.header.agent_epoch
        for stream in reversed(streams):
            if stream.agent_epoch == agent_epoch and stream.why is None:
                return stream
        return streams[-1]
