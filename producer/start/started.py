"""A capture unit that has started: the result of its start for the loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from producer.copies.book import CopyBook
from producer.decoders.row_codec import SourceContext
from producer.kafka.event_limits import EventLimits
from producer.sources.protocols import NOTHING_PUBLISHED, PublishedRows
from producer.start.covered_rows import CoveredRows
from producer.start.topic_recovery import TableTail
from producer.tables import CapturedTables, TableName
from schemas.problems import Problem
from schemas.table.model import Table
from schemas.wire.copies import CopyMark
from schemas.wire.position import LogPoint, Position
from schemas.wire.records import StoredPosition


@dataclass(slots=True)
class StartedCapture:
    """A capture unit that has started: the state with which it runs.

    `tails`: each known table's part of its topic. `errors`: tables that are left out, and why.
    `fresh`: the position is a new beginning (first start, or a new snapshot), not a stored one. `late`:
    new tables that wait for their definition, until the stream has passed what their topic holds
    (readers would drop it as old) and the point of the log up to which their definition cannot be
    proven. `begins`: tables that an earlier start added after the record's position, and where: earlier
    events do not affect them. `copies`: the requested ones. `snapshots`: whether tables get a snapshot.
    `published`: see ConsumedLog. `limits`: of the topics' events. `covered`: rows that the log brings first,
    and the topics have (docs/adr/0047).
    """

    record: StoredPosition
    context: SourceContext
    captured: CapturedTables
    tails: dict[TableName, TableTail]
    errors: dict[TableName, Problem]
    fresh: bool
    late: dict[TableName, LogPoint] = field(default_factory=dict)
    begins: dict[TableName, Position] = field(default_factory=dict)
    copies: CopyBook = field(default_factory=CopyBook)
    snapshots: bool = True
    published: PublishedRows = NOTHING_PUBLISHED
    limits: EventLimits = field(default_factory=EventLimits)
    covered: dict[TableName, CoveredRows] = field(default_factory=dict)

    def find_former_definition(self, name: TableName) -> Table | None:
        """Return the last definition that a table has from earlier eras of the source's history; None: there
        is none.
        """
        tail, eras = self.tails.get(name), range(self.record.first_era, self.context.epoch)
        if tail is None or not (former := [at for at in tail.definitions if at[0] in eras]):
            return None
        return tail.definitions[max(former)]

    def get_copy_mark(self, name: TableName) -> CopyMark | None:
        """Return the mark of a table's first definition in this history: the begin of a copy if its topic
        has an older definition, otherwise None.
        """
        tail, first = self.tails.get(name), self.record.first_era
        if tail is None or not self.snapshots or any(at[0] >= first for at in tail.definitions):
            return None
        return CopyMark(id=f"snapshot of era {self.context.epoch}")
