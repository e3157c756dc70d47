"""The streams of agents, each a state machine of the batch system. The transport's events go to these
state machines, and the leader is informed of each stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from coordinator.batch import BatchSystem, MailboxFullError, SendError
from coordinator.core.messages import Up
from coordinator.server.agent_machine import AgentMachine
from coordinator.server.requests import StreamJoined, StreamLeft
from coordinator.transport.events import MessagesArrived, StreamClosed, StreamOpened, TransportEvent


class AgentStreams:
    """The open streams of agents."""

    def __init__(
        self, system: BatchSystem[AgentMachine, Up], notify: Callable[[object], None], outbox: int
    ) -> None:
        self._system, self._notify, self._outbox = system, notify, outbox
        self._machines: dict[int, AgentMachine] = {}
        self.counts: Counter[str] = Counter()
        """Lost messages, by reason."""

    def on_transport_event(self, event: TransportEvent) -> None:
        """Handle an event of the transport. Called from the streams' threads."""
        match event:
            case StreamOpened(agent, stream):
                machine = AgentMachine(agent, stream, self._outbox)
                self._machines[stream] = machine
                self._system.router.register_machine(stream, lambda: machine)
                self._notify(StreamJoined(machine))
            case MessagesArrived(_, stream, message):
                self._handle_arrived(stream, message)
            case StreamClosed(_, stream, why):
                machine_left = self._machines.pop(stream, None)
                self._system.router.close_mailbox(stream)
                if machine_left is not None:
                    self._notify(StreamLeft(machine_left, why))

    def _handle_arrived(self, stream: int, message: Up) -> None:
        try:
            self._system.router.send(stream, message)
        except MailboxFullError:
            self.counts["agents.mailbox full"] += 1  # lost; the next heartbeat repeats it
        except SendError:
            self.counts["agents.no mailbox"] += 1
