"""The tables that capture follows: their definitions, the rows of their logs that are not published, and
what the record may contain.

A table is followed from the moment its definition was requested (`take_up`). The rows that its log has
at that moment are older than everything that follows (a snapshot, a copy), may lack rows that a foreign
purge deleted, or may be of rows that a TRUNCATE has removed since. They are deleted unread. Until then
the record does not name the table (`settled`): a start that finds a captured table that the record does
not name stops it for a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from producer.sources.oracle.mlog import LogPlace
from producer.sources.oracle.segments import TableSegments
from producer.sources.oracle.table_checks import LoggedTable
from schemas.wire.records import LogProof

TableName = tuple[str, str]


@dataclass(slots=True)
class FollowedTable:
    """A table as the last look at the catalog found it.

    `logged`: None while only the record of an earlier process is known (`segments`). `old`: rows of its
    log that are deleted unread. `recorded`: whether the record names the table, so that its log is read.
    `brought`: a poll number before which everything is that the log held when the last poll that read all
    of it began; 0: there was none. `must_examine`: whether the next look examines the table closely.
    `unsure`: whether its log may hold rows with events that the topic has lost. `held`: consecutive polls
    that found rows without their commit SCN.
    """

    segments: TableSegments
    logged: LoggedTable | None = None
    old: frozenset[LogPlace] = frozenset()
    recorded: bool = True
    brought: int = 0
    must_examine: bool = True
    unsure: bool = False
    held: int = 0

    @property
    def settled(self) -> bool:
        """True if the record may name the table."""
        return not self.old

    def forget_old_rows(self) -> None:
        """Read the log from now on: its old rows are deleted."""
        self.old = frozenset()

    def confirm_proof(self) -> None:
        """Record that the stored record names the table, if it may."""
        self.recorded = self.recorded or self.settled

    def accept_look(self, segments: TableSegments, logged: LoggedTable, fresh: str) -> None:
        """Replace what the look before found. `fresh`: a time shortly before this look."""
        self.segments, self.logged = segments, logged
        self.must_examine = segments.ddl >= fresh

    def record_whole_read(self, number: int) -> None:
        """Record that a poll which ends before `number` has read the whole log."""
        self.brought = number

    def count_waiting_poll(self, *, waits: bool) -> int:
        """Return how many consecutive polls found rows without their commit SCN, with this one."""
        self.held = self.held + 1 if waits else 0
        return self.held

    def note_lost_events(self, left: Collection[object]) -> None:
        """Note that the topic has lost events: `left`, rows of the log, may have been published by them."""
        self.unsure = bool(left)


@dataclass(slots=True)
class FollowedTables:
    """All followed tables, by name.

    `published`: numbers of log rows that the topics had when capture began. `captured`: whether a table
    is captured now.
    """

    tables: dict[TableName, FollowedTable] = field(default_factory=dict)
    published: dict[TableName, frozenset[int]] = field(default_factory=dict)
    captured: Callable[[str, str], bool] = lambda _db, _table: True

    def get_captured_table(self, name: TableName) -> LoggedTable | None:
        """Return the table if it is followed and captured now, otherwise None."""
        table = self.tables.get(name)
        return table.logged if table is not None and self.captured(*name) else None

    def mark_brought(self, names: Iterable[TableName], number: int) -> None:
        """Record that a poll which ends before `number` has read the whole logs of these tables."""
        for name in names:
            if name in self.tables:
                self.tables[name].record_whole_read(number)

    def get_brought_poll(self, name: TableName) -> int | None:
        """Return `FollowedTable.brought`; None: the table is not followed."""
        return self.tables[name].brought if self.get_captured_table(name) is not None else None

    @property
    def has_old(self) -> bool:
        """True if a log has rows that must be deleted unread."""
        return any(table.old for table in self.tables.values())

    def take_up(
        self, name: TableName, logged: LoggedTable, segments: TableSegments, old: Iterable[LogPlace]
    ) -> None:
        self.tables[name] = FollowedTable(segments, logged, frozenset(old), recorded=False)

    @property
    def unrecorded(self) -> bool:
        """True if there is a table that the record may name and does not."""
        return any(table.settled and not table.recorded for table in self.tables.values())

    def confirm_proofs(self, proofs: Iterable[LogProof]) -> None:
        """Record that a position record with these proofs is stored."""
        for name in parse_segments_proofs(proofs):
            if name in self.tables:
                self.tables[name].confirm_proof()

    def drop_table(self, name: TableName) -> None:
        self.tables.pop(name, None)

    def list_proofs(self) -> tuple[LogProof, ...]:
        """Return the proofs of the tables that the record may name."""
        return tuple(
            build_segments_proof(name, each.segments)
            for name, each in sorted(self.tables.items())
            if each.settled
        )

    def restore_tables(self, proofs: Iterable[LogProof]) -> None:
        """Follow the tables that a record names, except those that are followed already."""
        for name, segments in parse_segments_proofs(proofs).items():
            self.tables.setdefault(name, FollowedTable(segments))

    def begin_capture(self, proofs: Iterable[LogProof], captured: Callable[[str, str], bool]) -> None:
        """Follow the tables that a record names, and from now on only captured ones."""
        self.restore_tables(proofs)
        self.captured = captured

    def end_capture(self) -> None:
        """Forget all tables, and which are captured."""
        self.tables.clear()
        self.published.clear()
        self.captured = lambda _db, _table: True


def build_segments_proof(name: TableName, segments: TableSegments) -> LogProof:
    """Return a table's segments in the form of a position record."""
    data = ",".join(map(str, sorted(segments.data)))
    return LogProof(
        file="\0".join(name),
        start=segments.id,
        end=segments.log_id,
        digest=f"{data};{segments.load};{segments.ddl};{segments.altered};{segments.last_part}",
    )


def parse_segments_proofs(proofs: Iterable[LogProof]) -> Mapping[TableName, TableSegments]:
    found = {}
    for proof in proofs:
        owner, _, table = proof.file.partition("\0")
        data, load, ddl, altered, last = (proof.digest + ";;").split(";")[:5]
        ids = frozenset(int(each) for each in data.split(",") if each)
        parts = frozenset([(0, last)]) if last else frozenset[tuple[int, str]]()
        found[owner, table] = TableSegments(proof.start, ids, ddl, proof.end, load, altered, parts=parts)
    return found
