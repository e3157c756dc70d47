"""The world outside the coordinator, as models: source heads, the target with its guard, and workers that
apply.

A transaction of a worker holds the unit's row from its guard to its commit. Once the commit is on its way it
lands, whatever becomes of the worker's process. A take-over that meets a held row waits; past its limit it
kills the holder's connection, which aborts what has not been committed. A restart breaks every connection and
aborts what is open; a failover besides goes back to what the standby had, with rows, progress and epochs
alike.
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
    """The unit's progress row. `take`: the n of docs/adr/0006, the holder's own take-overs under `epoch`.
    `writes`: every (epoch, end) that was committed."""

    assignment: int = 0
    take: int = 0
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
    assignment: int
    stage: str = "opening"
    offset: int = 0
    gen: int = 0  # of a capture worker: what it has claimed
    take: int = 0
    connection: int = 0  # of an apply worker: the target's connections that its own is one of
    unknown: int = 0  # requests in a row whose outcome is not known
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
    """`connections`: counts restarts. `standby`: per unit epoch, take, offset and number of writes that it
    has."""

    guard: Guard = field(default_factory=Guard)
    rows: dict[str, Row] = field(default_factory=dict)
    connections: int = 0
    standby: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)

    def row(self, unit: str) -> Row:
        return self.rows.setdefault(unit, Row())

    def take_over(self, worker: Worker, take: int, kill: bool) -> tuple[str, int]:
        """Try to raise the epoch; returns taken, fenced, or busy (the row is locked), and the offset to go on
        from."""
        row = self.row(worker.unit)
        if row.holder is not None:
            if not kill:
                return "busy", 0
            self.abort(row.holder)
        if (row.assignment, row.take) >= (worker.assignment, take):
            return "fenced", 0
        row.assignment, row.take = worker.assignment, take
        return "taken", row.offset

    def fence(self, unit: str, assignment: int) -> None:
        row = self.row(unit)
        if row.holder is not None:
            self.abort(row.holder)
        row.assignment, row.take = max((row.assignment, row.take), (assignment, 0))

    def replicate(self) -> None:
        """The standby gets everything committed so far."""
        self.standby = {u: (r.assignment, r.take, r.offset, len(r.writes)) for u, r in self.rows.items()}

    def restart(self, lost: bool) -> bool:
        """Break all connections; `lost`: go on as the standby, which may not have the newest. Returns whether
        it had not."""
        self.connections += 1
        for row in self.rows.values():
            if row.holder is not None:
                self.abort(row.holder)
        behind = [self._lose(unit, row) for unit, row in self.rows.items()] if lost else []
        return any(behind)

    def _lose(self, unit: str, row: Row) -> bool:
        assignment, take, offset, writes = self.standby.get(unit, (0, 0, 0, 0))
        newer = (row.assignment, row.take, row.offset) != (assignment, take, offset)
        row.assignment, row.take, row.offset = assignment, take, offset
        del row.writes[writes:]
        return newer

    def begin(self, worker: Worker, end: int) -> Transaction | None:
        """The guard: None if the worker is fenced, or the row is locked by another."""
        row = self.row(worker.unit)
        transaction = Transaction(worker, worker.offset, end)
        if not self.guard.checked:
            return transaction
        if (row.assignment, row.take) != (worker.assignment, worker.take) or (
            self.guard.locked and row.offset != worker.offset
        ):
            return None
        if self.guard.locked:
            if row.holder is not None:
                return None
            row.holder = transaction
        return transaction

    def commit(self, transaction: Transaction) -> bool:
        """The commit arrives at the server; False if the connection had been killed. Raises AssertionError
        where the rows between the last commit and this one are missing."""
        row = self.row(transaction.worker.unit)
        if row.holder is transaction:
            row.holder = None
        if not transaction.open:
            return False
        if transaction.start > row.offset:
            unit = transaction.worker.unit
            raise AssertionError(f"gap: {unit} goes on at {transaction.start}, the target is at {row.offset}")
        transaction.open = False
        row.offset = transaction.end
        row.writes.append((transaction.worker.assignment, transaction.end))
        return True

    def abort(self, transaction: Transaction) -> None:
        row = self.row(transaction.worker.unit)
        transaction.open = False
        if row.holder is transaction:
            row.holder = None
