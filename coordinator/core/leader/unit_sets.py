"""The replication sets of all units, the leader's memory of each unit, and the indexes over them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from coordinator.core.progress import advance_mark
from coordinator.core.replication import Replica, ReplicationSet, restore_set
from coordinator.core.replication_table import Cell, SetState
from schemas.backoff import pause_after
from schemas.units import UnitProgress

_SETTLED = frozenset({SetState.ABSENT, SetState.REPLICATING})

Holder = tuple[str, int, int]
"""A replica in a unit's stored record: (agent, agent_epoch, assignment)."""
UNKNOWN: Holder = ("", 0, 0)
"""Stands for the replicas of a record that cannot be trusted."""


@dataclass(slots=True)
class UnitMemo:
    """The leader's memory of a unit besides its replicas. Times are the leader's seconds."""

    uid: str = ""
    since: float = 0.0
    """When the state of its replication set last changed."""
    mark: UnitProgress | None = None
    rows_per_s: int = 0
    waits: str | None = None
    """Why the replicating unit does not go on now."""
    failures: int = 0
    due_at: float = 0.0
    avoid: str | None = None
    """The agent on which it failed last."""
    failed_at: float = float("-inf")
    steps: int = 0
    """The steps of its preparation as last reported."""
    prepare_progressed_at: float = 0.0
    """When these steps were reported."""
    given_up: int = 0
    """The number of its preparations that were given up in a row."""
    fence: int = 0
    """The assignment with which its target is to be fenced; 0: none."""
    fence_durable: bool = False
    """Whether that assignment is stored, so that the fence can be requested."""
    recorded: tuple[Holder, ...] = ()
    """Its replicas in the stored record."""

    def take_mark(self, mark: UnitProgress | None) -> None:
        self.mark = advance_mark(self.mark, mark)

    def take_report(self, mark: UnitProgress | None, rows_per_s: int, waits: str | None) -> None:
        """Note what a replica reports that may write."""
        self.mark = advance_mark(self.mark, mark)
        self.rows_per_s, self.waits = rows_per_s, waits

    def begin_state(self, state: SetState, now: float) -> None:
        """Note that its replication set is in another state, or has other replicas."""
        self.since, self.steps, self.prepare_progressed_at = now, 0, now
        if state is SetState.COMMIT:
            self.given_up = 0  # the preparation has succeeded

    def take_steps(self, steps: int, now: float) -> None:
        """Note the steps of its preparation."""
        if steps > self.steps:
            self.steps, self.prepare_progressed_at = steps, now

    def wait_again(self, now: float) -> None:
        """Begin the time for its present state anew."""
        self.since = self.prepare_progressed_at = now

    def give_up_preparation(self) -> None:
        self.given_up += 1

    def record_failure(self, agent: str, now: float, first: float, most: float) -> None:
        """Note that it failed on an agent, and wait: `first` seconds, doubled after each failure, at most
        `most`.
        """
        self.failures, self.avoid, self.failed_at = self.failures + 1, agent, now
        self.due_at = now + pause_after(self.failures, first, most)

    def forget_failures(self) -> None:
        self.failures = 0

    def wait_until(self, due_at: float) -> None:
        self.due_at = max(self.due_at, due_at)

    def store_replicas(self, replicas: tuple[Replica, ...]) -> tuple[Holder, ...]:
        """Note which replicas its record names from now on, and return them."""
        self.recorded = tuple((r.agent, r.agent_epoch, r.assignment) for r in replicas)
        return self.recorded

    def learn_uid(self, uid: str) -> None:
        """Note the uid of the inventory, unless the record has one."""
        self.uid = self.uid or uid

    def begin_next_target(self, uid: str) -> bool:
        """Return whether the target of the inventory (`uid`) has to be fenced as well, after that of the
        record: if the record cannot be trusted, its replicas may write into either.
        """
        is_next = UNKNOWN in self.recorded and uid != self.uid
        if is_next:
            self.uid = uid
        return is_next

    def begin_fence(self, assignment: int) -> None:
        self.fence, self.fence_durable = assignment, False

    def confirm_fence_stored(self) -> None:
        self.fence_durable = True

    def end_fence(self) -> None:
        self.fence = 0


