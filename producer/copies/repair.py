"""Limits of copies of tables that were dropped and created again, from the configuration of their
pipelines. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from producer.tables import TableName
from schemas.config.model import Config, RepairConfig
from schemas.table.patterns import is_pattern_match
from schemas.wire.copies import RepairLimits

Repair = Callable[[TableName], RepairLimits | None]
"""Table → limits of a copy that no person requested; None: no such copy is made."""


def make_repair_limits(config: Config, source: str) -> Repair:
    """Return the limits that `repair` of the pipelines sets for the tables of a source.

    Each pipeline could request a copy, so the widest limits of those with `repair: copy` apply. A table
    that no pipeline selects has a topic for other readers; it gets the default limits.
    """
    pipelines = [each for each in config.pipelines.values() if source in each.sources]

    def limits(table: TableName) -> RepairLimits | None:
        taking = [
            each.repair
            for each in pipelines
            if any(is_pattern_match(route.from_, *table) for route in each.routes)
        ]
        return select_widest_limits(taking or [RepairConfig()])

    return limits


def select_widest_limits(repairs: list[RepairConfig]) -> RepairLimits | None:
    """Return the widest limits of those that copy; None: none does."""
    copying = [each for each in repairs if each.mode == "copy"]
    if not copying:
        return None
    return RepairLimits(
        max_rows=max(each.max_rows for each in copying),
        max_per_day=max(each.max_per_day for each in copying),
    )


def get_default_limits(_table: TableName) -> RepairLimits | None:
    """Return the limits for tables without a configuration."""
    return select_widest_limits([RepairConfig()])
