"""Names of databases and tables: their common text, and their comparison by a server
(`lower_case_table_names`). Pure.

With 1 the server stores all names in lower case; with 2 it stores them as given and compares them in
lower case, and its log has them in lower case; with 0 they are compared as they are. So there is one
form to compare and to store names in: `NameRules.normalize_table`. It does not apply to a source's
names of columns and routines, which are never case-sensitive. A target has rules of its own for its
tables (`UnitTarget.table_names`) and for their columns: PostgreSQL compares both as they are; MySQL's
column names compare (tried on MySQL 9.7 and MariaDB 11.4) in lower case, with accents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

TableName = tuple[str, str]
_PLAIN, _QUOTED = r"[^.`]*", r"`(?:[^`]|``)*`"
_TEXT = re.compile(f"({_PLAIN}|{_QUOTED})\\.({_PLAIN}|{_QUOTED})", re.DOTALL)


def format_table_text(db: str, table: str) -> str:
    """Return "db.table", as in records and messages; a name with a dot or a backtick is put in
    backticks.

    No two tables have the same text.
    """
    return f"{_quote_part(db)}.{_quote_part(table)}"


def find_meant_tables(text: str) -> list[TableName]:
    """Return the tables that a text in a record may mean.

    It is one table for a text of `format_table_text`. Several are possible if an older version, which
    wrote no backticks, wrote names with dots. Empty if the text means no table.
    """
    found = _TEXT.fullmatch(text)
    if found:
        db, table = map(_unquote_name, found.groups())
        if format_table_text(db, table) == text:
            return [(db, table)]
    parts = text.split(".")
    return [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts))]


def _quote_part(name: str) -> str:
    return f"`{name.replace('`', '``')}`" if "." in name or "`" in name else name


def _unquote_name(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


@dataclass(frozen=True, slots=True)
class NameRules:
    """The rules by which a server compares names."""

    folds: bool = False
    """Whether names that differ only in case are the same (lower_case_table_names is 1 or 2)."""
    keeps_spelling: bool = True
    """Whether the server shows a column as it was written, so that another spelling is a change."""

    @classmethod
    def from_setting(cls, setting: str | None) -> NameRules:
        """Return the rules for a value of lower_case_table_names; None: the server has no such variable."""
        return cls(setting not in (None, "", "0"))

    def fold_name(self, text: str) -> str:
        """Return a name, or a pattern of names, as the server compares it.

        Each character stays one character.
        """
        if not self.folds:
            return text
        return "".join(low if len(low := char.lower()) == 1 else char for char in text)

    def normalize_table(self, name: TableName) -> TableName:
        """Return the form in which two names of a table are equal exactly if the server considers them
        the same.
        """
        return (self.fold_name(name[0]), self.fold_name(name[1])) if self.folds else name

    def fold_patterns(self, patterns: Iterable[str]) -> list[str]:
        """Return patterns of tables that match names in the form of `normalize_table`."""
        return [self.fold_name(pattern) for pattern in patterns]


EXACT = NameRules()
