"""Finds the quarantined keys that the source has deleted, once a copy of the table has ended. Without I/O."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from consumer.ordering.model import QuarantineEntry, format_entry_key, parse_entry_key
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import make_key_function
from schemas.table.model import Key


def find_deleted_keys(
    active: ActiveDefinition,
    held: Iterable[QuarantineEntry],
    begins: int,
    existing: Container[str] = frozenset(),
) -> list[tuple[Key, Sequence[QuarantineEntry]]]:
    """Return the quarantined keys of the table that the source has deleted, with their entries.

    The copy that began at the offset `begins` has ended. It brings every existing row: in a row of its
    own, which replaces the entries of its key, or as a later change, which is recorded after them. So a
    key with neither has no row, and nor has a key if its last change leaves none.

    `existing`: the keys, as entries hold them, that a key sweep has read: they exist without a row of
    their own in the topic.
    """
    name, width = format_entry_table(active), len(active.target.key_at)
    entries: dict[str, list[QuarantineEntry]] = {}
    for entry in sorted(held, key=lambda each: (each.offset, each.part)):
        if entry.table == name:
            entries.setdefault(entry.key, []).append(entry)
    deleted = [
        (parse_entry_key(text), of)
        for text, of in entries.items()
        if (text not in existing if of[-1].offset <= begins else not leaves_row(active, of[-1]))
    ]
    return [(key, of) for key, of in deleted if len(key) == width]


def format_entry_table(active: ActiveDefinition) -> str:
    """Return the target table as entries of the quarantine name it."""
    return f"{active.target.schema}.{active.target.name}"


def leaves_row(active: ActiveDefinition, entry: QuarantineEntry) -> bool:
    """Return whether a row of the entry's key exists after its event: not after a delete, nor after a
    move to another key.
    """
    after = active.decode(entry.event.encode()).after
    if after is None:
        return False
    key = make_key_function(active.target)(active.row(after))
    return format_entry_key(key) == entry.key
