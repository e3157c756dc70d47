"""`rowlock cutover --sql`: the statements after which the targets number new rows themselves, as the
sources do by AUTO_INCREMENT. Nothing is changed.

A number must be free in the target for ever. So the first one is the greatest of what each source that feeds
the table would give next, which is also above rows that were deleted, and of what follows the target's rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

import msgspec

from consumer.errors import TargetConfigError
from consumer.targets.session import SqlSession
from rowlock.inspect.pairs import TablePair, list_table_pairs
from rowlock.inspect.table_sides import find_target_names
from rowlock.views.source import read_next_numbers
from rowlock.views.target import read_known_units, target_session
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config
from schemas.table.model import Table
from schemas.table.names import NameRules


class NumberedColumn(msgspec.Struct, frozen=True):
    """A column of a target table in which new rows get numbers after the cutover.

    `sources`: the tables that feed it, as source:database.table. `first`: the number of the first new row.
    `problem`: why there are no statements.
    """

    target: str = msgspec.field(name="target")
    table: str = msgspec.field(name="table")
    column: str = msgspec.field(name="column")
    sources: tuple[str, ...] = msgspec.field(name="sources")
    first: int = msgspec.field(name="first", default=0)
    statements: tuple[str, ...] = msgspec.field(name="statements", default=())
    problem: str = msgspec.field(name="problem", default="")

    def as_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def list_numbered_columns(config: Config, targets: Collection[str]) -> list[NumberedColumn]:
    """Return the numbered columns of all tables of `targets`. Raises CommandError."""
    chosen = [name for name, each in config.pipelines.items() if each.target in targets]
    pairs = [pair for pair in list_table_pairs(config, chosen) if _find_numbered(pair) is not None]
    numbers: dict[str, dict[tuple[str, str], int]] = {}
    for source in dict.fromkeys(pair.source for pair in pairs):
        tables = [(pair.table.db, pair.table.name) for pair in pairs if pair.source == source]
        numbers[source] = read_next_numbers(config.sources[source], source, tables)
    found: list[NumberedColumn] = []
    for target in dict.fromkeys(pair.target for pair in pairs):
        mine = [pair for pair in pairs if pair.target == target]
        with target_session(config.targets[target], target, "cutover") as session:
            found += _yield_columns(cast(SqlSession, session), target, mine, numbers)
    return found


def list_databases(config: Config) -> list[str]:
    """Return the targets of pipelines that are databases: topics and files give no numbers."""
    names = dict.fromkeys(each.target for each in config.pipelines.values())
    return [name for name in names if not find_target_kind(config.targets[name].type).batches]


def _find_numbered(pair: TablePair) -> str | None:
    """Return the source's column that has AUTO_INCREMENT."""
    return next((each.name for each in pair.table.columns if each.auto_increment), None)


def _yield_columns(
    session: SqlSession,
    target: str,
    pairs: list[TablePair],
    numbers: dict[str, dict[tuple[str, str], int]],
) -> Iterator[NumberedColumn]:
    units = {name: read_known_units(session, name) for name in {pair.pipeline for pair in pairs}}
    feeding: dict[tuple[str, str, str], list[TablePair]] = {}
    for pair in pairs:
        name = str(_find_numbered(pair))
        column = find_target_names(pair, units[pair.pipeline]).get(name, name)
        feeding.setdefault((pair.routed.schema, pair.routed.table, column), []).append(pair)
    for (schema, table, column), mine in feeding.items():
        sources = tuple(f"{each.source}:{each.table.db}.{each.table.name}" for each in mine)
        place = f"{schema}.{table}"
        real = session.read_table(schema, table)
        own = None if real is None else _find_column(real, column, session.column_names)
        if real is None or own is None:
            problem = "the table does not exist" if real is None else "the table has no such column"
            yield NumberedColumn(target, place, column, sources, problem=problem)
            continue
        given = [numbers[each.source].get((each.table.db, each.table.name)) for each in mine]
        known = [number for number in given if number is not None]
        if len(known) < len(given):
            problem = f"{sources[given.index(None)]} does not show its next number; print the script again"
            yield NumberedColumn(target, place, own, sources, problem=problem)
            continue
        try:
            first, statements = session.render_numbering(real, own, max(known))
        except TargetConfigError as error:
            yield NumberedColumn(target, place, own, sources, problem=str(error.problem))
            continue
        yield NumberedColumn(target, place, own, sources, first, tuple(statements))


def _find_column(table: Table, column: str, names: NameRules) -> str | None:
    """Return the name of a column in the target's spelling."""
    folded = names.fold_name(column)
    return next((each for each in table.column_names if names.fold_name(each) == folded), None)


def format_cutover_lines(found: list[NumberedColumn]) -> list[str]:
    """Return the statements as a script, with comments that name the tables."""
    lines: list[str] = []
    for each in found:
        about = f"target {each.target}, {each.table}.{each.column}, from {', '.join(each.sources)}"
        lines.append(_render_comment(f"{about}: {each.problem or f'new rows begin at {each.first}'}"))
        lines += [f"{statement};" for statement in each.statements]
    return lines or ["-- no source table with AUTO_INCREMENT is replicated into a database"]


def _render_comment(text: str) -> str:
    """Return a comment of one line: a name may have a line break, after which a statement would begin."""
    return "-- " + "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
