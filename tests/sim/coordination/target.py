"""The world outside the coordinator, as models: source heads, the target with its guard, and workers that apply.

A transaction of a worker holds the unit's row from its guard to its commit. Once the commit is on its way it lands,
whatever becomes of the worker's process. A take-over that meets a held row waits; past its limit it kills the holder's
connection, which aborts what has not been committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Transaction:
    """`start`: offset it began from; `end`: what it writes."""

    worker: Worker
    start: int
    end: int
    open: bool = True


@dataclass(slots=True)
class Row:
    """The unit's progress row. `writes`: every (epoch, end) that was committed."""

    epoch: int = 0
    offset: int = 0
    holder: Transaction | None = None
    writes: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Worker:
    """One (unit, epoch) in one agent process. `stage`: opening, ready, taking, writing, ended."""

    agent: str
    agent_epoch: int
    incarnation: str
    unit: str
    epoch: int
    stage: str = "opening"
    offset: int = 0
    gen: int = 0  # of a capture worker: what it has claimed
    stopping: bool = False
    dead: bool = False
    #: said to have ended (the mutation that says it too early keeps it alive)
    reported: bool = False
    transaction: Transaction | None = None

    @property
    def live(self) -> bool:
        return self.stage in {"taking", "writing"} and not self.dead


@dataclass(slots=True)
class Guard:
    """How the target protects itself; the mutations weaken it."""

    locked: bool = True  # the guard's read locks the row until the commit
    checked: bool = True  # there is a guard at all


@dataclass(slots=True)
class Target:
    guard: Guard = field(default_factory=Guard)
    rows: dict[str, Row] = field(default_factory=dict)

    def row(self, unit: str) -> Row:
        return self.rows.setdefault(unit, Row())

    def take_over(self, worker: Worker, kill: bool) -> str:
        """Try to raise the epoch; returns taken, fenced, or busy (the row is locked)."""
        row = self.row(worker.unit)
        if row.holder is not None:
            if not kill:
                return "busy"
            self.abort(row.holder)
        if row.epoch >= worker.epoch:
            return "fenced"
        row.epoch, worker.offset = worker.epoch, row.offset
        return "taken"

    def fence(self, unit: str, epoch: int) -> None:
        row = self.row(unit)
        if row.holder is not None:
            self.abort(row.holder)
        row.epoch = max(row.epoch, epoch)

    def begin(self, worker: Worker, end: int) -> Transaction | None:
        """The guard: None if the worker is fenced, or the row is locked by another."""
        row = self.row(worker.unit)
        transaction = Transaction(worker, worker.offset, end)
        if not self.guard.checked:
            return transaction
        if row.epoch != worker.epoch or (self.guard.locked and row.offset != worker.offset):
            return None
        if self.guard.locked:
            if row.holder is not None:
                return None
            row.holder = transaction
        return transaction

    def commit(self, transaction: Transaction) -> bool:
        """The commit arrives at the server; False if the connection had been killed."""
        row = self.row(transaction.worker.unit)
        if row.holder is transaction:
            row.holder = None
        if not transaction.open:
            return False
        transaction.open = False
        row.offset = transaction.end
        row.writes.append((transaction.worker.epoch, transaction.end))
        return True

    def abort(self, transaction: Transaction) -> None:
        row = self.row(transaction.worker.unit)
        transaction.open = False
        if row.holder is transaction:
            row.holder = None
