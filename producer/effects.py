"""A row of the page "What stops what, and what does not" (tools/docs/effects.py): what each module knows of its own."""

from __future__ import annotations

from typing import Literal, NamedTuple

Scope = Literal["nothing", "the table", "what it may reach", "the source", "the start", "a warning"]


class Effect(NamedTuple):
    """`what`: a statement, setting or content of the log; `stops`: the smallest thing that it stops; `then`: what follows."""

    what: str
    stops: Scope
    then: str
