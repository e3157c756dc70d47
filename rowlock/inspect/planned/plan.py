"""Finds what a configuration would change: tables captured or no more, topics, copies and their size, target tables, layouts. Pure.

It is compared with what is stored (position records, topics, target tables, progress), so it is true whether anything runs or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rowlock.inspect.topics.outdated import explain_outdated, explain_rewrite
from rowlock.views.retention import format_bytes
from schemas.findings import START_OVER, format_copy_remedy
from schemas.table.names import find_meant_tables

NEW, AGAIN, NO_MORE = "new", "selected again", "no more"


@dataclass(frozen=True, slots=True)
class StoredSource:
    """Of one source that rowlock captures. `selected`: "db.table" → its topic, by the file, of tables that can be captured.

    `known`: of the position record, "db.table" that is captured; `stops`: "db.table" → cause. `topics`: that Kafka has. `sizes`: "db.table" → (rows,
    bytes), estimated by the server. `copies`: whether a new table's rows are copied (`snapshot`).
    """

    name: str
    selected: Mapping[str, str]
    known: frozenset[str] = frozenset()
    stops: Mapping[str, str] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    copies: bool = True


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A source table on its way. `wanted`: columns of the target table as rowlock would make it; `there`: of the real one, None: there is none.

    `create`: whether the pipeline makes tables. `layout`, `stored`: (lanes, fingerprint of the routes) by the file, and of the unit's progress, None: it
    has none. `topic`: None: the target has tables.
    """

    pipeline: str
    source: str
    table: str
    target: str
    place: str
    wanted: tuple[str, ...]
    there: tuple[str, ...] | None
    create: bool
    layout: tuple[int, str]
    stored: tuple[int, str] | None = None
    topic: StoredTopic | None = None


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """Of a source table `names` (db, name) on its way to a topic of a target that holds its records. `outdated`: options of the route by which they are not as they
    would be written now; `conflicts`: what would stop the unit."""

    names: tuple[str, str]
    outdated: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    debezium: bool = False


class PlannedTable(msgspec.Struct, frozen=True):
    """`what`: new, selected again, no more. `rows`, `bytes`: of the copy that follows, estimated; None: none follows."""

    source: str = msgspec.field(name="source")
    table: str = msgspec.field(name="table")
    what: str = msgspec.field(name="what")
    topic: str = msgspec.field(name="topic")
    creates_topic: bool = msgspec.field(name="creates_topic", default=False)
    rows: int | None = msgspec.field(name="rows", default=None)
    bytes: int | None = msgspec.field(name="bytes", default=None)
    note: str = msgspec.field(name="note", default="")


class PlannedTarget(msgspec.Struct, frozen=True):
    """`creates`: the table is made; else `columns` are what it lacks."""

    pipeline: str = msgspec.field(name="pipeline")
    target: str = msgspec.field(name="target")
    table: str = msgspec.field(name="table")
    creates: bool = msgspec.field(name="creates")
    columns: tuple[str, ...] = msgspec.field(name="columns")


class PlannedTopic(msgspec.Struct, frozen=True):
    """Of a topic of a target with records of the source table `table`. `stops`: the unit stops at its next change, with `why`; else rows stay as
    they are, by the route's options `outdated`, until what `remedy` says is done."""

    pipeline: str = msgspec.field(name="pipeline")
    target: str = msgspec.field(name="target")
    topic: str = msgspec.field(name="topic")
    table: str = msgspec.field(name="table")
    stops: bool = msgspec.field(name="stops")
    outdated: tuple[str, ...] = msgspec.field(name="outdated")
    why: str = msgspec.field(name="why")
    remedy: str = msgspec.field(name="remedy")


class PlannedLayout(msgspec.Struct, frozen=True):
    """`why`: what is different of a unit that has been applied; it is switched at its next takeover."""

    pipeline: str = msgspec.field(name="pipeline")
    table: str = msgspec.field(name="table")
    why: str = msgspec.field(name="why")


@dataclass(frozen=True, slots=True)
class RunPlan:
    """`asked`: what the running leader would make of its own file (REST's Reloaded), or why it would refuse; None: nothing runs."""

    tables: tuple[PlannedTable, ...] = ()
    targets: tuple[PlannedTarget, ...] = ()
    layouts: tuple[PlannedLayout, ...] = ()
    topics: tuple[PlannedTopic, ...] = ()
    asked: Mapping[str, Any] | None = None

    @property
    def copies(self) -> tuple[PlannedTable, ...]:
        return tuple(each for each in self.tables if each.rows is not None)

    def as_dict(self) -> dict[str, object]:
        """Return the documented JSON object."""
        return {
            "tables": [msgspec.to_builtins(each) for each in self.tables],
            "targets": [msgspec.to_builtins(each) for each in self.targets],
            "layouts": [msgspec.to_builtins(each) for each in self.layouts],
            "topics": [msgspec.to_builtins(each) for each in self.topics],
            "copies": {
                "tables": len(self.copies),
                "rows": sum(each.rows or 0 for each in self.copies),
                "bytes": sum(each.bytes or 0 for each in self.copies),
            },
            "reload": self.asked,
        }


def build_run_plan(
    sources: Iterable[StoredSource], flows: Iterable[StoredFlow], asked: Mapping[str, Any] | None = None
) -> RunPlan:
    """Return what the configuration changes."""
    flows = list(flows)
    tables = [each for source in sources for each in _plan_tables(source)]
    targets, layouts, topics = (
        tuple(dict.fromkeys(_plan_targets(flows))),
        tuple(_plan_layouts(flows)),
        tuple(_plan_topics(flows)),
    )
    return RunPlan(tuple(tables), targets, layouts, topics, asked)


