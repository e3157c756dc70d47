"""A row of the page "What stops what, and what does not" (tools/docs/effects.py): what each module knows of its own."""

from __future__ import annotations

from typing import Literal, NamedTuple

EffectScope = Literal[
    "nothing", "by policy", "the table", "what it may reach", "the source", "the start", "a warning"
]


class DocumentedEffect(NamedTuple):
    """`what`: a statement, setting or content of the log; `stops`: the smallest thing that it stops ("by policy": what a pipeline's
    `schema_changes` says); `then`: what follows."""

    what: str
    stops: EffectScope
    then: str
