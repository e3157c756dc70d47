"""Finds the held keys that the source has no more, once a copy of the table has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from consumer.ordering.model import QuarantineEntry
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import make_key_function
from schemas.table.model import Key


def find_deleted_keys(
    in_force: ActiveDefinition, held: Iterable[QuarantineEntry], begins: int
) -> list[tuple[Key, Sequence[QuarantineEntry]]]:
    """Return the held keys of the table that are not at the source any more, with their entries.

    The copy that begins at the offset `begins` has ended, and it brings every row that there is: in a row of its own, which replaces what was
    held for its key, or as a change since it began, which is recorded behind that. A key of which neither is there has no row, and
    one whose last change leaves none has none.
    """
    target = in_force.target
    name, width = f"{target.schema}.{target.name}", len(target.key_at)
    entries: dict[str, list[QuarantineEntry]] = {}
    for entry in sorted(held, key=lambda each: (each.offset, each.part)):
        if entry.table == name:
            entries.setdefault(entry.key, []).append(entry)
    gone = [
        (_decode_quarantined_key(text), of)
        for text, of in entries.items()
        if of[-1].offset <= begins or not leaves_row(in_force, of[-1])
    ]
    return [(key, of) for key, of in gone if len(key) == width]


def leaves_row(in_force: ActiveDefinition, entry: QuarantineEntry) -> bool:
    """Tell whether there is a row of an entry's key behind its event: not behind a delete, nor the half of a move that gives the key up."""
    after = in_force.decode(entry.event.encode()).after
    if after is None:
        return False
    key = make_key_function(in_force.target)(in_force.row(after))
    return msgspec.json.encode(key).decode() == entry.key


def _decode_quarantined_key(text: str) -> Key:
    return tuple(msgspec.json.decode(text))
