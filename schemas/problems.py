"""A problem that a person has to know about: what was seen, and what to do.

A `Problem` is passed on as a value. Only where it leaves the process does it become text: in a message
for people (`str`), and in columns, records and reports that have room for one text (`encode_problem`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

_COLON = re.compile(": ")
#: Separates the two parts of an encoded problem; written twice before a statement. Neither part contains it.
_SEPARATOR = "\n"
_LEFT_OUT = " … "
_RUN = "; run"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not work."""

    what: str
    """What was seen, with the name of the object that it concerns."""
    remedy: str = ""
    """What to do; "": nothing, or nothing is known."""
    statement: str | None = None
    """The SQL statement that is the remedy, if one statement is all."""

    def __str__(self) -> str:
        if self.statement is not None:
            return f"{self.what}{_RUN}: {self.statement}"
        return f"{self.what}: {self.remedy}" if self.remedy else self.what

    @property
    def action(self) -> str:
        """The remedy or the statement, whichever the problem has."""
        return self.statement or self.remedy

    def add_place(self, place: str) -> Problem:
        """Return the problem of the same kind with the name of its object before it."""
        return replace(self, what=f"{place}: {self.what}")


class ProblemError(Exception):
    """The base class of errors that a person has to know about."""

    def __init__(self, what: str, remedy: str = "", statement: str | None = None) -> None:
        super().__init__(what, remedy, statement)
        self._problem = Problem(what, remedy, statement)

    @classmethod
    def from_problem(cls, problem: Problem) -> Self:
        """Return an error of this class with `problem`."""
        return cls(problem.what, problem.remedy, problem.statement)

    @classmethod
    def wrap_error(cls, place: str, error: ProblemError) -> Self:
        """Return an error of this class with the problem of `error`, which concerns `place`."""
        return cls.from_problem(error.problem.add_place(place))

    @property
    def problem(self) -> Problem:
        return self._problem

    def __str__(self) -> str:
        return str(self.problem)


def encode_problem(problem: Problem, limit: int | None = None) -> str:
    """Return one text for a field that is stored or sent. The inverse of `decode_problem`, but for line
    breaks within a part, which become spaces.

    A problem without a remedy has the separator too if its text would be split without one.
    `limit`: the most characters. The middle of what was seen is left out first, because the remedy is what
    helps.
    """
    what, action = (" ".join(part.split(_SEPARATOR)) for part in (problem.what, problem.action))
    is_long = limit is not None and len(what) + len(action) > limit
    if problem.statement:
        end = f"{_SEPARATOR}{_SEPARATOR}{action}"
    elif action or is_long or _split_earlier_text(what) != Problem(what):
        end = f"{_SEPARATOR}{action}"
    else:
        end = ""
    if limit is not None and len(what) + len(end) > limit:
        what = _leave_out_middle(what, limit - len(end))
    return f"{what}{end}"[:limit]


def decode_problem(text: str) -> Problem:
    """Return the problem that a stored or received text contains.

    A text of a version before 0.2.0 has no separator: what follows its last colon was its remedy. If it has a
    server's line breaks, its first line is taken for what was seen, so `str` shows it whole.
    """
    what, separator, action = text.partition(_SEPARATOR)
    if not separator:
        return _split_earlier_text(text)
    if action.startswith(_SEPARATOR):
        return Problem(what, statement=action.removeprefix(_SEPARATOR))
    return Problem(what, action)


def shorten_problem(text: str, limit: int) -> str:
    """Return a stored or received text with at most `limit` characters, and with its remedy if that fits."""
    return text if len(text) <= limit else encode_problem(decode_problem(text), limit)


def _leave_out_middle(text: str, limit: int) -> str:
    """Return the beginning and the end of a text, together at most `limit` characters if that is enough."""
    kept = max(0, limit - len(_LEFT_OUT))
    return f"{text[: kept - kept // 2]}{_LEFT_OUT}{text[len(text) - kept // 2 :]}"


def _split_earlier_text(message: str) -> Problem:
    """Return the problem of a text "…seen…: remedy", or "…seen…; run: statement".

    A colon between backticks separates nothing.
    """
    places = [place.start() for place in _COLON.finditer(message)]
    outside = [place for place in places if message.count("`", place) % 2 == 0]
    if not outside and message.count("`") % 2:  # a server's own text may have an odd number of them
        outside = places
    if not outside:
        return Problem(message)
    what, action = message[: outside[-1]], message[outside[-1] + 2 :]
    if what.endswith(_RUN) and action:
        return Problem(what.removesuffix(_RUN), statement=action)
    return Problem(what, action)
