"""The owner's machine with agents that a test plays, and a control log in memory."""

from __future__ import annotations

from typing import Any

from coordinator.core.leader import steps
from coordinator.core.leader.state import (
    LeaderConfig,
    LeaderDecision,
    LeaderEvent,
    LeaderState,
    Persist,
    Persisted,
    Received,
    SendMessage,
)
from coordinator.core.messages import (
    Dispatch,
    Down,
    Header,
    Heartbeat,
    Hello,
    Sync,
    UnitStatus,
    Up,
)
from coordinator.core.records import DurableRecord
from coordinator.core.replication_table import SetState
from coordinator.core.schedulers import InventoryUnit, UnitKind
from schemas.units import UnitPhase, UnitProgress
from tests.kits import invariants

CONFIG = LeaderConfig(leader_lease=1e9, balance_every=1e9, progress_every=1.0)


def spec(unit: str, uid: str = "1") -> InventoryUnit:
    return InventoryUnit(unit, UnitKind.APPLY, "s", "p", uid)


class Cluster:
    """An owner, its durable records, and agents that answer as they are told to."""

    def __init__(
        self, rev: int = 10, records: dict[str, DurableRecord] | None = None, config: LeaderConfig = CONFIG
    ) -> None:
        self.now = 100.0
        self.records = dict(records or {})
        self.sent: list[tuple[str, Down]] = []
        self.effects: list[LeaderDecision] = []
        self.seqs: dict[str, int] = {}
        self.storing = True
        self.inventory: dict[str, InventoryUnit] = {}
        self.pipelines: dict[str, tuple[str, ...]] = {}
        self.state: LeaderState
        self.state, out = steps.begin_leader_term("o", rev, self.records, config, self.now)
        self._carry_out(out)

    def do(self, event: LeaderEvent) -> list[LeaderDecision]:
        self.state, out = steps.step_leader(self.state, event, self.now)
        invariants.check_leader_invariants(self.state)
        self._carry_out(out)
        return out

    def _carry_out(self, out: list[LeaderDecision]) -> None:
        self.effects.extend(out)
        for effect in out:
            if isinstance(effect, SendMessage):
                self.sent.append((effect.agent, effect.message))
            elif isinstance(effect, Persist) and self.storing:
                for key, record in effect.records:
                    self.records.pop(key, None)
                    if record is not None:
                        self.records[key] = record
                self.do(Persisted(effect.token))

    def up(
        self, make: Any, agent: str, assignment: int | None = None, rev: int | None = None, **more: Any
    ) -> list[LeaderDecision]:
        self.seqs[agent] = seq = self.seqs.get(agent, 0) + 1
        known = self.state.members.by_name[agent].agent_epoch if assignment is None else assignment
        header = Header(self.state.rev if rev is None else rev, known, 0, seq)
        message: Up = make(header=header, agent=agent, **more)
        return self.do(Received(message))

    def join(self, *names: str) -> None:
        for name in names:
            self.up(Hello, name, assignment=0, rev=0, incarnation=f"{name}-1")
            self.up(Sync, name, sent=1.0)

    def beat(self, agent: str, *statuses: UnitStatus, **more: Any) -> list[LeaderDecision]:
        return self.up(Heartbeat, agent, sent=self.now, statuses=statuses, **more)

    def holds(
        self, agent: str, unit: str, state: UnitPhase, mark: UnitProgress | None = None
    ) -> list[LeaderDecision]:
        assignment = next(r.assignment for r in self.state.sets.by_unit[unit].replicas if r.agent == agent)
        return self.beat(agent, UnitStatus(unit, assignment, state, mark))

    def replicate(self, unit: str, agent: str) -> None:
        self.holds(agent, unit, UnitPhase.PREPARED)
        self.holds(agent, unit, UnitPhase.REPLICATING, UnitProgress(5, 9))
        assert self.state.sets.by_unit[unit].state is SetState.REPLICATING

    def dispatched(self) -> list[tuple[str, str, str]]:
        found = [(a, m.unit, m.op.value) for a, m in self.sent if isinstance(m, Dispatch)]
        self.sent.clear()
        return found