@dataclass(slots=True)
class UnitSets:
    """The replication set of each unit, and what the leader knows of the units besides."""

    by_unit: dict[str, ReplicationSet] = field(default_factory=dict)
    memos: dict[str, UnitMemo] = field(default_factory=dict)
    by_agent: dict[str, dict[str, None]] = field(default_factory=dict)
    """By agent: the units with a replica there, in a fixed order."""
    unsettled: dict[str, None] = field(default_factory=dict)
    """Units that are neither absent nor replicating."""
    retrying: dict[str, None] = field(default_factory=dict)
    fencing: dict[str, float] = field(default_factory=dict)
    """Absent units that are not to run, with the time when their fence was last requested."""
    paused: dict[str, None] = field(default_factory=dict)
    restricted: dict[str, str] = field(default_factory=dict)
    """Units that the leader leaves as they are, with the invariant that they violate (`invariants`)."""
    touched: dict[str, ReplicationSet | None] = field(default_factory=dict)
    """The units whose sets the present step has changed, with their sets before it; None: there was none."""
    cells: Counter[Cell] = field(default_factory=Counter)
    """How often each cell of the transition table was used."""

    def restore(self, unit: str, uid: str, holders: tuple[Holder, ...], now: float) -> None:
        """Begin with the record that an earlier leader stored."""
        self.by_unit[unit] = restore_set(unit, tuple(Replica(*holder) for holder in holders))
        self.memos[unit] = UnitMemo(uid, now, recorded=holders)
        if holders:
            self.unsettled[unit] = None
        for agent, _, _ in holders:
            self.by_agent.setdefault(agent, {})[unit] = None

    def add_unit(self, unit: str, uid: str, now: float) -> None:
        """Add a unit without replicas, unless it is known."""
        if unit in self.by_unit:
            self.memos[unit].learn_uid(uid)
            return
        self.touched.setdefault(unit, None)
        self.by_unit[unit] = ReplicationSet(unit)
        self.memos[unit] = UnitMemo(uid, now)

    def replace_set(self, before: ReplicationSet, after: ReplicationSet) -> None:
        """Put `after` in the place of `before`, and keep the index by agent."""
        unit = after.unit
        self.touched.setdefault(unit, before)
        self.by_unit[unit] = after
        stay = {r.agent for r in after.replicas}
        for agent in sorted(stay):
            self.by_agent.setdefault(agent, {})[unit] = None
        for agent in sorted({r.agent for r in before.replicas} - stay):
            self.by_agent.get(agent, {}).pop(unit, None)

    def begin_state(self, after: ReplicationSet, now: float) -> UnitMemo:
        """Note that a set is in another state or has other replicas, and return the unit's memo."""
        memo = self.memos.setdefault(after.unit, UnitMemo())
        memo.begin_state(after.state, now)
        if after.state in _SETTLED:
            self.unsettled.pop(after.unit, None)
        else:
            self.unsettled[after.unit] = None
        return memo

    def renew_identity(self, unit: str, uid: str) -> None:
        """Drop what is known of an earlier unit that had the same name and another uid."""
        if self.memos[unit].uid != uid:
            self.memos[unit] = UnitMemo(uid, self.memos[unit].since)

    def wake_retries(self, now: float) -> bool:
        """Return whether a unit that waited after a failure may be tried again."""
        due = [unit for unit in self.retrying if self.memos[unit].due_at <= now]
        for unit in due:
            del self.retrying[unit]
        return bool(due)

    def forget_agent(self, agent: str) -> None:
        """Drop an agent without units from the index."""
        self.by_agent.pop(agent, None)

    def forget_unit(self, unit: str) -> bool:
        """Drop a known unit, and return whether it was paused."""
        self.touched.setdefault(unit, self.by_unit[unit])
        for known in (self.by_unit, self.memos, self.retrying, self.fencing):
            known.pop(unit, None)
        was_paused = unit in self.paused
        self.paused.pop(unit, None)
        return was_paused

    def take_touched(self) -> dict[str, ReplicationSet | None]:
        """End a step, and return the units whose sets it has changed, with their sets before it."""
        touched, self.touched = self.touched, {}
        return touched

    def restrict_unit(self, unit: str, why: str) -> None:
        """Leave the unit as it is from now on."""
        self.restricted = {**self.restricted, unit: why}  # other threads read it
        for waiting in (self.unsettled, self.retrying, self.fencing):
            waiting.pop(unit, None)

    def put_back(self, unit: str, before: ReplicationSet | None) -> None:
        """Undo what a step has done to the set of a unit."""
        self._set_replicas(before or ReplicationSet(unit))
        self.memos.setdefault(unit, UnitMemo())

    def end_restriction(self, unit: str) -> None:
        """Forget the replicas of a restricted unit. Its target has to be fenced, whatever the record is."""
        self.restricted = {name: why for name, why in self.restricted.items() if name != unit}
        self.touched.setdefault(unit, self.by_unit[unit])
        self._set_replicas(ReplicationSet(unit))
        known = self.memos[unit]
        self.memos[unit] = UnitMemo(known.uid, known.since, recorded=(UNKNOWN,))

    def _set_replicas(self, current: ReplicationSet) -> None:
        for units in self.by_agent.values():
            units.pop(current.unit, None)
        self.by_unit[current.unit] = current
        for replica in current.replicas:
            self.by_agent.setdefault(replica.agent, {})[current.unit] = None
