"""Source tables on their way to a target, and whether those that meet in one table or topic are kept apart. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from consumer.spark.pipeline import routes_of
from consumer.tables.router import Routed, resolve
from consumer.tables.shared_topics import REMEDY, mixed
from schemas.config.model import Config
from schemas.findings import Finding
from schemas.table.model import Table


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


def flows(config: Config, tables: dict[str, list[Table]]) -> list[Flow]:
    """Return every source table that a route takes, with where it goes."""
    out: list[Flow] = []
    for name, options in config.pipelines.items():
        routes = routes_of(config, options)
        for source in options.sources:
            for table in tables[source]:
                if routed := resolve(routes, source, table.db, table.name):
                    out.append(Flow(name, source, table, options.target, routed))
    return out


def not_kept_apart(config: Config, feeding: list[Flow]) -> Iterator[Finding]:
    """Sources of one target table must differ in what `add:` gives them: else their equal keys are one row."""
    if feeding and feeding[0].routed.topic is not None:
        yield from _mixed_topic(config, feeding)
        return
    texts: dict[tuple[tuple[str, str], ...], Flow] = {}
    for flow in feeding:
        other = texts.setdefault(flow.routed.added, flow)
        if other is not flow and flow.routed.added:
            one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
            yield Finding(
                "error",
                f"{config.where('pipelines', flow.pipeline, 'routes')}: target table {flow.place[1]}.{flow.place[2]}",
                f"{one} and {two} write it with the same added values {dict(flow.routed.added)}",
                'let the added text tell them apart, say add: {branch: "{source}"}',
            )


def _mixed_topic(config: Config, feeding: list[Flow]) -> Iterator[Finding]:
    """Tables of one topic must be kept apart by a column of its key. A worker refuses what it knows of them, those of its own pipeline."""
    for at, flow in enumerate(feeding):
        for other in feeding[:at]:
            if why := mixed(flow.table, flow.routed, other.routed, other.table):
                one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
                yield Finding(
                    "error",
                    f"{config.where('pipelines', flow.pipeline, 'routes')}: topic {flow.place[1]}.{flow.place[2]}",
                    f"{one} and {two} write it, and {why}",
                    REMEDY,
                )
