"""The units of a configuration: the sources to capture, and the topics to apply with their targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import structlog

from consumer.slots.pipeline import PipelineSettings
from schemas.config.model import Config
from schemas.problems import Problem
from schemas.table.names import TableName
from schemas.table.patterns import build_loose_selection
from schemas.topic_rules import partitions_refusal

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True, order=True)
class ApplyUnitName:
    pipeline: str
    source: str
    topic: str
    target: str
    table: TableName | None = field(default=None, compare=False)
    """The table of the source; None: Debezium writes the topic."""


def list_apply_units(
    config: Config, topics: Iterable[str], assigned: Mapping[str, TableName]
) -> list[ApplyUnitName]:
    """Return the units of all pipelines among `topics` (all topics of the cluster), sorted.

    `assigned`: topic → table, for the topics that rowlock writes (schemas/wire/topic_tables.py). A table that
    `tables:` of its source does not select any more has no unit: it needs a copy once it is selected again. A
    topic with an invalid name is left out, and does not affect the others.
    """
    names = list(topics)
    out: list[ApplyUnitName] = []
    for pipeline, options in config.pipelines.items():
        chosen = _select_topics(PipelineSettings.from_config(config, pipeline), names, assigned)
        out += [
            ApplyUnitName(pipeline, source, topic, options.target, table)
            for topic, source in chosen.items()
            if (table := assigned.get(topic)) is None
            or build_loose_selection(tuple(config.sources[source].tables))(*table)
        ]
    return sorted(out)


def _select_topics(
    pipeline: PipelineSettings, names: list[str], assigned: Mapping[str, TableName]
) -> dict[str, str]:
    """Return topic → source. If that fails for all topics at once, each topic is tried by itself."""
    try:
        return pipeline.select_topics(names, assigned)
    except Exception as error:  # noqa: BLE001 - names come from outside; see below whose fault it is
        found: dict[str, str] = {}
        if len(names) == 1:
            _log_once(pipeline.name, names[0], f"{type(error).__name__}: {error}")
            return found
        for name in names:
            found |= _select_topics(pipeline, [name], assigned)
        return found


@cache
def _log_once(pipeline: str, topic: str, error: str) -> None:
    """Log the error, once per topic."""
    _LOG.error("topic skipped", pipeline=pipeline, topic=topic, error=error)


def split_refusal(config: Config, unit: ApplyUnitName, partitions: int) -> Problem | None:
    """Return why a topic with several partitions is not applied; None: it has one partition."""
    debezium = config.sources[unit.source].events == "debezium"
    return partitions_refusal(unit.topic, partitions, debezium=debezium)


def list_sources_to_capture(config: Config) -> list[str]:
    """Return the sources to capture, sorted: those that a pipeline reads, or all if there is no
    pipeline.

    Sources that Debezium captures are not among them.
    """
    return sorted(name for name in _read_sources(config) if config.sources[name].events == "rowlock")


def list_debezium_sources(config: Config) -> list[str]:
    """Return the sources that are read and that Debezium captures, sorted."""
    return sorted(name for name in _read_sources(config) if config.sources[name].events == "debezium")


def _read_sources(config: Config) -> set[str]:
    read = {name for pipeline in config.pipelines.values() for name in pipeline.sources}
    return read or set(config.sources)


def explain_missing_topics(config: Config, source: str) -> str:
    """Return the message for a source of Debezium without any topic."""
    return (
        f"source {source}: Debezium has written no topic "
        f"{config.kafka.prefix}.{source}.<database>.<table> of its tables"
    )


NO_TOPICS_REMEDY = (
    "set the connector's topic.prefix to <kafka.prefix>.<name of the source>, and start "
    "it (see `rowlock docs debezium`)"
)
