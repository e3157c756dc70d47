"""The states of copies by table, which the position record contains. Pure (docs/adr/0025)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from producer.tables import BegunCopy, TableState, format_table_name
from schemas.table.names import format_table_text
from schemas.wire.copies import CopyMark, CopyState

DAY_MS = 24 * 3600 * 1000


class CopyStates:
    """The states of copies.

    `all`: "db.table" → state of the last request, in the order of the requests. `waiting`: the copies
    that may begin, oldest first, and key sweeps after copies; none while one runs. `revision`: grows with
    each change. Times are in ms since 1970.
    """

    def __init__(self, states: Mapping[str, CopyState] | None = None) -> None:
        self.all = dict(states or {})
        self.revision = 0
        self.waiting = self._list_waiting()

    def put_state(self, state: CopyState) -> None:
        """Store a state at its table's place, or at the end if the table has none."""
        self.all[format_copied_table(state)] = state
        self._note_change()

    def set_rate(self, table: str, rate: int | None) -> None:
        """Set the rate of a table's waiting or running copy, in rows a second; None: no limit."""
        state = self.all.get(table)
        if state is not None and is_open(state):
            self.put_state(replace(state, max_rows_per_second=rate))

    # --- queries

    @property
    def running(self) -> CopyState | None:
        return next((state for state in self.all.values() if state.phase == "running"), None)

    @property
    def busy(self) -> bool:
        """True if a copy waits or runs."""
        return any(map(is_open, self.all.values()))

    def find_running(self, table: str, copy: str) -> CopyState | None:
        """Return the table's copy if it runs and has this id, otherwise None."""
        state = self.all.get(table)
        return state if state is not None and state.phase == "running" and state.id == copy else None

    def find_fulfilled_request(self, table: TableState) -> CopyState | None:
        """Return the request that is fulfilled by the copy that last began in the table's topic.

        None: there is none.
        """
        state = self.all.get(format_table_name(table.name))
        return None if state is None or table.begun is None or state.id != table.begun.mark.id else state

    def should_resume(self, table: str, begun: BegunCopy) -> bool:
        """Return whether the copy that began in the table's topic continues at its markers.

        It does not if it was given up or must begin again.

        A copy without a state continues: its request is read soon, and a new snapshot has none.
        """
        state = self.all.get(table)
        return state is None or state.begin != begun.position or state.phase in ("running", "done")

    def select_visible(self, now: int) -> dict[str, CopyState]:
        """Return the copies that wait or run, are postponed, or ended within a day."""
        return {
            name: state
            for name, state in self.all.items()
            if is_open(state)
            or state.removed is not None
            or state.retry_ms is not None
            or (state.ended_ms or 0) > now - DAY_MS
        }

    # --- events

    def mark_begun(self, table: str, begun: BegunCopy, now: int) -> None:
        """Record that the copy has begun in the table's topic."""
        state = self.all[table]
        self.put_state(
            replace(
                state, phase="running", began_ms=now, begin=begun.position, offset=begun.offset, rows=0,
                ended_stop=begun.ended or state.ended_stop,
            )
        )  # fmt: skip

    def add_sent_rows(self, table: str, copy: str, rows: int) -> None:
        """Record that a chunk of the copy with this id was sent."""
        if (state := self.find_running(table, copy)) is not None:
            self.put_state(replace(state, rows=state.rows + rows))

    def prune_ended(self, now: int) -> None:
        """Forget copies that ended more than a day ago.

        Those that were given up are kept: their topic contains that they began, and not that they ended.
        """
        for name in self.all.keys() - self.select_visible(now).keys():
            state = self.all[name]
            if state.removed is None and (state.phase == "done" or state.begin is None):
                del self.all[name]
                self._note_change()

    def _note_change(self) -> None:
        self.revision += 1
        self.waiting = self._list_waiting()

    def _list_waiting(self) -> list[CopyState]:
        states = self.all.values() if self.running is None else ()
        waiting = [state for state in states if state.phase == "waiting"]
        return sorted(waiting, key=lambda state: state.keys)


def build_copy_mark(state: CopyState) -> CopyMark:
    """Return the mark of the copy in its begin event."""
    return CopyMark(id=state.id, partial=state.where is not None, keys=state.keys)


def is_open(state: CopyState) -> bool:
    """Return whether the copy waits or runs."""
    return state.phase in ("waiting", "running")


def select_recent_ends(ended: Iterable[tuple[int, str]], now: int) -> tuple[tuple[int, str], ...]:
    """Return the ends, (time, cause), within the last day."""
    return tuple(each for each in ended if each[0] > now - DAY_MS)


def format_copied_table(state: CopyState) -> str:
    return format_table_text(state.db, state.table)
