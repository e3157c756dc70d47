"""Options that the contract knows and this version does not support yet: the one table of them.

The models of schemas/config/model.py name only what is built, so nothing behind the configuration ever meets one of these values. The reader
looks here to say "not in this version" of them instead of "not known", and the reference lists them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: (section, key) → the values that a later version will take.
NOT_YET: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("sources", "type"): ("tdsql",),
    ("sources", "topics"): ("source",),
    ("targets", "type"): ("tdsql",),
    ("pipelines", "consistency"): ("transaction",),
}


def is_not_yet(place: tuple[str, ...], value: object) -> bool:
    """Tell whether `value` at the key `place` ("sources", "branch1", "type") is right, but for a later version."""
    return len(place) == 3 and value in NOT_YET.get((place[0], place[-1]), ())
