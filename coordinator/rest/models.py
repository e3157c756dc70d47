"""The answers of REST as models: the JSON contract of REST and of the command line's `--output json`.

Fields are added, never renamed or removed within `/v1`. The models mirror the rows of
`server.operators.api`. Their descriptions are the reference (docs/reference/rest.md is generated from
them).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from coordinator.server.operators.api import UnitRow
from schemas.problems import decode_problem

Ts = int | None


def _format_problem(text: str | None) -> str | None:
    return None if text is None else str(decode_problem(text))


class Answer(BaseModel):
    """Read from the rows' attributes."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class Leader(Answer):
    """The leading coordinator."""

    rev: int = Field(serialization_alias="rev", description="Its term; grows with every election.")
    name: str = Field(serialization_alias="name", description="Its name.")
    address: str = Field(serialization_alias="address", description="`host:port` where agents reach it.")
    rest: str = Field(serialization_alias="rest", description="`host:port` of its REST interface.")
    since_s: float = Field(
        serialization_alias="since_s",
        description="Seconds since the coordinator that answers saw the leader's claim.",
    )
    am_i: bool = Field(
        serialization_alias="am_i", description="Whether the coordinator that answers is the leader."
    )
    version: str = Field(
        serialization_alias="version",
        description="Its version of rowlock; empty if another coordinator answers.",
    )


class AgentSlots(Answer):
    """The slots of an agent in Spark's tasks, which apply its units. That of the apply process does not
    count."""

    open: int = Field(
        serialization_alias="open", description="Slots whose tasks run and have contact with the agent."
    )
    configured: int = Field(
        serialization_alias="configured",
        description="Slots that there should be: `spark.slots`, or the N of `local[N]`.",
    )
    short_s: int = Field(
        serialization_alias="short_s",
        description="Seconds for which fewer have been open than configured; 0: all are open.",
    )
    cores: int | None = Field(
        serialization_alias="cores",
        description="Number of tasks that Spark's executors can run at once; null: all slots are open, or "
        "it is not known.",
    )
    failures: dict[str, str] = Field(
        serialization_alias="failures",
        description="The last failure of a slot by host, since slots are missing. The name is empty if Spark "
        "names no host.",
    )


class Agent(Answer):
    """A process that runs units."""

    name: str = Field(serialization_alias="name", description="Its name.")
    incarnation: str = Field(serialization_alias="incarnation", description="Names this start of it.")
    agent_epoch: int = Field(
        serialization_alias="agent_epoch",
        description="Number of this start; a restarted agent has a higher one.",
    )
    state: str = Field(
        serialization_alias="state",
        description="`registered`: no message in this term yet; `synced`; `expired`: "
        "silent for longer than its lease.",
    )
    liveness: str = Field(
        serialization_alias="liveness", description="State that the agent reports: `alive` or `stopping`."
    )
    draining: bool = Field(
        serialization_alias="draining",
        description="Whether it is being drained: its units move to other agents.",
    )
    connected: bool = Field(
        serialization_alias="connected", description="Whether it has an open stream to the leader."
    )
    last_heard_s: float = Field(
        serialization_alias="last_heard_s", description="Seconds since its last message."
    )
    units: int = Field(serialization_alias="units", description="Number of its units, in any state.")
    rows_per_s: int = Field(
        serialization_alias="rows_per_s", description="Rows a second of all units that it runs."
    )
    failures: int = Field(
        serialization_alias="failures",
        description="Preparations that failed on it since one last succeeded.",
    )
    backs_off_s: float | None = Field(
        serialization_alias="backs_off_s",
        description="Seconds for which it is still given no units because of these failures (0: it is tried "
        "with one unit); null: it is given units like any other agent.",
    )
    counters: dict[str, int] = Field(
        serialization_alias="counters", description="Statistics of its messages, by name."
    )
    configuration: str = Field(
        serialization_alias="configuration",
        description="Digest of the configuration under which it runs new units (without secrets and paths); "
        "empty: it does not report one.",
    )
    has_active_config: bool = Field(
        serialization_alias="in_force",
        description="Whether that is the active configuration. If not, the agent keeps its "
        "units and is given no new ones: copy the file to its machine; the agent "
        "reads it again every few seconds.",
    )
    version: str = Field(
        serialization_alias="version",
        description="Its version of rowlock, which its capture and apply processes have as well; empty: no "
        "message in this term yet, or a version before 0.1.0.",
    )
    slots: AgentSlots | None = Field(
        serialization_alias="slots",
        description="Its slots in Spark; null: not known, because it has no pipeline, Spark or its tasks "
        "have been starting for less than 30 seconds, or the version is before 0.3.0.",
    )


