"""The agent's machine with a coordinator and workers that a test plays."""

from __future__ import annotations

from typing import Any

from coordinator.core import agent
from coordinator.core.agent import (
    AgentEffect,
    AgentState,
    InstructionReceived,
    SendUp,
    WorkerEventReceived,
)
from coordinator.core.messages import (
    Announce,
    Dispatch,
    Header,
    HeartbeatResponse,
    Up,
)
from schemas.units import Prepared, UnitOperation, UnitPhase

REV, EPOCH, LEASE = 7, 3, 10.0


class Driver:
    def __init__(self) -> None:
        self.state = AgentState("a", "inc-1", "0.2.0")
        self.now = 100.0
        self.effects: list[AgentEffect] = []

    def do(self, event: Any) -> list[AgentEffect]:
        self.state, out = agent.step_agent(self.state, event, self.now)
        self.effects += out
        return out

    def get(self, message: Any) -> list[AgentEffect]:
        return self.do(InstructionReceived(message))

    def sent(self, out: list[AgentEffect]) -> list[Up]:
        return [e.message for e in out if isinstance(e, SendUp)]

    def announce(
        self, rev: int = REV, owner: str = "o", assignment: int = EPOCH, incarnation: str = "inc-1"
    ) -> list[Up]:
        return self.sent(self.get(Announce(Header(rev, assignment), owner, incarnation, 1.0, LEASE)))

    def dispatch(
        self, op: UnitOperation, assignment: int = 5, rev: int = REV, echo: float | None = None
    ) -> list[AgentEffect]:
        sent = self.now if echo is None else echo
        return self.get(Dispatch(Header(rev, EPOCH, assignment, 1), "u", op, None, sent, LEASE))

    def grant(self, *granted: tuple[str, int], echo: float, draining: bool = False) -> list[AgentEffect]:
        return self.get(HeartbeatResponse(Header(REV, EPOCH), echo, LEASE, 1.0, granted, draining))

    def held(self) -> UnitPhase:
        return self.state.units.find_unit("u").state

    def replicate(self) -> None:
        self.announce()
        self.dispatch(UnitOperation.PREPARE)
        self.do(WorkerEventReceived("u", Prepared(5)))
        self.dispatch(UnitOperation.START)
        assert self.held() is UnitPhase.REPLICATING
