"""Writes and reads of rows in a target's transaction that has passed its guard, common to all dialects."""

from __future__ import annotations

from consumer.ordering.model import ApplyUnit, NetChange, TargetTable, UnitState
from consumer.targets.alterations import AlterTable, DropTable
from consumer.targets.altering import TableChanger
from consumer.targets.bookkeeping.books import Bookkeeping
from consumer.targets.bookkeeping.units import parse_units_by_topic
from consumer.targets.dialect_components import Link, NetChangeApplier, TargetCatalog
from consumer.targets.progress.writer import SqlProgressWriter
from consumer.targets.sql import Syntax, join_conditions
from schemas.table.model import Key, Row


class SqlTransaction(SqlProgressWriter):
    """The session's open transaction, with rows and progress over one link
    (`consumer.targets.base.TargetTransaction`).
    """

    def __init__(
        self,
        unit: ApplyUnit,
        link: Link,
        books: Bookkeeping,
        catalog: TargetCatalog,
        applier: NetChangeApplier,
        *,
        altering: TableChanger,
    ) -> None:
        super().__init__(unit, link, books)
        self._catalog = catalog
        self._applier = applier
        self._altering = altering

    def apply_net_change(self, net: NetChange, *, displacing: str | None = None) -> int:
        return self._applier.apply_net_change(self._unit, net, displacing) if net.size else 0

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        text, params = join_conditions(self._catalog.build_filter(table, where))
        self._link.execute(f"DELETE FROM {self._catalog.quote_table_name(table)}{text}", params)

    def lock_units(self) -> dict[str, UnitState]:
        return parse_units_by_topic(
            self._link.execute(*self._books.units.select_all(self._unit.pipeline, lock=True))
        )

    def write_other(self, topic: str, state: UnitState) -> None:
        other = ApplyUnit(self._unit.pipeline, topic)
        self._link.execute(*self._books.units.build_update(other, state))

    def alter_table(self, change: AlterTable | DropTable) -> None:
        if not self._altering.transactional:
            raise ValueError("altering a table would commit this transaction")
        self._altering.apply_change(change)
        self._applier.forget_table(change.table.db, change.table.name)


def read_page(
    link: Link,
    catalog: TargetCatalog,
    syntax: Syntax,
    table: TargetTable,
    after: Key | None,
    *,
    where: dict[str, str] | None,
    limit: int,
    upto: Key | None = None,
) -> list[Row]:
    """Return up to `limit` rows with keys above `after`, and up to `upto`, in the order of the server's
    own key index.
    """
    select, decode = catalog.select_rows(table)
    text, params = join_conditions(
        [*catalog.build_filter(table, where), *catalog.build_page_conditions(table, after, upto)]
    )
    page = syntax.page(f"{select}{text}", catalog.build_page_order(table), limit)
    return [decode(row) for row in link.execute(page, params)]
