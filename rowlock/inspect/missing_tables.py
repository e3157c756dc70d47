"""The tables that targets have rows of although the source has the table no longer: `verify` and `check` name
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass

from consumer.slots.pipeline import build_pipeline_routes
from consumer.tables.router import resolve_route
from rowlock.coordinator.units import ApplyUnitName, list_apply_units, list_sources_to_capture
from rowlock.errors import CommandError
from rowlock.inspect.checks.flows import TableFlow
from rowlock.inspect.copied_table import explain_missing_table, read_present_tables
from rowlock.inspect.pairs import TablePair
from rowlock.views.kafka import KafkaView
from schemas.config.model import Config
from schemas.findings import Finding
from schemas.problems import Problem
from schemas.table.model import Table, UniqueIndex
from schemas.table.names import TableName, format_table_text
from schemas.wire.records import TableStop, Watermark


@dataclass(frozen=True, slots=True)
class _FollowedTable:
    """A table with a topic that a pipeline applies."""

    unit: ApplyUnitName
    name: TableName
    stop: TableStop | None

    @property
    def problem(self) -> Problem:
        return explain_missing_table(self.unit.source, self.name, self.stop)


def list_missing_pairs(
    config: Config, pipelines: Iterable[str], found: Collection[TablePair], chosen: Collection[TableName] = ()
) -> list[TablePair]:
    """Return the pairs of tables with a topic that are not in `found` because their source lacks them, each
    with the reason. `chosen`: only these source tables; (): all.

    Raises CommandError if Kafka or a source does not answer.
    """
    names = set(pipelines)
    followed = [
        each
        for each in _list_followed(config, found)
        if each.unit.pipeline in names and (not chosen or each.name in chosen)
    ]
    sources = sorted({each.unit.source for each in followed})
    missing = [each for name in sources for each in _select_missing(config, name, followed)]
    return [pair for each in missing if (pair := _build_pair(config, each)) is not None]


def map_missing_findings(config: Config, found: Collection[TableFlow]) -> dict[str, list[Finding]]:
    """Return source → a warning for each table with a topic that is not in `found` because its source lacks
    it.

    A source that does not answer is left out, which is a finding already. Raises CommandError if Kafka does
    not answer.
    """
    followed = _list_followed(config, found)
    warnings: dict[str, list[Finding]] = {}
    for source in sorted({each.unit.source for each in followed}):
        with contextlib.suppress(CommandError):
            missing = _select_missing(config, source, followed)
            built = map(_build_warning, missing)
            warnings[source] = list(dict.fromkeys(built))  # several pipelines may apply a table
    return warnings


def _build_warning(followed: _FollowedTable) -> Finding:
    place = f"source {followed.unit.source}, table {format_table_text(*followed.name)}"
    return Finding("warning", place, followed.problem.what, followed.problem.action)


def _list_followed(config: Config, found: Collection[TablePair | TableFlow]) -> list[_FollowedTable]:
    """Return the tables that pipelines apply, without those in `found`."""
    known = {(each.pipeline, each.source, each.table.db, each.table.name) for each in found}
    with closing(KafkaView(config.kafka)) as kafka:
        topics = kafka.list_topics()
        assigned = kafka.read_topic_tables(list_sources_to_capture(config), topics)
        left = [
            (unit, unit.table)
            for unit in list_apply_units(config, topics, assigned)
            if unit.table is not None and (unit.pipeline, unit.source, *unit.table) not in known
        ]
        stops = {name: _list_stops(kafka.read_watermark(name)) for name in {unit.source for unit, _ in left}}
    return [
        _FollowedTable(unit, table, stops[unit.source].get(format_table_text(*table))) for unit, table in left
    ]


def _list_stops(read: tuple[int, Watermark] | None) -> dict[str, TableStop]:
    return {} if read is None else dict(read[1].stops)


def _select_missing(config: Config, source: str, followed: Iterable[_FollowedTable]) -> list[_FollowedTable]:
    """Return the tables of `source` that it does not have, in its own spelling or as it compares names.

    Raises CommandError if it does not answer.
    """
    tables, rules = read_present_tables(config.sources[source], source)
    present = {rules.normalize_table(each) for each in tables}
    mine = [each for each in followed if each.unit.source == source]
    return [each for each in mine if rules.normalize_table(each.name) not in present]


def _build_pair(config: Config, followed: _FollowedTable) -> TablePair | None:
    """Return the pair of a table that its source lacks; None: it has no route."""
    unit, (db, table) = followed.unit, followed.name
    routes = build_pipeline_routes(config, config.pipelines[unit.pipeline])
    routed = resolve_route(routes, unit.source, db, table)
    if routed is None:
        return None
    empty = Table(db=db, name=table, columns=(), key=UniqueIndex(name="PRIMARY", parts=()))
    return TablePair(unit.pipeline, unit.source, empty, unit.target, routed, str(followed.problem))
