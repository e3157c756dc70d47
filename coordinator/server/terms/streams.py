"""The streams of agents to this coordinator: the open ones, their counters, and how the last one of an
agent ended.
"""

from __future__ import annotations

import structlog

from coordinator.server.batch_handler import AgentMachine

log = structlog.get_logger("coordinator")


class StreamTable:
    """The open streams by agent. If an agent has connected again, the newer stream counts."""

    def __init__(self) -> None:
        self._machines: dict[str, AgentMachine] = {}
        self._ended: dict[str, str] = {}

    def add_stream(self, machine: AgentMachine) -> None:
        self._machines[machine.agent] = machine

    def remove_stream(self, machine: AgentMachine, why: str) -> None:
        if self._machines.get(machine.agent) is machine:
            del self._machines[machine.agent]
            self._ended[machine.agent] = why
        log.info("stream of an agent ended", agent=machine.agent, reason=why)

    def take_end_reason(self, agent: str) -> str | None:
        """Return how the agent's last stream ended, and forget it."""
        return self._ended.pop(agent, None)

    def get_counters(self) -> dict[str, dict[str, int]]:
        return {name: machine.get_counters() for name, machine in self._machines.items()}
