"""What a mutant is."""

from __future__ import annotations

from difflib import ndiff
from typing import NamedTuple


class Mutant(NamedTuple):
    """`old`, which stands once in the product, in `file`, becomes `new`: one of `tests` must fail then."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """Which one it is, in one line: what it takes away and what it adds."""
        lines = ndiff(self.old.splitlines(), self.new.splitlines())
        changed = [f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "+-"]
        return f"{self.file}  {'  '.join(changed)}"[:240]
