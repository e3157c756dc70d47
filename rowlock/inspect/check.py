"""`rowlock check`: everything that would stop a run, found before it, each with what to do about it.

The parts know what they need: capture's own preflight judges a source, the target's dialect judges its tables. Here they
are asked in order, and one that cannot be asked (no connection) is a finding itself, not the end of the check.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from collections.abc import Iterator
from typing import cast

from consumer.errors import ConsumerError, MissingGrantError, TargetConfigError, TransientError
from consumer.spark.query import slots_of
from consumer.tables.fitness import judged
from consumer.tables.router import given_twice, topic_table, wanted_table
from consumer.targets.base import EventTables
from consumer.targets.checks.rights import MissingRight, Place
from consumer.targets.checks.table_findings import (
    Inspectable,
    findings_for_rights,
    findings_for_session,
)
from consumer.targets.dialect import dialect_of, open_target
from consumer.targets.session import SqlSession
from rowlock.errors import CommandError
from rowlock.inspect.checks.coordination_check import coordination_findings
from rowlock.inspect.checks.debezium_check import debezium_findings
from rowlock.inspect.checks.flows import Flow, flows, not_kept_apart
from rowlock.inspect.checks.label_check import ambiguous_rows
from rowlock.inspect.scopes import Scope, ScopedFinding, about, of_source
from rowlock.views.kafka import KafkaView
from rowlock.views.source import selected_tables
from rowlock.views.target import TargetView
from schemas.config.kinds.targets import target_kind
from schemas.config.model import Config, PipelineConfig
from schemas.errors import SchemaError, ServerConnectError
from schemas.findings import NO_TABLE, Finding, no_table_yet
from schemas.io.endpoints import KAFKA, addresses, blamed
from schemas.table.model import Table
from schemas.table.names import EXACT
from schemas.table.patterns import matches


def check(config: Config) -> list[Finding]:
    """Return all findings, each once. Nothing is written anywhere."""
    return list(dict.fromkeys(each.finding for each in look(config)))


def look(config: Config) -> list[ScopedFinding]:
    """Return all findings with what each is about, errors that concern everything first. Nothing is written anywhere."""
    unreachable = list(_kafka(config))
    found = about(
        Scope.EVERYTHING,
        "",
        [*_java(), *_spark(config), *_state_dir(config), *coordination_findings(config), *unreachable],
    )
    tables: dict[str, list[Table]] = {}
    for name in config.sources:
        debezium = config.sources[name].events == "debezium"
        # the preflight also looks at the topics
        told = [] if unreachable or debezium else _source(config, name)
        told = [*told, *_tables(config, name, tables, told)]
        if debezium:
            told += debezium_findings(config, name, tables[name])
        found += of_source(name, told)
    return found + list(_targets(config, flows(config, tables), tables))


def _finding(place: str, message: str, remedy: str = "") -> Finding:
    return Finding("error", place, message, remedy)


def _java() -> Iterator[Finding]:
    from deploy.embedded.errors import EmbeddedError
    from deploy.embedded.fetch.java import find_java

    try:
        find_java()
    except EmbeddedError as error:
        yield _finding("java", error.seen, error.remedy)


def _spark(config: Config) -> Iterator[Finding]:
    try:
        slots_of(config.spark.master)
    except ValueError as error:
        yield _finding(config.where("spark", "master"), str(error))


def _state_dir(config: Config) -> Iterator[Finding]:
    """Tell whether files can be made in `state_dir`: one is made, and removed again."""
    folder = config.state_dir
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="check-") as file:
            file.write(b"rowlock")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        yield _finding(
            config.where("state_dir"),
            f"state_dir {folder}: no file can be written there: {error.strerror or error}",
            f"give the user {getpass.getuser()} the right to write there, or name another folder",
        )
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


def _kafka(config: Config) -> Iterator[Finding]:
    try:
        view = KafkaView(config.kafka)
        try:
            view.all_topics()
        finally:
            view.close()
    except CommandError as error:
        others = [
            other for host, port in addresses(config.kafka.bootstrap) if (other := blamed(host, port, KAFKA))
        ]
        where = config.where("kafka", "bootstrap")
        if others:
            yield _finding(where, "; ".join(others), "correct kafka.bootstrap")
        else:
            yield _finding(where, str(error))


def _source(config: Config, name: str) -> list[Finding]:
    from producer.checks.preflight import check_source

    return check_source(config, name)


def _tables(
    config: Config, name: str, tables: dict[str, list[Table]], told: list[Finding]
) -> Iterator[Finding]:
    """Note the source's tables for the targets. What the preflight told of them and of the server is not repeated."""
    tables[name] = []
    try:
        selected = selected_tables(config.sources[name], name)
    except CommandError as error:
        if not any(each.level == "error" for each in told):
            yield _unreached(config, name, error)
        return
    tables[name] = selected.tables
    places = {each.place for each in told}
    for (db, table), why in selected.unfit.items():
        if (place := f"source {name}, table {db}.{table}") not in places:
            yield _finding(place, why)
    if not selected.tables and not selected.unfit and not any(NO_TABLE in each.message for each in told):
        yield no_table_yet(f"source {name}", config.sources[name].tables)


def _unreached(config: Config, name: str, error: CommandError) -> Finding:
    """A source that is down keeps nobody from applying what Debezium wrote of tables whose definitions are in force."""
    why, place = error.__cause__, config.where("sources", name)
    if config.sources[name].events == "debezium" and isinstance(why, ServerConnectError) and why.transient:
        remedy = "it is needed for tables that are applied for the first time: start it"
        return Finding("warning", place, str(error), remedy)
    return _finding(place, str(error))


