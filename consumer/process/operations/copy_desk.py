"""Follows the copies of units' tables as capture reports them, and requests the copy that a unit needs.

A request is sent once per stop. Its id follows from the stop, so that a repetition after a restart or a
move is the same request (schemas.wire.copies). Only the sources' watermarks show what has become of a
request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from confluent_kafka import KafkaException

from consumer.attempt.readers.kafka_reader import build_reader_settings, read_rest
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import CopyNeed
from consumer.errors import TransientError
from consumer.slots.pipeline import PipelineSettings
from consumer.units.unit import UnitRef
from schemas.clock import read_clock_ms
from schemas.config.model import KafkaConfig
from schemas.io.send_record import send_record
from schemas.problems import Problem, decode_problem, encode_problem
from schemas.wire.codec import encode_copy_request
from schemas.wire.copies import (
    CopyOutcome,
    CopyRequest,
    CopyState,
    RepairLimits,
    copy_topic,
    select_copy,
)
from schemas.wire.debezium_snapshot import DebeziumSnapshotScan

log = structlog.get_logger(__name__)

GetCopyState = Callable[[str, str, str], CopyState | None]
"""(source, database, table) → the state of the table's last copy in the source's watermarks."""
SendCopyRequest = Callable[[str, CopyRequest], None]
"""(source, request) → None. Sends the request; raises KafkaException."""
ReadTopicRest = Callable[[str, int], Iterable[RecordSlice]]
"""(topic, offset) → the topic's records from that offset on. Raises TransientError."""


#: Causes after which capture requests the copy itself, once a statement has created the table again.
ASKED_BY_CAPTURE = ("dropped", "unseen")
#: Causes for which no copy is requested here: "policy" and "unseen" need a person's action first.
NEVER_ASKED = (*ASKED_BY_CAPTURE, "policy")


@dataclass(frozen=True, slots=True)
class CopyOutlook:
    """The state of the copy that a stopped unit needs."""

    has_begun: bool
    """Whether a copy begins after the event that the unit cannot follow."""
    waiting_reason: str | None
    """The reason for which the unit waits, in place of its stop's reason; None: that reason still
    applies."""
    digest: object
    """A value that changes whenever the state of the copy changes."""


