"""Suspicious shrinks of the inventory, which are confirmed before they are believed. Pure.

The inventory comes from Kafka's list of topics. A broker that has just started, or a client without its
rights, may return a short or empty list. If the leader believed it, most units would be stopped and
forgotten. So if a pipeline that is still configured has lost most of its units at once, the whole
inventory waits until it has been read like that for some time. A pipeline that was removed from the
configuration is not suspicious.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from schemas.units import ApplyName, parse_unit_name


def find_suspicious_shrink(
    known: Mapping[str, str], found: Iterable[str], configured: Iterable[str]
) -> dict[str, int]:
    """Return the pipelines that lack more than half of their units, with the number of missing units.

    `known`: all earlier apply units with their pipelines; `found`: the units now; `configured`: the
    pipelines.
    """
    there, pipelines = set(found), set(configured)
    had = Counter(pipeline for pipeline in known.values() if pipeline in pipelines)
    missing = Counter(pipeline for unit, pipeline in known.items() if unit not in there)
    return {p: missing[p] for p in sorted(had) if 2 * missing[p] > had[p]}


def parse_pipeline_name(unit: str) -> str | None:
    """Return the pipeline in the name of an apply unit; None: another kind of unit."""
    named = parse_unit_name(unit)
    return named.pipeline if isinstance(named, ApplyName) else None
