"""Patterns of tables in the configuration (`bank.*`, `!bank.tmp_?`, "bank.`a.b`"), and templates of
target tables. Pure.

A pattern is an optional "!", then two parts with a dot between. A part has any characters; `*` and `?`
match others. Characters in backticks are taken literally ("``" for one "`"). The first dot outside of
backticks separates database and table. Each part is matched on its own, so a star never extends over
that dot. Outside of backticks, brackets are refused, because other tools read them as sets of
characters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping

from schemas.table.names import TableName

_TOKEN = re.compile(r"`((?:[^`]|``)*)`|([^`])", re.DOTALL)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PLAIN = re.compile(r"[\w$-]+")  # names that need no backticks in a pattern
_GLOBS = {"*": ".*", "?": "."}


class PatternError(ValueError):
    """The text is not a valid pattern or template, for the reason in its message."""


TemplatePart = tuple[tuple[str, bool], ...]
"""Pieces of a part, each with whether it was in backticks."""


def split_parts(text: str, dots: bool = True) -> tuple[TemplatePart, TemplatePart]:
    """Return the parts before and after the first dot outside of backticks. `dots`: the second may
    contain more dots.

    Raises PatternError.
    """
    parts: list[list[tuple[str, bool]]] = [[], []]
    at = second = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise PatternError("a backtick is not closed")
        at = token.end()
        if token[2] == "." and (not second or not dots):
            second += 1
            if second > 1:
                raise PatternError("there is more than one dot outside of backticks")
        else:
            parts[second].append((token[2], False) if token[2] else (token[1].replace("``", "`"), True))
    if not all(any(piece for piece, _ in part) for part in parts):
        raise PatternError("database or table is missing")
    return tuple(parts[0]), tuple(parts[1])


@functools.lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    parts = split_parts(pattern)
    db, table = (
        "".join(
            re.escape(piece) if literal else _GLOBS.get(piece, re.escape(piece)) for piece, literal in part
        )
        for part in parts
    )
    return re.compile(db, re.DOTALL), re.compile(table, re.DOTALL)


def check_pattern(pattern: str) -> None:
    """Raise PatternError if `pattern` (without "!") is invalid, or could be misread by its writer."""
    if any(piece in "[]" for part in split_parts(pattern) for piece, literal in part if not literal):
        raise PatternError("brackets must be in backticks")


def is_pattern_match(pattern: str, db: str, table: str) -> bool:
    """Return whether a pattern (without "!") matches the table. Raises PatternError."""
    first, second = _compile_pattern(pattern)
    return first.fullmatch(db) is not None and second.fullmatch(table) is not None


def is_selected_by_patterns(patterns: Iterable[str], db: str, table: str) -> bool:
    """Return whether the last pattern that matches the table selects it; a pattern with "!" excludes."""
    selected = False
    for pattern in patterns:
        if is_pattern_match(pattern.removeprefix("!"), db, table):
            selected = not pattern.startswith("!")
    return selected


@functools.lru_cache(maxsize=256)
def build_loose_selection(patterns: tuple[str, ...]) -> Callable[[str, str], bool]:
    """Return a function that decides whether patterns select a table (database, name), compared exactly or
    without regard to case: only the source's server knows how it compares names.

    It keeps its answers, because it is asked for every topic again and again.
    """
    folded = [pattern.lower() for pattern in patterns]

    @functools.cache
    def may_be_selected(db: str, table: str) -> bool:
        return is_selected_by_patterns(patterns, db, table) or is_selected_by_patterns(
            folded, db.lower(), table.lower()
        )

    return may_be_selected


@functools.lru_cache(maxsize=4096)
def is_literal(pattern: str) -> bool:
    """Return whether a pattern (without "!") matches one table only, by its name."""
    return not any(piece in _GLOBS for part in split_parts(pattern) for piece, literal in part if not literal)


def format_table_pattern(name: TableName) -> str:
    """Return the pattern that selects one table."""
    return ".".join(map(quote_pattern_name, name))


def quote_pattern_name(name: str) -> str:
    """Return a name as a pattern or a template has it: in backticks if it has special characters."""
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def get_literal_database(pattern: str) -> str | None:
    """Return the one database that a pattern (without "!") can match; None: several."""
    part, _ = split_parts(pattern)
    if any(piece in _GLOBS for piece, literal in part if not literal):
        return None
    return "".join(piece for piece, _ in part)


def fill_template(template: str, words: Mapping[str, str]) -> str:
    """Replace each `{…}` by its value of `words` in one pass: replaced text is not expanded again."""
    return _PLACEHOLDER.sub(lambda found: words.get(found[1], found[0]), template)


def fill_place(template: str, words: Mapping[str, str]) -> tuple[str, str]:
    """Return (schema, table) of a template `schema.table`, which is split first and filled then.

    Raises PatternError.
    """
    schema, table = ("".join(piece for piece, _ in part) for part in _compile_template(template))
    return fill_template(schema, words), fill_template(table, words)


@functools.lru_cache(maxsize=1024)
def _compile_template(template: str) -> tuple[TemplatePart, TemplatePart]:
    return split_parts(template, dots=False)
