"""`rowlock quarantine`: the events that a target refused, and the two ways out: apply the key's final
image, or skip it.

Both take over the unit first, with the next fencing token, so that they work beside a running pipeline:
its task is fenced, starts again, and then finds the keys released. A retry never replays the old events:
all later changes of a key were recorded with the refused event, so the last entry of a key contains its
present row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import cast

from consumer.errors import FencedError, RefusedError
from consumer.ordering.fold import recompute_folded_keys
from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    ResolvedEntry,
    TargetTable,
)
from consumer.ordering.netchange import refuse_losses
from consumer.ordering.reasons import QUEUED_AFTER, is_queued
from consumer.slots.pipeline import build_connector_modes, build_pipeline_routes
from consumer.tables.definition import ActiveDefinition, prepare_definition
from consumer.tables.held_events import build_final_change
from consumer.tables.router import TableRoute, resolve_route
from consumer.tables.stored import StoredDefinition, decode_stored, read_debt
from consumer.tables.target_checks import explain_changed_route
from consumer.targets.base import UnitTarget
from consumer.targets.batches import BatchFenced, BatchTarget, ProgressChange
from consumer.targets.session import SqlSession
from rowlock.errors import CommandError
from rowlock.inspect.near_names import propose_names
from rowlock.views.target import read_known_topics, target_session
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config
from schemas.config.servers import KafkaTargetConfig
from schemas.findings import format_copy_remedy, format_debezium_remedy
from schemas.wire.copies import RemovedRows
from schemas.wire.records import parse_topic_source


@dataclass(frozen=True, slots=True)
class QuarantinedEvent:
    """A quarantine entry with its unit."""

    pipeline: str
    target: str
    topic: str
    held: QuarantineEntry
    uncertain: bool = False
    """Whether a statement without row events may have removed its row, and a key sweep has not ended."""

    def as_dict(self) -> dict[str, object]:
        """Return the documented JSON object (with the event, which contains the row's values)."""
        return {**self.describe_entry(), "uncertain": self.uncertain}

    def describe_entry(self) -> dict[str, object]:
        """Return the fields that an event has in the quarantine and after it."""
        held = self.held
        return {
            "pipeline": self.pipeline,
            "target": self.target,
            "topic": self.topic,
            "table": held.table,
            "key": held.key,
            "offset": held.offset,
            "part": held.part,
            "error": held.error,
            "commit_ts_ms": held.commit_ts_ms,
            "event": held.event,
        }


@dataclass(frozen=True, slots=True)
class ResolvedEvent:
    """An event that was quarantined once, with its unit."""

    event: QuarantinedEvent
    resolved: ResolvedEntry

    def as_dict(self) -> dict[str, object]:
        """Return the documented JSON object (with the event, which contains the row's values)."""
        resolved = self.resolved
        return {
            **self.event.describe_entry(),
            "closed": resolved.closed,
            "held_at_ms": resolved.held_at_ms,
            "closed_at_ms": resolved.closed_at_ms,
        }


@dataclass(frozen=True, slots=True)
class EntrySelection:
    """A selection of entries. None: all."""

    pipeline: str | None = None
    topic: str | None = None
    key: str | None = None
    """JSON of the target key, as `list` prints it."""

    def matches_entry(self, entry: QuarantinedEvent) -> bool:
        selected = (self.pipeline, self.topic, self.key)
        return all(
            expected in (None, got)
            for expected, got in zip(selected, (entry.pipeline, entry.topic, entry.held.key), strict=True)
        )


@dataclass(slots=True)
class ResolveOutcome:
    """The result of resolving entries."""

    lines: list[str] = field(default_factory=list)
    complete: bool = True
    """Whether no entry of the selection is in quarantine any more."""

    def add_refusal(self, label: str, error: RefusedError) -> None:
        """Add entries that the target refuses again: they stay in quarantine."""
        self.complete = False
        self.lines.append(f"still held {label}: {error}")


def list_quarantined_events(config: Config) -> list[QuarantinedEvent]:
    """Return the quarantine of all pipelines. Raises CommandError."""
    out: list[QuarantinedEvent] = []
    for pipeline, options in config.pipelines.items():
        with target_session(config.targets[options.target], options.target, "quarantine") as session:
            for topic in sorted(read_known_topics(session, pipeline)):
                unit = ApplyUnit(pipeline, topic)
                held = session.read_quarantine(unit)
                debt = _read_debt(session, unit) if held else None
                out += [
                    QuarantinedEvent(
                        pipeline, options.target, topic, entry, debt is not None and debt.covers(entry.offset)
                    )
                    for entry in held
                ]
    return out


def _read_debt(session: UnitTarget, unit: ApplyUnit) -> RemovedRows | None:
    """Return the unit's debt; None: it has none."""
    _, state = session.read_progress(unit)
    return None if state is None or state.definition is None else read_debt(state.definition)


def list_resolved_events(config: Config, most: int) -> list[ResolvedEvent]:
    """Return the last events of each unit that left the quarantine, at most `most`, the newest first.

    Targets that take whole batches are left out (`list_other_histories`). Raises CommandError.
    """
    out: list[ResolvedEvent] = []
    for pipeline, options in config.pipelines.items():
        target = config.targets[options.target]
        if find_target_kind(target.type).batches:
            continue
        with target_session(target, options.target, "quarantine") as session:
            for topic in sorted(read_known_topics(session, pipeline)):
                unit = ApplyUnit(pipeline, topic)
                for entry in cast(SqlSession, session).read_resolved_entries(unit, most):
                    event = QuarantinedEvent(pipeline, options.target, topic, entry.entry)
                    out.append(ResolvedEvent(event, entry))
    return out


def list_other_histories(config: Config) -> list[str]:
    """Return where the history of each target is that `list_resolved_events` leaves out."""
    names = dict.fromkeys(options.target for options in config.pipelines.values())
    return [
        f"target {name}: its history is the topic {target.prefix}.rowlock_quarantine_closed"
        for name in names
        if isinstance(target := config.targets[name], KafkaTargetConfig)
    ]


def format_resolved_lines(events: Sequence[ResolvedEvent]) -> list[str]:
    """Return the listing for people, without row values, which may be confidential."""
    if not events:
        return ["nothing was resolved"]
    return [
        f"{_format_time(each.resolved.closed_at_ms)} {each.resolved.closed}: "
        f"{_format_entry(each.event)} (held since {_format_time(each.resolved.held_at_ms)})"
        for each in events
    ]


def _format_time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


NEXT_STEP = (
    "next: correct the row at the source; or correct the target, then `rowlock quarantine retry` (also if "
    "the row is still listed after the first way); or `rowlock quarantine skip`, which leaves the target's "
    "row as it is"
)


def format_quarantine_lines(entries: Sequence[QuarantinedEvent]) -> list[str]:
    """Return the listing for people, without row values, which may be confidential."""
    if not entries:
        return ["nothing is held"]
    return [*map(_format_entry, entries), NEXT_STEP]


def _format_entry(entry: QuarantinedEvent) -> str:
    held = entry.held
    part = f", part {held.part}" if held.part else ""  # of an event that is several changes in the target
    why = held.error
    if is_queued(held):
        why = f"waits for the earlier event of its key at offset{why.removeprefix(QUEUED_AFTER)}"
    return (
        f"{entry.pipeline} {entry.topic} offset {held.offset}{part} {held.table} key {held.key}: "
        f"{why}{' (a key sweep decides on it)' if entry.uncertain else ''}"
    )


def require_known_selection(config: Config, selection: EntrySelection) -> None:
    """Raise CommandError if a selection names a pipeline or topic that does not exist, or a key that is not
    held: a typing error must not look as if everything were done.
    """
    if selection.pipeline is not None and selection.pipeline not in config.pipelines:
        raise CommandError(
            f"there is no pipeline {selection.pipeline!r}",
            propose_names(selection.pipeline, config.pipelines),
        )
    if selection.topic is not None:
        topics = _list_topics(config, selection.pipeline)
        if selection.topic not in topics:
            raise CommandError(
                f"no unit applies a topic {selection.topic!r}", propose_names(selection.topic, topics)
            )
    if selection.key is not None:
        within = replace(selection, key=None)
        keys = [each.held.key for each in list_quarantined_events(config) if within.matches_entry(each)]
        if selection.key not in keys:
            raise CommandError(
                f"no held event has the key {selection.key!r}",
                f"{propose_names(selection.key, keys)} (`rowlock quarantine list` shows all)",
            )


def _list_topics(config: Config, pipeline: str | None) -> set[str]:
    """Return the topics that targets have units for. `pipeline`: only of this one."""
    topics = set[str]()
    for name, options in config.pipelines.items():
        if pipeline in (None, name):
            with target_session(config.targets[options.target], options.target, "quarantine") as session:
                topics |= read_known_topics(session, name)
    return topics


def resolve_quarantine(config: Config, how: str, selection: EntrySelection) -> ResolveOutcome:
    """Retry or skip (`how`) the selected entries. Raises CommandError."""
    chosen = [entry for entry in list_quarantined_events(config) if selection.matches_entry(entry)]
    outcome = ResolveOutcome()
    if not chosen:
        outcome.lines.append("no held event matches this selection")
    for (pipeline, topic), group in groupby(chosen, key=lambda entry: (entry.pipeline, entry.topic)):
        target = config.pipelines[pipeline].target
        with target_session(config.targets[target], target, "quarantine") as session:
            entries = [entry.held for entry in group]
            take = partial(_OwnedUnit.take_over, config, session, ApplyUnit(pipeline, topic))
            _resolve_owned(take, how, entries, outcome)
    return outcome


def _resolve_owned(
    take: Callable[[], _OwnedUnit], how: str, entries: list[QuarantineEntry], outcome: ResolveOutcome
) -> None:
    """Take over the unit and resolve. A running pipeline may take it back in between; then it is taken
    over again.
    """
    for last in (False, False, False, True):
        try:
            _resolve_unit(take(), how, entries, outcome)
        except FencedError:
            if last:
                raise
            continue
        return


@dataclass(slots=True)
class _OwnedUnit:
    """A unit that this command has taken over: no other process can write to it now."""

    config: Config
    session: UnitTarget
    unit: ApplyUnit
    guards: list[LaneProgress]
    active: ActiveDefinition

    def close_entries(self, ids: list[tuple[int, int]], net: NetChange | None, why: str) -> None:
        """Remove entries from the quarantine, and write `net` together with that. Raises the errors
        of writing a row.
        """
        if net is not None:
            refuse_losses(net)
        target = self.config.targets[self.config.pipelines[self.unit.pipeline].target]
        if find_target_kind(target.type).batches:
            change = ProgressChange(self.guards, self.guards, closed=ids, why=why)
            ended = cast(BatchTarget, self.session).apply_changes(
                self.unit, [] if net is None else [net], change
            )
            if isinstance(ended, BatchFenced):
                raise FencedError(f"another worker now owns {self.unit.topic}: {ended.seen}")
            return
        session = cast(SqlSession, self.session)
        with session.begin_transaction(self.unit, self.guards) as transaction:
            if net is not None:
                transaction.apply_net_change(net)
            transaction.close_held(ids, why)

    @classmethod
    def take_over(cls, config: Config, session: UnitTarget, unit: ApplyUnit) -> _OwnedUnit:
        lanes, before = session.read_progress(unit)
        if not lanes or before is None or before.definition is None:
            raise CommandError(f"{unit.topic}: the target has no progress of pipeline {unit.pipeline} for it")
        options = config.pipelines[unit.pipeline]
        source = parse_topic_source(unit.topic)
        routes = build_pipeline_routes(config, options)
        stored = decode_stored(before.definition)
        debezium = build_connector_modes(config.sources.get(source))
        _require_stored_names(stored, source, routes, debezium=debezium is not None)
        epoch, _, _ = session.take_over(unit, lanes[0].topic_id, lanes[0].layout, len(lanes))
        if before.stopped:
            # the reason why it waits for a person has not changed
            session.stop_unit(unit, epoch, before.stopped, was=before.stopped)
        guards, _, _ = session.begin_attempt(unit, epoch)
        return cls(
            config,
            session,
            unit,
            guards,
            prepare_definition(
                session,
                stored,
                source_name=source,
                routes=routes,
                create=False,
                debezium=debezium,
            ),
        )


def _require_stored_names(
    stored: StoredDefinition, source: str, routes: tuple[TableRoute, ...], *, debezium: bool
) -> None:
    """Raise CommandError if the target table still waits for a copy that gives its columns the route's names:
    a row would be written under names that mean other columns there.
    """
    table = stored.table
    if why := explain_changed_route(stored, resolve_route(routes, source, table.db, table.name)):
        remedy = (format_debezium_remedy if debezium else format_copy_remedy)(table.db, table.name)
        raise CommandError(why, remedy)


def _resolve_unit(
    taken: _OwnedUnit, how: str, chosen: list[QuarantineEntry], outcome: ResolveOutcome
) -> None:
    held = taken.session.read_quarantine(taken.unit)  # read again: no other process writes to it now
    for entries in group_by_target_key(taken.active.target, chosen, held):
        _resolve_key(taken, how, entries, outcome)


def group_by_target_key(
    target: TargetTable, chosen: Iterable[QuarantineEntry], held: Iterable[QuarantineEntry]
) -> list[list[QuarantineEntry]]:
    """Return the entries of `held`, in a list for each key that `target` considers equal to one of
    `chosen`. Pure.

    They are all entries of a key, also those of another version of rowlock: a retry applies the last
    one.
    """
    groups: dict[str, list[QuarantineEntry]] = {}
    for entry in recompute_folded_keys(held, target):
        groups.setdefault(entry.folded, []).append(entry)
    folded_keys = sorted({entry.folded for entry in recompute_folded_keys(chosen, target)})
    return [groups[folded] for folded in folded_keys if folded in groups]


def _resolve_key(
    taken: _OwnedUnit, how: str, entries: list[QuarantineEntry], outcome: ResolveOutcome
) -> None:
    ids = [(entry.offset, entry.part) for entry in entries]
    label = f"{taken.unit.topic} {entries[0].table} key {entries[-1].key}"
    try:
        net = _build_retry(taken.active, entries) if how == "retry" else None
        taken.close_entries(ids, net, f"by rowlock quarantine {how}")
    except RefusedError as error:
        outcome.add_refusal(label, error)
        return
    outcome.lines.append(f"{'applied' if net is not None else 'skipped'} {label}: {len(ids)} events")


def _build_retry(active: ActiveDefinition, entries: Sequence[QuarantineEntry]) -> NetChange:
    """Return the change that writes a key's final image.

    Raises RefusedError if it cannot be read, or if a statement may have removed its row at the source: a key
    sweep that has passed the key would leave the row in the target for ever.
    """
    debt = active.stored.removed
    newest = {entry.key: entry.offset for entry in sorted(entries, key=lambda each: (each.offset, each.part))}
    if debt is None or not any(map(debt.covers, newest.values())):
        return build_final_change(active, entries)
    raise RefusedError(
        f"the source may have removed its row ({debt.ddl}), and the key sweep that finds out has not ended",
        "wait until `rowlock copy` shows that the sweep of the table is done: it closes the entries of keys "
        "that the source no longer has, and the others are tried again",
    )
