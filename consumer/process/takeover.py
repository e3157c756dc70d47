"""Unit takeover: raise the epoch in the target and return the progress found there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from consumer.attempt.drivers.run import Connections, define_topic
from consumer.attempt.spec import UnitSpec
from consumer.errors import UnitStoppedError
from consumer.ordering.model import ApplyUnit, LaneProgress
from consumer.ordering.progress import start_refusal
from consumer.spark.pipeline import PipelineSettings
from consumer.tables.source_tables import read_definition
from consumer.targets.base import ProgressStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """A unit whose progress rows have our epoch now. `definition`: in force, and its table is not being changed. `refusal`: why it
    cannot go on (it is marked stopped); `was`: what it was stopped by before; `gap`: Kafka does not hold the next events any more: a
    copy may heal that."""

    epoch: int
    rows: Sequence[LaneProgress]
    definition: str | None
    refusal: str | None = None
    was: str | None = None
    gap: bool = False

    @property
    def lowest(self) -> LaneProgress:
        """The slowest lane: everything up to its offset is applied."""
        return min(self.rows, key=lambda row: row.offset)

    @property
    def commit_ts_ms(self) -> int:
        return self.lowest.commit_ts_ms


def take_unit(
    store: ProgressStore,
    pipeline: PipelineSettings,
    topic: str,
    topic_id: str,
    bounds: tuple[int, int],
    *,
    assigned: int,
    above: int = 0,
) -> TakeoverResult:
    """Raise the epoch of a unit, and stop it where its topic is another one.

    `bounds`: the topic's first and next offset. Raises TransientError, FencedError (see ProgressStore.take_over).
    """
    unit = ApplyUnit(pipeline.name, topic)
    epoch, rows, state = store.take_over(
        unit, topic_id, pipeline.layout, pipeline.config.lanes, assigned=assigned, above=above
    )
    refusal = start_refusal(rows, topic_id, bounds[1])
    if refusal is not None:
        store.stop_unit(unit, epoch, refusal, was=state.stopped)
    definition = state.definition if state.ddl is None else None  # its table is half another one's
    gap = min(row.offset for row in rows) + 1 < bounds[0]
    return TakeoverResult(epoch, rows, definition, refusal, state.stopped, gap)


def define_unit(pipeline: PipelineSettings, spec: UnitSpec, sessions: Connections) -> str | None:
    """Put the definition in force of a unit whose topic carries none, as the source's database has it now.

    The unit must have been taken over with the epoch of `spec`. Returns why it cannot go on (it is marked stopped), or None;
    raises ConsumerError when it may go better later.
    """
    source = pipeline.debezium[spec.source]
    try:
        table = read_definition(source, spec.source, pipeline.prefix, spec.unit.topic)
        define_topic(spec, sessions, table)
    except UnitStoppedError as error:
        sessions.get_connection(0).stop_unit(spec.unit, spec.epoch, str(error), was=spec.was)
        return str(error)
    log.info("definition read from the source", pipeline=pipeline.name, topic=spec.unit.topic)
    return None
