"""Descriptions of the sessions that hold locks, for logs and `status`.

A statement may contain values of rows, which rowlock does not print: only its keyword and its first table are
shown.
"""

from __future__ import annotations

import re

from consumer.targets.dialect_components import LockHolder, LockHolders
from schemas.problems import Problem

MAX_STATEMENT_CHARS = 60
_COMMENTS = re.compile(r"/\*.*?(\*/|$)|(--|#)[^\n]*", re.DOTALL)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*('|$)|"[^"]*("|$)""", re.DOTALL)
_KEYWORD = re.compile(r"\W*([A-Za-z]+)")
_NAME = r"""[`"]?[^\s`"(),;.]+[`"]?"""
_TABLE = re.compile(
    rf"\b(FROM|INTO|UPDATE|TABLES?)\s+(?:(?:ONLY|IGNORE|LOW_PRIORITY|IF|NOT|EXISTS)\s+)*({_NAME}(?:\.{_NAME})?)",
    re.IGNORECASE,
)


def summarize_statement(text: str) -> str:
    """Return the keyword of a statement and the first table that it names, without any value."""
    plain = _QUOTED.sub(_hide_text, _COMMENTS.sub(" ", text))
    keyword, table = _KEYWORD.match(plain), _TABLE.search(plain)
    if keyword is None:
        return ""
    words = [keyword[1].upper()]
    if table is not None:
        lead_in = table[1].upper()
        words += [table[2]] if lead_in == words[0] else [lead_in, table[2]]
    return " ".join(words)


def _hide_text(quoted: re.Match[str]) -> str:
    """Return a quoted name as it is, and "?" for a text. MySQL writes texts in double quotes as well; a name
    rarely contains a blank.
    """
    return "?" if quoted[0].startswith("'") or re.search(r"\s", quoted[0]) else quoted[0]


def describe_holder(holder: LockHolder) -> str:
    """Return a session's number, user, program, time and statement, as far as they are known."""
    statement = " ".join((holder.statement or "").split())
    facts = [
        holder.user,
        holder.program,
        None if holder.seconds is None else f"for {holder.seconds} s",
        statement[:MAX_STATEMENT_CHARS] + ("…" if len(statement) > MAX_STATEMENT_CHARS else ""),
    ]
    return f"connection {holder.connection} ({', '.join(fact for fact in facts if fact)})"


def describe_row_wait(seen: LockHolders, waited_s: float) -> Problem:
    """Return what a unit's transaction waits for: who holds the lock of a row. `seen` is not empty."""
    waited = f"for {waited_s:.0f} s"
    if not seen.found:
        return Problem(
            f"a transaction of the unit has been open {waited}, and rowlock cannot see whether another "
            f"session holds a lock that it needs ({seen.unseen})",
            "let a user with that right look for it; rowlock goes on by itself once the lock is released",
        )
    listed = ", ".join(map(describe_holder, seen.found))
    unseen = f" ({seen.unseen})" if seen.unseen else ""
    return Problem(
        f"a transaction of the unit has been open {waited} and waits for a row lock held by {listed}{unseen}",
        "let that session commit or roll back, or end it; rowlock goes on by itself then",
    )