def _plan_tables(source: StoredSource) -> Iterator[PlannedTable]:
    taken_out = {table for table, cause in source.stops.items() if cause == "deselected"}
    for table, topic in sorted(source.selected.items()):
        if table in taken_out:
            note = f"it stays as it is until it is copied: {format_copy_remedy(*find_meant_tables(table)[0])}"
            yield PlannedTable(source.name, table, AGAIN, topic, note=note)
        elif table not in source.known:
            rows, size = source.sizes.get(table, (0, 0)) if source.copies else (None, None)
            yield PlannedTable(source.name, table, NEW, topic, topic not in source.topics, rows, size)
    for table in sorted(source.known - taken_out - set(source.selected)):
        note = "its topic and the target's rows stay; selected again later, it has to be copied"
        yield PlannedTable(source.name, table, NO_MORE, "", note=note)


def _plan_targets(flows: Iterable[StoredFlow]) -> Iterator[PlannedTarget]:
    for flow in flows:
        if flow.there is None:
            if flow.create:
                yield PlannedTarget(flow.pipeline, flow.target, flow.place, True, flow.wanted)
            continue
        lacking = tuple(name for name in flow.wanted if name not in flow.there)
        if lacking:
            yield PlannedTarget(flow.pipeline, flow.target, flow.place, False, lacking)


def _plan_layouts(flows: Iterable[StoredFlow]) -> Iterator[PlannedLayout]:
    for flow in flows:
        if flow.stored is None or flow.stored == flow.layout:
            continue
        (lanes, routes), (before, were) = flow.layout, flow.stored
        why = [f"lanes {before} → {lanes}"] if lanes != before else []
        why += ["routes"] if routes != were else []
        yield PlannedLayout(flow.pipeline, f"{flow.source}:{flow.table}", " and ".join(why))


def _plan_topics(flows: Iterable[StoredFlow]) -> Iterator[PlannedTopic]:
    for flow in flows:
        if flow.topic is None:
            continue
        place = flow.pipeline, flow.target, flow.place, f"{flow.source}:{flow.table}"
        if flow.topic.conflicts:
            remedy = f"set the route back, or {START_OVER} with another topic"
            yield PlannedTopic(*place, True, (), "; ".join(flow.topic.conflicts), remedy)
        elif outdated := flow.topic.outdated:
            remedy = explain_rewrite(*flow.topic.names, debezium=flow.topic.debezium)
            yield PlannedTopic(*place, False, outdated, explain_outdated(outdated), remedy)


def plan_lines(plan: RunPlan) -> list[str]:
    """Return the plan for people, a line for each change."""
    lines = [_format_table_line(each) for each in plan.tables]
    lines += [_format_target_line(each) for each in plan.targets]
    lines += [
        f"pipeline {each.pipeline}: the layout of {each.table} changes ({each.why})" for each in plan.layouts
    ]
    lines += [_format_topic_line(each) for each in plan.topics]
    if plan.copies:
        rows, size = sum(each.rows or 0 for each in plan.copies), sum(each.bytes or 0 for each in plan.copies)
        lines.append(f"copies: {len(plan.copies)} tables, about {rows:,} rows, {format_bytes(size)}")
    return [*(lines or ["nothing changes in what is stored"]), *_format_reload_lines(plan.asked)]


def _format_table_line(each: PlannedTable) -> str:
    place = f"source {each.source}: {each.table}"
    if each.what == NO_MORE:
        return f"{place} is no more captured; {each.note}"
    if each.what == AGAIN:
        return f"{place} is selected again; {each.note}"
    topic = (
        f", topic {each.topic} is made"
        if each.creates_topic
        else f" into the topic {each.topic} that is there"
    )
    copy = (
        "its existing rows are not copied"
        if each.rows is None
        else f"about {each.rows:,} rows ({format_bytes(each.bytes or 0)}) are copied"
    )
    return f"{place} is captured newly{topic}; {copy}"


def _format_topic_line(each: PlannedTopic) -> str:
    place = f"target {each.target}: topic {each.topic}: {each.table} of pipeline {each.pipeline}"
    return f"{place}{' will stop' if each.stops else ''}: {each.why}: {each.remedy}"


def _format_target_line(each: PlannedTarget) -> str:
    place = f"target {each.target}: {each.table}"
    if each.creates:
        columns = f" with columns {', '.join(each.columns)}" if each.columns else ""
        return f"{place} is made{columns} (pipeline {each.pipeline})"
    return f"{place} lacks columns {', '.join(each.columns)} (pipeline {each.pipeline})"


def _format_reload_lines(asked: Mapping[str, Any] | None) -> list[str]:
    if asked is None:
        return ["no coordinator answers: a start takes the file as it is then"]
    if "refused" in asked:
        return [
            "the coordinator that leads would refuse its file:",
            *(f"  {line}" for line in asked["refused"]),
        ]
    lines = [f"  {each}" for each in asked["changes"]] or ["  nothing is different"]
    concerned = ", ".join([*asked["changed"], *(f"{each} (removed)" for each in asked["gone"])])
    return [
        "its own file, to the coordinator that leads:",
        *lines,
        f"  placed anew: {concerned or 'nothing'}",
    ]
