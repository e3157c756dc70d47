"""The source tables with their target tables, and whether those with the same target table or topic are
kept apart. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from consumer.slots.pipeline import build_pipeline_routes
from consumer.tables.router import ResolvedRoute, resolve_route
from consumer.tables.shared_topics import SHARED_TOPIC_REMEDY, explain_key_clash
from schemas.config.model import Config
from schemas.findings import Finding
from schemas.table.model import Table
from schemas.table.names import EXACT, NameRules
from schemas.table.patterns import is_pattern_match

TargetPlace = tuple[str, str, str]
"""Target, schema, table."""


@dataclass(frozen=True, slots=True)
class TableFlow:
    """A source table and its route to a target."""

    pipeline: str
    source: str
    table: Table
    target: str
    routed: ResolvedRoute

    @property
    def place(self) -> TargetPlace:
        return self.target, self.routed.schema, self.routed.table


def list_flows(config: Config, tables: dict[str, list[Table]]) -> list[TableFlow]:
    """Return every source table that a route selects, with its target."""
    out: list[TableFlow] = []
    for name, options in config.pipelines.items():
        routes = build_pipeline_routes(config, options)
        for source in options.sources:
            for table in tables[source]:
                if routed := resolve_route(routes, source, table.db, table.name):
                    out.append(TableFlow(name, source, table, options.target, routed))
    return out


def group_flows(flows: Sequence[TableFlow], same: NameRules = EXACT) -> dict[TargetPlace, list[TableFlow]]:
    """Return for each place its flows, and those of places that are the same table, in their order.

    `same`: how the target compares names of tables.
    """
    grouped: dict[TargetPlace, list[TableFlow]] = {}
    places = [(flow.place, flow) for flow in flows]
    for (target, *table), flow in places:
        grouped.setdefault((target, *same.normalize_table((table[0], table[1]))), []).append(flow)
    return {
        (target, schema, name): grouped[target, *same.normalize_table((schema, name))]
        for (target, schema, name), _ in places
    }


def yield_rename_findings(config: Config, pipeline: str, flows: list[TableFlow]) -> Iterator[Finding]:
    """Yield a warning for each entry of `rename` for which no table of its route has a column.

    A column may come later, and a source may be out of reach now. `flows`: of the pipeline.
    """
    routes = config.pipelines[pipeline].routes
    tables: dict[int, list[Table]] = {}
    for flow in flows:
        place = flow.table.db, flow.table.name
        at = next(i for i, route in enumerate(routes) if is_pattern_match(route.from_, *place))
        tables.setdefault(at, []).append(flow.table)
    for at, found in tables.items():
        columns = sorted({name for table in found for name in table.column_names})
        for name in routes[at].rename.columns:
            if name not in columns:
                close = get_close_matches(name.lower(), {each.lower(): each for each in columns}, n=1)
                spelled = next((each for each in columns if [each.lower()] == close), None)
                keep = "keep the entry for a column that comes later"
                yield Finding(
                    "warning",
                    config.find_line("pipelines", pipeline, "routes", str(at), "rename", "columns", name),
                    f"no table of the route {routes[at].from_} that could be read has a column {name!r}",
                    f"write {spelled!r}, or {keep}" if spelled else f"remove the entry, or {keep}",
                )


def yield_mixed_row_findings(config: Config, feeding: list[TableFlow]) -> Iterator[Finding]:
    """Yield an error for sources of one target table with the same values of `add:`, because their equal
    keys would be one row.
    """
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
                f"{config.find_line('pipelines', flow.pipeline, 'routes')}: target table "
                f"{flow.place[1]}.{flow.place[2]}",
                f"{one} and {two} write it with the same added values {dict(flow.routed.added)}",
                'let the added text distinguish them, for example add: {branch: "{source}"}',
            )


def _yield_mixed_topic_findings(config: Config, feeding: list[TableFlow]) -> Iterator[Finding]:
    """Yield an error for tables of one topic that no column of its key keeps apart. (A worker refuses
    only tables of its own pipeline.)
    """
    for at, flow in enumerate(feeding):
        for other in feeding[:at]:
            if why := explain_key_clash(flow.table, flow.routed, other.routed, other.table):
                one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
                yield Finding(
                    "error",
                    f"{config.find_line('pipelines', flow.pipeline, 'routes')}: topic "
                    f"{flow.place[1]}.{flow.place[2]}",
                    f"{one} and {two} write it, and {why}",
                    SHARED_TOPIC_REMEDY,
                )
