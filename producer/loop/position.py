"""Keeps the position from which capture may resume: as far as Kafka has acknowledged events, and as
stored in the position record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from producer.errors import SupersededError, TableStoppedError
from producer.ports import Ports
from producer.snapshot.scheduler import SnapshotScheduler
from producer.sources.changes import (
    Boundary,
    Evidence,
    TimedEnd,
    TransactionHeader,
    list_places,
    load_prepared,
)
from producer.sources.protocols import ConsumedLog, SourceLog
from producer.start.started import StartedCapture
from producer.statements.shadows import ShadowTables
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Anchor
from schemas.wire.topic_names import as_stored


class Milestone(NamedTuple):
    """A place in the log that a position record may contain once everything sent before it is
    acknowledged.

    With it are stored the proof of the log, the topics' anchors, and the tables with a complete or an
    incomplete snapshot. `source_ms`: the source time that the place has reached.
    """

    boundary: Boundary
    source_ms: int
    proof: Evidence
    anchors: dict[str, Anchor]
    done: frozenset[str]
    pending: frozenset[str]


class CapturePosition:
    """The position of a run of capture.

    `resume`: where the last transaction ended, or the log's place after it. A record contains an earlier
    position, the acknowledged one. `source_ms`: the source time that `resume` has reached, by the clock of
    the source's server alone: all transactions that it had committed before that time are before `resume`.
    """

    def __init__(
        self,
        started: StartedCapture,
        ports: Ports,
        *,
        log: SourceLog,
        snapshots: SnapshotScheduler,
        shadows: ShadowTables,
    ) -> None:
        self._started = started
        self._shadows = shadows
        self._log = log
        self._used_up = log if isinstance(log, ConsumedLog) else None
        self._snapshots = snapshots
        self._writer = ports.writer
        self._store = ports.store
        self._reader = ports.reader
        self._record = started.record
        self.resume = build_first_boundary(started)
        self.source_ms = self._record.ts_ms
        self._noted = self.resume
        self._anchors = self._build_anchors()
        self._stored: object = None

    def record_transaction_end(self, boundary: Boundary) -> None:
        """Record the end of a transaction: capture may resume after it."""
        self.resume = boundary
        self.source_ms = max(self.source_ms, boundary.header.ts_ms)
        self._log.record_transaction_end(boundary)

    def record_log_position(self, file: str, pos: int) -> None:
        """Record that the log is at `file`, `pos`, between transactions: it may have moved without one."""
        if (file, pos) != (self.resume.file, self.resume.pos):
            self.resume = self.resume._replace(file=file, pos=pos)

    def compare_log_end(self, end: TimedEnd) -> bool:
        """Return whether capture may resume at the log's end: then it has reached the end's time, too.

        Called between transactions.
        """
        here = parse_binlog_file_number(self.resume.file), self.resume.pos
        if here != (parse_binlog_file_number(end.file), end.pos):
            return False
        self.source_ms = max(self.source_ms, end.ts_ms)
        return True

    def note_proof(self) -> None:
        """Keep the proof of the log up to the resume position.

        It came with the last events, or was kept before.
        """
        if self._noted is not self.resume:
            self._noted = self.resume
            self._log.keep_evidence(self.resume.file, self.resume.pos)

    def make_milestone(self, *, held: bool) -> Milestone:
        """Return the place from which capture may resume once everything sent until now is acknowledged.

        `held`: an event is encoded that is not sent yet, so the anchors stay as they were. They also
        stay while rows of a consumed log are not deleted: the next start has to find their events.
        """
        if not held and (self._used_up is None or not self._used_up.outstanding):
            self._anchors = self._build_anchors()
        snapshots = frozenset(self._snapshots.tables.done), frozenset(self._snapshots.tables.pending)
        evidence = self._log.find_evidence()
        return Milestone(self.resume, self.source_ms, evidence, self._anchors, *snapshots)

    def _build_anchors(self) -> dict[str, Anchor]:
        here = (self._record.epoch, parse_binlog_file_number(self.resume.file), self.resume.pos)
        return self._started.captured.build_anchors(
            self._writer.offsets, here, self._record.gen, self._started.covered
        )

    def store_position(self) -> None:
        """Store the end of the last transaction. Everything encoded must be sent and acknowledged."""
        self.note_proof()
        self.store_milestone(self.make_milestone(held=False))
        self._writer.drain()

    def purge_sent_rows(self) -> Iterator[TableStoppedError]:
        """Delete rows of a consumed log once Kafka has all of them, and before a position record can
        pass them, because a start finds these rows by the topics' ends.

        Any other log has no such rows.

        Raises SupersededError when another process has claimed the source: readers may drop what this
        one has sent.
        """
        if self._used_up is None or not self._used_up.outstanding:
            return
        self._writer.drain()
        if self._reader is None:
            raise ValueError("a log that is used up needs a reader of topics")
        if self._store.is_superseded(self._reader, self._record.gen):
            raise SupersededError(
                f"another process has begun to capture source {self._record.source}: this process ends, and "
                "does not delete at the source what it has read"
            )
        yield from self._used_up.purge_published()

    def record_new_tables(self) -> None:
        """Store the tables that a consumed log does not read before the position record names them."""
        if self._used_up is not None and self._used_up.unrecorded:
            self._writer.drain()
            self.store_position()
            self._used_up.confirm_recorded()

    def store_names(self) -> None:
        """Store the assigned names of topics, with the position of the last record.

        Nothing is sent to a topic before.
        """
        topics = as_stored(self._started.captured.names.assigned)
        if topics != self._record.topics:
            self._record = msgspec.structs.replace(self._record, topics=topics)
            self._store.store_position(self._writer, self._record)
            self._writer.drain()

    def store_milestone(self, milestone: Milestone) -> None:
        """Store the milestone. Everything sent before it must be acknowledged."""
        boundary, source_ms, proof, anchors, done, _ = milestone
        captured = self._started.captured
        markers = sum(anchor.marker or 0 for anchor in anchors.values())
        copies = self._started.copies
        state = (
            boundary,
            proof.proofs,
            len(done),
            markers,
            len(captured.stopped),
            copies.states.revision,
            copies.requests,
        )
        if self._stored == state:
            return
        self._stored = state
        self._record = msgspec.structs.replace(
            self._record, file=boundary.file, pos=boundary.pos, ts_ms=source_ms,
            snapshot_done=tuple(sorted(done)), anchors=anchors,
            stops=captured.list_stops(), proof=proof.proofs,
            prepared={xid: each.tables for xid, each in boundary.prepared.items()},
            prepared_at=list_places(boundary.prepared),
            shadows=self._shadows.list_stored_shadows((parse_binlog_file_number(boundary.file),
             boundary.pos)),
            identity=msgspec.structs.replace(self._record.identity, gtid_set=proof.gtid_set),
            copies=copies.states.all, copy_requests=copies.requests,
        )  # fmt: skip
        self._store.store_position(self._writer, self._record)


def build_first_boundary(started: StartedCapture) -> Boundary:
    """Return the position at which a run of capture begins."""
    record = started.record
    header = TransactionHeader(record.file, record.pos, record.ts_ms, 0, None)
    return Boundary(header, record.file, record.pos, prepared=load_prepared(record))
