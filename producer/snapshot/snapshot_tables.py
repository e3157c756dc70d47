"""The tables of a run by how far their snapshots are: they wait for the stream, they are under way, or they are in their topics."""

from __future__ import annotations

from collections.abc import Callable

from producer.copies.states import CopyStates
from producer.snapshot.jobs import SnapshotJob
from producer.tables import TableName, TableState, TopicState, format_table_name


class SnapshotTables:
    """A table is in one of `waiting`, `jobs` (under way) and `unbegun` (a copy of it has to begin before it goes on), or in none.

    `done`: "db.table" of those whose snapshot this run has ended. `copies`: the copies that were asked for.
    """

    def __init__(self, copies: CopyStates) -> None:
        self._copies = copies
        self.waiting: dict[TableName, TableState] = {}
        self.jobs: dict[TableName, SnapshotJob] = {}
        self.unbegun: dict[TableName, TableState] = {}
        self.done: set[str] = set()

    @property
    def pending(self) -> set[str]:
        """ "db.table" of the tables that are not completely in their topics, copies that were asked for aside."""
        running = (job.table for job in self.jobs.values())
        own = [
            state
            for state in (*self.waiting.values(), *running)
            if self._copies.find_fulfilled_request(state) is None
        ]
        return {format_table_name(state.name) for state in (*own, *self.unbegun.values())}

    @property
    def active(self) -> bool:
        """Tell whether any table is under way or waits."""
        return bool(self.jobs or self.waiting)

    def goes_on(self, name: TableName) -> bool:
        """Tell whether the table's snapshot or copy is not all sent."""
        return name in self.jobs or name in self.waiting or name in self.unbegun

    def is_under_way(self, name: TableName) -> bool:
        return name in self.jobs

    def take_due_table(self, passed: Callable[[TopicState], bool]) -> TableState | None:
        """Take a table that waits and whose topic the stream has `passed` off the list."""
        name = next((name for name, state in self.waiting.items() if passed(state.topic)), None)
        return None if name is None else self.waiting.pop(name)

    def finish_table(self, name: TableName) -> None:
        """All chunks of a table that is under way are sent."""
        del self.jobs[name]
        self.done.add(format_table_name(name))

    def forget_table(self, name: TableName) -> None:
        """The table is stopped, or its copy given up: what was read of it is not emitted."""
        self.jobs.pop(name, None)
        self.waiting.pop(name, None)
        self.unbegun.pop(name, None)
