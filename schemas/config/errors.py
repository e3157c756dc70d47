"""Problems of a configuration file, reported all at once: the place, what was seen, and what would be
right.

A `ConfigErrors` has every problem of the file, so that a person corrects it in one pass. Values of
secrets never get into a message: a `ConfigProblem` names the kind of value instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ConfigProblem:
    """One problem. `line` counts from 1 (0: the file as a whole); `place` is the dotted path of the key."""

    line: int
    place: str
    seen: str
    right: str

    def format_problem(self, file: str) -> str:
        """Return `file:line: place: seen; right`."""
        where = f"{file}:{self.line}" if self.line else file
        place = f"{self.place}: " if self.place else ""
        return f"{where}: {place}{self.seen}; {self.right}"


class ConfigErrors(Exception):  # noqa: N818 - it holds many
    """All problems of a configuration file; the message has one line for each."""

    def __init__(self, file: str, problems: Sequence[ConfigProblem]) -> None:
        self.file = file
        self.problems = sorted(problems)
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        """The problems as text, in the order of the file."""
        return [problem.format_problem(self.file) for problem in self.problems]
