"""`rowlock check`: all that would stop a run, found before it, each with its remedy.

Each part knows its own needs: capture's preflight judges a source, the target's dialect judges its
tables. They are asked in order. A part that cannot be asked (no connection) is a finding itself, and
does not end the check.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

from consumer.errors import ConsumerError, MissingGrantError, SparkStartError, TargetConfigError
from consumer.spark.executor_files import list_file_checks
from consumer.spark.supported_versions import require_supported_spark
from consumer.tables.router import (
    build_desired_table,
    build_topic_table,
    find_duplicate_columns,
    name_columns,
)
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import judge_target_table
from consumer.targets.base import EventTables, UnitTarget
from consumer.targets.checks.rights import MissingRight, TablePlace
from consumer.targets.checks.table_findings import (
    check_session,
    report_missing_rights,
)
from consumer.targets.dialect import open_target
from consumer.targets.session import SqlSession
from rowlock.errors import CommandError
from rowlock.inspect.checks.certificate_check import (
    yield_broker_findings,
    yield_certificate_findings,
    yield_server_findings,
)
from rowlock.inspect.checks.coordination_check import yield_coordination_findings
from rowlock.inspect.checks.debezium_check import yield_debezium_findings
from rowlock.inspect.checks.emptied_kafka import yield_emptied_kafka_findings
from rowlock.inspect.checks.flows import (
    TableFlow,
    TargetPlace,
    group_flows,
    list_flows,
    yield_rename_findings,
)
from rowlock.inspect.checks.kafka_check import KafkaAnswer, ask_kafka
from rowlock.inspect.checks.label_check import yield_ambiguous_row_findings
from rowlock.inspect.checks.pipeline_check import (
    attach_shared_scope,
    yield_route_findings,
    yield_shared_table_findings,
)
from rowlock.inspect.checks.unit_definitions import (
    UnitDefinitions,
    find_judged_definition,
    map_unit_definitions,
    yield_unfollowed_change_findings,
)
from rowlock.inspect.missing_tables import map_missing_findings
from rowlock.inspect.scopes import FindingScope, ScopedFinding, attach_scope, attach_source_scopes
from rowlock.views.source import read_selected_tables, read_source_expiry
from rowlock.views.target import explain_wrong_target, read_unit_definitions
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config, PipelineConfig, SparkConfig
from schemas.errors import SchemaError, ServerConnectError
from schemas.findings import NO_TABLE, Finding, build_error_finding, build_no_table_finding
from schemas.problems import Problem, ProblemError
from schemas.table.model import Table
from schemas.table.names import EXACT
from schemas.table.patterns import is_pattern_match


def list_findings(config: Config) -> list[Finding]:
    """Return all findings, each once. Nothing is written."""
    return list(dict.fromkeys(each.finding for each in list_scoped_findings(config)))


def list_scoped_findings(config: Config, unreached: Problem | None = None) -> list[ScopedFinding]:
    """Return all findings with their scopes, errors that affect everything first. Nothing is written.

    `unreached`: why Kafka does not answer, if that is known already. Kafka is not asked again then.
    """
    topics, problem = ask_kafka(config.kafka) if unreached is None else KafkaAnswer(problem=unreached)
    has_kafka = problem is None
    found = attach_scope(
        FindingScope.EVERYTHING,
        "",
        [
            *_yield_java_findings(),
            *_yield_spark_findings(config.spark),
            *_yield_state_dir_findings(config),
            *yield_coordination_findings(config),
            *yield_certificate_findings(config),
            *(yield_broker_findings(config) if has_kafka else ()),
        ],
    )
    if problem is not None:
        place = config.find_line("kafka", "bootstrap")
        found.append(ScopedFinding(build_error_finding(place, problem), FindingScope.KAFKA))
    tables: dict[str, list[Table]] = {}
    for name in config.sources:
        debezium = config.sources[name].events == "debezium"
        findings = [] if debezium else _list_source_findings(config, name, asks_kafka=has_kafka)
        findings = [*findings, *_yield_table_findings(config, name, tables, findings)]
        if debezium:
            findings += yield_debezium_findings(config, name, tables[name])
        read_expiry = partial(read_source_expiry, config.sources[name], name)
        findings += yield_server_findings(config, ("sources", name), config.sources[name].tls, read_expiry)
        found += attach_source_scopes(name, findings)
    flows = list_flows(config, tables)
    found += _yield_missing_tables(config, flows) if has_kafka else ()
    applied: list[tuple[str, str]] = []
    found += _yield_target_findings(config, flows, tables, applied)
    for name in config.sources if has_kafka else ():
        found += attach_source_scopes(name, yield_emptied_kafka_findings(config, name, topics, applied))
    return found


def _yield_missing_tables(config: Config, flows: list[TableFlow]) -> Iterator[ScopedFinding]:
    """Yield the findings about tables that are followed and that their sources lack."""
    try:
        for name, findings in map_missing_findings(config, flows).items():
            yield from attach_source_scopes(name, findings)
    except CommandError as error:
        place, problem = config.find_line("kafka", "bootstrap"), error.problem
        unknown = Finding("warning", place, problem.what, problem.action)
        yield ScopedFinding(unknown, FindingScope.KAFKA)


def _build_finding(place: str, message: str, remedy: str = "") -> Finding:
    return Finding("error", place, message, remedy)


def _yield_java_findings() -> Iterator[Finding]:
    from deploy.errors import EmbeddedError
    from deploy.fetch.java import find_java

    try:
        find_java()
    except EmbeddedError as error:
        yield _build_finding("java", error.seen, error.remedy)


def _yield_spark_findings(spark: SparkConfig) -> Iterator[Finding]:
    for check_part in (require_supported_spark, *list_file_checks(spark)):
        try:
            check_part()
        except SparkStartError as error:
            yield build_error_finding("spark", error.problem)


def _yield_state_dir_findings(config: Config) -> Iterator[Finding]:
    """Yield a finding unless files can be created in `state_dir`: a file is created and removed again."""
    folder = config.state_dir
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="check-") as file:
            file.write(b"rowlock")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        yield _build_finding(
            config.find_line("state_dir"),
            f"state_dir {folder}: no file can be written there: {error.strerror or error}",
            f"give the user {getpass.getuser()} the right to write there, or name another folder",
        )
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _list_source_findings(config: Config, name: str, *, asks_kafka: bool) -> list[Finding]:
    from producer.checks.preflight import check_source

    return check_source(config, name, asks_kafka=asks_kafka)


def _yield_table_findings(
    config: Config, name: str, tables: dict[str, list[Table]], findings: list[Finding]
) -> Iterator[Finding]:
    """Note the source's tables for the targets. Findings of the preflight about them or the server are
    not repeated.
    """
    tables[name] = []
    try:
        selected = read_selected_tables(config.sources[name], name)
    except CommandError as error:
        if not any(each.level == "error" for each in findings):
            yield _build_unreached_finding(config, name, error)
        return
    tables[name] = selected.tables
    places = {each.place for each in findings}
    for (db, table), problem in selected.unfit.items():
        if (place := f"source {name}, table {db}.{table}") not in places:
            yield build_error_finding(place, problem)
    if not selected.tables and not selected.unfit and not any(NO_TABLE in each.message for each in findings):
        yield build_no_table_finding(f"source {name}", config.sources[name].tables)


def _build_unreached_finding(config: Config, name: str, error: CommandError) -> Finding:
    """Return the finding for a source that cannot be reached.

    For a source that Debezium captures it is only a warning: its events of tables with a stored
    definition can be applied without it.
    """
    why, place = error.__cause__, config.find_line("sources", name)
    if config.sources[name].events == "debezium" and isinstance(why, ServerConnectError) and why.transient:
        remedy = "it is needed for tables that are applied for the first time: start it"
        return Finding("warning", place, error.problem.what, remedy)
    return build_error_finding(place, error.problem)


def _yield_target_findings(
    config: Config,
    found: list[TableFlow],
    tables: dict[str, list[Table]],
    applied: list[tuple[str, str]],
) -> Iterator[ScopedFinding]:
    """Note in `applied` the topics that targets have applied, as (target, topic)."""
    for name, options in config.pipelines.items():
        mine = [flow for flow in found if flow.pipeline == name]
        found_renames = yield_rename_findings(config, name, mine)
        yield from attach_scope(FindingScope.SETTING, name, found_renames)
        target = options.target
        try:
            session = open_target(config.targets[target], name="rowlock check")
        except ConsumerError as error:
            yield from yield_route_findings(config, name, mine, group_flows(found), tables)
            yield ScopedFinding(_build_unasked_finding(config, target, error), FindingScope.TARGET, target)
            continue
        try:
            by_place = group_flows(found, session.table_names)
            yield from yield_route_findings(config, name, mine, by_place, tables)
            hidden = frozenset[TablePlace]()
            if not find_target_kind(config.targets[target].type).batches:
                yield from attach_scope(
                    FindingScope.TARGET, target, check_session(cast(SqlSession, session), f"target {target}")
                )
                expiring = yield_server_findings(
                    config, ("targets", target), config.targets[target].tls,
                    partial(SqlSession.read_certificate_expiry, cast(SqlSession, session)),
                )  # fmt: skip
                yield from attach_scope(FindingScope.TARGET, target, expiring)
                missing = cast(SqlSession, session).find_missing_rights(
                    sorted({flow.place[1:] for flow in mine}),
                    create=options.create_tables,
                    alter={flow.place[1:] for flow in mine if _follows_source_schema(options, flow)},
                    drop={flow.place[1:] for flow in mine if options.on_drop == "drop"},
                )
                yield from _yield_right_findings(target, missing)
                hidden = hidden.union(*(each.hides for each in missing))
            seen_flows = [flow for flow in mine if flow.place[1:] not in hidden]
            stored = read_unit_definitions(session, name)
            applied += ((target, topic) for topic in stored)
            units = map_unit_definitions(stored)
            yield from _judge_target_tables(config, seen_flows, by_place, session, units)
            debezium = {
                (flow.table.db, flow.table.name)
                for flow in mine
                if config.sources[flow.source].events == "debezium"
            }
            yield from attach_scope(
                FindingScope.TABLE,
                target,
                yield_ambiguous_row_findings(stored.values(), debezium),
            )
        except (ConsumerError, SchemaError) as error:
            yield ScopedFinding(_build_unasked_finding(config, target, error), FindingScope.TARGET, target)
        finally:
            session.close()


def _follows_source_schema(options: PipelineConfig, flow: TableFlow) -> bool:
    """Return whether the target's table follows schema changes of the source."""
    own = (
        route.schema_changes
        for route in options.routes
        if is_pattern_match(route.from_, flow.table.db, flow.table.name)
    )
    return (next(own, None) or options.schema_changes) in ("lenient", "evolve")


