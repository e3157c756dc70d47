"""Checks a pipeline's routes as a whole: whether they lead anywhere, and which tables they would mix.

A start leaves out what is found here, and a reload refuses it (docs/how-to/reload.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import structlog

from consumer.errors import ConsumerError
from consumer.tables.router import build_stored_table
from consumer.tables.shared_tables import (
    MIXED_ROWS_REMEDY,
    explain_mixing_index,
    fold_added_values,
)
from consumer.tables.stored import StoredDefinition
from consumer.tables.target_checks import judge_target_table
from consumer.targets.base import UnitTarget
from consumer.targets.dialect import open_target
from rowlock.errors import CommandError
from rowlock.inspect.checks.flows import (
    TableFlow,
    TargetPlace,
    group_flows,
    list_flows,
    yield_mixed_row_findings,
)
from rowlock.inspect.checks.unit_definitions import find_judged_definition, map_unit_definitions
from rowlock.inspect.scopes import FindingScope, ScopedFinding
from rowlock.views.source import read_selected_tables
from rowlock.views.target import read_unit_definitions
from schemas.config.model import Config
from schemas.errors import SchemaError
from schemas.findings import Finding
from schemas.patience import scale_timeout
from schemas.table.model import Table
from schemas.table.names import NameRules, format_table_text

RELOAD_CHECK_TIMEOUT_S = 20.0
"""Seconds in which a source has to return its tables; the reload goes on without those that do not."""
READERS = 16
"""Sources that are asked at once."""
_LOG = structlog.get_logger()


def attach_shared_scope(
    config: Config, pipeline: str, feeding: Sequence[TableFlow], findings: Iterable[Finding], *, flows: int
) -> Iterator[ScopedFinding]:
    """Yield findings about a place of several tables with the scope of those tables.

    The whole pipeline is concerned if it has no other table, if another pipeline writes the place, too, or if
    the tables are known by their topics alone. `flows`: the number of all flows of the pipeline.
    """
    tables = tuple(
        (each.source, format_table_text(each.table.db, each.table.name))
        for each in feeding
        if each.pipeline == pipeline and config.sources[each.source].events == "rowlock"
    )
    for finding in findings:
        if len(tables) == len(feeding) < flows:
            yield ScopedFinding(finding, FindingScope.SHARED, pipeline, tables)
        else:
            yield ScopedFinding(finding, FindingScope.PIPELINE, pipeline)


def yield_route_findings(
    config: Config,
    pipeline: str,
    mine: Sequence[TableFlow],
    by_place: Mapping[TargetPlace, list[TableFlow]],
    tables: Mapping[str, Sequence[Table]],
) -> Iterator[ScopedFinding]:
    """Yield the findings about routes that need no target.

    `mine`: the flows of the pipeline; `tables`: source → its tables, none of a source that cannot be read.
    """
    # otherwise the missing tables are the finding
    if not mine and all(tables[source] for source in config.pipelines[pipeline].sources):
        where = config.find_line("pipelines", pipeline, "routes")
        seen = f"pipeline {pipeline}: no route takes any table of its sources"
        finding = Finding("error", where, seen, "correct `from` of its routes")
        yield ScopedFinding(finding, FindingScope.PIPELINE, pipeline)
    for place in dict.fromkeys(flow.place for flow in mine):
        mixed = yield_mixed_row_findings(config, by_place[place])
        yield from attach_shared_scope(config, pipeline, by_place[place], mixed, flows=len(mine))


def list_pipeline_errors(config: Config, pipelines: Collection[str]) -> list[Finding]:
    """Return the errors for which a start would leave out one of these pipelines or tables of it.

    A server that does not answer is no error here: a reload may be about that server, and units check again
    before they write.
    """
    targets = {config.pipelines[name].target for name in pipelines}
    sharing = [each for each in config.pipelines.values() if each.target in targets]
    read = _read_tables(config, sorted({source for each in sharing for source in each.sources}))
    tables = {source: read.get(source, []) for source in config.sources}
    flows = list_flows(config, tables)
    found = [each for name in pipelines for each in _judge_pipeline(config, name, flows, tables)]
    return list(dict.fromkeys(each.finding for each in found if each.is_error))


def _read_tables(config: Config, sources: Sequence[str]) -> dict[str, list[Table]]:
    """Return source → its selected tables, of the sources that answer in time."""
    pool = ThreadPoolExecutor(READERS, thread_name_prefix="reload-check")
    asked = {pool.submit(read_selected_tables, config.sources[name], name): name for name in sources}
    done, waiting = wait(asked, scale_timeout(RELOAD_CHECK_TIMEOUT_S))
    pool.shutdown(wait=False, cancel_futures=True)
    tables: dict[str, list[Table]] = {}
    for each in done:
        try:
            tables[asked[each]] = each.result().tables
        except CommandError as error:
            _LOG.warning("source not checked", source=asked[each], error=str(error))
    for each in waiting:
        _LOG.warning("source not checked", source=asked[each], error="it did not answer in time")
    return tables


def _judge_pipeline(
    config: Config, pipeline: str, flows: Sequence[TableFlow], tables: Mapping[str, Sequence[Table]]
) -> Iterator[ScopedFinding]:
    """Yield the findings about a pipeline. The target is asked only if flows may share a table there."""
    mine = [flow for flow in flows if flow.pipeline == pipeline]
    target = config.pipelines[pipeline].target
    there = [flow for flow in flows if flow.target == target]
    if len({_fold_place(flow) for flow in there}) == len(there):
        yield from yield_route_findings(config, pipeline, mine, group_flows(flows), tables)
        return
    try:
        session = open_target(config.targets[target], name="rowlock reload")
    except ConsumerError as error:
        _LOG.warning("target not checked", target=target, error=str(error))
        yield from yield_route_findings(config, pipeline, mine, group_flows(flows), tables)
        return
    try:
        by_place = group_flows(flows, session.table_names)
        yield from yield_route_findings(config, pipeline, mine, by_place, tables)
        yield from _judge_shared_tables(config, pipeline, mine, by_place, session)
    except (ConsumerError, SchemaError) as error:
        _LOG.warning("target not checked", target=target, error=str(error))
    finally:
        session.close()


def _fold_place(flow: TableFlow) -> tuple[str, ...]:
    """Return the place in a form that is the same for all that any target may consider one table."""
    return tuple(part.casefold() for part in flow.place)


def _judge_shared_tables(
    config: Config,
    pipeline: str,
    mine: Sequence[TableFlow],
    by_place: Mapping[TargetPlace, list[TableFlow]],
    session: UnitTarget,
) -> Iterator[ScopedFinding]:
    """Yield the findings about target tables of several source tables. Topics are judged by flows alone."""
    units = map_unit_definitions(read_unit_definitions(session, pipeline))
    for flow in mine:
        feeding = by_place[flow.place]
        if len(feeding) > 1 and flow.routed.topic is None:
            defined = find_judged_definition(flow, units)
            own = judge_target_table(session, defined, flow.routed)
            more = yield_shared_table_findings(flow, feeding, session, defined, own)
            yield from attach_shared_scope(config, pipeline, feeding, more, flows=len(mine))


def yield_shared_table_findings(
    flow: TableFlow,
    feeding: Sequence[TableFlow],
    session: UnitTarget,
    defined: StoredDefinition,
    own: Sequence[Finding],
) -> Iterator[Finding]:
    """Yield the findings about a target table that concern more than the flow's own source table.

    `feeding`: all flows to the table; `defined`: the definition that it has to fit; `own`: the findings about
    this flow alone. Flows with the same values of `add:` are found by their routes.
    """
    together = judge_target_table(session, defined, flow.routed, sources=len(feeding))
    yield from (each for each in together if each not in own)
    table = session.read_table(flow.routed.schema, flow.routed.table) or build_stored_table(
        defined, flow.routed
    )
    if flow is next(each for each in feeding if each.pipeline == flow.pipeline):  # once for the table
        yield from _yield_equal_value_findings(table, feeding, session.column_names)


def _yield_equal_value_findings(
    table: Table, feeding: Sequence[TableFlow], same: NameRules
) -> Iterator[Finding]:
    """Yield an error for each two flows to `table` with different values of `add:` that a unique index may
    consider equal.
    """
    for index in (table.key, *table.unique):
        seen: dict[frozenset[tuple[str, bytes]], TableFlow] = {}
        for flow in feeding:
            values = frozenset(fold_added_values(table, index, flow.routed, same).items())
            other = seen.setdefault(values, flow)
            if values and other.routed.added != flow.routed.added:
                one, two = (f"{each.source}:{each.table.db}.{each.table.name}" for each in (other, flow))
                why = explain_mixing_index(table, index, other.routed, flow.routed, same)
                place = f"target table {table.db}.{table.name}"
                yield Finding("error", place, f"{one} and {two} write it, and {why}", MIXED_ROWS_REMEDY)