class Unit(Answer):
    """A unit of scheduling: a capture unit (one source) or an apply unit (one topic of one pipeline)."""

    unit: str = Field(
        serialization_alias="unit", description="Its name: `capture/SOURCE` or `apply/PIPELINE/TOPIC`."
    )
    kind: str = Field(serialization_alias="kind", description="`capture` or `apply`.")
    source: str = Field(serialization_alias="source", description="The source of its rows.")
    pipeline: str | None = Field(
        serialization_alias="pipeline", description="Its pipeline; null: a capture unit."
    )
    state: str = Field(
        serialization_alias="state",
        description="`absent`, `recovering` (a new coordinator waits for its agents), `prepare`, "
        "`commit`, `replicating`, `removing`.",
    )
    agent: str | None = Field(
        serialization_alias="agent", description="The agent that runs it or prepares to run it."
    )
    moving_to: str | None = Field(
        serialization_alias="moving_to", description="The new agent, while the unit is being moved."
    )
    epoch: int = Field(
        serialization_alias="epoch", description="Number of its assignment: the fencing token in the target."
    )
    checkpoint_ts: Ts = Field(
        serialization_alias="checkpoint_ts",
        description="Source commit time (ms) up to which it is applied; null: not known.",
    )
    resolved_ts: Ts = Field(
        serialization_alias="resolved_ts",
        description="Source commit time (ms) up to which it is captured; null: not known.",
    )
    position: str | None = Field(
        serialization_alias="position",
        description="Position in the source's log up to which it is captured or applied.",
    )
    rows_per_s: int = Field(serialization_alias="rows_per_s", description="Measured rows a second.")
    paused: bool = Field(
        serialization_alias="paused", description="Whether it is paused: it does not run until it is resumed."
    )
    health: str = Field(
        serialization_alias="health",
        description="`running`; `starting`: it is being placed; `restarting`: it failed and is tried again; "
        "`stopped`: it waits for an operator.",
    )
    reason: str | None = Field(
        serialization_alias="reason",
        description="Reason why it does not run, or what a running unit waits for (a row lock of another "
        "session in the target); null if neither.",
    )
    remedy: str | None = Field(
        serialization_alias="remedy", description="Remedy; null: nothing to do, or not known."
    )
    error: Annotated[str | None, BeforeValidator(_format_problem)] = Field(
        serialization_alias="error",
        description="Its last failure, until it replicates again; for a unit that replicates: why "
        "its worker does not continue.",
    )
    failures: int = Field(serialization_alias="failures", description="Failures since it was last stable.")
    since_s: float = Field(serialization_alias="since_s", description="Seconds in this state.")


class Pipeline(Answer):
    """Progress of a pipeline, as it is stored every few seconds. Source commit times in ms; null: not known
    yet."""

    pipeline: str = Field(serialization_alias="pipeline", description="Its name.")
    checkpoint_ts: Ts = Field(
        serialization_alias="checkpoint_ts",
        description="Every unit has applied all transactions that its source had committed before this "
        "time, by the clock of the source's server; never goes back.",
    )
    resolved_ts: Ts = Field(
        serialization_alias="resolved_ts", description="All transactions before this time are captured."
    )
    cut_ts: Ts = Field(
        serialization_alias="cut_ts",
        description="All transactions that the sources had committed before this time are applied: the "
        "target is consistent at this time, apart from tables whose first copy, or a later one, is under "
        "way (`rowlock status`, `rowlock copy`): it does not wait for them.",
    )
    by_source: dict[str, int] = Field(
        serialization_alias="by_source", description="The same for each source alone."
    )
    waits_for: tuple[str, ...] = Field(
        serialization_alias="waits_for",
        description="Units and sources that hold the checkpoint back.",
    )


class AgentList(Answer):
    """All agents, by name."""

    agents: list[Agent] = Field(serialization_alias="agents", description="The agents.")


class UnitList(Answer):
    """A page of units, by name."""

    units: list[Unit] = Field(serialization_alias="units", description="The units.")
    next: str | None = Field(
        serialization_alias="next",
        description="Value of `after` for the next page; null: this is the last page.",
    )


class PipelineList(Answer):
    """All pipelines, by name."""

    pipelines: list[Pipeline] = Field(serialization_alias="pipelines", description="The pipelines.")


class Counters(Answer):
    """Counters of the coordinator since its term began."""

    counters: dict[str, int] = Field(
        serialization_alias="counters", description="Messages dropped by reason, queue lengths, refusals."
    )


class ClusterEvent(Answer):
    """An event that the leader caused or observed."""

    number: int = Field(serialization_alias="number", description="Counts from 1 in the leader's process.")
    ts_ms: int = Field(
        serialization_alias="ts_ms", description="Time by the leader's wall clock, in ms since 1970."
    )
    rev: int = Field(serialization_alias="rev", description="The leader's term.")
    what: str = Field(
        serialization_alias="what",
        description="`elected`, `resigned`, `term lost`; `configuration in force`; `agent joined`, "
        "`agent is back`, `agent stops`, `agent gone`, `agent backs off`, `agent is trusted again`; "
        "`unit placed`, `unit moved`, `unit stopped`; `command accepted`, `command refused`; alarms, as in "
        "the log.",
    )
    about: dict[str, Any] = Field(
        serialization_alias="about",
        description="Its details: `unit`, `agent`, `from`, `to`, `why`, `cause`, `took_s`, `command`, `by`, "
        "`digest`, `was`, `changed`, as they apply.",
    )