def _yield_right_findings(target: str, missing: list[MissingRight]) -> Iterator[ScopedFinding]:
    """Yield the findings about missing rights. A right that hides tables affects only those."""
    for each in missing:
        (finding,) = report_missing_rights([each], f"target {target}")
        yield ScopedFinding(finding, FindingScope.TABLE if each.hides else FindingScope.TARGET, target)


def _build_unasked_finding(config: Config, target: str, error: ProblemError) -> Finding:
    where = config.find_line("targets", target)
    if isinstance(error, MissingGrantError):
        return _build_finding(where, f"target {target}: {error.seen}", error.statement)
    problem = explain_wrong_target(config.targets[target], error) or error.problem
    return build_error_finding(where, problem.add_place(f"target {target}"))


def _judge_target_tables(
    config: Config,
    mine: list[TableFlow],
    by_place: Mapping[TargetPlace, list[TableFlow]],
    session: UnitTarget,
    units: UnitDefinitions,
) -> Iterator[ScopedFinding]:
    """Judge each target table for every source that feeds it, because each may be wider, or compare
    finer, than another.
    """
    reported: set[Finding] = set()
    for flow in mine:
        for each in _judge_flow(config, flow, by_place[flow.place], session, units, flows=len(mine)):
            if each.finding not in reported:
                reported.add(each.finding)
                yield each


