"""The bookkeeping of one target: the statements of all its tables.

These tables record how far a unit is applied, in the same transactions as the rows. The statements are
the same for all dialects; where databases differ, the dialect's `Syntax` is used. Rendering is pure;
sessions run the statements.
"""

from __future__ import annotations

from consumer.targets.bookkeeping.displaced import DisplacedStatements
from consumer.targets.bookkeeping.lanes import LaneStatements
from consumer.targets.bookkeeping.quarantine import QuarantineStatements
from consumer.targets.bookkeeping.tables import BookkeepingTables
from consumer.targets.bookkeeping.units import UnitStatements
from consumer.targets.sql import Syntax


class Bookkeeping:
    """Statements on the bookkeeping tables in `schema`."""

    def __init__(self, schema: str, syntax: Syntax) -> None:
        self.syntax = syntax
        self.tables = BookkeepingTables(schema, syntax)
        self.lanes = LaneStatements(self.tables)
        self.units = UnitStatements(self.tables)
        self.quarantine = QuarantineStatements(self.tables)
        self.displaced = DisplacedStatements(self.tables)
