"""Comparison of names of databases and tables, as a server does it (`lower_case_table_names`): pure.

With 1 the server keeps all names in lower case; with 2 it keeps them as given and compares them in lower case, and its log
has them in lower case; with 0 they are compared as they are. So there is one form to compare and to keep names in:
`Names.same`. Names of columns, and of routines, are none of its business: they are never case-sensitive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TableName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Names:
    """`folds`: whether the server takes names that differ in case for the same (lower_case_table_names is 1 or 2)."""

    folds: bool = False

    @classmethod
    def of(cls, setting: str | None) -> Names:
        """Return how names compare under a value of lower_case_table_names; None: the server has no such variable."""
        return cls(setting not in (None, "", "0"))

    def fold(self, text: str) -> str:
        """Return a name, or a pattern of names, as the server compares it. A character stays one character."""
        if not self.folds:
            return text
        return "".join(low if len(low := char.lower()) == 1 else char for char in text)

    def same(self, name: TableName) -> TableName:
        """Return the form in which two names of a table are equal if the server takes them for one."""
        return (self.fold(name[0]), self.fold(name[1])) if self.folds else name

    def patterns(self, patterns: Iterable[str]) -> list[str]:
        """Return patterns of tables so that they take names in the form of `same`."""
        return [self.fold(pattern) for pattern in patterns]


EXACT = Names()
