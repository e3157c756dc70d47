"""A check that the table of a requested copy exists: a request with a wrong name would do nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing

from rowlock.errors import CommandError
from rowlock.inspect.near_names import propose_names
from rowlock.views.kafka import KafkaView
from rowlock.views.source import has_view, source_connection, source_view
from schemas.config.model import Config, SourceConfig
from schemas.io.mysql_catalog import list_tables, read_name_rules
from schemas.problems import Problem
from schemas.table.names import EXACT, NameRules, TableName, find_meant_tables, format_table_text
from schemas.table.patterns import format_table_pattern
from schemas.wire.records import TableStop, Watermark

_MISSING_CAUSES = frozenset({"dropped", "unseen"})
"""Causes of stops of tables that the source does not show any more."""


def explain_unknown_table(
    config: Config, source: str, table: TableName, *, must_exist: bool = True
) -> Problem | None:
    """Return why a table can be no table of `source`; None: it is one.

    The source is asked, which lists the tables that its user may see; if it does not answer, a table with
    events or a state in Kafka is known. `must_exist`: False: that suffices anyway, as for the end of a copy.
    Raises CommandError if Kafka does not answer.
    """
    captured, stops = _read_captured_tables(config, source)
    if table in captured and not must_exist:
        return None
    try:
        present, rules = read_present_tables(config.sources[source], source)
    except CommandError as error:
        return _explain_unreached_source(source, table, captured, error.problem)
    name, folded = rules.normalize_table(table), {rules.normalize_table(each) for each in captured}
    known = {rules.normalize_table(each) for each in present}
    if name in known or (name in folded and not must_exist):
        return None
    if name in folded:
        return explain_missing_table(source, table, stops.get(format_table_text(*table)))
    return Problem(
        f"source {source} has no table {format_table_text(*table)}",
        f"{_propose_tables(table, known | folded)}; otherwise give the source's user SELECT on the table",
    )


def explain_missing_table(source: str, table: TableName, stop: TableStop | None) -> Problem:
    """Return the problem of a table that was captured and that its source does not show any more.

    `stop`: capture's own, which may know the DROP.
    """
    if stop is not None and stop.cause in _MISSING_CAUSES:
        return Problem(stop.reason, stop.remedy)
    name = format_table_text(*table)
    return Problem(
        f"source {source} has no table {name}, or its user may not read it, and Kafka has its rows",
        f"GRANT SELECT on it, create it again, or take it out of the source's `tables:` "
        f'(append "!{format_table_pattern(table)}"; while rowlock runs, also `rowlock reload`)',
    )


def _read_captured_tables(config: Config, source: str) -> tuple[set[TableName], Mapping[str, TableStop]]:
    """Return the tables that have a topic, or a state in capture's last watermark, and its stops."""
    with closing(KafkaView(config.kafka)) as view:
        found = set(view.read_topic_tables([source], view.list_topics()).values())
        _, mark = view.read_watermark(source) or (0, None)
    return (found, {}) if mark is None else (found | set(_list_tables_with_state(mark)), mark.stops)


def _list_tables_with_state(mark: Watermark) -> Iterator[TableName]:
    for text in (*mark.snapshot_pending, *mark.left_out, *mark.stops, *mark.copies):
        yield from find_meant_tables(text)


def read_present_tables(source: SourceConfig, name: str) -> tuple[Collection[TableName], NameRules]:
    """Return the source's selected tables, and how it compares names. Raises CommandError."""
    if has_view(source):
        with source_view(source, name) as view:
            return list(view.list_tables()), EXACT
    with source_connection(source, name) as conn:
        return list_tables(conn, source.tables), read_name_rules(conn)


def _explain_unreached_source(
    source: str, table: TableName, captured: set[TableName], unreached: Problem
) -> Problem | None:
    """Return the problem if the table is not captured in any spelling: capture compares names as the
    source does, which cannot be asked now.
    """
    folds = NameRules(folds=True)
    if folds.normalize_table(table) in {folds.normalize_table(each) for each in captured}:
        return None
    return Problem(
        f"no topic has events of {format_table_text(*table)}, and source {source} cannot be asked for it: "
        f"{unreached.what}",
        f"{_propose_tables(table, captured)}; otherwise ask again when the source answers",
    )


def _propose_tables(table: TableName, known: Collection[TableName]) -> str:
    return propose_names(format_table_text(*table), (format_table_text(*each) for each in known))
