"""The type of a mutant."""

from __future__ import annotations

from difflib import ndiff
from typing import NamedTuple


class Mutant(NamedTuple):
    """A small wrong change of one file of the product."""

    file: str
    old: str
    """A text that occurs exactly once in the file."""
    new: str
    """What replaces it."""
    tests: tuple[str, ...]
    """Files or names of tests; at least one test must fail with the change."""
    bug: str = ""
    """What the product does wrong with the change; empty if the change was generated."""

    @property
    def name(self) -> str:
        """The bug in words, or the lines that the change removes and adds; one line in both cases."""
        if self.bug:
            return f"{self.file}  {self.bug}"
        lines = ndiff(self.old.splitlines(), self.new.splitlines())
        changed = [f"{line[0]} {line[1:].strip()}" for line in lines if line[0] in "+-"]
        return f"{self.file}  {'  '.join(changed)}"[:240]
