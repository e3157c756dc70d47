"""Where capture may resume, how much of it Kafka has acknowledged, and what the position record says of that."""

from __future__ import annotations

import msgspec

from producer.ports import Ports
from producer.proof import Evidence, Proofs
from producer.snapshots import Snapshots
from producer.start import Started
from producer.transaction_stream import TransactionStream
from producer.transactions import Boundary, Header


class CapturePosition:
    """`resume`: where the last transaction ended, or where the log goes on behind it. A record says less: what is acknowledged."""

    def __init__(
        self,
        started: Started,
        ports: Ports,
        *,
        stream: TransactionStream,
        proofs: Proofs,
        snapshots: Snapshots,
    ) -> None:
        self._started = started
        self._stream = stream
        self._proofs = proofs
        self._snapshots = snapshots
        self._writer = ports.writer
        self._store = ports.store
        self._clock = ports.clock
        self._record = started.record
        self.resume = beginning(started)
        self._noted = self._acked = self.resume
        self._acked_proof = self.evidence()
        self._stored: object = None

    def ended(self, boundary: Boundary) -> None:
        """A transaction is over: capture may resume behind it."""
        self.resume = boundary
        self._proofs.ended(boundary.header.gtid)

    def moved(self, file: str, pos: int) -> None:
        """The log goes on at `file`, `pos`, between transactions: it may have moved without one."""
        if (file, pos) != (self.resume.file, self.resume.pos):
            self.resume = self.resume._replace(file=file, pos=pos)

    def note_proof(self) -> None:
        """Keep what proves the log up to where capture may resume; it came with the last events, or was kept before."""
        if self._noted is not self.resume:
            self._noted = self.resume
            self._proofs.note(self._stream.evidence(self.resume.file, self.resume.pos))

    def evidence(self) -> Evidence:
        """Return what proves the log up to what was noted last."""
        return Evidence(self._proofs.latest(), self._proofs.gtid_set)

    def acknowledged(self, boundary: Boundary, evidence: Evidence) -> None:
        """Everything before `boundary` is in Kafka: store it, with what proves the log there."""
        self._acked, self._acked_proof = boundary, evidence
        self._send()

    def store(self) -> None:
        """Store where the last transaction ended; everything sent is acknowledged."""
        self.note_proof()
        self.acknowledged(self.resume, self.evidence())
        self._writer.drain()

    def _send(self) -> None:
        captured, done = self._started.captured, self._snapshots.done
        markers = sum(state.marker_offset or 0 for state in captured.tables.values())
        state = (self._acked, len(done), markers, len(captured.stopped))
        if self._stored == state:
            return
        self._stored = state
        self._record = msgspec.structs.replace(
            self._record, file=self._acked.file, pos=self._acked.pos, ts_ms=self._clock.now_ms(),
            snapshot_done=tuple(sorted(done)), anchors=captured.anchors(self._writer.offsets),
            stops=captured.stops(), prepared=self._acked.prepared, proof=self._acked_proof.proofs,
            identity=msgspec.structs.replace(self._record.identity, gtid_set=self._acked_proof.gtid_set),
        )  # fmt: skip
        self._store.send(self._writer, self._record)


def beginning(started: Started) -> Boundary:
    """Return where a stretch of capture begins."""
    record = started.record
    header = Header(record.file, record.pos, record.ts_ms, 0, None)
    return Boundary(header, record.file, record.pos, False, prepared=record.prepared)
