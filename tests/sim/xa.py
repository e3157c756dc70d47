"""XA transactions of a model's source: prepared in one transaction of the log, and ended, if at all, in a
later one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from schemas.wire.position import LogPoint
from tests.sim.binlog import xid_text
from tests.sim.truth import Cause, carry_out

if TYPE_CHECKING:
    from tests.sim.source import RowChange, Source


class PreparedChanges(NamedTuple):
    """An XA transaction without an end: where it begins, the number of its first row there, and what it will
    have changed."""

    start: LogPoint
    first_row: int
    changes: list[RowChange]


def carry_one_out(source: Source, rng: random.Random) -> None:
    """Prepare one, end one that is prepared, or do both at once."""
    if source.prepared and source.world.begun_at(source) is not None and rng.random() < 0.6:
        _end(source, rng.choice(list(source.prepared)), rng)
    elif source.mysql and rng.random() < 0.3:
        _one_phase(source, rng)
    else:
        _prepare(source, rng)


def _changes(source: Source, rng: random.Random) -> list[RowChange]:
    """Return a few changes, each of a table of its own."""
    tables = rng.sample(list(source.tables), min(len(source.tables), rng.randint(1, 2)))
    found = [(table, source.world.random_change(source, table, rng)) for table in tables]
    return [(table, change) for table, change in found if change is not None]


def _prepare(source: Source, rng: random.Random) -> None:
    changes = _changes(source, rng)
    if not changes:
        return
    xid = f"x{rng.randrange(4)}"
    if xid in source.prepared:
        return
    group = source.binlog.group(xa=xid)
    if rng.random() < 0.3:
        group.others()
    first_row = group.row
    source.write(group, changes, published=False)
    group.prepare()
    source.prepared[xid] = PreparedChanges(group.start, first_row, changes)
    source.logged(group)


def _one_phase(source: Source, rng: random.Random) -> None:
    changes = _changes(source, rng)
    group = source.binlog.group(xa="one")
    for table, change in changes:
        carry_out(source.tables[table], change)
    source.write(group, changes)
    group.prepare(one_phase=True)
    source.logged(group, changes)


def _end(source: Source, xid: str, rng: random.Random) -> None:
    """COMMIT publishes the rows, and stops all tables where capture does not know them; ROLLBACK changes
    nothing."""
    prepared = source.prepared.pop(xid)
    commit = rng.random() < 0.5
    group = source.binlog.group(ends=xid)
    at = group.sql(f"XA {'COMMIT' if commit else 'ROLLBACK'} {xid_text(xid)}")
    if not commit:
        source.logged(group)
        return
    begun = source.world.begun_at(source)
    assert begun is not None
    unknown = prepared.start < begun
    for table in source.tables if unknown else ():
        source.histories[table].causes.append(Cause(group.start, at, 0))
    for row, (table, change) in enumerate(prepared.changes, start=prepared.first_row):
        carry_out(source.tables[table], change)
        source.happened(table, change)
        if unknown:
            source.histories[table].replaced(at, source.tables[table])
        else:
            source.histories[table].changed((*group.start, row), at, change)
    source.logged(group, prepared.changes)
