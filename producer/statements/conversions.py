"""Finds stored values that a statement may have changed because of its session's settings, although it
seems to keep them. Pure.

Where a server carries out an ALTER by copying the rows, it converts some values by the session's
settings (tested on MySQL 9.7 and MariaDB 11.4, tests/integration/test_converted_values.py):
- MySQL converts each TIMESTAMP to the session's time zone and back. Of the two instants that have the
  same local time in a repeated hour, one becomes the other. The log shows that a statement has read or
  written times, and the zone.
- A date that the sql_mode does not allow ('2001-00-00', '2001-02-31') becomes zero, where that is not an
  error.
- CHAR that becomes a VARCHAR or a TEXT keeps the spaces that PAD_CHAR_TO_FULL_LENGTH shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from producer.statements.alter import AlterAction
from producer.statements.columns import has_computed_column, is_computed_from_left_out
from producer.statements.ddl import TableDdl
from producer.statements.statement import Statement
from producer.statements.tokens import names_at
from schemas.table.model import Kind, Table

GLOBAL = "the server's"
"""The time zone with which sessions begin."""
_FIXED = re.compile(r"[+-]\d\d:\d\d|(Etc/)?(UTC|GMT|UCT|Zulu|Universal)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DoubtedValues:
    """Columns of a table with values that a statement may have changed. `why`: the cause.

    A row that was changed and not written since is recognisable: one of the columns `times` is in a
    repeated hour of `zone`, or one of the columns `dates` is zero. `certain`: changed rows are not
    recognisable. `unpadded`: the same, if sessions begin with PAD_CHAR_TO_FULL_LENGTH.
    """

    why: str
    zone: str = ""
    times: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()
    certain: bool = False
    unpadded: bool = False


_COMPUTED = DoubtedValues("values are computed from columns that `columns:` leaves out", certain=True)


def find_alter_doubt(statement: Statement, before: Table, after: Table) -> DoubtedValues | None:
    """Return what a statement, which led from `before` to `after`, may have changed by its session's
    settings.

    None: nothing.
    """
    settings = statement.query.settings
    if settings.padded and _has_changed_char(before, after):
        return DoubtedValues(
            "sql_mode PAD_CHAR_TO_FULL_LENGTH: values converted from CHAR now have trailing spaces",
            certain=True,
        )
    may_convert = bool(settings.zone) or settings.padded or (settings.zeroes_dates and may_copy(statement))
    if may_convert and is_computed_from_left_out(after):
        return _COMPUTED
    times = _list_time_columns(settings.zone, after)
    if settings.zone and has_computed_column(after, _list_names_of_kinds(after, Kind.TIMESTAMP)):
        return DoubtedValues(
            f"values are computed from times, in the time zone {settings.zone}", certain=True
        )
    dates = (
        _list_names_of_kinds(after, Kind.DATE, Kind.DATETIME)
        if settings.zeroes_dates and may_copy(statement)
        else ()
    )
    if not times and not dates:
        return None
    reasons = [f"times were converted to the time zone {settings.zone} and back"] if times else []
    reasons += ["dates that the session's sql_mode does not allow became zero"] if dates else []
    return DoubtedValues(", and ".join(reasons), settings.zone, times, dates)


def find_swap_doubt(before: Table, after: Table) -> DoubtedValues | None:
    """Return what a tool that copied the rows into another table may have changed; None: nothing.

    The tool's session settings are unknown. They are assumed to be those with which sessions begin, and
    dates that are not allowed are assumed to become zero (the tool may use INSERT IGNORE).
    """
    times, dates, unpadded = (
        _list_time_columns(GLOBAL, after),
        _list_names_of_kinds(after, Kind.DATE, Kind.DATETIME),
        _has_changed_char(before, after),
    )
    if is_computed_from_left_out(after):
        return _COMPUTED
    if not times and not dates and not unpadded:
        return None
    return DoubtedValues(
        "an online schema change tool copied the values under its own session settings",
        GLOBAL,
        times,
        dates,
        unpadded=unpadded,
    )


def is_fixed_zone(zone: str) -> bool:
    """Return whether a zone certainly has no repeated hour."""
    return _FIXED.fullmatch(zone) is not None


def _list_time_columns(zone: str, table: Table) -> tuple[str, ...]:
    return _list_names_of_kinds(table, Kind.TIMESTAMP) if zone and not is_fixed_zone(zone) else ()


def _list_names_of_kinds(table: Table, *kinds: Kind) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns if column.type.kind in kinds)


def _has_changed_char(before: Table, after: Table) -> bool:
    """Return whether a CHAR column has another type or name, or is used in a computed column."""
    now = {column.name: column for column in after.columns}
    chars = _list_names_of_kinds(before, Kind.CHAR)
    return any(
        name not in now or now[name].type.kind is not Kind.CHAR for name in chars
    ) or has_computed_column(after, chars)


_IN_PLACE = frozenset(
    {
        "ADD INDEX|KEY|FULLTEXT|SPATIAL", "ADD VECTOR INDEX|KEY", "ADD UNIQUE|PRIMARY", "ADD PARTITION",
        "ADD", "ALTER INDEX|KEY|CHECK|CONSTRAINT", "ALTER", "ANALYZE PARTITION", "CHECK PARTITION",
        "OPTIMIZE PARTITION", "REBUILD PARTITION", "COALESCE PARTITION", "REORGANIZE PARTITION",
        "DEFAULT|CHARACTER|CHARSET|COLLATE", "DISABLE|ENABLE KEYS",
        "DROP INDEX|KEY|PRIMARY|FOREIGN|CHECK|CONSTRAINT", "DROP", "RENAME INDEX|KEY", "RENAME COLUMN",
        "WITH|WITHOUT VALIDATION", "WAIT|NOWAIT",
    }
)  # fmt: skip
"""Actions that both servers carry out without copying rows, or by copying rows unchanged. ADD of a
computed column copies them.
"""


def may_copy(statement: Statement) -> bool:
    """Return whether a server may carry out an ALTER by copying the rows, unless `old_alter_table`
    forces a copy always.
    """
    words = [token.upper for token in statement.tokens]
    asked = {_get_word_after(words, at) for at, word in enumerate(words) if word == "ALGORITHM"}
    if "COPY" in asked or words[:1] == ["OPTIMIZE"]:
        return True
    if asked & {"INPLACE", "INSTANT", "NOCOPY"} or words[:1] in (["CREATE"], ["DROP"]):
        return False
    return statement.alter is None or any(map(_is_copying_action, statement.alter.actions))


def treat_optimize_as_alter(statement: Statement) -> Statement:
    """Return OPTIMIZE TABLE as an ALTER that keeps everything, and any other statement as it is.

    The server may copy the tables of OPTIMIZE (for example one with a FULLTEXT index).
    """
    tokens = statement.tokens
    words = [token.upper for token in tokens[:3]]
    if words[:1] != ["OPTIMIZE"] or not {"TABLE", "TABLES"} & set(words):
        return statement
    at, found = 1 + next(at for at, word in enumerate(words) if word in ("TABLE", "TABLES")), []
    while at < len(tokens):
        name, at = names_at(tokens, at)
        if name is None:
            break
        found.append((name[0] or statement.query.db, name[1]))
        at += 1
    return replace(statement, kind=TableDdl("alter", tuple(found))) if found else statement


def _get_word_after(words: Sequence[str], at: int) -> str:
    rest = [word for word in words[at + 1 : at + 3] if word != "="]
    return rest[0] if rest else ""


def _is_copying_action(action: AlterAction) -> bool:
    rule, words = action.rule, {token.upper for token in action.tokens}
    if rule.words == "" and rule.rows == "kept":  # options
        return action.tokens[0].upper not in _PLAIN_OPTIONS or "PARTITION" in words
    if rule.words in ("ADD", "DROP INDEX|KEY|PRIMARY|FOREIGN|CHECK|CONSTRAINT"):
        return not words.isdisjoint(_COPYING)
    return rule.words not in _IN_PLACE


_COPYING = frozenset({"AS", "GENERATED", "STORED", "PERSISTENT", "PRIMARY"})
_PLAIN_OPTIONS = frozenset(
    {
        "ALGORITHM", "LOCK", "AUTO_INCREMENT", "COMMENT", "DEFAULT", "CHARACTER", "CHARSET", "COLLATE",
        "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES",
    }
)  # fmt: skip