class UnitCopies:
    """The copies of one pipeline's tables.

    No copy is requested of a table with a topic that Debezium writes: a person sends Debezium's signal, and
    the topic shows the result.
    """

    def __init__(
        self,
        pipeline: PipelineSettings,
        states: GetCopyState,
        send: SendCopyRequest,
        rest: ReadTopicRest | None = None,
    ) -> None:
        """`rest` reads from the pipeline's Kafka by default."""
        self._pipeline, self._states, self._send = pipeline, states, send
        self._rest = rest or _make_rest_reader(pipeline)
        self._asked: set[str] = set()
        self._scans: dict[str, DebeziumSnapshotScan] = {}

    def find_copy_offset(self, unit: UnitRef) -> int | None:
        """Return the offset in the unit's topic at which the last copy of its table begins, if known."""
        copy = select_copy(self._get_copy_state(unit))
        return None if copy is None else copy.offset

    def _get_copy_state(self, unit: UnitRef) -> CopyState | None:
        if unit.source in self._pipeline.debezium:
            return None
        table = self._pipeline.find_table(unit.source, unit.topic)
        return None if table is None else self._states(unit.source, *table)

    def check_needed_copy(self, unit: UnitRef, need: CopyNeed, why: str) -> CopyOutlook:
        """Request the copy that a unit stopped because of `why` needs, and return the state of that
        copy.

        Sends the request only once, and only if the pipeline's configuration asks for it.
        """
        if unit.source in self._pipeline.debezium:
            return self._find_snapshot(unit, need)
        state, request = select_copy(self._get_copy_state(unit)), self._build_request(unit, need)
        begun = _has_begun_after(state, need.after)
        repair = self._pipeline.config.repair.mode == "copy" and need.cause not in NEVER_ASKED
        if repair and not begun and (state is None or state.id != request.id):
            self._send_request(unit, request)
        digest = None if state is None else (state.id, state.offset, state.reason)
        by_capture = state is not None and state.by == "capture" and need.cause in ASKED_BY_CAPTURE
        mine = state.id if state is not None and by_capture else request.id
        return CopyOutlook(begun, _describe_copy_wait(why, state, mine, asked=repair and not begun), digest)

    def _find_snapshot(self, unit: UnitRef, need: CopyNeed) -> CopyOutlook:
        """Return whether Debezium has started another snapshot after the event that the unit cannot
        follow.

        Scans the records since the last call. Raises ConsumerError.
        """
        scan = self._scans.get(unit.topic)
        if scan is None or scan.after != need.after:
            scan = self._scans[unit.topic] = DebeziumSnapshotScan(need.after)
        for records in self._rest(unit.topic, scan.next):
            scan.scan_records(records)
        return CopyOutlook(scan.found is not None, None, scan.found)

    def _build_request(self, unit: UnitRef, need: CopyNeed) -> CopyRequest:
        repair, found = self._pipeline.config.repair, self._pipeline.find_table(unit.source, unit.topic)
        if found is None:
            raise TransientError(
                f"{unit.topic}: capture has not reported yet which table this topic belongs to"
            )
        db, table = found
        place = "\0".join((self._pipeline.name, unit.topic, unit.topic_id, str(need.after)))
        return CopyRequest(
            id=hashlib.blake2b(place.encode(), digest_size=12).hexdigest(),
            db=db,
            table=table,
            by=f"pipeline {self._pipeline.name}",
            requested_ms=read_clock_ms(),
            cause=need.cause,
            limits=RepairLimits(max_rows=repair.max_rows, max_per_day=repair.max_per_day),
            after=need.after,
        )

    def _send_request(self, unit: UnitRef, request: CopyRequest) -> None:
        if request.id in self._asked:
            return
        try:
            self._send(unit.source, request)
        except KafkaException as error:  # sent again at the next probe
            log.warning("copy request failed", topic=unit.topic, error=str(error)[:300])
            return
        self._asked.add(request.id)
        log.info("copy requested", topic=unit.topic, cause=request.cause, copy=request.id)


def _make_rest_reader(pipeline: PipelineSettings) -> ReadTopicRest:
    return lambda topic, start: read_rest(
        build_reader_settings(pipeline.bootstrap, pipeline.kafka_options), topic, start
    )


def send_request(kafka: KafkaConfig, source: str, request: CopyRequest) -> None:
    """Send a request for a table of `source`. Raises KafkaException."""
    send_record(kafka, copy_topic(kafka.prefix, source), request.id.encode(), encode_copy_request(request))


def _has_begun_after(state: CopyOutcome | None, after: int) -> bool:
    """Return whether the table's copy began after the offset `after`."""
    return state is not None and state.offset is not None and state.offset > after


def _describe_copy_wait(why: str, state: CopyOutcome | None, asked_id: str, *, asked: bool) -> str | None:
    """Return what a stopped unit waits for while its copy is on the way; None: its stop's reason still
    applies.
    """
    problem = decode_problem(why)
    ours = state is not None and state.id == asked_id
    if state is not None and ours and state.phase == "refused":
        refusal = decode_problem(state.reason)
        what = f"{problem.what}; a copy was requested and refused: {refusal.what}"
        return encode_problem(Problem(what, refusal.action))
    if state is not None and ours and state.phase == "cancelled":
        return encode_problem(Problem(f"{problem.what}; the requested copy was cancelled", problem.action))
    if asked or (state is not None and state.phase in ("waiting", "running")):
        return encode_problem(
            Problem(
                f"{problem.what}; a copy of the table is requested",
                "nothing to do, it begins automatically (rowlock status)",
            )
        )
    return None
