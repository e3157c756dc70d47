"""The places for which definitions are requested, and the possible answers. Pure data."""

from __future__ import annotations

from typing import NamedTuple

from producer.sources.changes import Barrier
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.position import LogPoint, parse_binlog_file_number


class DefinitionPlace(NamedTuple):
    """The place for which a definition is requested: from the event that starts at `pos` of `file` on.

    `gtid`: of the transaction at that place, if it has one. `beginning`: capture begins there, and has
    seen nothing before.
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
    """A definition that is proven from the place up to the log's end at the time of reading.

    `table`: the active definition; None if the table cannot be captured, with the `problem`. Both None:
    there is no such table.
    """

    table: Table | None
    problem: Problem | None


class UnprovenDefinition(NamedTuple):
    """The answer if later statements on the table may have changed it.

    `last`: the start of the last one that is known.
    """

    last: LogPoint


Proof = ProvenDefinition | UnprovenDefinition
