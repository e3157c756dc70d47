"""A source's binlog from a position on: `SourceLog` of producer/sources/protocols.py.

Combines the stream of events, the transactions assembled from it, the rows of XA transactions that were
prepared before their XA COMMIT, and the proof of the log up to their end.

`TransactionStream` yields the events of a transaction once its end is known; it is a thin shell around
producer/sources/binlog/assembly.py. It unpacks compressed transactions. When a transaction has to be
read a second time, it opens another connection at the transaction's start and continues from there. The
first connection has read only up to the transaction's end, and the server would end it while it is not
read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import structlog

from producer.binlog_format import log_event as log
from producer.binlog_format.errors import DecodeError
from producer.binlog_format.log_event import ANY_ROWS, BinlogEvent
from producer.binlog_format.payload import yield_payload_events
from producer.errors import SourceRefusedError, StreamStoppedError, TableStoppedError
from producer.sources.binlog.assembly import RereadRequest, TransactionBuffer, pack_event_types
from producer.sources.binlog.flavour import BinlogFlavour, GtidOrder
from producer.sources.binlog.log_proof import NO_FILE, ProofCollector
from producer.sources.binlog.prepared_rows import PreparedRowsReader, select_rows
from producer.sources.binlog.prepared_xa import RecoveredXa, XaCommit, build_purged_stop
from producer.sources.binlog.transactions import CapturedRows, FoldedChange, TransactionAssembler
from producer.sources.changes import Barrier, Boundary, Evidence, LogMoment, load_prepared
from schemas.findings import END_LOST_XA, START_OVER
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import LogProof, PreparedPlace, StoredPosition

_log = structlog.get_logger("capture")


class EventStream(Protocol):
    """The stream of events that TransactionStream reads: producer.sources.binlog.log_stream.LogStream."""

    def read_events(self, timeout: float) -> list[BinlogEvent]: ...
    @property
    def point(self) -> tuple[str, int]: ...
    def find_evidence(self, file: str, pos: int) -> tuple[BinlogEvent, ...]: ...
    def close(self) -> None: ...


class TransactionStream:
    """The events of the log, assembled into transactions.

    `connect(file, pos)` opens the log there, under a server id of its own. `heard`: whether the last
    read returned any event.
    """

    def __init__(
        self, connect: Callable[[str, int], EventStream], file: str, pos: int, assembly: TransactionBuffer
    ) -> None:
        self._connect = connect
        self._assembly = assembly
        self._stream = connect(file, pos)
        # The connection that was replaced for a second reading: it brought the events before the place
        # of the new one.
        self._left: EventStream | None = None
        self.heard = True

    @property
    def inside(self) -> bool:
        """True if a transaction has begun and none of its events was passed on."""
        return self._assembly.inside

    @property
    def point(self) -> tuple[str, int]:
        """The place where the log continues, as (file, offset); valid only between transactions."""
        return self._stream.point

    def find_evidence(self, file: str, pos: int) -> tuple[BinlogEvent, ...]:
        """Return what proves the log up to there (producer.sources.binlog.log_proof), if it came with
        the last read; otherwise nothing.
        """
        found = self._stream.find_evidence(file, pos)
        return found if found or self._left is None else self._left.find_evidence(file, pos)

    def read_events(self, timeout: float) -> Iterator[BinlogEvent]:
        """Yield the assembled events of those that arrive within `timeout` seconds.

        Raises like LogStream.read_events.
        """
        events = self._stream.read_events(timeout)
        self.heard = bool(events)
        at, count, kinds = 0, len(events), pack_event_types(events)
        while at < count:
            end = self._assembly.find_plain_run_end(events, kinds, at)
            if end > at:
                yield from events[at:end]
                at = end
                continue
            for found in self._assemble_event(events[at]):
                if isinstance(found, RereadRequest):
                    self._go_back(found)
                    return
                yield from found
            at += 1

    def _assemble_event(self, event: BinlogEvent) -> Iterator[Iterable[BinlogEvent] | RereadRequest]:
        """Yield the result of an event, or of each event that a compressed transaction contains."""
        try:
            if event.type != log.TRANSACTION_PAYLOAD:
                yield self._assembly.accept_event(event)
                return
            for inner in yield_payload_events(event):
                yield self._assembly.accept_event(inner)
        except DecodeError as error:
            raise _build_decoding_stop(event, error) from error

    def close(self) -> None:
        self._stream.close()

    def _go_back(self, to: RereadRequest) -> None:
        _log.info(
            "large transaction read again after its commit",
            file=to.file,
            pos=to.pos,
        )
        self._stream.close()
        self._left, self._stream = self._stream, self._connect(to.file, to.pos)


class _PreparedCommit(NamedTuple):
    """An XA COMMIT with rows that are being read from the log: its `event`, and where they are."""

    commit: XaCommit
    event: BinlogEvent
    place: PreparedPlace
    reader: PreparedRowsReader


Connect = Callable[[Sequence[LogProof], str, int], EventStream]
"""Opens the log at (file, offset) if the proofs match it."""


class BinlogLog:
    """The log after the position of `record`. `captured(db, table)`: whether a table is captured.

    `assembly`: holds transactions. `recovered`: the XA transactions that the server knows as prepared.
    `require_server`: raises TransientSourceError or SourceRefusedError if another server is to be read; None:
    the source has no other. `order`: checks the GTIDs.
    """

    def __init__(
        self,
        flavour: BinlogFlavour,
        record: StoredPosition,
        captured: Callable[[str, str], bool],
        connect: Connect,
        assembly: TransactionBuffer,
        *,
        recovered: RecoveredXa | None = None,
        require_server: Callable[[], None] | None = None,
        order: GtidOrder | None = None,
    ) -> None:
        self._order = order
        self._recovered = recovered
        self._require_server = require_server
        self.delivered = flavour.delivered()
        self._proofs = proofs = ProofCollector(record, flavour.captured_gtids)
        in_order = flavour.logs_xa_in_order(record.identity.version)
        self._fold = TransactionAssembler(captured, load_prepared(record), xa_in_order=in_order)
        self._connect = lambda file, pos: connect(proofs.build_latest_proofs(), file, pos)
        self._assembly = assembly
        self._stream = TransactionStream(self._connect, record.file, record.pos, assembly)
        self._event: BinlogEvent | None = None
        self._commit: _PreparedCommit | None = None
        self._rest: Iterator[BinlogEvent] | None = None  # of the last read, after the event of `_commit`
        self.record_position_count = self._fold.record_position_count

    def read_changes(self, timeout: float) -> Iterator[FoldedChange | TableStoppedError | None]:
        """Yield the changes in the events that arrive within `timeout` seconds.

        Raises like LogStream.read_events.
        """
        if self._require_server is not None:
            self._require_server()
        if self._recovered is not None:
            self._report_lost_xa(self._recovered)
        if self._commit is not None:
            yield from self._read_prepared_rows(self._commit, timeout)
            if self._awaits_rows:
                return
        feed = self._fold.fold_event
        events, self._rest = self._rest or iter(self._stream.read_events(timeout)), None
        for event in events:
            self._event = event
            try:
                output = feed(event)
            except TableStoppedError as error:  # the other tables go on
                yield error
                continue
            except DecodeError as error:
                raise _build_decoding_stop(event, error) from error
            if output is not None:
                if isinstance(output, XaCommit):
                    yield from self._commit_prepared(output, event)
                    if self._awaits_rows:
                        self._rest = events
                        return
                    continue
                yield output
                if output.__class__ is Barrier:
                    yield self._fold.finish_barrier(event)
            elif event.type in ANY_ROWS:  # of a table that is not captured: there may be many
                yield None

    def _report_lost_xa(self, recovered: RecoveredXa) -> None:
        """Compare what the server knows as prepared once the log is read up to there: before, a transaction
        may have ended in the part that is not read.
        """
        file, pos = self.point
        if self.inside or (parse_binlog_file_number(file), pos) < recovered.after:
            return
        self._recovered = None
        for xid, place in recovered.find_lost(self._fold.xa.open):
            _log.warning(
                "prepared xa transaction unknown to the server",
                xid=xid,
                file=place.file,
                pos=place.pos,
                remedy=END_LOST_XA,
            )

    @property
    def _awaits_rows(self) -> bool:
        """True if rows of a prepared transaction have to be read before the log continues."""
        return self._commit is not None

    def _commit_prepared(
        self, commit: XaCommit, event: BinlogEvent
    ) -> Iterator[FoldedChange | TableStoppedError | None]:
        """Yield the rows of a transaction that is held in memory; let the others be read from the log."""
        if commit.stop is not None:
            yield commit.stop
        if (place := commit.place) is not None:
            held = self._assembly.prepared.take_events(place.file, place.pos)
            if held is None:
                _log.info("xa transaction read again after its commit", file=place.file, pos=place.pos)
                self._commit = _PreparedCommit(commit, event, place, self._open_prepared(place))
                return
            yield from self._fold_rows(select_rows(held))
        yield self._fold.finish_xa_commit(event)

    def _open_prepared(self, place: PreparedPlace) -> PreparedRowsReader:
        buffer = self._assembly.build_prepared_buffer()
        return PreparedRowsReader(TransactionStream(self._connect, place.file, place.pos, buffer), place)

    def _read_prepared_rows(
        self, open_: _PreparedCommit, timeout: float
    ) -> Iterator[FoldedChange | TableStoppedError | None]:
        """Yield the rows of the transaction that arrive within `timeout` seconds, and then its end."""
        commit, event, place, reader = open_
        try:
            yield from self._fold_rows(reader.read_events(timeout))
        except SourceRefusedError as error:
            if NO_FILE not in str(error).lower():
                raise
            yield build_purged_stop(commit, place)
            reader.ended = True
        if reader.ended:
            reader.close()
            self._commit = None
            yield self._fold.finish_xa_commit(event)

    def _fold_rows(self, events: Iterable[BinlogEvent]) -> Iterator[CapturedRows | TableStoppedError | None]:
        """Fold row events of a prepared transaction into the one that is open."""
        for event in events:
            try:
                output = self._fold.fold_event(event)
            except TableStoppedError as error:
                yield error
            except DecodeError as error:
                raise _build_decoding_stop(event, error) from error
            else:
                if event.type in ANY_ROWS:
                    yield output if isinstance(output, CapturedRows) else None

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
        if self._order is not None and boundary.header.gtid is not None:
            self._order.accept(boundary.header.gtid)
        self._proofs.record_gtid(boundary.header.gtid)

    def keep_evidence(self, file: str, pos: int) -> None:
        self._proofs.keep_events(self._stream.find_evidence(file, pos))

    def find_evidence(self) -> Evidence:
        return Evidence(self._proofs.build_latest_proofs(), self._proofs.gtid_set)

    def close(self) -> None:
        if self._commit is not None:
            self._commit.reader.close()
        self._stream.close()


def _build_decoding_stop(event: BinlogEvent, error: DecodeError) -> StreamStoppedError:
    """Return the stop of a log with an event that cannot be read."""
    what, remedy = error.problem.what, error.problem.remedy
    return StreamStoppedError(
        f"{event.file}:{event.start}: {what}. The log cannot be followed further",
        START_OVER if not remedy else f"{remedy}, and {START_OVER}",
    )
