"""Rows of the page "What stops what, and what does not" (tools/docs/effects.py): each module documents
its own effects.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

EffectScope = Literal[
    "nothing", "by policy", "the table", "what it may reach", "the source", "the start", "a warning"
]


class DocumentedEffect(NamedTuple):
    """A row of the page.

    `what`: a statement, setting or content of the log. `stops`: the smallest scope that it stops ("by
    policy": depends on a pipeline's `schema_changes`). `then`: what follows.
    """

    what: str
    stops: EffectScope
    then: str
