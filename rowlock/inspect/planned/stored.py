"""Reads the stored state of a system for `check --plan`, from the sources, Kafka, the targets and the
leader. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from consumer.errors import ConsumerError, TargetConfigError
from consumer.ordering.layout import Layout
from consumer.ordering.model import ApplyUnit, TopicOptions
from consumer.slots.pipeline import PipelineSettings
from consumer.tables.router import (
    ResolvedRoute,
    build_desired_table,
    build_stored_table,
    build_topic_table,
    name_columns,
)
from consumer.tables.stored import StoredDefinition, decode_stored
from consumer.tables.target_checks import explain_changed_route
from consumer.targets.base import EventTables, UnitTarget
from consumer.targets.checks.column_spelling import as_spelled
from consumer.targets.dialect import open_target
from producer.checks.preflight import names_now
from producer.errors import CaptureError
from producer.kafka.topic_reader import TopicReader
from producer.start.positions import PositionStore
from rowlock.coordinator.leader_client import LeaderClient
from rowlock.coordinator.units import list_sources_to_capture
from rowlock.errors import CommandError, NoLeaderError
from rowlock.inspect.checks.flows import TableFlow, list_flows
from rowlock.inspect.planned.plan import RunPlan, StoredFlow, StoredSource, StoredTopic, build_run_plan
from rowlock.views.kafka import KafkaView
from rowlock.views.source import estimate_tables, read_selected_tables
from rowlock.views.target import read_known_topics, read_unit_progress
from schemas.config.model import Config
from schemas.errors import EnvelopeError
from schemas.table.model import Table
from schemas.table.names import format_table_text
from schemas.wire.debezium import format_debezium_topic
from schemas.wire.records import StoredPosition, format_position_topic
from schemas.wire.topic_names import TopicNames


def read_run_plan(config: Config) -> RunPlan:
    """Return what the configuration would change. Raises CommandError if a server does not answer."""
    topics = _list_topics(config)
    tables = {name: read_selected_tables(source, name) for name, source in config.sources.items()}
    records = {
        name: _read_position(config, name)
        if format_position_topic(config.kafka.prefix, name) in topics
        else None
        for name in list_sources_to_capture(config)
    }
    names = {name: _read_topic_names(config, name, topics, record) for name, record in records.items()}
    sources = [
        _read_source(config, name, tables[name].tables, topics, record=record, names=names[name])
        for name, record in records.items()
    ]
    found = list_flows(config, {name: each.tables for name, each in tables.items()})
    stored = [each for pipeline in config.pipelines for each in _yield_flows(config, pipeline, found, names)]
    return build_run_plan(sources, stored, _ask_leader(config))


def _list_topics(config: Config) -> frozenset[str]:
    view = KafkaView(config.kafka)
    try:
        return frozenset(view.list_topics())
    finally:
        view.close()


def _read_topic_names(
    config: Config, name: str, topics: frozenset[str], record: StoredPosition | None
) -> TopicNames:
    try:
        return names_now(config, name, topics, record)
    except CaptureError as error:
        raise CommandError.wrap_error(f"source {name}: its topics cannot be read", error) from error


def _read_source(
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
    new = [table for table in tables if format_table_text(table.db, table.name) not in known]
    return StoredSource(
        name,
        {
            format_table_text(table.db, table.name): names.assign_name((table.db, table.name))
            for table in tables
        },
        known=known,
        stops={table: stop.cause for table, stop in record.stops.items()} if record else {},
        topics=topics,
        sizes=estimate_tables(source, name, [(table.db, table.name) for table in new]),
        copies=source.snapshot != "never",
    )


def _read_position(config: Config, name: str) -> StoredPosition | None:
    try:
        with TopicReader(config.kafka) as reader:
            return PositionStore(format_position_topic(config.kafka.prefix, name)).load_records(reader).newest
    except (CaptureError, EnvelopeError) as error:
        raise CommandError.wrap_error(f"source {name}: its stored position cannot be read", error) from error


def _yield_flows(
    config: Config, pipeline: str, found: list[TableFlow], names: Mapping[str, TopicNames]
) -> Iterator[StoredFlow]:
    options = config.pipelines[pipeline]
    settings = PipelineSettings.from_config(config, pipeline)
    layout = _parse_layout(settings.layout)
    mine = [flow for flow in found if flow.pipeline == pipeline]
    try:
        session = open_target(config.targets[options.target], name="rowlock check")
    except ConsumerError as error:
        raise CommandError.wrap_error(f"target {options.target}", error) from error
    try:
        known = read_known_topics(session, pipeline)
        for flow in mine:
            yield _read_flow(
                config,
                flow,
                _find_topic(config, flow, names),
                session,
                known=known,
                layout=layout,
            )
    except ConsumerError as error:
        raise CommandError.wrap_error(f"target {options.target}", error) from error
    finally:
        session.close()


def _find_topic(config: Config, flow: TableFlow, names: Mapping[str, TopicNames]) -> str:
    place = flow.table.db, flow.table.name
    found = names.get(flow.source)
    return (
        format_debezium_topic(config.kafka.prefix, flow.source, *place)
        if found is None
        else found.assign_name(place)
    )


def _read_flow(
    config: Config,
    flow: TableFlow,
    topic: str,
    session: UnitTarget,
    *,
    known: set[str],
    layout: tuple[int, str],
) -> StoredFlow:
    unit = ApplyUnit(flow.pipeline, topic)
    rows, state = read_unit_progress(session, known, unit)
    stored = (
        StoredDefinition(flow.table)
        if state is None or state.definition is None
        else decode_stored(state.definition)
    )
    named = name_columns(replace(stored, table=flow.table), flow.routed)
    columns, there = _read_columns(named, flow.routed, session)
    return StoredFlow(
        flow.pipeline,
        flow.source,
        format_table_text(flow.table.db, flow.table.name),
        flow.target,
        f"{flow.routed.schema}.{flow.routed.table}",
        columns,
        there,
        config.pipelines[flow.pipeline].create_tables,
        layout,
        _parse_layout(rows[0].layout) if rows else None,
        None
        if (options := flow.routed.topic) is None
        else _read_stored_topic(config, flow, unit, options, session),
        {name: at for name, at in named.names.items() if name not in named.route_names},
        "" if not rows else explain_changed_route(stored, flow.routed),
    )


def _read_columns(
    stored: StoredDefinition, routed: ResolvedRoute, session: UnitTarget
) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the columns of the target table as rowlock would create it, and of the real one (None: it
    does not exist).

    A topic has no columns.
    """
    place = routed.schema, routed.table
    if routed.topic is not None:
        return (), None if session.read_surroundings(*place) is None else ()
    real = session.read_table(*place)
    if real is None:
        return build_desired_table(stored.table, routed).column_names, None
    there = as_spelled(build_stored_table(stored, routed), real, routed.added_names, session.column_names)
    return there.column_names, real.column_names


def _read_stored_topic(
    config: Config, flow: TableFlow, unit: ApplyUnit, options: TopicOptions, session: UnitTarget
) -> StoredTopic:
    """Return how the records of a unit differ from what the route requires now."""
    topics = cast(EventTables, session)
    table = build_topic_table(
        build_desired_table(flow.table, flow.routed), flow.routed, flow.source, flow.table
    )
    try:
        conflicts = topics.find_write_conflicts(
            unit, table, create=config.pipelines[flow.pipeline].create_tables
        )
    except TargetConfigError as error:
        conflicts = [str(error)]
    debezium = config.sources[flow.source].events == "debezium"
    return StoredTopic(
        (flow.table.db, flow.table.name),
        topics.find_outdated_options(unit, options),
        tuple(conflicts),
        debezium,
    )


def _parse_layout(text: str) -> tuple[int, str]:
    found = Layout.decode(text)
    return found.lanes, found.routes


def _ask_leader(config: Config) -> Mapping[str, Any] | None:
    """Return what the leader would change by its file; None: no coordinator leads."""
    try:
        with LeaderClient.from_config(config) as leader:
            return leader.reload_config(dry_run=True)
    except NoLeaderError:
        return None
    except CommandError as error:
        return {"refused": str(error).splitlines()}
