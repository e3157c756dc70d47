"""The basis of a leader's plans: the units that are to run, the requested moves, and the next time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.core.schedulers import InventoryUnit, MoveRequest, SchedulePlan

if TYPE_CHECKING:
    from coordinator.core.leader.state import Inventory


@dataclass(frozen=True, slots=True)
class PendingInventory:
    """An inventory with a suspicious shrink, which every read from `since` to `last` has shown."""

    since: float
    last: float


@dataclass(slots=True)
class Plan:
    """The inventory, the requests of operators, and the times of plans. Times are the leader's seconds."""

    next_balance: float = 0.0
    """When the load is evened out next."""
    inventory: dict[str, InventoryUnit] | None = None
    """The adopted inventory by unit; None before the first."""
    last_inventory: Inventory | None = None
    """The inventory that was read last."""
    suspicious: PendingInventory | None = None
    """An inventory with a suspicious shrink that is not adopted yet; None: there is none."""
    moves: tuple[MoveRequest, ...] = ()
    """The requested moves that have not begun."""
    rebalance: bool = False
    """Whether an operator has asked to even out the load."""
    has_work: bool = True
    """Whether something has changed that may need a plan."""

    def note_change(self) -> None:
        """Note that something has changed that may need a plan."""
        self.has_work = True

    def is_due(self, now: float) -> bool:
        return self.has_work or now >= self.next_balance

    def finish(self, done: SchedulePlan, next_balance: float | None, *, has_more: bool) -> None:
        """Note what a plan has done. `next_balance`: None: as before; `has_more`: whether units are left to
        place.
        """
        self.has_work = has_more
        if next_balance is not None:
            self.next_balance = next_balance
        if done.by in {"", "balance"} and not done.full:
            self.rebalance = False

    def request_rebalance(self) -> None:
        self.rebalance = True

    # requested moves

    def request_move(self, move: MoveRequest) -> None:
        """Request a move, in the place of another one of the unit."""
        self.forget_move(move.unit)
        self.moves = (*self.moves, move)

    def forget_move(self, unit: str) -> bool:
        """Drop a requested move that has not begun, and return whether there was one."""
        kept = tuple(move for move in self.moves if move.unit != unit)
        had, self.moves = len(kept) < len(self.moves), kept
        return had

    # the inventory

    def read_inventory(self, found: Inventory) -> Inventory | None:
        """Note which inventory was read last, and return the one before."""
        before, self.last_inventory = self.last_inventory, found
        return before

    def adopt_inventory(self, found: Inventory) -> dict[str, InventoryUnit]:
        """Plan for this inventory from now on, and return its units by name."""
        self.inventory = {spec.unit: spec for spec in sorted(found.units, key=lambda spec: spec.unit)}
        self.suspicious, self.has_work = None, True
        return self.inventory

    def note_suspicious_inventory(self, now: float, confirm_after: float) -> bool:
        """Note that a suspicious inventory was read, and return whether it has been read like that for
        `confirm_after` seconds.

        If no inventory was read for more than half of that time (the process hung, or Kafka did not
        answer), good answers may have been missed between two bad ones, so the time begins again.
        """
        known = self.suspicious or PendingInventory(now, now)
        unseen = now - known.last > confirm_after / 2
        self.suspicious = PendingInventory(now if unseen else known.since, now)
        return now >= self.suspicious.since + confirm_after

    def find_unit(self, unit: str) -> InventoryUnit | None:
        """Return the unit as the inventory has it."""
        return None if self.inventory is None else self.inventory.get(unit)
