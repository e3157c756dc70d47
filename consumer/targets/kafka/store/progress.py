"""The progress store of a Kafka target: a compacted topic, written in the transactions that write rows.

The fence has two parts. A unit has one transactional id, so a producer that begins ends the
transactions of all earlier ones; Kafka guarantees that. But the producer that begins last has the id,
be it the rightful owner or a worker that was paused. So the fencing token decides: a producer begins,
*then* reads the topic to its end, and writes only if the token there is its own. An owner that was
fenced by such a worker finds its own token and takes the id again; the other worker finds a higher
token and stops.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
from msgspec.structs import replace

from consumer.errors import FencedError, TransientError
from consumer.ordering.fencing_tokens import BITS, compute_next_epoch
from consumer.ordering.model import ApplyUnit, LaneProgress, QuarantineEntry, UnitState
from consumer.targets.kafka.clients import PRODUCER_BATCH_BYTES, make_admin_client
from consumer.targets.kafka.errors import WriterFencedError
from consumer.targets.kafka.store.progress_topic import ProgressTopic
from consumer.targets.kafka.store.state import UNKNOWN_UNIT, KnownUnit, ProgressRecord
from consumer.targets.kafka.topics import TargetTopics
from consumer.targets.kafka.writer import Outgoing, UnitWriter, build_transactional_id
from schemas.backoff import pause_after
from schemas.clock import read_clock_ms
from schemas.config.model import KafkaTargetConfig
from schemas.wire.position import ZERO

log = structlog.get_logger(__name__)

FENCES = 8
"""How often an owner takes its transactional id back before it gives up with an error."""
WRITER_RETRY_DELAY_S = 0.02
UnitChange = Callable[[KnownUnit], KnownUnit]
"""A function that returns the new state of a unit, or the same object if nothing changes.

