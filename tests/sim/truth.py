"""What the log of a model's source records of each table: what a reader of its topic must have got, and where
it had to stop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.wire.position import LogPoint
from tests.sim.binlog import Change, SourceRow

Where = tuple[int, int, int]
"""The place of a published row: file and offset of its transaction, and its number there."""
Rows = dict[str, SourceRow]
"""Key in lower case → row."""


class Wrong(AssertionError):  # noqa: N818  # it is the verdict, not an error of the program
    """What a judge saw."""


class Step(NamedTuple):
    """What an event of the log, or a statement in it, did to the rows. `where`: of one that is published.

    `change` None: the table's rows are `rows` from there on. `removes`: each of them was there before.
    """

    at: LogPoint
    where: Where | None
    change: Change | None
    rows: Rows
    removes: bool = False


class Cause(NamedTuple):
    """What stops a table: where its transaction starts, where its own event does, and how many rows are
    before it there."""

    start: LogPoint
    at: LogPoint
    row: int


@dataclass
class TableHistory:
    """One table. `removed`: where a statement removed rows → the keys that it left. `emptied`: where a
    TRUNCATE is → the highest version that there was; `altered`: where statements on it are. `causes`: of
    stops, in the order of the log.
    """

    begun: Rows = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    published: dict[Where, Step] = field(default_factory=dict)
    emptied: dict[LogPoint, int] = field(default_factory=dict)
    altered: list[LogPoint] = field(default_factory=list)
    removed: dict[LogPoint, set[str]] = field(default_factory=dict)
    causes: list[Cause] = field(default_factory=list)

    def changed(self, where: Where, at: LogPoint, change: Change) -> None:
        """Note a row that is in the log."""
        step = Step(at, where, change, {})
        self.steps.append(step)
        self.published[where] = step

    def replaced(self, at: LogPoint, rows: Rows) -> None:
        """Note that a statement left the table with `rows`."""
        self.steps.append(Step(at, None, None, dict(rows)))

    def removed_but(self, start: LogPoint, at: LogPoint, rows: Rows) -> None:
        """Note that a statement removed all rows but `rows`."""
        self.steps.append(Step(at, None, None, dict(rows), removes=True))
        self.removed[start] = set(rows)

    def cause(self, defined: Where) -> Cause | None:
        """Return what stops a table that is captured from `defined` on."""
        return next((cause for cause in self.causes if (*cause.start, cause.row) > defined), None)

    def rows_since(self, begin: Where, until: LogPoint | None) -> Rows:
        """Return what a reader has of the rows that are published from `begin` on, and of nothing else."""
        rows: Rows = {}
        for step in self.steps:
            if until is not None and step.at >= until:
                break
            if step.change is None and step.removes:
                rows = {key: row for key, row in rows.items() if key in step.rows}
            elif step.change is None:
                rows = {} if step.at[:2] > begin[:2] else rows
            elif step.where is not None and step.where > begin:
                before, after = step.change
                rows.pop(before[0].lower() if before is not None else "", None)
                rows |= {} if after is None else {after[0].lower(): after}
        return rows

    def rows_at(self, until: LogPoint | None) -> Rows:
        """Return the rows before the event at `until`; None: after all that is in the log."""
        rows = dict(self.begun)
        for step in self.steps:
            if until is not None and step.at >= until:
                break
            if step.change is None:
                rows = dict(step.rows)
            else:
                carry_out(rows, step.change)
        return rows


def carry_out(rows: Rows, change: Change) -> None:
    before, after = change
    if before is not None:
        del rows[before[0].lower()]
    if after is not None:
        rows[after[0].lower()] = after
