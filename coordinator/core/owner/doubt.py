"""Doubt about a catalogue of units that has shrunk suddenly: it is not believed at once. Pure.

What units there are comes from Kafka's list of topics, and a broker that has just started, or a client whose rights were
taken, may answer with a short or an empty one. Believed, it would stop most units and forget them. So a pipeline that is
still configured and has lost most of its units in one look is doubted: the whole catalogue waits until it has been read like
that for some time. What somebody has taken out of the configuration is not doubted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping


def find_suspicious_shrink(
    known: Mapping[str, str], found: Iterable[str], configured: Iterable[str]
) -> dict[str, int]:
    """Return the pipelines of which most units (more than half) are missing, with how many are.

    `known`: apply unit → its pipeline, of all that there were; `found`: units that there are now; `configured`: pipelines.
    """
    there, pipelines = set(found), set(configured)
    had = Counter(pipeline for pipeline in known.values() if pipeline in pipelines)
    missing = Counter(pipeline for unit, pipeline in known.items() if unit not in there)
    return {p: missing[p] for p in sorted(had) if 2 * missing[p] > had[p]}


def parse_pipeline_name(unit: str) -> str | None:
    """Return the pipeline of an apply unit by its name, `apply/PIPELINE/TOPIC`; None: it is no such unit."""
    kind, _, rest = unit.partition("/")
    return rest.partition("/")[0] or None if kind == "apply" else None
