"""`rowlock status`: the progress of capture and apply, and what does not run, why, and the remedy.

It is read from Kafka's watermarks, the targets' progress rows, and the leading coordinator
(rowlock/inspect/placement.py). A unit's lag in seconds is the age of the oldest event that it has not
applied; without one, it is the lag of capture. The JSON is a contract (docs/reference/cli.md): fields
are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from consumer.ordering.model import UnitState
from coordinator.server.operators.copies import DebtRow
from rowlock.coordinator.units import ApplyUnitName, list_apply_units, list_sources_to_capture, split_refusal
from rowlock.errors import CommandError
from rowlock.inspect.checks.emptied_kafka import yield_emptied_kafka_findings
from rowlock.inspect.observed.applied import AppliedReader, AppliedUnit
from rowlock.inspect.observed.first_copy_reader import FirstCopyList, FirstCopyReader
from rowlock.inspect.observed.settled_copies import select_unsettled_copies
from rowlock.inspect.observed.slots import AgentSlotReport
from rowlock.inspect.observed.source_status import (
    LEFT_OUT,
    NOT_RUNNING_TEXT,
    SourceStatus,
    StateReason,
    TableStatus,
    explain_placement,
    format_log_position,
    judge_source,
)
from rowlock.inspect.observed.versions import ProcessVersion
from rowlock.inspect.placement import Placement, PlacementReader
from rowlock.views.copy_desk import build_debt, explain_remedy
from rowlock.views.headroom import RETENTION_CHECK_AGE_S, measure_source_backlog
from rowlock.views.kafka import KafkaView
from rowlock.views.server_versions import (
    explain_refused_source,
    explain_unsupported_source,
    explain_unsupported_target,
)
from rowlock.views.topic_settings import TopicSettings
from schemas.clock import read_clock_ms
from schemas.config.model import Config
from schemas.findings import Finding
from schemas.problems import Problem, decode_problem
from schemas.table.names import TableName, find_meant_tables, format_table_text
from schemas.units import build_apply_unit_name, build_capture_unit_name
from schemas.wire.copies import find_copy_state
from schemas.wire.records import Watermark

STATUS_FORMAT_VERSION = 1
_WAITING = frozenset({"stopped", "left out"})
"""States of what waits for a person."""
_ILL = _WAITING | {"restarting", "silent", "unknown"}
_NOT_CAPTURED = frozenset({"new", "stopped", "restarting", "silent"})


class ApplyUnitStatus(msgspec.Struct, frozen=True):
    """The status of an apply unit."""

    pipeline: str = msgspec.field(name="pipeline")
    source: str = msgspec.field(name="source")
    topic: str = msgspec.field(name="topic")
    target: str = msgspec.field(name="target")
    state: str = msgspec.field(name="state")
    """current | behind | stopped | left out (capture never took up the table) | restarting | new (never
    applied) | unknown (the target does not answer).
    """
    position: tuple[int, int, int, int] | None = msgspec.field(name="position", default=None)
    offset: int | None = msgspec.field(name="offset", default=None)
    end_offset: int | None = msgspec.field(name="end_offset", default=None)
    lag_events: int | None = msgspec.field(name="lag_events", default=None)
    lag_seconds: float | None = msgspec.field(name="lag_seconds", default=None)
    epoch: int | None = msgspec.field(name="epoch", default=None)
    quarantined: int = msgspec.field(name="quarantined", default=0)
    displaced: int = msgspec.field(name="displaced", default=0)
    stopped: str | None = msgspec.field(name="stopped", default=None)
    at: str | None = msgspec.field(name="at", default=None)
    cause: str | None = msgspec.field(name="cause", default=None)
    reason: str | None = msgspec.field(name="reason", default=None)
    remedy: str | None = msgspec.field(name="remedy", default=None)
    since_ms: int | None = msgspec.field(name="since_ms", default=None)
    headroom_seconds: float | None = msgspec.field(name="headroom_seconds", default=None)
    outdated: tuple[str, ...] = msgspec.field(name="outdated", default=())
    table: str | None = msgspec.field(name="table", default=None)
    """"db.table" of the source; None: Debezium writes the topic."""
    quarantined_rows: int = msgspec.field(name="quarantined_rows", default=0)
    """Rows, by their keys, to which the quarantined events belong."""
    debt: DebtRow | None = msgspec.field(name="debt", default=None)
    """Rows that statements removed at the source, and that the target may still have."""


class Status(msgspec.Struct, frozen=True):
    version: int = msgspec.field(name="version")
    time_ms: int = msgspec.field(name="time_ms")
    sources: tuple[SourceStatus, ...] = msgspec.field(name="sources", default=())
    units: tuple[ApplyUnitStatus, ...] = msgspec.field(name="units", default=())
    problems: tuple[str, ...] = msgspec.field(name="problems", default=())
    versions: tuple[ProcessVersion, ...] = msgspec.field(name="versions", default=())
    slots: tuple[AgentSlotReport, ...] = msgspec.field(name="slots", default=())
    """They are no part of `healthy`: units go on in fewer slots."""

    @property
    def healthy(self) -> bool:
        """True if all that should run does."""
        states = {source.state for source in self.sources} | {unit.state for unit in self.units}
        return not (self.problems or states & _ILL or any(source.tables for source in self.sources))

    def as_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


LOST_EVENTS = "the topic was created again or has lost records: the table waits for a copy"


def judge_unit_state(
    applied: bool,
    late: int | None,
    in_target: UnitState | None,
    at_capture: TableStatus | None,
    placed: StateReason | None,
) -> StateReason:
    """Return a unit's state by the first that applies: capture publishes nothing of the table, a stop in the
    target, the coordinator's state, its progress.

    `applied`: whether it has progress; `late`: offsets that are not applied, None: the topic has lost events;
    `in_target`: its stored state, also why it waits for a person.
    """
    if at_capture is not None:
        return StateReason(at_capture.state, at_capture.reason, at_capture.remedy, at_capture.since_ms)
    if in_target is not None and in_target.stopped is not None:
        problem = decode_problem(in_target.stopped)
        return StateReason("stopped", problem.what, problem.action or None, in_target.since_ms)
    usual = "new" if not applied else "current" if late == 0 else "behind"
    if placed is None or placed.state == "running":
        if late is None or placed is None:
            return StateReason(usual, LOST_EVENTS if late is None else None)
        return replace(placed, state=usual)
    if not applied and (placed.state == "starting" or placed.reason in (NOT_RUNNING_TEXT, LEFT_OUT)):
        return StateReason(
            "new", placed.reason, placed.remedy
        )  # a topic that was just made is placed in a moment
    return StateReason(
        "restarting" if placed.state == "starting" else placed.state, placed.reason, placed.remedy
    )


@dataclass(frozen=True, slots=True)
class _SharedFacts:
    """The facts that all units of one reading share."""

    placement: Placement
    sources: Mapping[str, SourceStatus]
    marks: Mapping[str, Watermark | None]


class StatusReader:
    """Reads the status repeatedly (`--watch`), over one Kafka client."""

    def __init__(self, config: Config, *, examines_servers: bool = True) -> None:
        """`examines_servers`: whether servers are asked why a unit cannot run: sources and targets for what
        they refuse, targets for units of sources that Kafka does not know. `check` does that itself.
        """
        self._config, self._examines_servers = config, examines_servers
        self._kafka = KafkaView(config.kafka)
        self._applied = AppliedReader(config, self._kafka, TopicSettings(config.kafka))
        self._placements = PlacementReader(config)
        self._first_copies = FirstCopyReader(config, self._kafka.read_topic_tables)
        self._alarms: list[Finding] = []
        #: "source NAME" or "target NAME" → why its version is refused
        self._refusals: dict[str, Problem | None] = {}

    def close(self) -> None:
        self._kafka.close()
        self._placements.close()

    def read_captures(self) -> tuple[Placement, tuple[SourceStatus, ...]]:
        """Return the placement of units and the status of the sources, without any target: it costs little.

        Raises KafkaUnreachableError.
        """
        now_ms = read_clock_ms()
        marks = {name: self._read_watermark(name) for name in self._config.sources}
        for name, mark in marks.items():
            self._first_copies.note_watermark(name, mark)
        placement = self._placements.read_placement()
        return placement, tuple(
            self._read_source(name, mark, now_ms, placement) for name, mark in marks.items()
        )

    def list_first_copies(self) -> FirstCopyList:
        """Return how far the first copies are, by the watermarks that `read_captures` has read."""
        return self._first_copies.list_copies()

    def read_status(self) -> Status:
        """Return the status. Raises KafkaUnreachableError; a target that does not answer becomes a
        problem of the status.

        The coordinator is asked last: a unit with a watermark or progress by then was placed before.
        """
        now_ms = read_clock_ms()
        self._alarms = []
        marks = {name: self._read_watermark(name) for name in self._config.sources}
        partitions = self._kafka.count_partitions()
        assigned = self._kafka.read_topic_tables(list_sources_to_capture(self._config), partitions)
        expected = list_apply_units(self._config, partitions, assigned)
        problems = self._list_unreadable(marks) + self._split_topics(expected, partitions)
        if self._examines_servers:
            problems += self._list_lost_sources(marks, partitions)
            problems += self._list_unsupported_targets({unit.target for unit in expected})
        applied: list[AppliedUnit] = []
        unknown: list[ApplyUnitName] = []
        for target in sorted({unit.target for unit in expected}):
            mine = [unit for unit in expected if unit.target == target]
            try:
                applied += self._applied.read_units(target, mine, now_ms)
            except CommandError as error:
                problems.append(str(error))
                unknown += mine
        placement = self._placements.read_placement()
        sources = {name: self._read_source(name, marks[name], now_ms, placement) for name in marks}
        seen = _SharedFacts(placement, sources, marks)
        found = [judge_unit(unit, seen) for unit in applied]
        found += [
            ApplyUnitStatus(
                each.pipeline, each.source, each.topic, each.target, "unknown", table=_format_table(each)
            )
            for each in unknown
        ]
        if placement.problem:
            problems.insert(0, placement.problem)
        self._alarms += [alarm for unit in applied for alarm in unit.alarms]
        problems += [f"{each.place}: {each.message}: {each.remedy}" for each in self._alarms]
        ordered = tuple(sorted(found, key=lambda unit: (unit.pipeline, unit.topic)))
        return Status(
            STATUS_FORMAT_VERSION,
            now_ms,
            tuple(_drop_settled_copies(source, ordered) for source in sources.values()),
            ordered,
            tuple(dict.fromkeys(problems)),  # of a target there may be two
            placement.versions,
            placement.slots,
        )

    def _read_watermark(self, name: str) -> Watermark | None:
        if self._is_external(name):
            return None
        return (self._kafka.read_watermark(name) or (0, None))[1]

    def _list_unreadable(self, marks: Mapping[str, Watermark | None]) -> list[str]:
        """Return a problem for each source with an unreadable last watermark: it would look as if it had
        never been captured.
        """
        asked = (name for name, mark in marks.items() if mark is None and not self._is_external(name))
        return [
            f"the last watermark of source {name} cannot be read, so the progress of its capture and its "
            "stopped tables are not known: the next one is written within a second while it is captured; if "
            "this lasts, a newer rowlock wrote it"
            for name in asked
            if self._kafka.has_unreadable_watermark(name)
        ]

    def _list_lost_sources(self, marks: Mapping[str, Watermark | None], topics: Collection[str]) -> list[str]:
        """Return a problem for each source whose topics Kafka does not have although targets have applied
        them. Targets are only asked if a source has no watermark.
        """
        unseen = [name for name, mark in marks.items() if mark is None and not self._is_external(name)]
        applied, problems = self._applied.list_topics() if unseen else ([], [])
        return problems + [
            f"{found.place}: {found.message}: {found.remedy}"
            for name in unseen
            for found in yield_emptied_kafka_findings(self._config, name, topics, applied)
        ]

    def _is_external(self, name: str) -> bool:
        """Return whether Debezium captures the source, not rowlock."""
        return self._config.sources[name].events == "debezium"

    def _read_source(
        self, name: str, seen: Watermark | None, now_ms: int, placement: Placement
    ) -> SourceStatus:
        if self._is_external(name):
            return SourceStatus(name, "external")
        found = judge_source(
            name,
            seen,
            now_ms,
            placement,
            placement.units.get(build_capture_unit_name(name)),
            patterns=self._config.sources[name].tables,
        )
        is_examined = self._examines_servers and found.state in _NOT_CAPTURED
        refused = self._explain_refused_source(name, placement) if is_examined else None
        if refused is not None:
            return msgspec.structs.replace(found, state="stopped", reason=refused.what, remedy=refused.remedy)
        needed = found.find_needed_log(now_ms)
        if found.state == "finished" or needed.age_s < RETENTION_CHECK_AGE_S:
            return found
        try:
            backlog = measure_source_backlog(self._config.sources[name], name, needed)
        except CommandError:
            return found  # it does not answer, or not for this user: capture's own state reports that
        self._alarms += backlog.list_alarms()
        return msgspec.structs.replace(found, headroom_seconds=backlog.headroom_s)

    def _explain_refused_source(self, name: str, placement: Placement) -> Problem | None:
        """Return why a source's version is refused or, while nothing runs, why capture would refuse it. Asked
        once, because a source that does not answer would delay each reading.
        """
        place = f"source {name}"
        if place not in self._refusals:
            runs = not (placement.known and placement.problem)
            self._refusals[place] = (
                explain_unsupported_source(self._config.sources[name])
                if runs
                else explain_refused_source(self._config, name)
            )
        return self._refusals[place]

    def _list_unsupported_targets(self, read: Collection[str]) -> list[str]:
        """Return the targets with a refused version, of those that no unit is `read` from. Each is asked
        once.
        """
        found = []
        for name, target in self._config.targets.items():
            place = f"target {name}"
            if name not in read and place not in self._refusals:
                self._refusals[place] = explain_unsupported_target(target)
            if refused := self._refusals.get(place):
                found.append(f"{place}: {refused}")
        return found

    def _split_topics(self, expected: list[ApplyUnitName], partitions: Mapping[str, int]) -> list[str]:
        """Return why topics with several partitions are not applied."""
        refusals = [split_refusal(self._config, unit, partitions[unit.topic]) for unit in expected]
        return sorted({str(refusal) for refusal in refusals if refusal is not None})


def judge_unit(unit: AppliedUnit, seen: _SharedFacts) -> ApplyUnitStatus:
    """Return the status of a unit by its readings. Pure."""
    name, slowest, in_target = unit.name, unit.slowest, unit.state.stopped if unit.state else None
    source, mark = seen.sources[name.source], seen.marks[name.source]
    at_capture = find_capture_stop(name.table, source.tables)
    placed = explain_placement(
        seen.placement, seen.placement.units.get(build_apply_unit_name(name.pipeline, name.topic))
    )
    why = judge_unit_state(slowest is not None, unit.late, unit.state, at_capture, placed)
    if why.state in _WAITING and why.remedy is not None and mark is not None and name.table is not None:
        why = replace(why, remedy=explain_remedy(why.remedy, find_copy_state(mark.copies, *name.table)))
    if why.reason is None and unit.outdated is not None:
        why = replace(why, reason=unit.outdated[0], remedy=unit.outdated[1])
    if why.reason is None and unit.debt is not None:
        why = replace(why, reason=unit.debt.describe())
    waits = why.state in _WAITING and why.remedy is not None and why.reason != NOT_RUNNING_TEXT
    return ApplyUnitStatus(
        pipeline=name.pipeline,
        source=name.source,
        topic=name.topic,
        target=name.target,
        state=why.state,
        position=slowest.position if slowest else None,
        offset=unit.offset,
        end_offset=unit.span.high - 1,
        lag_events=unit.late,
        lag_seconds=source.lag_seconds if unit.late == 0 else unit.age_s,
        epoch=slowest.epoch if slowest else None,
        quarantined=unit.quarantined,
        quarantined_rows=unit.quarantined_rows,
        displaced=unit.displaced,
        stopped=str(decode_problem(in_target))
        if in_target
        else f"{why.reason}: {why.remedy}"
        if waits
        else None,
        at=format_log_position(slowest.position, mark.file if mark else None)
        if slowest and unit.offset >= 0
        else None,
        cause=at_capture.cause if at_capture else None,
        reason=why.reason,
        remedy=why.remedy,
        since_ms=why.since_ms,
        headroom_seconds=unit.headroom_s,
        outdated=unit.options,
        table=_format_table(name),
        debt=build_debt(unit.debt),
    )


def _drop_settled_copies(source: SourceStatus, units: Iterable[ApplyUnitStatus]) -> SourceStatus:
    stopped = {unit.table for unit in units if unit.source == source.name and unit.stopped and unit.table}
    stopped |= {each.table for each in source.tables}
    return msgspec.structs.replace(source, copies=select_unsettled_copies(source.copies, stopped))


def _format_table(unit: ApplyUnitName) -> str | None:
    return None if unit.table is None else format_table_text(*unit.table)


def find_capture_stop(table: TableName | None, tables: Iterable[TableStatus]) -> TableStatus | None:
    """Return the stop by capture of a table; None: it has none."""
    return next((each for each in tables if table in find_meant_tables(each.table)), None)