def _judge_flow(
    config: Config,
    flow: TableFlow,
    feeding: list[TableFlow],
    session: UnitTarget,
    units: UnitDefinitions,
    *,
    flows: int,
) -> Iterator[ScopedFinding]:
    """Judge one flow. Findings that a unit makes itself at its takeover affect the table; those about
    other sources, all tables with its place. `feeding`: the flows to that place; `flows`: the number of all
    flows of the pipeline.
    """
    expected = build_desired_table(flow.table, flow.routed)
    if flow.routed.topic is not None:
        yield from attach_scope(
            FindingScope.TABLE, flow.target, _judge_topic(config, flow, cast(EventTables, session))
        )
        return
    defined = find_judged_definition(flow, units)
    own = judge_target_table(session, defined, flow.routed)
    own += yield_unfollowed_change_findings(flow, defined, session)
    yield from attach_scope(FindingScope.TABLE, flow.target, own)
    if len(feeding) > 1:
        more = yield_shared_table_findings(flow, feeding, session, defined, own)
        yield from attach_shared_scope(config, flow.pipeline, feeding, more, flows=flows)
    if (
        not config.pipelines[flow.pipeline].create_tables
        and session.read_table(expected.db, expected.name) is None
    ):
        remedy = "create it, or set create_tables: true"
        missing = _build_finding(
            f"target table {expected.db}.{expected.name}", "does not exist in the target", remedy
        )
        yield ScopedFinding(missing, FindingScope.TABLE, flow.target)


def _judge_topic(config: Config, flow: TableFlow, session: EventTables) -> Iterator[Finding]:
    """Judge a topic by what would stop a unit when it opens it."""
    twice = find_duplicate_columns(
        name_columns(StoredDefinition(flow.table), flow.routed), flow.routed, EXACT
    )
    if twice:
        yield from twice
        return
    expected = build_topic_table(
        build_desired_table(flow.table, flow.routed), flow.routed, flow.source, flow.table
    )
    try:
        session.judge_topic(expected, create=config.pipelines[flow.pipeline].create_tables)
    except TargetConfigError as error:
        yield build_error_finding(f"topic {flow.place[1]}.{flow.place[2]}", error.problem)
