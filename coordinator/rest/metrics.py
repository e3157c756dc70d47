"""The metrics of a coordinator: what the leader publishes of units, agents and pipelines, and what every
coordinator knows of itself.

Only the leader has values of units, agents and pipelines, so that no two coordinators report the same
thing. A number that was current at some time is given as that time (`…_timestamp_seconds`): if its
source falls silent, the age that is computed from it grows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coordinator.core.leader.history import MOVE_CAUSES
from coordinator.core.members import MemberState
from coordinator.rest.exposition import BUILD_INFO, MetricDefinition, MetricValue
from coordinator.server.coordinator import Coordinator
from coordinator.server.operators.api import AgentRow, UnitRow, View
from coordinator.server.operators.condition import HEALTHS

LEADER = MetricDefinition("rowlock_leader", "gauge", "Whether this coordinator leads: 1 or 0.")
TERM = MetricDefinition("rowlock_term", "gauge", "The term of the leader that this coordinator knows.")
JOURNAL_EVENTS = MetricDefinition(
    "rowlock_events_total",
    "counter",
    "Events since this process started, as `rowlock events` shows them: elections, agents that joined or "
    "were lost, units that were placed, moved or stopped, commands, alarms.",
    ("event",),
)
MOVES = MetricDefinition(
    "rowlock_moves_total",
    "counter",
    "Units that came to another agent since this process started, by cause: `drain`, `move`, `rebalance`: "
    "as a person asked; `balance`: the load is evened out; `agent_lost`; `agent_restarted`; `failure`: it "
    "failed on the agent before, or did not get ready there; `other`: for example after a pause, or a change "
    "of the configuration.",
    ("why",),
)
AGENTS = MetricDefinition(
    "rowlock_agents",
    "gauge",
    "Agents by state: `synced`; `registered`: no message in this term yet; `expired`: silent for longer "
    "than its lease.",
    ("state",),
)
AGENT_HEARD = MetricDefinition(
    "rowlock_agent_heard_timestamp_seconds",
    "gauge",
    "When the leader received the last message of the agent.",
    ("agent",),
)
AGENT_UNITS = MetricDefinition(
    "rowlock_agent_units", "gauge", "Units that the agent holds, in any state.", ("agent",)
)
AGENT_BACKS_OFF = MetricDefinition(
    "rowlock_agent_backs_off",
    "gauge",
    "Whether the agent is given no units for a while, because preparations there fail: 1 or 0.",
    ("agent",),
)
AGENT_CONFIG = MetricDefinition(
    "rowlock_agent_has_active_config",
    "gauge",
    "Whether the agent has the active configuration: 1 or 0. Without it, it is given no new units.",
    ("agent",),
)
UNITS = MetricDefinition(
    "rowlock_units",
    "gauge",
    "Units by kind (`capture`, `apply`) and health: `running`; `starting`: it is being placed; "
    "`restarting`: it failed and is retried; `stopped`: it waits for a person; `paused`: an operator has "
    "paused it.",
    ("kind", "health"),
)
UNIT_HEALTH = MetricDefinition(
    "rowlock_unit_health",
    "gauge",
    "The health of one unit: 1 for the present one, 0 for the others.",
    ("unit", "health"),
)
UNIT_FAILURES = MetricDefinition(
    "rowlock_unit_failures_most",
    "gauge",
    "The most failures of any one unit in a row, by kind: without five minutes between them in which it ran. "
    "0 when all units have run for five minutes.",
    ("kind",),
)
RESTRICTED = MetricDefinition(
    "rowlock_restricted_units",
    "gauge",
    "Units that the leader leaves as they are because they violate an invariant; `rowlock status` has the "
    "remedy.",
)
MOVING = MetricDefinition(
    "rowlock_moving_units", "gauge", "Units that a new agent prepares while the old one runs them."
)
CAPTURED_TO = MetricDefinition(
    "rowlock_captured_to_timestamp_seconds",
    "gauge",
    "Source commit time up to which the source is captured; it moves on while the source is idle.",
    ("source",),
)
APPLIED_TO = MetricDefinition(
    "rowlock_applied_to_timestamp_seconds",
    "gauge",
    "Source commit time up to which the pipeline has applied all changes of the source; it moves on while "
    "the source is idle. Now minus this time is the lag.",
    ("pipeline", "source"),
)
WAITS_FOR_UNITS = MetricDefinition(
    "rowlock_pipeline_waits_for_units",
    "gauge",
    "Units of the source without which the pipeline does not move on: units whose progress is not known yet, "
    "or is earlier than the pipeline's. Such are the units of tables that were just added, until they have "
    "caught up.",
    ("pipeline", "source"),
)
CUT_TIME = MetricDefinition(
    "rowlock_cut_timestamp_seconds",
    "gauge",
    "All transactions that the sources had committed before this time, by their servers' clocks, are "
    "applied: the target is consistent at this time.",
    ("pipeline",),
)

COORDINATOR_METRICS = (
    BUILD_INFO, LEADER, TERM, JOURNAL_EVENTS, MOVES, AGENTS, AGENT_HEARD, AGENT_UNITS, AGENT_BACKS_OFF,
    AGENT_CONFIG, UNITS, UNIT_HEALTH, UNIT_FAILURES, RESTRICTED, MOVING, CAPTURED_TO, APPLIED_TO,
    WAITS_FOR_UNITS, CUT_TIME,
)  # fmt: skip
"""All metrics of a coordinator, in the order of a scrape."""


_HEALTHS = (*HEALTHS, "paused")


@dataclass(frozen=True, slots=True)
class CoordinatorNumbers:
    """The numbers of a coordinator."""

    coordinator: Coordinator
    version: str
    """Of rowlock."""
    per_topic: int
    """With more units than this, no metric has a value for each unit."""
    wall: Callable[[], float] = time.time

    def read_values(self) -> Iterator[MetricValue]:
        """Yield the present numbers. Raises NoAnswerError if the leader's thread is too busy to answer."""
        yield BUILD_INFO, (self.version, "coordinator"), 1
        view = self.coordinator.get_view()
        yield LEADER, (), float(view.leading)
        if view.leader is not None:
            yield TERM, (), view.leader.rev
        for event, count in sorted(self.coordinator.count_events().items()):
            yield JOURNAL_EVENTS, (event,), count
        moves = self.coordinator.count_moves()
        yield from ((MOVES, (cause,), moves.get(cause, 0)) for cause in MOVE_CAUSES)
        if view.leading:
            yield from self._read_view(view)

    def _read_view(self, view: View) -> Iterator[MetricValue]:
        states = Counter(row.state for row in view.agents)
        yield from ((AGENTS, (state.value,), states[state.value]) for state in MemberState)
        for agent in view.agents:
            yield from self._read_agent(agent)
        yield from _read_units(view.units, self.per_topic)
        yield from _read_waits(view)
        for pipeline in view.pipelines:
            for source, applied_to in sorted(pipeline.by_source.items()):
                if applied_to:
                    yield APPLIED_TO, (pipeline.pipeline, source), applied_to / 1000
            if pipeline.cut_ts:
                yield CUT_TIME, (pipeline.pipeline,), pipeline.cut_ts / 1000

    def _read_agent(self, row: AgentRow) -> Iterator[MetricValue]:
        labels = (row.name,)
        yield AGENT_HEARD, labels, self.wall() - row.last_heard_s
        yield AGENT_UNITS, labels, row.units
        yield AGENT_BACKS_OFF, labels, float(row.backs_off_s is not None)
        yield AGENT_CONFIG, labels, float(row.has_active_config)


