"""The rows of one table in its topic, read whole, because the record of a delete contains the deleted row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from consumer.errors import UnitStoppedError
from consumer.ordering.model import TargetTopic
from consumer.targets.kafka.compacted.row_store import RowStore
from consumer.targets.kafka.compacted.topic_rows import RowIdentity, TopicRows, Values, encode_identity
from consumer.targets.kafka.formats.key_forms import ValueForm
from consumer.targets.kafka.formats.model import RecordFormat, State
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.scheme_checks import list_older_columns
from schemas.errors import EnvelopeError
from schemas.table.model import Key

StateRow = dict[str, object]
"""Column → wire value of a row, as the topic has it."""
ROWS_PER_PAGE = 10_000
"""Keys that are listed together."""
_encode = msgspec.json.Encoder().encode


class TopicContents:
    """The rows of one table in its topic. Close it. Raises consumer.errors.

    `columns`: those of the primary key, then the other ones of the routing key; they distinguish rows.
    The topic is read at the first call, and its new records at each later one. `broken`: a read failed
    half-way.
    """

    def __init__(
        self,
        reader: CommittedReader,
        form: RecordFormat,
        identity: RowIdentity,
        columns: Sequence[str],
        values: Sequence[ValueForm] = (),
    ) -> None:
        """Create the contents of a topic.

        `values`: since when the table's columns have their present forms; older values are left out,
        because they would be misread.
        """
        self._reader, self._form, self._columns = reader, form, tuple(columns)
        self._origin, self._primary = identity.origin, frozenset(identity.primary)
        self._values = [each for each in values if each.since]
        self._store = RowStore()
        self.broken = False
        self._rows = TopicRows(identity, self._store, self._columns, _encode_row)

    def close(self) -> None:
        self._reader.close()
        self._store.close()

    def yield_keys(self, names: Sequence[str], where: dict[str, str]) -> Iterator[list[Key]]:
        """Yield pages of keys (values of `names`) of the rows that have the values `where` in columns
        of the primary key.

        `names` must be a prefix of `columns`.
        """
        self._read_new_records()
        at = [(self._columns.index(name), value) for name, value in where.items()]
        last: Key | None = None
        for page in self._store.yield_key_pages(ROWS_PER_PAGE):
            found: list[Key] = []
            for raw in page:
                whole: tuple[Any, ...] = tuple(msgspec.json.decode(raw))
                key = whole[: len(names)]
                if all(whole[i] == value for i, value in at) and key != last:
                    found.append(key)
                    last = key
            if found:
                yield found

    def yield_rows(self, keys: Sequence[Key]) -> Iterator[StateRow]:
        """Yield the existing rows of keys that `yield_keys` yielded."""
        self._read_new_records()
        if keys and len(keys[0]) < len(self._columns):
            for key in keys:
                yield from map(
                    _decode_row, self._store.list_values_by_prefix(encode_identity(list(key))[:-1] + b",")
                )
            return
        yield from (
            _decode_row(value)
            for _, _, value in self._store.find_rows([encode_identity(list(key)) for key in keys])
        )

    def yield_all_rows(self, where: dict[str, str]) -> Iterator[StateRow]:
        for page in self.yield_keys(self._columns, where):
            yield from self.yield_rows(page)

    def _read_new_records(self) -> None:
        """Read the new records. Raises UnitStoppedError if a record does not have the format."""
        try:
            for message in self._reader.to_end():
                key = message.key()
                state = self._form.decode_state(key, message.value())
                if self._values and state is not None:
                    state = self._hide_older_values(
                        state, list_older_columns(self._values, message.partition(), message.offset())
                    )
                self._rows.take_record(message.partition(), key, state)
        except (EnvelopeError, msgspec.MsgspecError) as error:
            self.broken = True
            raise UnitStoppedError(
                f"the records of the target's topic cannot be read: {error}: another program writes there, "
                "its format was changed, or a key column's type was changed",
                "in the last two cases write to another topic",
            ) from error
        except BaseException:
            self.broken = True
            raise

    def _hide_older_values(self, state: State, older: set[str]) -> State:
        """Return a record's state with None in the columns that have values of an older form.

        Raises EnvelopeError if such a column belongs to the primary key.
        """
        images = state.values, state.deleted
        if state.origin not in (None, self._origin):
            return state
        if older & self._primary and any(images):
            raise EnvelopeError(
                f"key column {', '.join(sorted(older & self._primary))} has a value of another type or "
                "mask in a record"
            )
        values, deleted = (
            None if each is None else {name: None if name in older else value for name, value in each.items()}
            for each in images
        )
        return replace(state, values=values, deleted=deleted)


class FollowedTopics:
    """The contents of topics, each followed from its first use until it is forgotten."""

    def __init__(self) -> None:
        self._topics: dict[TargetTopic, TopicContents] = {}

    def get_contents(self, topic: TargetTopic, opened: Callable[[], TopicContents]) -> TopicContents:
        if topic in self._topics and self._topics[topic].broken:
            self._topics.pop(topic).close()
        if topic not in self._topics:
            self._topics[topic] = opened()
        return self._topics[topic]

    def forget_contents(self) -> None:
        while self._topics:
            self._topics.popitem()[1].close()


def _encode_row(_partition: int, _key: bytes | None, values: Values) -> bytes:
    return _encode(values)


def _decode_row(value: bytes) -> StateRow:
    row: StateRow = msgspec.json.decode(value)
    return row
