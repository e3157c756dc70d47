"""The table of options that the configuration format defines and this version does not support yet.

The models of schemas/config/model.py contain only what is built, so no code beyond the configuration
meets these values. For them the reader reports "not in this version" instead of "not known", and the
reference lists them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: (section, key) → the values that a later version will accept.
NOT_YET: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("sources", "type"): ("tdsql",),
    ("sources", "topics"): ("source",),
    ("targets", "type"): ("tdsql",),
    ("pipelines", "consistency"): ("transaction",),
}


def is_not_yet(place: tuple[str, ...], value: object) -> bool:
    """Return whether `value` at the key `place` ("sources", "branch1", "type") is valid only in a later
    version.
    """
    return len(place) == 3 and value in NOT_YET.get((place[0], place[-1]), ())
