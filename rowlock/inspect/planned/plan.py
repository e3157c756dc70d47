"""Finds what a configuration would change: captured tables, topics, copies and their size, target
tables, layouts. Pure.

It is compared with stored state (position records, topics, target tables, progress), so it is right
whether the system runs or not.
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
    """The stored state of one source that rowlock captures."""

    name: str
    selected: Mapping[str, str]
    """"db.table" → its topic, by the file, for tables that can be captured."""
    known: frozenset[str] = frozenset()
    """The captured tables by the position record, as "db.table"."""
    stops: Mapping[str, str] = field(default_factory=dict)
    """"db.table" → cause."""
    topics: frozenset[str] = frozenset()
    """The topics in Kafka."""
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """"db.table" → (rows, bytes), estimated by the server."""
    copies: bool = True
    """Whether the rows of a new table are copied (`snapshot`)."""


@dataclass(frozen=True, slots=True)
class StoredFlow:
    """A source table and the stored state of its target."""

    pipeline: str
    source: str
    table: str
    target: str
    place: str
    expected: tuple[str, ...]
    """The columns of the target table as rowlock would create it."""
    there: tuple[str, ...] | None
    """The columns of the real table; None: it does not exist."""
    create: bool
    """Whether the pipeline creates tables."""
    layout: tuple[int, str]
    """(lanes, fingerprint of the routes) by the file."""
    stored: tuple[int, str] | None = None
    """The same by the unit's progress; None: it has none."""
    topic: StoredTopic | None = None
    """None: the target has tables."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Columns that the unit writes under another name, not by the route: source name → target name."""
    renamed: str = ""
    """Why a changed `to` or `rename` of the route needs a copy of the table; "": both are as they were."""


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """The records of the source table `names` (db, name) in a topic of a target."""

    names: tuple[str, str]
    outdated: tuple[str, ...] = ()
    """The options of the route that differ from those with which the records were written."""
    conflicts: tuple[str, ...] = ()
    """What would stop the unit."""
    debezium: bool = False


class PlannedTable(msgspec.Struct, frozen=True):
    """A table that is captured newly, again, or no more."""

    source: str = msgspec.field(name="source")
    table: str = msgspec.field(name="table")
    what: str = msgspec.field(name="what")
    """"new", "selected again" or "no more"."""
    topic: str = msgspec.field(name="topic")
    creates_topic: bool = msgspec.field(name="creates_topic", default=False)
    rows: int | None = msgspec.field(name="rows", default=None)
    """The estimated rows of the copy that follows; None: none follows."""
    bytes: int | None = msgspec.field(name="bytes", default=None)
    """The estimated bytes of that copy."""
    note: str = msgspec.field(name="note", default="")


class PlannedTarget(msgspec.Struct, frozen=True):
    """A change of a target table."""

    pipeline: str = msgspec.field(name="pipeline")
    target: str = msgspec.field(name="target")
    table: str = msgspec.field(name="table")
    creates: bool = msgspec.field(name="creates")
    """Whether the table is created."""
    columns: tuple[str, ...] = msgspec.field(name="columns")
    """The columns of the created table, or else those that the table lacks."""


class PlannedTopic(msgspec.Struct, frozen=True):
    """A topic of a target with records of the source table `table`, written by an earlier route."""

    pipeline: str = msgspec.field(name="pipeline")
    target: str = msgspec.field(name="target")
    topic: str = msgspec.field(name="topic")
    table: str = msgspec.field(name="table")
    stops: bool = msgspec.field(name="stops")
    """Whether the unit stops at its next change, because of `why`; otherwise rows stay as they are until
    `remedy` is carried out.
    """
    outdated: tuple[str, ...] = msgspec.field(name="outdated")
    """The options of the route that have changed."""
    why: str = msgspec.field(name="why")
    remedy: str = msgspec.field(name="remedy")


class PlannedLayout(msgspec.Struct, frozen=True):
    """A change of layout of a unit that has been applied; it takes effect at its next takeover."""

    pipeline: str = msgspec.field(name="pipeline")
    table: str = msgspec.field(name="table")
    why: str = msgspec.field(name="why")
    """What is different."""


@dataclass(frozen=True, slots=True)
class PlannedRename:
    """A column of the source table `table` that is written to a column of another name. Nothing changes
    it but the source."""

    pipeline: str
    target: str
    place: str
    """The target table."""
    table: str
    column: str
    target_column: str


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The changes that a configuration would make."""

    tables: tuple[PlannedTable, ...] = ()
    targets: tuple[PlannedTarget, ...] = ()
    layouts: tuple[PlannedLayout, ...] = ()
    topics: tuple[PlannedTopic, ...] = ()
    renames: tuple[PlannedRename, ...] = ()
    renamed: tuple[str, ...] = ()
    """Lines about tables that are copied because the route's `rename` has changed."""
    asked: Mapping[str, Any] | None = None
    """What the running leader would change by its own file (REST's Reloaded), or why it would refuse;
    None: no leader runs.
    """

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
    renamed = tuple(
        f"target {flow.target}: {flow.renamed} (pipeline {flow.pipeline})" for flow in flows if flow.renamed
    )
    return RunPlan(tuple(tables), targets, layouts, topics, tuple(_list_renames(flows)), renamed, asked)


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
                yield PlannedTarget(flow.pipeline, flow.target, flow.place, True, flow.expected)
            continue
        lacking = tuple(name for name in flow.expected if name not in flow.there)
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


def _list_renames(flows: Iterable[StoredFlow]) -> Iterator[PlannedRename]:
    for flow in flows:
        for column, there in sorted(flow.names.items()):
            yield PlannedRename(
                flow.pipeline, flow.target, flow.place, f"{flow.source}:{flow.table}", column, there
            )


def plan_lines(plan: RunPlan) -> list[str]:
    """Return the plan for people, one line for each change."""
    lines = [_format_table_line(each) for each in plan.tables]
    lines += [_format_target_line(each) for each in plan.targets]
    lines += [
        f"pipeline {each.pipeline}: the layout of {each.table} changes ({each.why})" for each in plan.layouts
    ]
    lines += [_format_topic_line(each) for each in plan.topics]
    lines += plan.renamed
    if plan.copies:
        rows, size = sum(each.rows or 0 for each in plan.copies), sum(each.bytes or 0 for each in plan.copies)
        lines.append(f"copies: {len(plan.copies)} tables, about {rows:,} rows, {format_bytes(size)}")
    kept = map(_format_rename_line, plan.renames)
    return [*(lines or ["nothing changes in what is stored"]), *kept, *_format_reload_lines(plan.asked)]


def _format_table_line(each: PlannedTable) -> str:
    place = f"source {each.source}: {each.table}"
    if each.what == NO_MORE:
        return f"{place} is no longer captured; {each.note}"
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


def _format_rename_line(each: PlannedRename) -> str:
    return (
        f"target {each.target}: {each.place}: the column {each.column} of {each.table} is written to the "
        f"column {each.target_column} until the source renames or drops it (pipeline {each.pipeline})"
    )


def _format_reload_lines(asked: Mapping[str, Any] | None) -> list[str]:
    if asked is None:
        return ["no coordinator answers: the next start reads the file as it is then"]
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
        f"  placed again: {concerned or 'nothing'}",
    ]
