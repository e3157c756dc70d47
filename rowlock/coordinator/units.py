"""The units of a configuration: sources to capture, and which topic of which pipeline goes to which target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import structlog

from consumer.spark.pipeline import PipelineSettings
from schemas.config.model import Config
from schemas.table.names import TableName
from schemas.topic_rules import partitions_refusal

_LOG = structlog.get_logger()


@dataclass(frozen=True, slots=True, order=True)
class UnitName:
    pipeline: str
    source: str
    topic: str
    target: str
    table: TableName | None = field(default=None, compare=False)
    """The table of the source; None: Debezium writes the topic."""


def units(config: Config, topics: Iterable[str], assigned: Mapping[str, TableName]) -> list[UnitName]:
    """Return the units of all pipelines among `topics` (all topics of the cluster), sorted. `assigned`: topic → table, of those that rowlock
    writes (schemas/wire/topic_tables.py).

    A topic whose name cannot be judged is no unit, and keeps no other from being one.
    """
    names = list(topics)
    out: list[UnitName] = []
    for pipeline, options in config.pipelines.items():
        chosen = _chosen(PipelineSettings.of(config, pipeline, slots=1), names, assigned)
        out += [
            UnitName(pipeline, source, topic, options.target, assigned.get(topic))
            for topic, source in chosen.items()
        ]
    return sorted(out)


def _chosen(
    pipeline: PipelineSettings, names: list[str], assigned: Mapping[str, TableName]
) -> dict[str, str]:
    """Return topic → source; one by one where all at once fails."""
    try:
        return pipeline.select(names, assigned)
    except Exception as error:  # noqa: BLE001 - names come from outside; see below whose fault it is
        found: dict[str, str] = {}
        if len(names) == 1:
            _note(pipeline.name, names[0], f"{type(error).__name__}: {error}")
            return found
        for name in names:
            found |= _chosen(pipeline, [name], assigned)
        return found


@cache
def _note(pipeline: str, topic: str, error: str) -> None:
    """Say it once."""
    _LOG.error(
        "a topic is left out, for its name cannot be judged", pipeline=pipeline, topic=topic, error=error
    )


def split_refusal(config: Config, unit: UnitName, partitions: int) -> str | None:
    """Return why a topic with several partitions is not applied; None: it has one."""
    debezium = config.sources[unit.source].events == "debezium"
    return partitions_refusal(unit.topic, partitions, debezium=debezium)


def captured_sources(config: Config) -> list[str]:
    """Return the sources to capture, sorted: those that a pipeline reads, or all where there is no pipeline.

    What Debezium captures is not among them.
    """
    return sorted(name for name in _read_sources(config) if config.sources[name].events == "rowlock")


def debezium_sources(config: Config) -> list[str]:
    """Return the sources that are read and that Debezium captures, sorted."""
    return sorted(name for name in _read_sources(config) if config.sources[name].events == "debezium")


def _read_sources(config: Config) -> set[str]:
    read = {name for pipeline in config.pipelines.values() for name in pipeline.sources}
    return read or set(config.sources)


def no_topics(config: Config, source: str) -> str:
    """Return what there is to say of a source of Debezium's none of whose topics is there."""
    return f"source {source}: Debezium has written no topic {config.kafka.prefix}.{source}.<database>.<table> of its tables"


NO_TOPICS_REMEDY = "set the connector's topic.prefix to <kafka.prefix>.<name of the source>, and start it (docs/how-to/debezium.md)"
