"""What there is to run of a configuration: sources to capture, and which topic of which pipeline goes to which target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from consumer.discovery import select_topics
from consumer.router import Route
from schemas.config import Config


@dataclass(frozen=True, slots=True, order=True)
class UnitName:
    pipeline: str
    source: str
    topic: str
    target: str


def units(config: Config, topics: Iterable[str]) -> list[UnitName]:
    """Return the units of all pipelines among `topics` (all topics of the cluster), sorted."""
    names = list(topics)
    out: list[UnitName] = []
    for pipeline, options in config.pipelines.items():
        routes = [Route.of(route) for route in options.routes]
        chosen = select_topics(names, prefix=config.kafka.prefix, sources=options.sources, routes=routes)
        out += [UnitName(pipeline, source, topic, options.target) for topic, source in chosen.units.items()]
    return sorted(out)


def captured_sources(config: Config) -> list[str]:
    """Return the sources to capture, sorted: those that a pipeline reads, or all where there is no pipeline."""
    read = {name for pipeline in config.pipelines.values() for name in pipeline.sources}
    return sorted(read or set(config.sources))
