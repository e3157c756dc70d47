"""Questions about definitions, and the possible answers: pure data."""

from __future__ import annotations

from typing import NamedTuple

from producer.sources.changes import Barrier
from schemas.table.model import Table
from schemas.wire.position import LogPoint, parse_binlog_file_number


class DefinitionPlace(NamedTuple):
    """The place that definitions are asked for: from the event that starts at `pos` of `file` on.

    `gtid`: of the transaction that stands there, if it has one. `beginning`: capture begins there, and has seen nothing before.
    """

    file: str
    pos: int
    gtid: str | None = None
    beginning: bool = False

    @property
    def point(self) -> LogPoint:
        return parse_binlog_file_number(self.file), self.pos


def build_definition_place(barrier: Barrier) -> DefinitionPlace:
    """Return the place of a statement."""
    return DefinitionPlace(barrier.header.file, barrier.start, barrier.header.gtid)


class ProvenDefinition(NamedTuple):
    """In force at the place, and up to the log's end as it was: `table`; or None, and `reason` why none can be captured.

    Both None: there is no such table.
    """

    table: Table | None
    reason: str | None


class UnprovenDefinition(NamedTuple):
    """Statements on the table follow; `last`: where the last one that is known starts."""

    last: LogPoint


Proof = ProvenDefinition | UnprovenDefinition
