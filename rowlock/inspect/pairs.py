"""The pairs of tables that `verify` compares: each selected table of a source that has a route, with its
target table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from consumer.slots.pipeline import build_pipeline_routes
from consumer.tables.router import ResolvedRoute, resolve_route
from rowlock.views.source import read_selected_tables
from schemas.config.model import Config, SourceConfig
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import TableName


@dataclass(frozen=True, slots=True)
class TablePair:
    """A source table and its target table. `problem`: why it cannot be replicated; then only the table's
    name is known.
    """

    pipeline: str
    source: str
    table: Table
    target: str
    routed: ResolvedRoute
    problem: str = ""

    @property
    def label(self) -> str:
        return (
            f"{self.source}:{self.table.db}.{self.table.name} → "
            f"{self.target}:{self.routed.schema}.{self.routed.table}"
        )


def list_table_pairs(
    config: Config, pipelines: Iterable[str], chosen: Collection[TableName] = ()
) -> list[TablePair]:
    """Return the pairs to compare, read from the sources. `chosen`: only these source tables; (): all."""
    out: list[TablePair] = []
    for pipeline in pipelines:
        options = config.pipelines[pipeline]
        routes = build_pipeline_routes(config, options)
        for source in options.sources:
            for table, problem in _yield_tables(config.sources[source], source):
                routed = resolve_route(routes, source, table.db, table.name)
                if routed and (not chosen or (table.db, table.name) in chosen):
                    out.append(TablePair(pipeline, source, table, options.target, routed, problem))
    return out


def _yield_tables(source: SourceConfig, name: str) -> Iterator[tuple[Table, str]]:
    """Yield the selected tables, each with the reason why it cannot be compared: such a table must not
    hide the others.
    """
    selected = read_selected_tables(source, name)
    yield from ((table, "") for table in selected.tables)
    nothing = UniqueIndex(name="PRIMARY", parts=())
    for (db, table), problem in selected.unfit.items():
        yield Table(db=db, name=table, columns=(), key=nothing), str(problem)