def _read_units(units: tuple[UnitRow, ...], per_topic: int) -> Iterator[MetricValue]:
    healths = {row.unit: _find_health(row) for row in units}
    counted = Counter((row.kind, healths[row.unit]) for row in units)
    for kind in ("capture", "apply"):
        yield from ((UNITS, (kind, health), counted[kind, health]) for health in _HEALTHS)
        yield UNIT_FAILURES, (kind,), max((row.failures for row in units if row.kind == kind), default=0)
    if len(units) <= per_topic:
        for unit, present in healths.items():
            yield from ((UNIT_HEALTH, (unit, health), float(health == present)) for health in _HEALTHS)
    yield RESTRICTED, (), sum(row.restricted is not None for row in units)
    yield MOVING, (), sum(row.moving_to is not None for row in units)
    for row in units:
        if row.kind == "capture" and row.checkpoint_ts:
            yield CAPTURED_TO, (row.source,), row.checkpoint_ts / 1000


def _read_waits(view: View) -> Iterator[MetricValue]:
    """Yield how many units each pipeline waits for. A pipeline's progress is the least of its units', so
    only a unit that is new to it has less.
    """
    applied_to = {row.pipeline: row.by_source for row in view.pipelines}
    waits: Counter[tuple[str, str]] = Counter()
    for row in view.units:
        if row.pipeline in applied_to and row.source:
            progress = applied_to[row.pipeline].get(row.source, 0)
            is_late = row.checkpoint_ts is None or row.checkpoint_ts < progress
            waits[row.pipeline, row.source] += is_late
    yield from ((WAITS_FOR_UNITS, labels, count) for labels, count in sorted(waits.items()))


def _find_health(row: UnitRow) -> str:
    """Return the unit's health. A pause needs no person, so it does not count as a stop."""
    return "paused" if row.paused and row.restricted is None else row.health
