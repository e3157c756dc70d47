"""The registry of stored and transmitted formats (docs/reference/stored-formats.md).

Each structure has golden files in tests/golden/stored. `python -m tests.formats` writes the files that a
change of format needs as new versions; it never changes a file.
"""

from __future__ import annotations

import json
from typing import Any

from tests.formats import coordination, listings, processes, source_topics, targets
from tests.formats.samples import fields, structures_in, words_in
from tests.formats.structure import Case, Structure

_ENCODED: tuple[Structure, ...] = (
    *source_topics.STRUCTURES,
    *targets.STRUCTURES,
    *coordination.STRUCTURES,
    *processes.STRUCTURES,
    *listings.STRUCTURES,
)
REGISTERED = frozenset(
    kind for structure in _ENCODED for root in structure.types for kind in structures_in(root)
)
"""The types whose fields are members of what is stored or transmitted."""


def _words(_: object) -> bytes:
    """The words that members can have: another one may come, none may go."""
    found: dict[str, dict[str, Any]] = {}
    for kind in REGISTERED:
        for each in fields(kind):
            for word in words_in(each.type):
                found.setdefault(each.wire, {})[str(word)] = True
    return json.dumps(found, sort_keys=True, indent=1).replace("\n", "").encode()


_FORGOTTEN = frozenset(f"0.state.{word}" for word in ("behind", "fenced", "ok", "stopped", "waiting"))
"""Words of reports, which only processes of one installation sent each other."""

STRUCTURES = (*_ENCODED, Structure("words", (Case("words", None, _words, None),), forgotten=_FORGOTTEN))
