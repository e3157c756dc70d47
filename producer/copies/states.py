"""The states of copies by table, which stand in the position record. Pure (docs/adr/0025)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from producer.tables import BegunCopy, TableState, format_table_name
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyMark, CopyState

DAY_MS = 24 * 3600 * 1000


class CopyStates:
    """`all`: "db.table" → state of the last request, in the order of the requests. `revision` grows with each change.

    Times in ms since 1970.
    """

    def __init__(self, states: Mapping[str, CopyState] | None = None) -> None:
        self.all = dict(states or {})
        self.revision = 0
        self._waiting: list[CopyState] = []
        self._waiting_at = -1

    def put_state(self, state: CopyState) -> None:
        """Keep a state in its table's place, behind all others if the table has none."""
        self.all[format_copied_table(state)] = state
        self.revision += 1

    def set_rate(self, table: str, rate: int | None) -> None:
        """Have the copy of a table that waits or runs go on at another rate, rows a second; None: without one."""
        state = self.all.get(table)
        if state is not None and is_open(state):
            self.put_state(replace(state, max_rows_per_second=rate))

    # --- what they say

    @property
    def running(self) -> CopyState | None:
        return next((state for state in self.all.values() if state.phase == "running"), None)

    @property
    def waiting(self) -> list[CopyState]:
        """Those that may begin, the oldest first; none as long as one runs. It is asked for each transaction."""
        if self._waiting_at != self.revision:
            self._waiting_at = self.revision
            states = self.all.values() if self.running is None else ()
            self._waiting = [state for state in states if state.phase == "waiting"]
        return self._waiting

    @property
    def busy(self) -> bool:
        """Tell whether a copy waits or runs."""
        return any(map(is_open, self.all.values()))

    def find_running(self, table: str, copy: str) -> CopyState | None:
        """Return the table's copy if it runs and has this id."""
        state = self.all.get(table)
        return state if state is not None and state.phase == "running" and state.id == copy else None

    def find_fulfilled_request(self, table: TableState) -> CopyState | None:
        """Return the request that the copy which last began in the table's topic fulfils, if it does."""
        state = self.all.get(format_table_name(table.name))
        return None if state is None or table.begun is None or state.id != table.begun.mark.id else state

    def should_resume(self, table: str, begun: BegunCopy) -> bool:
        """Tell whether the copy that began in the table's topic goes on where its markers say: unless it was given up, or is to begin anew.

        One that nobody knows here goes on: its request is read soon, and of a new snapshot there is none.
        """
        state = self.all.get(table)
        return state is None or state.begin != begun.position or state.phase in ("running", "done")

    def select_visible(self, now: int) -> dict[str, CopyState]:
        """Return the copies that wait or run, or came to an end within a day."""
        return {
            name: state
            for name, state in self.all.items()
            if is_open(state) or (state.ended_ms or 0) > now - DAY_MS
        }

    # --- what happens

    def mark_begun(self, table: str, begun: BegunCopy, now: int) -> None:
        """The copy has begun in the table's topic."""
        state = self.all[table]
        self.put_state(
            replace(
                state, phase="running", began_ms=now, begin=begun.position, offset=begun.offset, rows=0,
                ended_stop=begun.ended or state.ended_stop,
            )
        )  # fmt: skip

    def add_sent_rows(self, table: str, copy: str, rows: int) -> None:
        """A chunk of the copy with this id was sent."""
        if (state := self.find_running(table, copy)) is not None:
            self.put_state(replace(state, rows=state.rows + rows))

    def prune_ended(self, now: int) -> None:
        """Forget what ended more than a day ago. What was given up is kept: its topic says that it began, and not that it ended."""
        for name in self.all.keys() - self.select_visible(now).keys():
            state = self.all[name]
            if state.phase == "done" or state.begin is None:
                del self.all[name]
                self.revision += 1


def build_copy_mark(state: CopyState) -> CopyMark:
    """Return how the copy is told in its begin event."""
    return CopyMark(id=state.id, partial=state.where is not None)


def is_open(state: CopyState) -> bool:
    """Tell whether the copy waits or runs."""
    return state.phase in ("waiting", "running")


def select_recent_ends(ended: Iterable[tuple[int, str]], now: int) -> tuple[tuple[int, str], ...]:
    """Return the ends, (time, cause), within a day."""
    return tuple(each for each in ended if each[0] > now - DAY_MS)


def format_copied_table(state: CopyState) -> str:
    """Return "db.table"."""
    return format_table_text(state.db, state.table)
