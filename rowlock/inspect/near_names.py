"""Proposals for a name that does not exist: what a person may have meant. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

PROPOSED = 3


def propose_names(name: str, known: Iterable[str]) -> str:
    """Return a question with the names that are like `name`; if there are none, the known names."""
    names = sorted(set(known))
    containing = [each for each in names if name and name.lower() in each.lower()]
    close = [*containing, *get_close_matches(name, names, PROPOSED)]
    if close:
        return f"did you mean {' or '.join(map(repr, list(dict.fromkeys(close))[:PROPOSED]))}?"
    more = f" and {len(names) - PROPOSED:,} more" if len(names) > PROPOSED else ""
    return f"known: {', '.join(names[:PROPOSED]) or 'none'}{more}"
