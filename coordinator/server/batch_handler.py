"""The machines that run on the batch system: one for each agent's stream, and the owner as the control machine.

A stream's machine sorts what its agent says into an outbox and tells the owner once that there is something; the owner takes
it all. So of each agent at most one notice waits in the owner's mailbox, however fast the agents talk.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.batch import HandleResult, Keep, Mailbox, StopAt
from coordinator.core.messages import Up
from coordinator.server.agent_inbox import Outbox

#: Messages of one machine handled in a round.
ROUND = 256


class AgentMachine:
    """The machine of one agent stream: the messages that came over it. `take` may be called from another thread than `put`."""

    def __init__(self, agent: str, stream: int, capacity: int) -> None:
        self.agent, self.stream = agent, stream
        self.counts: Counter[str] = Counter()
        self._outbox = Outbox(capacity)
        self._lock = threading.Lock()
        self._noticed = False

    def is_stopped(self) -> bool:
        return False

    def put(self, messages: list[Up]) -> bool:
        """Keep what was said; returns whether the owner is to be told that there is something."""
        with self._lock:
            for message in messages:
                self._outbox.put(message)
            tell, self._noticed = not self._noticed, True
            return tell

    def take(self) -> tuple[list[Up], dict[str, str]]:
        with self._lock:
            self._noticed = False
            return self._outbox.take()

    def counters(self) -> dict[str, int]:
        with self._lock:
            return dict(self._outbox.counts + self.counts)


@dataclass(frozen=True, slots=True)
class Mail:
    """The machine has something for the owner."""

    machine: AgentMachine


class ControlMachine(Protocol):
    """The owner, as the handler sees it."""

    def is_stopped(self) -> bool: ...

    def handle(self, message: object) -> None: ...

    def has_decided(self) -> bool: ...

    def end(self) -> None: ...


class BatchHandler:
    """One poller's handler (`batch.PollHandler`). `tell`: sends to the owner."""

    def __init__(self, tell: Callable[[Mail], None]) -> None:
        self._tell = tell
        self._owner: ControlMachine | None = None

    def begin(self, batch_size: int) -> None: ...

    def handle_control(self, fsm: ControlMachine, mailbox: Mailbox[Any, Any]) -> int | None:
        messages = mailbox.drain(ROUND)
        for message in messages:
            fsm.handle(message)
        self._owner = fsm if fsm.has_decided() else None
        return 0 if len(messages) < ROUND and self._owner is None else None

    def handle_normal(self, fsm: AgentMachine, mailbox: Mailbox[AgentMachine, Up]) -> HandleResult:
        messages = mailbox.drain(ROUND)
        fsm.counts["mailbox full"] = mailbox.full_count
        if messages and fsm.put(messages):
            self._tell(Mail(fsm))
        return StopAt(skip_end=True) if len(messages) < ROUND else Keep()

    def light_end(self, batch: list[AgentMachine]) -> None: ...

    def end_connection(self, batch: list[AgentMachine]) -> None:
        if self._owner is not None:
            self._owner.end()
            self._owner = None

    def pause(self) -> None: ...
