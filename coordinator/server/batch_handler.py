"""The handler that runs the coordinator's state machines on the batch system: one machine for each
agent's stream, and the leader as the control machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.batch import HandleResult, KeepMachine, Mailbox, ReleaseMachine
from coordinator.core.messages import Up
from coordinator.server.agent_machine import AgentMachine, MailWaiting
from coordinator.server.leader_machine import LeaderMachine

#: Maximum number of messages of one state machine that are handled in a round.
ROUND = 256


class BatchHandler:
    """The handler of one poller (`batch.PollHandler`)."""

    def __init__(self, notify: Callable[[MailWaiting], None]) -> None:
        self._notify = notify
        self._owner: LeaderMachine | None = None

    def handle_control(self, fsm: LeaderMachine, mailbox: Mailbox[Any, Any]) -> int | None:
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
