"""Source tables on their way to a target, and whether those that meet in one table or topic are kept apart. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from consumer.spark.pipeline import build_pipeline_routes
from consumer.tables.router import ResolvedRoute, resolve_route
from consumer.tables.shared_topics import SHARED_TOPIC_REMEDY, explain_key_clash
from schemas.config.model import Config
from schemas.findings import Finding
from schemas.table.model import Table


@dataclass(frozen=True, slots=True)
class TableFlow:
    """A source table on its way: `place` of it in the target is (target, schema, table)."""

    pipeline: str
    source: str
    table: Table
    target: str
    routed: ResolvedRoute

    @property
    def place(self) -> tuple[str, str, str]:
        return self.target, self.routed.schema, self.routed.table


def list_flows(config: Config, tables: dict[str, list[Table]]) -> list[TableFlow]:
    """Return every source table that a route takes, with where it goes."""
    out: list[TableFlow] = []
    for name, options in config.pipelines.items():
        routes = build_pipeline_routes(config, options)
        for source in options.sources:
            for table in tables[source]:
                if routed := resolve_route(routes, source, table.db, table.name):
                    out.append(TableFlow(name, source, table, options.target, routed))
    return out


def yield_mixed_row_findings(config: Config, feeding: list[TableFlow]) -> Iterator[Finding]:
    """Sources of one target table must differ in what `add:` gives them: else their equal keys are one row."""
    if feeding and feeding[0].routed.topic is not None:
        yield from _yield_mixed_topic_findings(config, feeding)
        return
    texts: dict[tuple[tuple[str, str], ...], TableFlow] = {}
    for flow in feeding:
        other = texts.setdefault(flow.routed.added, flow)
        if other is not flow and flow.routed.added:
            one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
            yield Finding(
                "error",
                f"{config.find_line('pipelines', flow.pipeline, 'routes')}: target table {flow.place[1]}.{flow.place[2]}",
                f"{one} and {two} write it with the same added values {dict(flow.routed.added)}",
                'let the added text tell them apart, say add: {branch: "{source}"}',
            )


def _yield_mixed_topic_findings(config: Config, feeding: list[TableFlow]) -> Iterator[Finding]:
    """Tables of one topic must be kept apart by a column of its key. A worker refuses what it knows of them, those of its own pipeline."""
    for at, flow in enumerate(feeding):
        for other in feeding[:at]:
            if why := explain_key_clash(flow.table, flow.routed, other.routed, other.table):
                one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
                yield Finding(
                    "error",
                    f"{config.find_line('pipelines', flow.pipeline, 'routes')}: topic {flow.place[1]}.{flow.place[2]}",
                    f"{one} and {two} write it, and {why}",
                    SHARED_TOPIC_REMEDY,
                )
