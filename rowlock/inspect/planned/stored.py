"""Reads what is stored of a system, for `check --plan`: asked of the sources, of Kafka, of the targets and of the leader. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from consumer.errors import ConsumerError, TargetConfigError
from consumer.ordering.layout import Layout
from consumer.ordering.model import ApplyUnit, TopicOptions
from consumer.spark.pipeline import PipelineSettings
from consumer.tables.router import topic_table, wanted_table
from consumer.targets.base import EventTables, UnitTarget
from consumer.targets.checks.column_spelling import as_spelled
from consumer.targets.dialect import open_target
from producer.checks.preflight import names_now
from producer.errors import CaptureError
from producer.kafka.topic_reader import TopicReader
from producer.resume.positions import PositionStore
from rowlock.coordinator.leader_client import LeaderClient
from rowlock.coordinator.units import captured_sources
from rowlock.errors import CommandError
from rowlock.inspect.checks.flows import Flow, flows
from rowlock.inspect.planned.plan import RunPlan, StoredFlow, StoredSource, StoredTopic, planned
from rowlock.views.kafka import KafkaView
from rowlock.views.source import estimates, selected_tables
from rowlock.views.target import TargetView, known_topics, progress
from schemas.config.model import Config
from schemas.errors import EnvelopeError
from schemas.table.model import Table
from schemas.table.names import table_text
from schemas.wire.debezium import debezium_topic
from schemas.wire.records import StoredPosition, position_topic
from schemas.wire.topic_names import TopicNames


def plan_of(config: Config) -> RunPlan:
    """Return what the configuration would change. Raises CommandError where a server does not answer."""
    topics = _topics(config)
    tables = {name: selected_tables(source, name) for name, source in config.sources.items()}
    records = {
        name: _position(config, name) if position_topic(config.kafka.prefix, name) in topics else None
        for name in captured_sources(config)
    }
    names = {name: _names(config, name, topics, record) for name, record in records.items()}
    sources = [
        _source(config, name, tables[name].tables, topics, record=record, names=names[name])
        for name, record in records.items()
    ]
    found = flows(config, {name: each.tables for name, each in tables.items()})
    stored = [each for pipeline in config.pipelines for each in _flows(config, pipeline, found, names)]
    return planned(sources, stored, _asked(config))


def _topics(config: Config) -> frozenset[str]:
    view = KafkaView(config.kafka)
    try:
        return frozenset(view.all_topics())
    finally:
        view.close()


def _names(config: Config, name: str, topics: frozenset[str], record: StoredPosition | None) -> TopicNames:
    try:
        return names_now(config, name, topics, record)
    except CaptureError as error:
        raise CommandError(f"source {name}: its topics cannot be read: {error}") from error


def _source(
    config: Config,
    name: str,
    tables: list[Table],
    topics: frozenset[str],
    *,
    record: StoredPosition | None,
    names: TopicNames,
) -> StoredSource:
    source = config.sources[name]
    known = frozenset(record.anchors) | frozenset(record.snapshot_done) if record else frozenset[str]()
    new = [table for table in tables if table_text(table.db, table.name) not in known]
    return StoredSource(
        name,
        {table_text(table.db, table.name): names.of((table.db, table.name)) for table in tables},
        known=known,
        stops={table: stop.cause for table, stop in record.stops.items()} if record else {},
        topics=topics,
        sizes=estimates(source, name, [(table.db, table.name) for table in new]),
        copies=source.snapshot != "never",
    )


def _position(config: Config, name: str) -> StoredPosition | None:
    try:
        with TopicReader(config.kafka) as reader:
            return PositionStore(position_topic(config.kafka.prefix, name)).load(reader).newest
    except (CaptureError, EnvelopeError) as error:
        raise CommandError(f"source {name}: its stored position cannot be read: {error}") from error


def _flows(
    config: Config, pipeline: str, found: list[Flow], names: Mapping[str, TopicNames]
) -> Iterator[StoredFlow]:
    options = config.pipelines[pipeline]
    settings = PipelineSettings.of(config, pipeline, slots=1)
    layout = _layout(settings.layout)
    mine = [flow for flow in found if flow.pipeline == pipeline]
    try:
        session = open_target(config.targets[options.target], name="rowlock check")
    except ConsumerError as error:
        raise CommandError(f"target {options.target}: {error}") from error
    try:
        known = known_topics(cast(TargetView, session), pipeline)
        for flow in mine:
            yield _flow(
                config,
                flow,
                _topic(config, flow, names),
                cast(UnitTarget, session),
                known=known,
                layout=layout,
            )
    except ConsumerError as error:
        raise CommandError(f"target {options.target}: {error}") from error
    finally:
        session.close()


def _topic(config: Config, flow: Flow, names: Mapping[str, TopicNames]) -> str:
    place = flow.table.db, flow.table.name
    found = names.get(flow.source)
    return debezium_topic(config.kafka.prefix, flow.source, *place) if found is None else found.of(place)


def _flow(
    config: Config, flow: Flow, topic: str, session: UnitTarget, *, known: set[str], layout: tuple[int, str]
) -> StoredFlow:
    columns, there = _columns(flow, session)
    unit = ApplyUnit(flow.pipeline, topic)
    rows, _ = progress(cast(TargetView, session), known, unit)
    return StoredFlow(
        flow.pipeline,
        flow.source,
        table_text(flow.table.db, flow.table.name),
        flow.target,
        f"{flow.routed.schema}.{flow.routed.table}",
        columns,
        there,
        config.pipelines[flow.pipeline].create_tables,
        layout,
        _layout(rows[0].layout) if rows else None,
        None
        if (options := flow.routed.topic) is None
        else _stored_topic(config, flow, unit, options, session),
    )


def _columns(flow: Flow, session: UnitTarget) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the columns of the target table as rowlock would make it, and of the real one, None: it is not there. A topic has none."""
    place = flow.routed.schema, flow.routed.table
    if flow.routed.topic is not None:
        return (), None if session.surroundings(*place) is None else ()
    real = session.read_table(*place)
    wanted = wanted_table(flow.table, flow.routed)
    if real is None:
        return wanted.column_names, None
    there = as_spelled(wanted, real, flow.routed.added_names, session.column_names)
    return there.column_names, real.column_names


def _stored_topic(
    config: Config, flow: Flow, unit: ApplyUnit, options: TopicOptions, session: UnitTarget
) -> StoredTopic:
    """Return how the records of a unit stand to what the route says now."""
    topics = cast(EventTables, session)
    table = topic_table(wanted_table(flow.table, flow.routed), flow.routed, flow.source, flow.table)
    try:
        conflicts = topics.conflicts(unit, table, create=config.pipelines[flow.pipeline].create_tables)
    except TargetConfigError as error:
        conflicts = [str(error)]
    debezium = config.sources[flow.source].events == "debezium"
    return StoredTopic(
        (flow.table.db, flow.table.name), topics.outdated(unit, options), tuple(conflicts), debezium
    )


def _layout(text: str) -> tuple[int, str]:
    found = Layout.decode(text)
    return found.lanes, found.routes


def _asked(config: Config) -> Mapping[str, Any] | None:
    """Return what the leader would make of its file; None: nobody leads."""
    try:
        with LeaderClient.of(config) as leader:
            return leader.reload(dry_run=True)
    except CommandError as error:
        text = str(error)
        return None if text.startswith("no coordinator took the command") else {"refused": text.splitlines()}
