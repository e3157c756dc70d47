"""The state machines that run on the batch system: one for each agent's stream, and the leader as the
control machine.

A stream's machine collects its agent's messages in an inbox and sends the leader one notice; the leader
then takes them all. So at most one notice per agent waits in the leader's mailbox, however fast the
agents send.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.batch import HandleResult, KeepMachine, Mailbox, ReleaseMachine
from coordinator.core.messages import Up
from coordinator.server.agent_inbox import AgentInbox

#: Maximum number of messages of one state machine that are handled in a round.
ROUND = 256


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


class ControlMachine(Protocol):
    """The leader's state machine as the handler sees it."""

    def is_stopped(self) -> bool: ...

    def handle_message(self, message: object) -> None: ...

    def has_decided(self) -> bool: ...

    def end_round(self) -> None: ...


class BatchHandler:
    """The handler of one poller (`batch.PollHandler`)."""

    def __init__(self, notify: Callable[[MailWaiting], None]) -> None:
        self._notify = notify
        self._owner: ControlMachine | None = None

    def handle_control(self, fsm: ControlMachine, mailbox: Mailbox[Any, Any]) -> int | None:
        messages = mailbox.drain_messages(ROUND)
        for message in messages:
            fsm.handle_message(message)
        self._owner = fsm if fsm.has_decided() else None
        return 0 if len(messages) < ROUND and self._owner is None else None

    def handle_normal(self, fsm: AgentMachine, mailbox: Mailbox[AgentMachine, Up]) -> HandleResult:
        messages = mailbox.drain_messages(ROUND)
        fsm.counts["mailbox full"] = mailbox.full_count
        if messages and fsm.put_messages(messages):
            self._notify(MailWaiting(fsm))
        return ReleaseMachine(skip_end=True) if len(messages) < ROUND else KeepMachine()

    def end_round(self, batch: list[AgentMachine]) -> None:
        if self._owner is not None:
            self._owner.end_round()
            self._owner = None
