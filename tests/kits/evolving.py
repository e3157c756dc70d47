"""Histories of a table whose definition changes, applied to a target in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.tables.router import SchemaChangePolicy, TableRoute
from consumer.tables.stored import decode_stored
from schemas.table.model import Table, Value
from schemas.wire.copies import CopyMark
from schemas.wire.event import ColumnChanges
from schemas.wire.records import TableStop
from tests.kits.apply import FakeSource
from tests.kits.changed_definitions import (
    FOLLOWED,
    TABLE,
    changed,
    text,
    unique,
)
from tests.kits.unit_copies import CopyBench

KINDS = pytest.mark.parametrize("transactional", [True, False], ids=["in transactions", "by themselves"])


Values = dict[str, Value]


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Story:
    """A unit whose source's table changes; what the source has is known by names."""

    bench: CopyBench
    source: FakeSource = field(default_factory=FakeSource)
    rows: dict[int, Values] = field(default_factory=dict)

    def put(self, key: int, **values: Value) -> None:
        """Insert or update a row of the table as it is now."""
        row: Values = dict.fromkeys(self.source.table.column_names)
        row |= {
            "id": key,
            "owner": f"o{key}",
            "balance": "1.50",
            "version": 1,
            "opened": "2026-11-21 10:00:00.000001",
        }
        row = {name: value for name, value in row.items() if name in self.source.table.column_names} | values
        before = self.rows.get(key)
        self.rows[key] = row
        self.bench.write([self.source.event("c" if before is None else "u", before, row)])

    def statement(
        self, new: Table, columns: ColumnChanges | None, fills: Values | None = None, **more: Any
    ) -> None:
        """The source's table changes, and with it the rows that are there."""
        names = {} if columns is None else columns.renamed
        self.rows = {
            key: {
                name: value
                for old, value in row.items()
                if (name := names.get(old, old)) in new.column_names
                and old not in (columns.dropped if columns else ())
            }
            | (fills or {})
            for key, row in self.rows.items()
        }
        self.bench.write(
            [self.source.event("m", definition=new, ddl="ALTER TABLE acct …", columns=columns, **more)]
        )
        self.source.table = new

    def copy(self, new: Table) -> None:
        """A copy begins: every row comes anew."""
        self.bench.write([self.source.event("m", definition=new, copy=CopyMark(id="1"))])
        self.source.table = new
        self.bench.write([self.source.event("r", None, row) for row in self.rows.values()])

    def target_rows(self, place: str = "public.acct") -> dict[int, Values]:
        """The target's rows, as far as the source has their columns."""
        target = self.bench.target
        table = target.tables[place]
        stored = decode_stored(target.state.unit.definition or "")
        back = {stored.get_target_name(name): name for name in self.source.table.column_names}
        found = {}
        for row in target.state.rows.get(place, {}).values():
            values = dict(zip(table.column_names, row, strict=True))
            mine = {back[name]: value for name, value in values.items() if name in back}
            found[int(str(mine["id"]))] = mine
        return found

    def equal(self) -> bool:
        return self.target_rows() == self.rows


def story(
    policy: SchemaChangePolicy = "evolve",
    *,
    transactional: bool = True,
    rows: int = 3,
    add: bool = False,
    **spec: Any,
) -> Story:
    added_ = (("branch", "{source}"),) if add else ()
    bench = CopyBench(routes=(TableRoute("bank.*", "public.{table}", added_, policy),), **spec)
    bench.target.transactional = transactional
    found = Story(bench)
    bench.write([found.source.definition()])
    for key in range(rows):
        found.put(key, email=f"{key}@x")
    assert bench.apply().state == "ok"
    return found


#: What rows that are there have in columns that a followed change adds.
FILLS: dict[str, Values] = {
    "add": {"n": None}, "add with a default": {"n": 7}, "add not null": {"n": 0},
    "rename and add under the old name": {"note": None},
}  # fmt: skip


def later_values(name: str) -> Values:
    return {"n": 9} if name.startswith("add") else {}


def kill_at(tale: Story, number: int) -> bool:
    """Apply, and die at the moment `number`. Whether there was such a moment."""
    moments = 0

    def at(_moment: str) -> None:
        nonlocal moments
        moments += 1
        if moments == number:
            raise Killed

    tale.bench.target.at = at
    try:
        tale.bench.apply()
    except Killed:
        return True
    finally:
        tale.bench.target.at = lambda _moment: None
        tale.bench.target.sessions.clear()
    return False


def notify(tale: Story, name: str) -> None:
    if name == "drop and add":
        columns = ColumnChanges(dropped=("note",), added=("note",))
        tale.statement(TABLE, columns, {"note": None})
        tale.put(1, note="new")
    elif name == "copy with another key":
        tale.copy(replace(TABLE, key=unique("PRIMARY", "id", "owner")))
    elif name == "copy with another type":
        tale.rows = {key: {**row, "version": "one"} for key, row in tale.rows.items()}
        tale.copy(changed(TABLE, "version", type=text(20)))
    else:
        tale.statement(*FOLLOWED[name], FILLS.get(name))
        values = later_values(name) or {"version": 5}
        tale.put(1, **{**tale.rows[1], **values})


def dropped(tale: Story) -> None:
    stop = TableStop(
        cause="dropped", at=(0, 1, 9000, -1), file="f", pos=9000,
        reason="bank.acct was dropped: DROP TABLE acct", remedy="rowlock copy", since_ms=7,
    )  # fmt: skip
    tale.bench.write([tale.source.event("m", stop=stop)])
