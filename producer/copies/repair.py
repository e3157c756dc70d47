"""Limits of copies of tables that were dropped and are there again, as the pipelines that take them say. Pure."""

from __future__ import annotations

from collections.abc import Callable

from producer.tables import TableName
from schemas.config.model import Config, RepairConfig
from schemas.table.patterns import is_pattern_match
from schemas.wire.copies import RepairLimits

Repair = Callable[[TableName], RepairLimits | None]
"""Table → limits of a copy that no person asked for; None: it waits for one."""


def make_repair_limits(config: Config, source: str) -> Repair:
    """Return what `repair` of the pipelines says of the tables of a source.

    Each pipeline would ask for itself, so the widest limits of those with `repair: copy` count. Where no pipeline takes the table its topic is
    read by others: they get what is the default.
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
    """Return the limits where nobody has set any."""
    return select_widest_limits([RepairConfig()])
