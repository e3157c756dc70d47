"""Takes a unit over for this process: raises the unit's fencing token in the target, and returns the
progress found there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from consumer.attempt.drivers.driver import Connections
from consumer.attempt.drivers.run import define_topic
from consumer.attempt.spec import UnitSpec
from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.ordering.model import ApplyUnit, LaneProgress
from consumer.ordering.progress import find_lost_offsets
from consumer.slots.pipeline import PipelineSettings
from consumer.tables.source_tables import read_definition
from consumer.targets.base import ProgressStore, UnitTarget
from schemas.problems import Problem, encode_problem

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TakeoverResult:
    """The result of a takeover: the unit's progress rows have our fencing token."""

    epoch: int
    rows: Sequence[LaneProgress]
    definition: str | None
    """The active definition; None if there is none or the target table is in the middle of a schema
    change."""
    lost: CopyNeededError | None = None
    """Why the offsets of the progress are not those of the topic; only a copy continues the unit then."""
    was: str | None = None
    """Why the unit was stopped before, if it was."""
    gap: bool = False
    """Whether Kafka no longer holds the next events; a copy may resolve that."""

    @property
    def lowest(self) -> LaneProgress:
        """The progress of the slowest lane: everything up to its offset is applied."""
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
    """Raise the fencing token of a unit, and compare its progress with its topic.

    `bounds`: the topic's first and next offset. Raises TransientError, FencedError (see
    ProgressStore.take_over).
    """
    unit = ApplyUnit(pipeline.name, topic)
    epoch, rows, state = store.take_over(
        unit, topic_id, pipeline.layout, pipeline.config.lanes, assigned=assigned, above=above
    )
    lost = find_lost_offsets(rows, topic_id, bounds[1])
    definition = state.definition if state.ddl is None else None  # a schema change is unfinished
    gap = min(row.offset for row in rows) + 1 < bounds[0]
    return TakeoverResult(epoch, rows, definition, lost, state.stopped, gap)


def define_unit(
    pipeline: PipelineSettings, spec: UnitSpec, sessions: Connections[UnitTarget]
) -> Problem | None:
    """Write the active definition of a unit if its topic carries none; it is read from the source's database.

    The unit must have been taken over with the fencing token of `spec`. Returns why the unit cannot
    continue (it is then recorded as stopped), or None. Raises ConsumerError if a retry may succeed.
    """
    source = pipeline.debezium[spec.source]
    try:
        table = read_definition(source, spec.source, pipeline.prefix, spec.unit.topic)
        define_topic(spec, sessions, table)
    except UnitStoppedError as error:
        why = encode_problem(error.problem)
        sessions.get_connection(0).stop_unit(spec.unit, spec.epoch, why, was=spec.was)
        return error.problem
    log.info("apply unit reads its definition from the source", pipeline=pipeline.name, topic=spec.unit.topic)
    return None
