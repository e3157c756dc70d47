"""Refuses UUID keys of MariaDB servers that compare UUIDs in another order than their indexes have. Pure.

Copies read a table in the order of its key, and continue after the last key. Indexes of a table have UUIDs
of versions 1 to 5 with their groups reversed, and others as they are; tables from before 10.10.6 and
10.11.5 have all of them reversed. Some servers (10.9.8, 10.10.6, 10.11.5, 11.0.3, 11.1.2: MDEV-31926)
compare two UUIDs of which only one is reversed by their texts: rows would be missing from copies.
"""

from __future__ import annotations

from schemas.errors import UnsupportedTypeError
from schemas.table.model import Table, TextOf

COMPARES_AS_STORED = (
    "SELECT CAST('ffffffff-0000-4000-8000-000000000000' AS UUID)"
    " < CAST('80000000-0000-7000-8000-ffffffffffff' AS UUID)"
)
"""A query that is 1 on servers that compare as they store: only the first one is reversed, or both are."""


def has_uuid_key(table: Table) -> bool:
    """Return whether the table's key has a UUID."""
    return any(table.get_column(name).type.text_of is TextOf.UUID for name in table.key.columns)


def build_uuid_key_error(table: Table) -> UnsupportedTypeError:
    """Return the error of a table with a UUID in its key, on a server that compares UUIDs wrongly."""
    return UnsupportedTypeError(
        f"the key of {table.db}.{table.name} has a UUID, and this server compares UUIDs of different "
        "versions in another order than its indexes have (MDEV-31926): copies would miss rows",
        "upgrade the server (to 10.10.7, 10.11.6, 11.0.4, 11.1.3, 11.2.2 or later), or exclude the table",
    )
