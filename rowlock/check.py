"""`rowlock check`: everything that would stop a run, found before it, each with what to do about it.

The parts know what they need: capture's own preflight judges a source, the target's dialect judges its tables. Here they
are asked in order, and one that cannot be asked (no connection) is a finding itself, not the end of the check.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from consumer.errors import ConsumerError, MissingGrantError
from consumer.query import slots_of
from consumer.router import Route, Routed, resolve, wanted_table
from consumer.targets.dialect import open_session
from consumer.targets.findings import (
    Inspectable,
    findings_for_rights,
    findings_for_session,
    findings_for_table,
)
from consumer.targets.rights import Place
from rowlock.coordination_check import coordination_findings
from rowlock.debezium_check import debezium_findings
from rowlock.errors import CommandError
from rowlock.kafka_view import KafkaView
from rowlock.source_view import selected_tables
from schemas.config import Config
from schemas.config_checks import unsupported
from schemas.errors import SchemaError, ServerConnectError
from schemas.findings import Finding
from schemas.table import Table


@dataclass(frozen=True, slots=True)
class Flow:
    """A source table on its way: `place` of it in the target is (target, schema, table)."""

    pipeline: str
    source: str
    table: Table
    target: str
    routed: Routed

    @property
    def place(self) -> tuple[str, str, str]:
        return self.target, self.routed.schema, self.routed.table


def check(config: Config) -> list[Finding]:
    """Return all findings. Nothing is written anywhere."""
    refused = [_finding(config.where(*each.place), each.message) for each in unsupported(config)]
    if refused:
        return refused  # what is asked for does not exist yet: nothing else can be judged
    findings = [*_java(), *_spark(config), *coordination_findings(config)]
    unreachable = list(_kafka(config))
    findings += unreachable
    tables: dict[str, list[Table]] = {}
    for name in config.sources:
        debezium = config.sources[name].events == "debezium"
        # the preflight also looks at the topics
        told = [] if unreachable or debezium else _source(config, name)
        findings += told
        findings += _tables(config, name, tables, told)
        if debezium:
            findings += debezium_findings(config, name, tables[name])
    # pipelines may share a target: what it lacks for all of them is said once
    return findings + list(dict.fromkeys(_targets(config, flows(config, tables), tables)))


def _finding(place: str, message: str, remedy: str = "") -> Finding:
    return Finding("error", place, message, remedy)


def _java() -> Iterator[Finding]:
    from deploy.embedded.errors import EmbeddedError
    from deploy.embedded.java import find_java

    try:
        find_java()
    except EmbeddedError as error:
        yield _finding("java", error.seen, error.remedy)


def _spark(config: Config) -> Iterator[Finding]:
    try:
        slots_of(config.spark.master)
    except ValueError as error:
        yield _finding(config.where("spark", "master"), str(error))


def _kafka(config: Config) -> Iterator[Finding]:
    try:
        view = KafkaView(config.kafka)
        try:
            view.all_topics()
        finally:
            view.close()
    except CommandError as error:
        yield _finding(config.where("kafka", "bootstrap"), str(error))


def _source(config: Config, name: str) -> list[Finding]:
    from producer.preflight import check_source

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
    if not selected.tables and not selected.unfit:
        remedy = "correct the patterns, or grant SELECT on the tables: what a user may not see does not exist for it"
        yield _finding(config.where("sources", name, "tables"), "no table of the source is selected", remedy)


def _unreached(config: Config, name: str, error: CommandError) -> Finding:
    """A source that is down keeps nobody from applying what Debezium wrote of tables whose definitions are in force."""
    why, place = error.__cause__, config.where("sources", name)
    if config.sources[name].events == "debezium" and isinstance(why, ServerConnectError) and why.transient:
        remedy = "it is needed for tables that are applied for the first time: start it"
        return Finding("warning", place, str(error), remedy)
    return _finding(place, str(error))


def flows(config: Config, tables: dict[str, list[Table]]) -> list[Flow]:
    """Return every source table that a route takes, with where it goes. Pure."""
    out: list[Flow] = []
    for name, options in config.pipelines.items():
        routes = [Route.of(route) for route in options.routes]
        for source in options.sources:
            for table in tables[source]:
                if routed := resolve(routes, source, table.db, table.name):
                    out.append(Flow(name, source, table, options.target, routed))
    return out


def _targets(config: Config, found: list[Flow], tables: dict[str, list[Table]]) -> Iterator[Finding]:
    for name, options in config.pipelines.items():
        mine = [flow for flow in found if flow.pipeline == name]
        if not mine and all(tables[source] for source in options.sources):  # else that is what is wrong
            where = config.where("pipelines", name, "routes")
            yield _finding(
                where,
                f"pipeline {name}: no route takes any table of its sources",
                "correct `from` of its routes",
            )
        try:
            session = open_session(config.targets[options.target], name="rowlock check")
        except ConsumerError as error:
            yield _unasked(config, options.target, error)
            continue
        try:
            place = f"target {options.target}"
            yield from findings_for_session(session, place)
            missing = session.missing_rights(
                sorted({flow.place[1:] for flow in mine}), create=options.create_tables
            )
            yield from findings_for_rights(missing, place)
            hidden = frozenset[Place]().union(*(each.hides for each in missing))
            seen = [flow for flow in mine if flow.place[1:] not in hidden]
            yield from _judge(config, seen, found, cast(Inspectable, session))
        except (ConsumerError, SchemaError) as error:
            yield _unasked(config, options.target, error)
        finally:
            session.close()


def _unasked(config: Config, target: str, error: Exception) -> Finding:
    where = config.where("targets", target)
    if isinstance(error, MissingGrantError):
        return _finding(where, f"target {target}: {error.seen}", error.statement)
    return _finding(where, f"target {target}: {error}")


def _judge(config: Config, mine: list[Flow], found: list[Flow], session: Inspectable) -> Iterator[Finding]:
    """Judge each target table once for every source that feeds it: one may be wider, or compare finer, than another."""
    said: list[Finding] = []
    for flow in mine:
        for finding in _judge_flow(config, flow, found, session):
            if finding not in said:
                said.append(finding)
                yield finding


def _judge_flow(config: Config, flow: Flow, found: list[Flow], session: Inspectable) -> Iterator[Finding]:
    feeding = [other for other in found if other.place == flow.place]
    added = tuple(name for name, _ in flow.routed.added)
    wanted = wanted_table(flow.table, flow.routed)
    yield from findings_for_table(session, wanted, added=added, sources=len(feeding))
    yield from not_kept_apart(config, feeding)
    if (
        not config.pipelines[flow.pipeline].create_tables
        and session.read_table(wanted.db, wanted.name) is None
    ):
        remedy = "create it, or set create_tables: true"
        yield _finding(f"target table {wanted.db}.{wanted.name}", "does not exist in the target", remedy)


def not_kept_apart(config: Config, feeding: list[Flow]) -> Iterator[Finding]:
    """Sources of one target table must differ in what `add:` gives them: else their equal keys are one row. Pure."""
    texts: dict[tuple[tuple[str, str], ...], Flow] = {}
    for flow in feeding:
        other = texts.setdefault(flow.routed.added, flow)
        if other is not flow and flow.routed.added:
            one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
            yield _finding(
                f"{config.where('pipelines', flow.pipeline, 'routes')}: target table {flow.place[1]}.{flow.place[2]}",
                f"{one} and {two} write it with the same added values {dict(flow.routed.added)}",
                'let the added text tell them apart, say add: {branch: "{source}"}',
            )
