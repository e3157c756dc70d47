"""The pairs of tables that `rowlock verify` compares, as its arguments choose them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import click

from coordinator.server.operators.copies import CopyRefusedError
from rowlock.errors import CommandError, KafkaUnreachableError
from rowlock.inspect.missing_tables import list_missing_pairs
from rowlock.inspect.near_names import propose_names
from rowlock.inspect.pairs import TablePair, list_table_pairs
from rowlock.views.copy_desk import parse_table_name
from schemas.config.model import Config
from schemas.table.names import TableName, format_table_text


def parse_chosen_tables(names: Iterable[str]) -> list[TableName]:
    """Return the tables that arguments name, each once. Raises CommandError for one without a database."""
    try:
        return list(dict.fromkeys(map(parse_table_name, names)))
    except CopyRefusedError as error:
        raise CommandError.from_problem(error.problem) from error


def choose_pairs(config: Config, pipelines: Sequence[str], chosen: Collection[TableName]) -> list[TablePair]:
    """Return the pairs to compare. `chosen`: only these source tables; empty: all.

    Raises CommandError if there is none, or none of a chosen table: a wrong name must not look like a table
    that is equal.
    """
    pairs = list_table_pairs(config, pipelines, chosen)
    pairs += _list_missing_pairs(config, pipelines, pairs, chosen)
    found = {_name_table(pair) for pair in pairs}
    lacking = [name for name in (format_table_text(*each) for each in chosen) if name not in found]
    if not pairs or lacking:
        raise CommandError(_explain_missing_pairs(config, lacking))
    return pairs


def _explain_missing_pairs(config: Config, lacking: Collection[str]) -> str:
    why = "there is nothing to compare: no selected table of the sources has a route"
    if not lacking:
        return why
    known = [_name_table(pair) for pair in list_table_pairs(config, config.pipelines)]
    return "\n".join(f"{why} ({name}); {propose_names(name, known)}" for name in lacking)


def _list_missing_pairs(
    config: Config, pipelines: Sequence[str], found: Sequence[TablePair], chosen: Collection[TableName]
) -> list[TablePair]:
    """Return the tables that a source has no longer. If Kafka does not answer, which lists them, a line on
    stderr tells that they are left out: the others can be compared all the same.
    """
    try:
        return list_missing_pairs(config, pipelines, found, chosen)
    except KafkaUnreachableError as error:
        click.echo(f"rowlock: tables that a source has no longer are not listed: {error}", err=True)
        return []


def _name_table(pair: TablePair) -> str:
    return format_table_text(pair.table.db, pair.table.name)
