"""From row changes to items for lanes, with the tickets that order them across lanes (design.md §6 Dispatch).

Use: one `Dispatcher` per task attempt; `plan(target)` once a table; then per chunk of a few hundred accepted events
`dispatch([(plan, change, origin), …])` in offset order and `take()` the items per lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from consumer.layout import Layout
from consumer.locks import LockTable, Ticket, Wait
from consumer.model import LaneProgress, RowChange, TargetTable
from schemas.position import Position
from schemas.table import Row, Table

Origin = tuple[int, Position, int, int, bytes]
"""Where a change comes from: (offset, position, gen, source commit ms, wire JSON of the event)."""


class TablePlan:
    """What dispatch and lanes need of a target table, computed once: folds, lane hash, locks' slots, getters."""


Routed = tuple[TablePlan, RowChange, Origin]
"""What goes into `Dispatcher.dispatch`: `change.id` is (offset, 0)."""
Item = tuple[RowChange, TablePlan, bytes, Origin, tuple[Ticket, ...], tuple[Wait, ...]]
"""What a lane gets: (change, plan, folded key, origin, tickets to release, events to wait for)."""


class Dispatcher:
    """Splits changes to lanes. `lanes`: progress rows; what a lane has already passed is dropped in that lane."""

    def __init__(self, layout: Layout, locks: LockTable, lanes: Sequence[LaneProgress]) -> None: ...

    def plan(self, target: TargetTable, source: Table | None = None) -> TablePlan:
        """Return the plan of `target` (cached by table name and model). `source`: the source's model in target terms
        (same column names) where its collations differ; the coarser fold of both is used."""
        raise NotImplementedError

    def dispatch(self, changes: Iterable[Routed]) -> None:
        """Queue `changes` (offset order) to their lanes. Registers tickets: the shell holds the locks' mutex."""
        raise NotImplementedError

    def take(self) -> list[list[Item]]:
        """Return and forget the items queued since the last call, a list per lane."""
        raise NotImplementedError


RowKey = Callable[[Row], object]
