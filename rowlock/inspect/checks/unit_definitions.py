"""The definitions by which apply units write their target tables now, and whether the target can follow the
source's tables.

The target follows a schema change of the source when its unit reads the change in the topic. Until then the
target table has to fit the unit's definition, not the source's table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from consumer.errors import CopyNeededError, UnitStoppedError
from consumer.tables.evolution.plans import TableChange, plan_change
from consumer.tables.router import name_columns
from consumer.tables.stored import StoredDefinition
from consumer.targets.base import UnitTarget
from rowlock.inspect.checks.flows import TableFlow
from schemas.findings import Finding
from schemas.table.names import TableName
from schemas.wire.records import parse_topic_source

UnitDefinitions = Mapping[tuple[str, TableName], StoredDefinition]
"""(source, table) → the definition of its unit in the target."""


def map_unit_definitions(stored: Mapping[str, StoredDefinition]) -> UnitDefinitions:
    """Return the definitions by source and table. `stored`: topic → definition."""
    return {
        (parse_topic_source(topic), (each.table.db, each.table.name)): each for topic, each in stored.items()
    }


def find_judged_definition(flow: TableFlow, units: UnitDefinitions) -> StoredDefinition:
    """Return the definition that the target table of `flow` has to fit: its unit's, if the target follows the
    source's changes; otherwise the source's table.
    """
    unit = units.get((flow.source, (flow.table.db, flow.table.name)))
    if unit is not None and flow.routed.policy in ("lenient", "evolve"):
        return unit
    return name_columns(StoredDefinition(flow.table), flow.routed)


def yield_unfollowed_change_findings(
    flow: TableFlow, unit: StoredDefinition, session: UnitTarget
) -> Iterator[Finding]:
    """Yield a warning if the source's table is no longer as its `unit` has it, and the target cannot follow.

    A column may have been renamed meanwhile, which only the log shows, so this is no certain error.
    """
    if unit.table == flow.table:
        return
    real = session.read_table(flow.routed.schema, flow.routed.table)
    change = TableChange(unit, flow.table, flow.routed.policy, rewrite=True)
    try:
        if real is not None:
            plan_change(change, real, flow.routed, (), session.column_names)
    except CopyNeededError:
        return  # a copy is requested, and its rows have the values
    except UnitStoppedError as error:
        problem = error.problem
        yield Finding(
            "warning",
            f"target table {flow.routed.schema}.{flow.routed.table}",
            f"the source's table was altered, and its unit may stop at that change: {problem.what}",
            problem.action or "alter the target table as the source's was",
        )
