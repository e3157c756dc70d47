"""Proof that a log is the one that was captured: digests of the events at and before a position, and GTIDs.

Pure.

A server that was reset, restored or replaced may have another history at the same file and offset, under
the same server uuid and even under the same GTIDs. So each position is stored with a digest of the last
event that ends there, and at a file's beginning, where that event proves little, also of the last event
of the file before. On connecting, capture reads these events again from their own start, and continues
only if they are unchanged (docs/adr/0013).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

from producer.binlog_format.log_event import BinlogEvent
from producer.binlog_format.payload import PayloadBody
from producer.errors import SourceRefusedError
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.findings import START_OVER
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import LogProof, StoredPosition

#: Types of events in the head of a file, after the format description: lists of GTIDs, MariaDB's
#: checkpoints, encryption.
HEAD = frozenset({35, 161, 163, 164})
NO_FILE = "could not find first log file"
"""What both servers report if the requested file was purged."""
_FIXED = struct.Struct("<IBIQQ")


def digest_event(event: BinlogEvent) -> str:
    """Return a digest of what the server wrote: time, type, server id, place and body.

    The digest excludes the flags (the server changes them in a file that it closes), the checksum, and
    sizes that include the checksum.
    """
    body = event.body
    size = body.size if isinstance(body, PayloadBody) else len(body)
    fixed = _FIXED.pack(event.timestamp, event.type, event.server_id, event.start, size)
    hashed = blake2b(fixed, digest_size=16)
    for block in body.yield_blocks() if isinstance(body, PayloadBody) else (body,):
        hashed.update(block)
    return hashed.hexdigest()


def build_proofs(events: Iterable[BinlogEvent]) -> tuple[LogProof, ...]:
    """Return the proofs of `events`, as a position record stores them."""
    return tuple(
        LogProof(file=event.file, start=event.start, end=event.end, digest=digest_event(event))
        for event in events
    )


def find_exact_proof(proofs: Sequence[LogProof], file: str, pos: int) -> LogProof | None:
    """Return the proof by the event that ends at `file`, `pos`; a stream that begins with this event is
    proven. None: there is none.
    """
    return next((proof for proof in proofs if (proof.file, proof.end) == (file, pos)), None)


def select_remaining_proofs(proofs: Sequence[LogProof], oldest: str) -> list[LogProof]:
    """Return the proofs in files that the source still has; `oldest` is its oldest file.

    Raises SourceRefusedError when there were proofs and none is left.
    """
    first = parse_binlog_file_number(oldest)
    left = [proof for proof in proofs if parse_binlog_file_number(proof.file) >= first]
    if proofs and not left:
        purged = ", ".join(f"{proof.file}:{proof.start}" for proof in proofs)
        raise SourceRefusedError(
            "nothing proves that the source's log is the one that was captured: the events that would "
            f"({purged}) are purged, the oldest file is {oldest}",
            START_OVER,
        )
    return left


def check_event(proof: LogProof, event: BinlogEvent) -> None:
    """Raise SourceRefusedError unless `event`, read at the proof's place, is the event that was
    captured.
    """
    place = f"{proof.file}:{proof.start}"
    if (event.file, event.start) != (proof.file, proof.start):
        raise build_other_history_error(place, f"the first event there is at {event.file}:{event.start}")
    if event.end != proof.end or digest_event(event) != proof.digest:
        raise build_other_history_error(place, f"there is an event of type {event.type} with other content")


def build_other_history_error(place: str, seen: str) -> SourceRefusedError:
    """Return the error for a log with other content at `place` than was captured."""
    return SourceRefusedError(
        f"the source's log at {place} is not the one that was captured ({seen}): it was reset, restored "
        "from a backup or replaced, and changes before and after it may be unknown here",
        START_OVER,
    )


class ProofCollector:
    """Collects the proof of the log up to the position from which capture may resume.

    Events are kept as they arrive, and hashed only when the proof is stored.
    """

    def __init__(self, record: StoredPosition, captured_gtids: Callable[[str], GtidSet]) -> None:
        """Start from the proof of `record`; `captured_gtids` parses its GTIDs."""
        self._proofs = record.proof
        self._events: tuple[BinlogEvent, ...] | None = None  # not hashed yet
        self._gtids = captured_gtids(record.identity.gtid_set or "")

    def keep_events(self, events: tuple[BinlogEvent, ...]) -> None:
        """Keep `events` as those that end at the current resume position.

        If empty, the events kept before remain valid.
        """
        if events:
            self._events = events

    def record_gtid(self, gtid: str | None) -> None:
        """Record the end of the transaction `gtid`."""
        if gtid is not None:
            self._gtids.add_logged(gtid)

    def build_latest_proofs(self) -> tuple[LogProof, ...]:
        """Return the proofs of the events that were kept last."""
        if self._events is not None:
            self._proofs, self._events = build_proofs(self._events), None
        return self._proofs

    @property
    def gtid_set(self) -> str | None:
        """The GTIDs of all transactions that have ended; None: there are none."""
        return str(self._gtids) or None
