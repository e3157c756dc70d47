"""A target table with rows, its changes, and a judge: what the tests of changes share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from consumer.ordering.model import NetChange
from consumer.targets.alterations import Alteration, AlterTable, DropTable, apply_alterations
from consumer.targets.session import SqlSession
from schemas.table.model import Column, ColumnType, Kind, Row, Table
from tests.kits.documented_user import PASSWORD
from tests.kits.targets import Lane, Target, as_target, people, rows_of

INT = ColumnType(kind=Kind.INT, bits=32)
BIG = ColumnType(kind=Kind.INT, bits=64)
DECIMAL = ColumnType(kind=Kind.DECIMAL, precision=8, scale=2)
ROWS: list[Row] = [
    (1, "a@x", "de", 7, "first"),
    (2, None, None, None, None),
    (3, "ä%s'\\", "fr", -5, ""),
]


def column(name: str, type_: ColumnType, *, null: bool = True, default: str | None = None) -> Column:
    return Column(name=name, type=type_, nullable=null, default=default)


def with_value(*values: Any) -> list[Row]:
    return [(*row, *values) for row in ROWS]


@dataclass
class Altered:
    """The table `people` with rows, and the session that changes it."""

    target: Target
    session: SqlSession
    lane: Lane

    @classmethod
    def made(cls, target: Target, rows: Sequence[Row] = ROWS, user: str | None = None) -> Altered:
        """`user`: who changes the table, which exists; None: the one of the tests' server."""
        session = target.open(**({} if user is None else {"user": user, "password": PASSWORD}))
        table = people(target.schema)
        if user is None:
            session.create_table(table)
        lane = Lane.start(session)
        lane.apply_net_change(NetChange(as_target(table), replaces=list(rows)))
        return cls(target, session, lane)

    @property
    def real(self) -> Table:
        found = self.session.read_table(self.target.schema, "people")
        assert found is not None
        return found

    def alter(self, *steps: Alteration) -> Table:
        change = AlterTable(self.real, steps)
        self.run(change)
        return apply_alterations(change)

    def run(self, change: AlterTable | DropTable) -> None:
        if self.session.transactional_ddl:
            with self.session.begin_transaction(self.lane.unit, [self.lane.row]) as tx:
                tx.alter_table(change)
        else:
            self.session.alter_table(change, connection=self.session.get_connection_id())

    def rows(self, table: Table) -> list[Row]:
        return rows_of(self.session, as_target(table))


def shape(table: Table) -> object:
    """What must be alike, whatever the order of columns and the names of indexes."""
    columns = {each.name: (each.type, each.nullable) for each in table.columns}
    return columns, table.key.columns, sorted(each.columns for each in table.unique)
