"""Taking units over: the connection to the target that does it, and what a take-over comes to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from consumer.applier import Sessions
from consumer.errors import ConsumerError, UnitStoppedError
from consumer.model import LaneProgress, Unit
from consumer.pipeline import Pipeline
from consumer.progress import start_refusal
from consumer.source_tables import read_definition
from consumer.targets.base import Session
from consumer.targets.dialect import open_session
from consumer.unit import TopicRun, UnitSpec

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """A unit whose progress rows have our epoch now. `refusal`: why it cannot go on (it is marked stopped)."""

    epoch: int
    rows: Sequence[LaneProgress]
    definition: str | None
    refusal: str | None = None

    @property
    def lowest(self) -> LaneProgress:
        """The slowest lane: everything up to its offset is applied."""
        return min(self.rows, key=lambda row: row.offset)

    @property
    def commit_ts_ms(self) -> int:
        return self.lowest.commit_ts_ms


class TargetConnection:
    """One session, made when it is needed, dropped after trouble. Used by one thread at a time."""

    def __init__(self, pipeline: Pipeline, name: str) -> None:
        self._pipeline = pipeline
        self._name = f"rowlock {pipeline.name} {name}"
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """Raises TransientError (not reachable) or TargetConfigError."""
        if self._session is None:
            self._session = open_session(self._pipeline.target, name=self._name)
            self._session.ensure_bookkeeping()
        return self._session

    def drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(ConsumerError):
                session.close()


def take_unit(
    session: Session,
    pipeline: Pipeline,
    topic: str,
    topic_id: str,
    bounds: tuple[int, int],
    *,
    assigned: int | None = None,
    above: int = 0,
) -> Taken:
    """Raise the epoch of a unit, and stop it where Kafka no longer holds what it needs.

    `bounds`: the topic's first and next offset. Raises TransientError, FencedError (see Session.take_over).
    """
    unit = Unit(pipeline.name, topic)
    epoch, rows, state = session.take_over(
        unit, topic_id, pipeline.layout, pipeline.config.lanes, assigned=assigned, above=above
    )
    refusal = start_refusal(rows, topic_id, *bounds)
    if refusal is not None:
        session.stop_unit(unit, epoch, refusal)
        log.error("unit stopped", pipeline=pipeline.name, topic=topic, reason=refusal)
    return Taken(epoch, rows, state.definition, refusal)


def define_unit(pipeline: Pipeline, spec: UnitSpec, sessions: Sessions) -> str | None:
    """Put the definition in force of a unit whose topic carries none, as the source's database has it now.

    The unit must have been taken over with the epoch of `spec`. Returns why it cannot go on (it is marked stopped), or None;
    raises ConsumerError when it may go better later.
    """
    source = pipeline.debezium[spec.source]
    run = TopicRun(spec, sessions, lambda _start, _upto: (), {})
    try:
        table = read_definition(source, spec.source, pipeline.prefix, spec.unit.topic)
        run.define(table)
    except UnitStoppedError as error:
        sessions.get(0).stop_unit(spec.unit, spec.epoch, str(error))
        log.error("unit stopped", pipeline=pipeline.name, topic=spec.unit.topic, reason=str(error))
        return str(error)
    log.info("definition read from the source", pipeline=pipeline.name, topic=spec.unit.topic)
    return None
