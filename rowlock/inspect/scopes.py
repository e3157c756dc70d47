"""The scopes of findings of `check`, and the consequence of each for a start: as little as possible is
left out. Pure.

A problem of a table stops that table: capture leaves it out, or its apply unit waits, each with the
reason in `status`. A problem of a source or target stops what reads or writes it, detected by that part
itself. A start is refused only if the problem affects everything, or if nothing would be left to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from schemas.config.changes.parts import format_table_part
from schemas.config.model import PipelineConfig
from schemas.findings import Finding


class FindingScope(Enum):
    EVERYTHING = "everything"  # Java, Spark, the configuration
    KAFKA = "kafka"  # it does not answer: nothing can run, and another question to it would wait in vain
    SOURCE = "source"
    TARGET = "target"
    PIPELINE = "pipeline"
    SHARED = "shared"  # tables of a pipeline whose rows would be mixed in one target table or topic
    TABLE = "table"
    SETTING = "setting"  # a key of the configuration that has no effect


@dataclass(frozen=True, slots=True)
class ScopedFinding:
    """A finding and its scope."""

    finding: Finding
    scope: FindingScope
    name: str = ""
    """The name of the source, target or pipeline; for a table, of the one in which it is found."""
    tables: tuple[tuple[str, str], ...] = ()
    """Of SHARED: (source, "db.table") of the tables that the pipeline must not apply."""

    @property
    def is_error(self) -> bool:
        return self.finding.level == "error"

    @property
    def affects_everything(self) -> bool:
        return self.scope in (FindingScope.EVERYTHING, FindingScope.KAFKA)


def attach_scope(scope: FindingScope, name: str, findings: Iterable[Finding]) -> list[ScopedFinding]:
    return [ScopedFinding(each, scope, name) for each in findings]


def attach_source_scopes(name: str, findings: Iterable[Finding]) -> list[ScopedFinding]:
    """Distinguish a source's own findings from those of its tables and topics, by the place that they
    name.
    """
    table = f"source {name}, "
    return [
        ScopedFinding(each, FindingScope.TABLE if each.place.startswith(table) else FindingScope.SOURCE, name)
        for each in findings
    ]


def is_kafka_unreachable(found: Iterable[ScopedFinding]) -> bool:
    """Return whether Kafka does not answer."""
    return any(each.is_error and each.scope is FindingScope.KAFKA for each in found)


def explain_refused_start(
    found: Iterable[ScopedFinding],
    sources: Iterable[str],
    pipelines: Mapping[str, PipelineConfig],
    *,
    all_needed: bool = False,
) -> str | None:
    """Return why nothing can be started; None: something can. `sources`: all configured sources.

    `all_needed`: the run has to reach a goal (`--until-caught-up`), which it cannot without every source
    and target.
    """
    errors = [each for each in found if each.is_error]
    if any(each.affects_everything for each in errors):
        return "refused to start; see above"
    if all_needed and any(each.scope not in (FindingScope.TABLE, FindingScope.SETTING) for each in errors):
        return "refused to start: it could not catch up; see above"
    bad = {scope: {each.name for each in errors if each.scope is scope} for scope in FindingScope}
    if pipelines:
        left = any(
            name not in bad[FindingScope.PIPELINE]
            and pipeline.target not in bad[FindingScope.TARGET]
            and not bad[FindingScope.SOURCE].issuperset(pipeline.sources)
            for name, pipeline in pipelines.items()
        )
    else:
        left = not bad[FindingScope.SOURCE].issuperset(sources)
    return None if left else "refused to start: nothing would be left to run; see above"


def list_not_started(found: Iterable[ScopedFinding], debezium: Iterable[str]) -> list[str]:
    """Return what must not be started, as "source/NAME", "pipeline/NAME" and "pipeline/NAME/SOURCE/DB.TABLE",
    because no process would check it again before it runs.

    A source that rowlock captures (`debezium`: the others) is checked by its own capture repeatedly, and
    starts once the problem is solved.
    """
    others = set(debezium)
    names: list[str] = []
    for each in found:
        if not each.is_error:
            continue
        if each.scope is FindingScope.PIPELINE or (each.scope is FindingScope.SOURCE and each.name in others):
            names.append(f"{each.scope.value}/{each.name}")
        names += [format_table_part(each.name, *table) for table in each.tables]
    return list(dict.fromkeys(names))


def list_consequences(found: Iterable[ScopedFinding]) -> list[str]:
    """Return a sentence for each part that a start leaves out, in the order of the findings, each once."""
    consequences = [
        _describe_consequence(each) for each in found if each.is_error and not each.affects_everything
    ]
    return list(dict.fromkeys(consequences))


def _describe_consequence(each: ScopedFinding) -> str:
    match each.scope:
        case FindingScope.SOURCE:
            return f"source {each.name} does not run until this is corrected; the others continue"
        case FindingScope.TARGET:
            return f"nothing is applied to target {each.name} until this is corrected; the others continue"
        case FindingScope.PIPELINE:
            return f"pipeline {each.name} does not run until this is corrected; the others continue"
        case FindingScope.SHARED:
            tables = " and ".join(f"{source}:{table}" for source, table in each.tables)
            return (
                f"pipeline {each.name} does not apply {tables} until this is corrected; all other tables "
                "continue"
            )
        case FindingScope.SETTING:
            return f"{each.finding.place} has no effect until this is corrected"
        case _:
            return (
                f"{each.finding.place} is left out or stops until this is "
                "corrected; all other tables continue"
            )
