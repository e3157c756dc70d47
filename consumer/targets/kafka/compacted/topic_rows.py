"""The rows of one table that a topic leaves after compaction: the last record of each key, unless it is
a delete.

Pure, except for the store. Where the routing key contains the primary key, a key is one row, as for any
compacting reader of the topic. Otherwise a key is many rows: a record then concerns the row that it
contains, and a delete the row that it names; a null value has no effect, because the delete before it
already removed the row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from consumer.targets.kafka.compacted.row_store import RowStore
from consumer.targets.kafka.formats.model import State

Values = dict[str, object]
_PARTITION, _DIGEST = 4, 16
encode_identity = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class RowIdentity:
    """The key by which rows are distinguished, and the rows that belong to the table."""

    origin: tuple[str, str, str]
    """(source, db, table) of the table's records, as far as the records contain these."""
    where: tuple[tuple[str, str], ...]
    """Values of the rows' added columns, compared where a record does not name its origin."""
    primary: tuple[str, ...]
    """The columns of the primary key."""
    many: bool
    """Whether several rows may share a record's key."""
    deletes: bool = True
    """Whether a record states which row it deletes."""

    def owns_row(self, origin: tuple[str, str, str] | None, values: Values) -> bool:
        """Return whether a row belongs to the table.

        A record that names its origin is judged by that alone: the values of its added columns may be
        older ones.
        """
        if not all(name in values for name in self.primary):
            return False
        if origin is not None:
            return origin == self.origin
        return all(values.get(name) == value for name, value in self.where)


class TopicRows:
    """The rows of a table, kept up to date by its records; those of a partition must be given in their
    order.

    `key_of`: the columns by which rows are looked up; `value_of`: (partition, key, values) of a row →
    the stored value.
    """

    def __init__(
        self,
        identity: RowIdentity,
        store: RowStore,
        key_of: Sequence[str],
        value_of: Callable[[int, bytes | None, Values], bytes],
    ) -> None:
        self.store = store
        self._identity, self._key_of, self._value_of = identity, tuple(key_of), value_of

    def take_record(self, partition: int, key: bytes | None, state: State | None) -> None:
        if state is None:
            return
        identity = self._identity
        if state.cleared:
            if state.origin is None or state.origin == identity.origin:
                self.store.clear_prefix(partition.to_bytes(_PARTITION, "big"))
            return
        place = self._build_place(partition, key)
        if state.values is None:
            self._drop_row(place, state)
        elif identity.owns_row(state.origin, state.values):
            row = encode_identity([state.values.get(name) for name in self._key_of])
            value = self._value_of(partition, key, state.values)
            self.store.put_row(self._build_row_place(place, state.values), row, value)
        elif not identity.many:
            self.store.drop_row(place)  # a row of another table has the key now

    def _drop_row(self, place: bytes, state: State) -> None:
        identity = self._identity
        if not identity.many:
            self.store.drop_row(place)
        elif not identity.deletes:
            self.store.clear_prefix(place)
        elif state.deleted is not None and identity.owns_row(state.origin, state.deleted):
            self.store.drop_row(self._build_row_place(place, state.deleted))

    def _build_place(self, partition: int, key: bytes | None) -> bytes:
        digested = b"-" if key is None else b"+" + key
        return partition.to_bytes(_PARTITION, "big") + hashlib.blake2b(digested, digest_size=_DIGEST).digest()

    def _build_row_place(self, place: bytes, values: Values) -> bytes:
        if not self._identity.many:
            return place
        primary = encode_identity([values.get(name) for name in self._identity.primary])
        return place + hashlib.blake2b(primary, digest_size=_DIGEST).digest()
