"""The tables that targets have rows of although the source has the table no longer: `verify` names them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing

from consumer.slots.pipeline import build_pipeline_routes
from consumer.tables.router import resolve_route
from rowlock.coordinator.units import ApplyUnitName, list_apply_units, list_sources_to_capture
from rowlock.inspect.copied_table import read_present_tables
from rowlock.inspect.pairs import TablePair
from rowlock.views.kafka import KafkaView
from schemas.config.model import Config
from schemas.problems import Problem
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import TableName, format_table_text
from schemas.wire.records import TableStop, Watermark


def list_missing_pairs(
    config: Config, pipelines: Iterable[str], found: Collection[TablePair], chosen: TableName | None = None
) -> list[TablePair]:
    """Return the pairs of tables with a topic that are not in `found` because their source lacks them, each
    with the reason. `chosen`: only this source table.

    Raises CommandError if Kafka or a source does not answer.
    """
    known = {(pair.pipeline, pair.source, pair.table.db, pair.table.name) for pair in found}
    names = set(pipelines)
    with closing(KafkaView(config.kafka)) as kafka:
        topics = kafka.list_topics()
        assigned = kafka.read_topic_tables(list_sources_to_capture(config), topics)
        left = [
            (unit, unit.table)
            for unit in list_apply_units(config, topics, assigned)
            if unit.pipeline in names
            and unit.table is not None
            and chosen in (None, unit.table)
            and (unit.pipeline, unit.source, *unit.table) not in known
        ]
        sources = sorted({unit.source for unit, _ in left})
        stops = {name: _list_stops(kafka.read_watermark(name)) for name in sources}
    present = {name: _SourceTables(config, name) for name in sources}
    missing = [(unit, table) for unit, table in left if not present[unit.source].has_table(table)]
    return [
        pair
        for unit, table in missing
        for pair in _yield_pair(config, unit, table, stops[unit.source].get(format_table_text(*table)))
    ]


class _SourceTables:
    """The tables that a source has now, as its user sees them."""

    def __init__(self, config: Config, source: str) -> None:
        tables, self._rules = read_present_tables(config.sources[source], source)
        self._tables = {self._rules.normalize_table(each) for each in tables}

    def has_table(self, table: TableName) -> bool:
        """Return whether the source has the table, in its own spelling or as it compares names."""
        return self._rules.normalize_table(table) in self._tables


def _list_stops(read: tuple[int, Watermark] | None) -> dict[str, TableStop]:
    return {} if read is None else dict(read[1].stops)


def _yield_pair(
    config: Config, unit: ApplyUnitName, table: TableName, stop: TableStop | None
) -> Iterator[TablePair]:
    """Yield the pair of a table that its source lacks, if the table has a route."""
    options = config.pipelines[unit.pipeline]
    routed = resolve_route(build_pipeline_routes(config, options), unit.source, *table)
    if routed is None:
        return
    problem = _explain_missing_table(table) if stop is None else Problem(stop.reason, stop.remedy)
    nothing = UniqueIndex(name="PRIMARY", parts=())
    empty = Table(db=table[0], name=table[1], columns=(), key=nothing)
    yield TablePair(unit.pipeline, unit.source, empty, unit.target, routed, str(problem))


def _explain_missing_table(table: TableName) -> Problem:
    name = format_table_text(*table)
    return Problem(
        f"the source has no table {name}, or its user may not read it, and Kafka has its rows",
        f"GRANT SELECT on it, create it again, or take it out of the source's `tables:` "
        f'(append "!{name}", then `rowlock reload`)',
    )
