"""The tables of a source, and the choice of those to capture. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rowlock.errors import CommandError
from schemas.problems import Problem
from schemas.table.names import EXACT, NameRules, TableName
from schemas.table.patterns import (
    PatternError,
    check_pattern,
    format_table_pattern,
    get_literal_database,
    is_literal,
    is_selected_by_patterns,
    quote_pattern_name,
)

ALL = "all"
_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class ListedTable:
    """A table of a source."""

    name: TableName
    rows: int
    """Estimated by the server, as `bytes` is."""
    bytes: int
    problem: Problem | None = None
    """Why it cannot be captured; None: it can."""


@dataclass(frozen=True, slots=True)
class TableList:
    """The tables of a source that its user sees, in the order in which they are shown."""

    tables: tuple[ListedTable, ...]
    rules: NameRules = EXACT

    @property
    def fit(self) -> tuple[ListedTable, ...]:
        """The tables that can be captured. A person chooses them by their numbers here, from 1."""
        return tuple(each for each in self.tables if each.problem is None)

    def list_selected(self, patterns: Sequence[str]) -> list[ListedTable]:
        folded = self.rules.fold_patterns(patterns)
        return [each for each in self.tables if is_selected_by_patterns(folded, *each.name)]


@dataclass(frozen=True, slots=True)
class ChosenTables:
    """The tables to capture, as patterns of the configuration."""

    patterns: tuple[str, ...]
    excluded: tuple[ListedTable, ...] = ()
    """Tables that the patterns would select, and that cannot be captured."""

    @property
    def database(self) -> str | None:
        """The one database of all patterns; None: there may be several."""
        found = {get_literal_database(each) for each in self.patterns if not each.startswith("!")}
        return found.pop() if len(found) == 1 else None


def choose_tables(listed: TableList, answers: Sequence[str], database: str = "") -> ChosenTables:
    """Return the choice that `answers` mean: "all", or numbers, ranges of numbers and patterns.

    `database`: that of the source's URL, which completes a pattern without one. Raises CommandError.
    """
    patterns: list[str] = []
    for answer in filter(None, (each.strip() for each in answers)):
        if answer == ALL:
            patterns += _list_whole_databases(listed, database)
        elif found := _NUMBERS.fullmatch(answer):
            patterns += _list_numbered(listed, int(found[1]), int(found[2] or found[1]))
        else:
            patterns.append(complete_pattern(answer, database))
    selected = listed.list_selected(patterns)
    excluded = tuple(_yield_excluded(listed, selected, patterns))
    if listed.tables and len(excluded) == len(selected):
        raise CommandError(
            "no table is selected that can be captured", "choose others, or correct what the list names"
        )
    return ChosenTables(tuple(dict.fromkeys(patterns)), excluded)


def _list_whole_databases(listed: TableList, database: str) -> list[str]:
    names = dict.fromkeys(each.name[0] for each in listed.fit)
    if not names and database and not listed.tables:
        names[database] = None  # the user sees no table yet
    if not names and not listed.tables:
        raise CommandError(
            "the user sees no table of the source",
            "grant SELECT on the tables, or name a database in the URL or patterns with --tables",
        )
    return [f"{quote_pattern_name(name)}.*" for name in names]


def _list_numbered(listed: TableList, first: int, last: int) -> Iterator[str]:
    if not 1 <= first <= last <= len(listed.fit):
        shown = str(first) if first == last else f"{first}-{last}"
        raise CommandError(f"the list has no number {shown}", f"choose from 1 to {len(listed.fit)}")
    for each in listed.fit[first - 1 : last]:
        yield format_table_pattern(each.name)


def complete_pattern(text: str, database: str) -> str:
    """Return the pattern, with the database of the URL if it names none. Raises CommandError."""
    sign, bare = ("!", text[1:]) if text.startswith("!") else ("", text)
    try:
        check_pattern(bare)
    except PatternError as error:
        completed = f"{quote_pattern_name(database)}.{bare}"
        try:
            check_pattern(completed)
        except PatternError:
            completed = ""
        if not database or not completed:
            raise CommandError(
                f"{text!r} is no pattern of tables: {error}",
                "write database.table, with * and ? as needed",
            ) from error
        return sign + completed
    return text


def _yield_excluded(
    listed: TableList, selected: Sequence[ListedTable], patterns: Sequence[str]
) -> Iterator[ListedTable]:
    """Yield the selected tables that cannot be captured. Raises CommandError for one named literally."""
    literal = [each for each in patterns if not each.startswith("!") and is_literal(each)]
    named = {each.name for each in listed.list_selected(literal)}
    for each in selected:
        if each.problem is None:
            continue
        if each.name in named:
            raise CommandError.from_problem(each.problem)
        yield each
