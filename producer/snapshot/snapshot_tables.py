"""The tables of a run by the progress of their snapshots: waiting for the stream, running, or complete
in their topics.
"""

from __future__ import annotations

from collections.abc import Callable

from producer.copies.states import CopyStates
from producer.snapshot.jobs import SnapshotJob
from producer.tables import TableName, TableState, TopicState, format_table_name


class SnapshotTables:
    """The tables with a snapshot or copy that is not complete.

    A table is in one of `waiting`, `jobs` (running) and `unbegun` (a copy has to begin before it
    continues), or in none. `done`: "db.table" of those with a snapshot that this run completed.
    `copies`: the requested copies.
    """

    def __init__(self, copies: CopyStates) -> None:
        self._copies = copies
        self.waiting: dict[TableName, TableState] = {}
        self.jobs: dict[TableName, SnapshotJob] = {}
        self.unbegun: dict[TableName, TableState] = {}
        self.done: set[str] = set()

    @property
    def pending(self) -> set[str]:
        """The tables ("db.table") that are not completely in their topics, without requested copies."""
        running = (job.table for job in self.jobs.values())
        own = [
            state
            for state in (*self.waiting.values(), *running)
            if self._copies.find_fulfilled_request(state) is None
        ]
        return {format_table_name(state.name) for state in (*own, *self.unbegun.values())}

    @property
    def active(self) -> bool:
        """True if any table is running or waiting."""
        return bool(self.jobs or self.waiting)

    def goes_on(self, name: TableName) -> bool:
        """Return whether the table's snapshot or copy is not completely sent."""
        return name in self.jobs or name in self.waiting or name in self.unbegun

    def is_under_way(self, name: TableName) -> bool:
        return name in self.jobs

    def take_due_table(self, passed: Callable[[TopicState], bool]) -> TableState | None:
        """Remove and return a waiting table with a topic that the stream has `passed`.

        None: there is none.
        """
        name = next((name for name, state in self.waiting.items() if passed(state.topic)), None)
        return None if name is None else self.waiting.pop(name)

    def finish_table(self, name: TableName) -> None:
        """Record that all chunks of a running table are sent."""
        del self.jobs[name]
        self.done.add(format_table_name(name))

    def forget_table(self, name: TableName) -> None:
        """Forget a table that was stopped, or its copy given up: the chunks that were read are not
        emitted.
        """
        self.jobs.pop(name, None)
        self.waiting.pop(name, None)
        self.unbegun.pop(name, None)
