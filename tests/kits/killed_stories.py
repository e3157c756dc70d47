"""Histories of changed definitions at a real target, killed at any statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from consumer.tables.router import SchemaChangePolicy, TableRoute
from consumer.tables.stored import decode_stored
from schemas.table.model import Table
from tests.kits.alter import shape
from tests.kits.apply import FakeSource
from tests.kits.attempts import Real
from tests.kits.evolving import Story, Values
from tests.kits.killed import MortalUnit
from tests.kits.targets import as_target


@dataclass(frozen=True)
class Case:
    notify: Callable[[Story], None]
    policy: SchemaChangePolicy = "evolve"
    spec: dict[str, Any] = field(default_factory=dict)


class RealStory(Story):
    """A story told to a unit of a real target, in a table of its own."""

    unit: MortalUnit

    @classmethod
    def begun(cls, real: Real, number: int, case: Case) -> RealStory:
        source = FakeSource(name=f"s{number}")
        route = TableRoute("bank.*", f"{real.schema}.t{number}", policy=case.policy)
        unit = MortalUnit(real, source, route, **case.spec)
        tale = cls(unit, source)  # type: ignore[arg-type]
        tale.unit = unit
        for key in range(3):
            tale.put(key, email=f"{key}@x")
        assert unit.apply().state == "ok"
        case.notify(tale)
        return tale

    @property
    def table(self) -> Table:
        found = self.unit.real.session.read_table(self.unit.real.schema, self.unit.routes[0].to.split(".")[1])
        assert found is not None
        return found

    def target_rows(self) -> dict[int, Values]:
        session, table = self.unit.real.session, self.table
        _, state = session.read_progress(self.unit.unit)
        assert state is not None
        stored = decode_stored(state.definition or "")
        back = {stored.get_target_name(name): name for name in self.source.table.column_names}
        found: dict[int, Values] = {}
        for row in session.fetch_rows(as_target(table), None, 100):
            values = dict(zip(table.column_names, row, strict=True))
            mine = {back[name]: value for name, value in values.items() if name in back}
            assert found.setdefault(int(str(mine["id"])), mine) is mine, "a row twice"
        return found

    def ended(self) -> object:
        """All that must be alike at the end, whatever happened meanwhile; the rows are compared with the
        source's."""
        lanes, state = self.unit.real.session.read_progress(self.unit.unit)
        assert state is not None
        assert self.target_rows() == self.rows
        offsets = [(row.lane, row.offset, row.position, row.gen) for row in lanes]
        # The tables of the histories have names of their own.
        stored = replace(decode_stored(state.definition or ""), target_place=None)
        state = structs.replace(state, definition=stored.encode())
        return shape(self.table), state, offsets, self.unit.real.session.read_quarantine(self.unit.unit)