It raises FencedError if the unit belongs to another worker.
"""


class ProgressTopicUnits:
    """The units recorded in a progress topic (consumer.targets.base.EventTables)."""

    _progress: ProgressTopic

    def list_unit_topics(self, pipeline: str) -> list[str]:
        return self._progress.read_new_records().list_unit_topics(pipeline)

    def read_unit_states(self, pipeline: str, topics: Sequence[str] | None = None) -> dict[str, UnitState]:
        """See consumer.targets.base.UnitTarget."""
        known = self._progress.read_new_records()
        return {
            topic: known.get_unit(ApplyUnit(pipeline, topic)).state
            for topic in known.list_unit_topics(pipeline)
            if topics is None or topic in topics
        }

    def list_defined_topics(self, pipeline: str) -> list[str]:
        """See consumer.targets.base.UnitTarget."""
        return [name for name, state in self.read_unit_states(pipeline).items() if state.definition]

    def find_topic_writers(self, unit: ApplyUnit, topic: str) -> dict[str, tuple[UnitState, int]]:
        """See consumer.targets.base.EventTables."""
        return self._progress.read_new_records().find_topic_writers(unit, topic)


class KafkaProgress(ProgressTopicUnits):
    """The progress store in Kafka; see consumer.targets.base.ProgressStore."""

    def __init__(self, config: KafkaTargetConfig, now_ms: Callable[[], int] = read_clock_ms) -> None:
        self._config, self._now_ms = config, now_ms
        self._topics = TargetTopics(lambda on_error: make_admin_client(config, on_error), config.replication)
        self._progress = ProgressTopic(config, self._topics)
        self._writers: dict[ApplyUnit, UnitWriter] = {}

    def ensure_bookkeeping(self) -> None:
        self._progress.ensure_exists()

    def take_over(
        self,
        unit: ApplyUnit,
        topic_id: str,
        layout: str,
        lanes: int,
        *,
        assigned: int | None = None,
        above: int = 0,
    ) -> tuple[int, list[LaneProgress], UnitState]:
        before = UnitState(None, None, None)

        def advance_token(known: KnownUnit) -> KnownUnit:
            nonlocal before
            before = known.state
            rows = known.lanes or tuple(
                LaneProgress(n, 0, 0, topic_id, -1, ZERO, 0, layout) for n in range(lanes)
            )
            highest = max(row.epoch for row in rows)
            epoch = compute_next_epoch(unit, highest, assigned=assigned, above=above, now_ms=self._now_ms())
            record = ProgressRecord(
                tuple(replace(row, epoch=epoch) for row in rows),
                replace(before, stopped=None),
                None if known.record is None else known.record.written,
            )
            return KnownUnit(record, known.held)

        last = None if assigned is None else ((assigned + 1) << BITS) - 1
        lanes_now = self._commit_change(unit, advance_token, last).lanes
        return lanes_now[0].epoch, list(lanes_now), before

    def begin_attempt(
        self, unit: ApplyUnit, epoch: int
    ) -> tuple[list[LaneProgress], UnitState, list[QuarantineEntry]]:
        def count_attempt(known: KnownUnit) -> KnownUnit:
            record = known.record
            if record is None or any(row.epoch != epoch for row in record.lanes):
                raise FencedError(
                    f"another worker owns {unit.topic} of pipeline {unit.pipeline} now: expected epoch "
                    f"{epoch}, the target has {[row.epoch for row in known.lanes]}"
                )
            rows = tuple(replace(row, attempt=row.attempt + 1) for row in record.lanes)
            return KnownUnit(replace(record, lanes=rows), known.held)

        known = self._commit_change(unit, count_attempt, epoch)
        return list(known.lanes), known.state, _sort_quarantine(known)

    def read_progress(
        self, unit: ApplyUnit, lanes: bool = True
    ) -> tuple[list[LaneProgress], UnitState | None]:
        known = self._progress.read_new_records().get_unit(unit)
        return list(known.lanes) if lanes else [], None if known.record is None else known.state

    def read_quarantine(self, unit: ApplyUnit) -> list[QuarantineEntry]:
        return _sort_quarantine(self._progress.read_new_records().get_unit(unit))

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        now = self._now_ms()

        def store_stop(known: KnownUnit) -> KnownUnit:
            record = known.record
            if record is None or any(row.epoch != epoch for row in record.lanes):
                return known
            since = record.state.since_ms if message == was else None
            state = replace(record.state, stopped=message, since_ms=since or now)
            return KnownUnit(replace(record, state=state), known.held)

        self._commit_change(unit, store_stop, epoch)

    def ping(self) -> bool:
        try:
            self._topics.ping()
        except TransientError:
            return False
        return True

    def close(self) -> None:
        for unit in list(self._writers):
            self._discard_writer(unit)
        self._progress.close()

    # --- the writer of a unit

    def _get_known_unit(self, unit: ApplyUnit) -> KnownUnit:
        """Return the unit as its writer knows it, or else as the topic has it.

        The read does not wait for open transactions: a new writer would end them.
        """
        had = self._writers.get(unit)
        return self._progress.read_new_records(stable=True).get_unit(unit) if had is None else had.known

    def _commit_change(self, unit: ApplyUnit, change: UnitChange, epoch: int | None) -> KnownUnit:
        """Commit the change of a unit that `change` returns, and return the unit. `epoch`: see
        `_open_writer`.

        Raises FencedError if `change` raises it for what was read after a new producer began.
        """
        for tries in range(1, FENCES + 1):
            had = self._writers.get(unit)
            writer = had or self._open_writer(unit, change, epoch)
            if writer is None:
                return UNKNOWN_UNIT
            try:
                after = change(writer.known)
                if after is not writer.known:
                    self._commit_records(unit, writer, after, ())
                    return after
            except FencedError:
                self._discard_writer(unit)  # its knowledge may be older than another worker's commits
                if had is None:
                    raise
            except WriterFencedError:
                log_lost_writer(self._config, unit)
                time.sleep(
                    pause_after(tries, WRITER_RETRY_DELAY_S)
                )  # lets a concurrent takeover of the unit succeed
            else:
                if had is None:
                    return after
                self._discard_writer(unit)
        raise TransientError(
            f"{unit.topic} of pipeline {unit.pipeline}: another producer keeps taking the "
            "transactional id of this table away"
        )

    def _open_writer(
        self, unit: ApplyUnit, change: UnitChange, epoch: int | None, batch: int = PRODUCER_BATCH_BYTES
    ) -> UnitWriter | None:
        """Take the transactional id of a unit and read the unit's records after that; None: `change`
        does nothing to it.

        `epoch`: the highest epoch that belongs to the caller. A caller that finds a higher one first
        fences no producer, because tokens never fall. Nothing else that is read before a producer
        begins is used. Raises what `change` raises.
        """
        if self._progress.facts is None:
            self._progress.ensure_exists()
        known = self._progress.read_new_records(stable=True).get_unit(unit)
        if epoch is not None and any(row.epoch > epoch for row in known.lanes) and change(known) is known:
            return None
        writer = UnitWriter(
            self._config, unit, batch, lambda: self._progress.read_new_records().get_unit(unit)
        )
        self._writers[unit] = writer
        return writer

    def _commit_records(
        self, unit: ApplyUnit, writer: UnitWriter, after: KnownUnit, records: Sequence[Outgoing]
    ) -> None:
        """Commit records together with the new state of the unit.

        Raises consumer.errors; the writer is then discarded.
        """
        outgoing = self._progress.build_records(unit, writer.known, after)
        try:
            writer.commit_records([*records, *outgoing], after)
        except BaseException:
            self._discard_writer(unit)
            raise

    def _discard_writer(self, unit: ApplyUnit) -> None:
        writer = self._writers.pop(unit, None)
        if writer is not None:
            writer.discard()


def log_lost_writer(config: KafkaTargetConfig, unit: ApplyUnit) -> None:
    """Log that another producer has taken the unit's transactional id."""
    log.warning(
        "transactional id taken by another producer",
        pipeline=unit.pipeline, topic=unit.topic, transactional_id=build_transactional_id(config, unit),
        reason="the progress topic decides which process owns the unit",
        remedy="none if it happens once, after a worker was paused; if it repeats, find what "
        "else uses this transactional id",
    )  # fmt: skip


def _sort_quarantine(known: KnownUnit) -> list[QuarantineEntry]:
    return [entry for _, entry in sorted(known.held.items())]
