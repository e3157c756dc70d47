"""The tables that are followed: as what they are, what of their logs is not to be published, and when the record may say so.

A table is followed from a definition on that was asked for (`take_up`). What its log holds by then is older than all that follows (a
snapshot, a copy), may lack what a foreign purge took, or speak of rows that a TRUNCATE has removed since: it is deleted unread. Until
that is done the record does not name the table (`settled`): a start that finds a table captured, and not named, stops it for a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from producer.sources.oracle.catalogue import LoggedTable
from producer.sources.oracle.mlog import LogPlace
from producer.sources.oracle.segments import TableSegments
from schemas.wire.records import LogProof

TableName = tuple[str, str]


@dataclass(slots=True)
class FollowedTable:
    """A table as the last look found it. `old`: rows of its log that are deleted unread; `settled`: whether the record may name it;
    `recorded`: whether it does, and its log is read; `brought`: the number before which stands all that its log held when the last poll
    began that brought all of it, 0: there was none; `again`: whether it is to be looked at closely the next time; `unsure`: whether its log
    may hold rows that the topic had, in events which are gone; `held`: polls, one behind the other, that found rows without their commit SCN.

    `logged` is None as long as only the record of a process before is known (`segments`).
    """

    segments: TableSegments
    logged: LoggedTable | None = None
    old: frozenset[LogPlace] = frozenset()
    settled: bool = True
    recorded: bool = True
    brought: int = 0
    again: bool = True
    unsure: bool = False
    held: int = 0


@dataclass(slots=True)
class FollowedTables:
    """All of them, by name. `published`: numbers of log rows that the topics had when capture began; `captured`: see SourceLog."""

    tables: dict[TableName, FollowedTable] = field(default_factory=dict)
    published: dict[TableName, frozenset[int]] = field(default_factory=dict)
    captured: Callable[[str, str], bool] = lambda _db, _table: True

    def list_readable_tables(self) -> list[tuple[TableName, LoggedTable]]:
        """Return the tables whose log can be read."""
        return [(name, each.logged) for name, each in self.tables.items() if each.logged is not None]

    def get_captured_table(self, name: TableName) -> LoggedTable | None:
        """Return what a table is that is followed, and captured just now."""
        table = self.tables.get(name)
        return table.logged if table is not None and self.captured(*name) else None

    def mark_brought(self, names: Iterable[TableName], number: int) -> None:
        """Take it that a poll which ends before `number` has brought all of the logs of these tables."""
        for name in names:
            if name in self.tables:
                self.tables[name].brought = number

    def get_brought_poll(self, name: TableName) -> int | None:
        """Return `FollowedTable.brought`; None: the table is not followed."""
        return self.tables[name].brought if self.get_captured_table(name) is not None else None

    @property
    def has_old(self) -> bool:
        """Tell whether a log holds rows that are to be deleted unread."""
        return any(table.old for table in self.tables.values())

    def take_up(
        self, name: TableName, logged: LoggedTable, segments: TableSegments, old: Iterable[LogPlace]
    ) -> None:
        found = frozenset(old)
        self.tables[name] = FollowedTable(segments, logged, found, settled=not found, recorded=False)

    @property
    def unrecorded(self) -> bool:
        """Tell whether there is a table that the record may name, and does not."""
        return any(table.settled and not table.recorded for table in self.tables.values())

    def confirm_proofs(self, proofs: Iterable[LogProof]) -> None:
        """Take it that a record with these proofs is stored."""
        for name in parse_segments_proofs(proofs):
            if name in self.tables and self.tables[name].settled:
                self.tables[name].recorded = True

    def drop_table(self, name: TableName) -> None:
        self.tables.pop(name, None)

    def list_proofs(self) -> tuple[LogProof, ...]:
        """Return what the record keeps of the tables that it may name."""
        return tuple(
            build_segments_proof(name, each.segments)
            for name, each in sorted(self.tables.items())
            if each.settled
        )

    def restore_tables(self, proofs: Iterable[LogProof]) -> None:
        """Follow the tables that a record names, unless they have just been taken up."""
        for name, segments in parse_segments_proofs(proofs).items():
            self.tables.setdefault(name, FollowedTable(segments))


def build_segments_proof(name: TableName, segments: TableSegments) -> LogProof:
    """Return a table's segments as a record has them."""
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