class EventList(Answer):
    """Events, oldest first."""

    events: list[ClusterEvent] = Field(serialization_alias="events", description="The events.")


class EventQuery(BaseModel):
    """Selection of events."""

    model_config = ConfigDict(extra="forbid")

    after: int = Field(alias="after", default=0, ge=0, description="Only events with a greater `number`.")
    limit: int = Field(
        alias="limit",
        default=1000,
        ge=1,
        le=1000,
        description="Maximum number of events; the newest are returned.",
    )


class Health(Answer):
    """Health: the process serves."""

    status: str = Field(serialization_alias="status", description="`ok`.")
    leads: bool = Field(serialization_alias="leads", description="Whether this coordinator leads.")


class Readiness(Health):
    """Readiness: a leader is known; with what a person has to do."""

    warnings: list[str] = Field(
        serialization_alias="warnings",
        default_factory=list,
        description="Units that the leader leaves as they are because they violate an invariant, each with "
        "what to do; all other units are served as always. Only the leader answers with them; without a "
        "token it answers with their number alone.",
    )


class Accepted(Answer):
    """The command is accepted; the listings show its progress."""

    status: str = Field(serialization_alias="status", default="accepted", description="`accepted`.")
    durable: bool = Field(
        serialization_alias="durable",
        description="Whether it is stored, so that a later leader carries it out as well. A "
        "rebalance is not stored: repeat it.",
    )


class ReloadQuery(BaseModel):
    """Options of a reload."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool = Field(
        alias="dry_run", default=False, description="Only read the file, and return what it would change."
    )


class Reloaded(Answer):
    """Changes of the file against the active configuration. Units of `changed` parts are placed again, others
    continue."""

    digest: str = Field(
        serialization_alias="digest", description="Digest of this configuration (without secrets and paths)."
    )
    changes: tuple[str, ...] = Field(
        serialization_alias="changes", description="Key by key: `place: before → after`, secrets hidden."
    )
    changed: list[str] = Field(
        serialization_alias="changed",
        description="Parts that are new or different: `source/NAME` (its capture unit), "
        "`pipeline/NAME` (its apply units).",
    )
    removed: list[str] = Field(
        serialization_alias="gone", description="Parts that were removed: their units are removed as well."
    )
    is_active: bool = Field(
        serialization_alias="in_force",
        description="Whether this configuration is active now; false with `dry_run`.",
    )


class UnitQuery(BaseModel):
    """Selection of units, and the page of them."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["capture", "apply"] | None = Field(
        alias="kind", default=None, description="Only units of this kind."
    )
    source: str | None = Field(alias="source", default=None, description="Only of this source.")
    pipeline: str | None = Field(alias="pipeline", default=None, description="Only of this pipeline.")
    agent: str | None = Field(alias="agent", default=None, description="Only on this agent, or moving to it.")
    state: str | None = Field(alias="state", default=None, description="Only in this state.")
    after: str = Field(
        alias="after", default="", description="Only names greater than this: `next` of a page."
    )
    limit: int = Field(
        alias="limit", default=1000, ge=1, le=10_000, description="Maximum number of units in the answer."
    )

    def matches_row(self, row: UnitRow) -> bool:
        """Return whether a unit is asked for."""
        if row.unit <= self.after or (
            self.agent is not None and self.agent not in {row.agent, row.moving_to}
        ):
            return False
        filters = ((self.kind, row.kind), (self.source, row.source), (self.pipeline, row.pipeline))
        return all(value is None or value == seen for value, seen in (*filters, (self.state, row.state)))


class MoveTo(BaseModel):
    """The agent that a unit is to move to."""

    model_config = ConfigDict(extra="forbid")

    agent: str = Field(alias="agent", min_length=1, description="Name of the agent.")


class ProblemResponse(BaseModel):
    """Every error, as `application/problem+json` (RFC 9457)."""

    type: str = Field(
        serialization_alias="type", description="Kind of error, stable: `urn:rowlock:problem:…`."
    )
    title: str = Field(serialization_alias="title", description="The kind of error in words.")
    status: int = Field(serialization_alias="status", description="The HTTP status.")
    detail: str = Field(
        serialization_alias="detail", description="The message: the object, the problem and the remedy."
    )
    instance: str = Field(serialization_alias="instance", description="The path of the request.")
    leader: Leader | None = Field(
        serialization_alias="leader",
        default=None,
        description="With `not-leader`: the leader; null: none at the moment, ask again.",
    )
    errors: list[str] | None = Field(
        serialization_alias="errors",
        default=None,
        description="With `invalid`: each error of the request; with `refused`: each "
        "reason, if there are several.",
    )
