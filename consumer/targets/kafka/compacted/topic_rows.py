"""The rows of one table that a topic leaves: the last record of each key, and none where that says that the row is gone. Pure but for the store.

Where the routing key holds the primary key, a key is one row, as for whoever compacts the topic. Where it does not, a key is many rows: then
a record concerns the row that it holds, a delete the one that it names, and a null value says nothing, for the delete before it did.
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
    """Says how rows are told apart. `origin`: (source, db, table) of the table's records, as far as these say it; `where`: the values that its
    rows have in added columns, asked where a record says no origin. `primary`: columns of the primary key; `many`: a record's key may
    be several rows; `deletes`: a record says which row it deletes."""

    origin: tuple[str, str, str]
    where: tuple[tuple[str, str], ...]
    primary: tuple[str, ...]
    many: bool
    deletes: bool = True

    def owns_row(self, origin: tuple[str, str, str] | None, values: Values) -> bool:
        """Tell whether a row is of the table. A record that names its origin is judged by that alone: values of added columns may be older ones."""
        if not all(name in values for name in self.primary):
            return False
        if origin is not None:
            return origin == self.origin
        return all(values.get(name) == value for name, value in self.where)


class TopicRows:
    """Take the records, those of a partition in their order. `key_of`: the columns by which rows are asked for; `value_of`: what is kept of a
    row, given (partition, key, values)."""

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
            self.store.drop_row(place)  # another's row has the key now

    def _drop_row(self, place: bytes, state: State) -> None:
        identity = self._identity
        if not identity.many:
            self.store.drop_row(place)
        elif not identity.deletes:
            self.store.clear_prefix(place)
        elif state.gone is not None and identity.owns_row(state.origin, state.gone):
            self.store.drop_row(self._build_row_place(place, state.gone))

    def _build_place(self, partition: int, key: bytes | None) -> bytes:
        said = b"-" if key is None else b"+" + key
        return partition.to_bytes(_PARTITION, "big") + hashlib.blake2b(said, digest_size=_DIGEST).digest()

    def _build_row_place(self, place: bytes, values: Values) -> bytes:
        if not self._identity.many:
            return place
        primary = encode_identity([values.get(name) for name in self._identity.primary])
        return place + hashlib.blake2b(primary, digest_size=_DIGEST).digest()
