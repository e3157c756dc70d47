"""A coordinator as REST and the command line see it, without one: rows that a test sets, commands that it
looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.core.leader.state import LeaderCommand, Reload
from coordinator.server.operators.api import (
    AgentRow,
    ControlError,
    LeaderView,
    NotLeaderError,
    PipelineRow,
    UnitRow,
    View,
)
from coordinator.server.operators.configuration import FoundConfiguration
from coordinator.server.operators.copies import CopyRefusedError, CopyRequested, CopyRequestStored, CopyRow
from coordinator.server.operators.journal import EventRow, Journal

LEADER = LeaderView(7, "c1", "127.0.0.1:7701", "127.0.0.1:7780", 3.5, am_i=True)


def agent(name: str, **more: object) -> AgentRow:
    fields = {
        "incarnation": f"{name}-1", "agent_epoch": 11, "state": "synced", "liveness": "alive",
        "draining": False, "last_heard_s": 0.25, "units": 2, "rows_per_s": 100, "connected": True,
        "counters": {"late": 1},
    }  # fmt: skip
    return AgentRow(name=name, **{**fields, **more})  # type: ignore[arg-type]


def unit(name: str, **more: object) -> UnitRow:
    kind, _, rest = name.partition("/")
    pipeline = rest.partition("/")[0] if kind == "apply" else None
    fields = {
        "kind": kind, "source": "b1", "pipeline": pipeline, "state": "replicating", "agent": "a1",
        "epoch": 12, "checkpoint_ts": 1_790_000_000_000, "resolved_ts": 1_790_000_000_100,
        "position": "[0, 3, 4, 0]", "rows_per_s": 50, "paused": False, "error": None, "since_s": 60.0,
    }  # fmt: skip
    return UnitRow(unit=name, **{**fields, **more})  # type: ignore[arg-type]


PIPELINE = PipelineRow(
    "p", 1_790_000_000_000, 1_790_000_000_100, 1_790_000_000_000, {"b1": 1_790_000_000_000}
)


@dataclass
class FakeDesk:
    """Requests for copies that a test looks at. `refuses`: why the next ones are refused."""

    asked: list[tuple[CopyRequested, str]] = field(default_factory=list)
    known: list[CopyRow] = field(default_factory=list)
    refuses: str | None = None

    def request_copy(self, asked: CopyRequested, *, by: str) -> CopyRequestStored:
        if self.refuses is not None:
            raise CopyRefusedError(self.refuses)
        self.asked.append((asked, by))
        return CopyRequestStored("7f3c", asked.source or "b1", asked.table)

    def list_copies(self) -> list[CopyRow]:
        if self.refuses is not None:
            raise CopyRefusedError(self.refuses)
        return self.known


@dataclass
class FakeControl:
    """`fails`: what the next commands raise, by type of command."""

    seen_leader: LeaderView | None = LEADER
    agents: tuple[AgentRow, ...] = (agent("a1"), agent("a2", draining=True))
    units: tuple[UnitRow, ...] = (unit("apply/p/t.b1.bank.acct"), unit("capture/b1", agent="a2"))
    pipelines: tuple[PipelineRow, ...] = (PIPELINE,)
    counters: Mapping[str, int] = field(default_factory=lambda: {"dropped late": 3})
    commands: list[LeaderCommand] = field(default_factory=list)
    fails: dict[type, ControlError] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    given_by: list[str] = field(default_factory=list)
    desk: FakeDesk = field(default_factory=FakeDesk)
    reloads: list[bool] = field(default_factory=list)
    restrictions: tuple[str, ...] = ()

    def get_leader(self) -> LeaderView | None:
        return self.seen_leader

    def list_restrictions(self) -> tuple[str, ...]:
        return self.restrictions

    def get_view(self) -> View:
        if self.seen_leader is None or not self.seen_leader.am_i:
            return View(self.seen_leader)
        return View(self.seen_leader, self.agents, self.units, self.pipelines, self.counters)

    def list_events(self, after: int, most: int) -> tuple[EventRow, ...]:
        return self.journal.list_events_after(after, most)

    def count_events(self) -> Mapping[str, int]:
        return self.journal.count_events()

    def count_moves(self) -> Mapping[str, int]:
        return self.journal.count_moves()

    def reload_config(self, *, dry_run: bool = False, by: str = "") -> FoundConfiguration:
        self.given_by.append(by)
        if error := self.fails.get(Reload):
            raise error
        changes = ("sources.b1.tables: [bank.*] → [bank.*, !bank.tmp]", "pipelines.old: removed")
        self.reloads.append(dry_run)
        return FoundConfiguration("abc", {}, frozenset({"source/b1"}), frozenset({"pipeline/old"}), changes)

    def execute_command(self, command: LeaderCommand, timeout: float = 5.0, *, by: str = "") -> None:
        self.given_by.append(by)
        if self.seen_leader is None or not self.seen_leader.am_i:
            raise NotLeaderError(self.seen_leader)
        if error := self.fails.get(type(command)):
            raise error
        self.commands.append(command)

    def record_event(self, what: str, about: Mapping[str, object]) -> None:
        self.journal.record_event(7, what, about)
