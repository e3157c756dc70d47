"""A source's binlog from a position on: `SourceLog` of producer/sources/protocols.py.

Combines the stream of events, the transactions assembled from it, and the proof of the log up to their
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import ANY_ROWS, BinlogEvent
from producer.errors import StreamStoppedError, TableStoppedError
from producer.sources.binlog.assembly import TransactionBuffer
from producer.sources.binlog.flavour import BinlogFlavour
from producer.sources.binlog.log_proof import ProofCollector
from producer.sources.binlog.transaction_stream import EventStream, TransactionStream
from producer.sources.binlog.transactions import CapturedRows, FoldedChange, TransactionAssembler
from producer.sources.changes import Barrier, Boundary, Evidence, LogMoment
from schemas.findings import START_OVER
from schemas.wire.records import LogProof, StoredPosition

Connect = Callable[[Sequence[LogProof], str, int], EventStream]
"""Opens the log at (file, offset) if the proofs match it."""


class BinlogLog:
    """The log after the position of `record`. `captured(db, table)`: whether a table is captured.

    `assembly`: holds transactions.
    """

    def __init__(
        self,
        flavour: BinlogFlavour,
        record: StoredPosition,
        captured: Callable[[str, str], bool],
        connect: Connect,
        assembly: TransactionBuffer,
    ) -> None:
        self.delivered = flavour.delivered()
        self._proofs = proofs = ProofCollector(record, flavour.captured_gtids)
        self._fold = TransactionAssembler(captured, record.prepared)
        self._stream = TransactionStream(
            lambda file, pos: connect(proofs.build_latest_proofs(), file, pos),
            record.file,
            record.pos,
            assembly,
        )
        self._event: BinlogEvent | None = None
        self.record_position_count = self._fold.record_position_count

    def read_changes(self, timeout: float) -> Iterator[FoldedChange | TableStoppedError | None]:
        """Yield the changes in the events that arrive within `timeout` seconds.

        Raises like LogStream.read_events.
        """
        feed = self._fold.fold_event
        for event in self._stream.read_events(timeout):
            self._event = event
            try:
                output = feed(event)
            except TableStoppedError as error:  # the other tables go on
                yield error
                continue
            except DecodeError as error:
                raise StreamStoppedError(
                    f"{event.file}:{event.start}: {error}. The log cannot be followed further",
                    START_OVER,
                ) from error
            if output is not None:
                yield output
                if output.__class__ is Barrier:
                    yield self._fold.finish_barrier(event)
            elif event.type in ANY_ROWS:  # of a table that is not captured: there may be many
                yield None

    @property
    def moment(self) -> LogMoment:
        """The place of the event that produced the last yielded item."""
        event = self._event
        if event is None:
            raise ValueError("nothing was read yet")
        return LogMoment(event.file, event.start, event.timestamp * 1000)

    @property
    def heard(self) -> bool:
        return self._stream.heard

    @property
    def begun(self) -> bool:
        return self._fold.inside

    @property
    def inside(self) -> bool:
        return self._fold.inside or self._stream.inside

    @property
    def point(self) -> tuple[str, int]:
        return self._stream.point

    @property
    def objects_changed(self) -> tuple[int, int]:
        return self._fold.objects_changed

    def skip_uncaptured(self, rows: CapturedRows) -> None:
        self._fold.skip_uncaptured(rows)

    def record_transaction_end(self, boundary: Boundary) -> None:
        self._proofs.record_gtid(boundary.header.gtid)

    def keep_evidence(self, file: str, pos: int) -> None:
        self._proofs.keep_events(self._stream.find_evidence(file, pos))

    def find_evidence(self) -> Evidence:
        return Evidence(self._proofs.build_latest_proofs(), self._proofs.gtid_set)

    def close(self) -> None:
        self._stream.close()