def _targets(config: Config, found: list[Flow], tables: dict[str, list[Table]]) -> Iterator[ScopedFinding]:
    for name, options in config.pipelines.items():
        mine = [flow for flow in found if flow.pipeline == name]
        if not mine and all(tables[source] for source in options.sources):  # else that is what is wrong
            where = config.where("pipelines", name, "routes")
            seen = f"pipeline {name}: no route takes any table of its sources"
            yield ScopedFinding(_finding(where, seen, "correct `from` of its routes"), Scope.PIPELINE, name)
        for flow in mine:
            feeding = [other for other in found if other.place == flow.place]
            yield from about(Scope.PIPELINE, name, not_kept_apart(config, feeding))
        target = options.target
        try:
            session = open_target(config.targets[target], name="rowlock check")
        except ConsumerError as error:
            yield ScopedFinding(_unasked(config, target, error), Scope.TARGET, target)
            continue
        try:
            hidden = frozenset[Place]()
            if not target_kind(config.targets[target].type).batches:
                yield from about(
                    Scope.TARGET, target, findings_for_session(cast(SqlSession, session), f"target {target}")
                )
                missing = cast(SqlSession, session).missing_rights(
                    sorted({flow.place[1:] for flow in mine}),
                    create=options.create_tables,
                    alter={flow.place[1:] for flow in mine if _alters(options, flow)},
                    drop={flow.place[1:] for flow in mine if options.on_drop == "drop"},
                )
                yield from _rights(target, missing)
                hidden = hidden.union(*(each.hides for each in missing))
            seen_flows = [flow for flow in mine if flow.place[1:] not in hidden]
            yield from _judge(config, seen_flows, found, cast(Inspectable, session))
            debezium = {
                (flow.table.db, flow.table.name)
                for flow in mine
                if config.sources[flow.source].events == "debezium"
            }
            yield from about(Scope.TABLE, target, ambiguous_rows(cast(TargetView, session), name, debezium))
        except (ConsumerError, SchemaError) as error:
            yield ScopedFinding(_unasked(config, target, error), Scope.TARGET, target)
        finally:
            session.close()


def _alters(options: PipelineConfig, flow: Flow) -> bool:
    """Tell whether the target's table is changed as the source's is."""
    own = (
        route.schema_changes
        for route in options.routes
        if matches(route.from_, flow.table.db, flow.table.name)
    )
    return (next(own, None) or options.schema_changes) in ("lenient", "evolve")


def _rights(target: str, missing: list[MissingRight]) -> Iterator[ScopedFinding]:
    """A right that hides tables is about these alone."""
    for each in missing:
        (finding,) = findings_for_rights([each], f"target {target}")
        yield ScopedFinding(finding, Scope.TABLE if each.hides else Scope.TARGET, target)


def _unasked(config: Config, target: str, error: Exception) -> Finding:
    where = config.where("targets", target)
    if isinstance(error, MissingGrantError):
        return _finding(where, f"target {target}: {error.seen}", error.statement)
    at = config.targets[target]
    wanted = dialect_of(at).answers
    if wanted and isinstance(error, TransientError) and (other := blamed(at.host, at.port, wanted)):
        return _finding(where, f"target {target}: {other}", "correct host and port of the target")
    return _finding(where, f"target {target}: {error}")


def _judge(
    config: Config, mine: list[Flow], found: list[Flow], session: Inspectable
) -> Iterator[ScopedFinding]:
    """Judge each target table once for every source that feeds it: one may be wider, or compare finer, than another."""
    said: set[Finding] = set()
    for flow in mine:
        for each in _judge_flow(config, flow, found, session):
            if each.finding not in said:
                said.add(each.finding)
                yield each


def _judge_flow(
    config: Config, flow: Flow, found: list[Flow], session: Inspectable
) -> Iterator[ScopedFinding]:
    """Judge one flow. Findings that a unit itself makes at its takeover are about the table; that others write it too, about the pipeline."""
    feeding = [other for other in found if other.place == flow.place]
    wanted = wanted_table(flow.table, flow.routed)
    if flow.routed.topic is not None:
        yield from about(Scope.TABLE, flow.target, _judge_topic(config, flow, cast(EventTables, session)))
        return
    own = judged(session, flow.table, flow.routed, None)
    yield from about(Scope.TABLE, flow.target, own)
    if len(feeding) > 1:
        shared = judged(session, flow.table, flow.routed, None, sources=len(feeding))
        yield from about(Scope.PIPELINE, flow.pipeline, [each for each in shared if each not in own])
    if (
        not config.pipelines[flow.pipeline].create_tables
        and session.read_table(wanted.db, wanted.name) is None
    ):
        remedy = "create it, or set create_tables: true"
        missing = _finding(f"target table {wanted.db}.{wanted.name}", "does not exist in the target", remedy)
        yield ScopedFinding(missing, Scope.TABLE, flow.target)


def _judge_topic(config: Config, flow: Flow, session: EventTables) -> Iterator[Finding]:
    """Judge a topic by what a unit would be stopped by when it opens it."""
    twice = given_twice(flow.table, flow.routed, {}, EXACT)
    if twice:
        yield from twice
        return
    wanted = topic_table(wanted_table(flow.table, flow.routed), flow.routed, flow.source, flow.table)
    try:
        session.judge_topic(wanted, create=config.pipelines[flow.pipeline].create_tables)
    except TargetConfigError as error:
        yield _finding(f"topic {flow.place[1]}.{flow.place[2]}", str(error))
