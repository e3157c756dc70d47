"""The state machine of one agent's stream on the batch system.

It collects its agent's messages in an inbox and sends the leader one notice; the leader then takes them
all. So at most one notice per agent waits in the leader's mailbox, however fast the agents send.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from coordinator.core.messages import Up
from coordinator.server.agent_inbox import AgentInbox


class AgentMachine:
    """The state machine of one agent's stream, with the messages that have arrived over the stream.

    `take_messages` may be called from another thread than `put_messages`.
    """

    def __init__(self, agent: str, stream: int, capacity: int) -> None:
        self.agent, self.stream = agent, stream
        self.counts: Counter[str] = Counter()
        self._outbox = AgentInbox(capacity)
        self._lock = threading.Lock()
        self._noticed = False

    def is_stopped(self) -> bool:
        return False

    def put_messages(self, messages: list[Up]) -> bool:
        """Keep the messages, and return whether the leader has to be notified."""
        with self._lock:
            for message in messages:
                self._outbox.put_message(message)
            should_notify, self._noticed = not self._noticed, True
            return should_notify

    def take_messages(self) -> tuple[list[Up], dict[str, str]]:
        with self._lock:
            self._noticed = False
            return self._outbox.take_messages()

    def get_counters(self) -> dict[str, int]:
        with self._lock:
            return dict(self._outbox.counts + self.counts)


@dataclass(frozen=True, slots=True)
class MailWaiting:
    """The state machine of an agent's stream has messages for the leader."""

    machine: AgentMachine
