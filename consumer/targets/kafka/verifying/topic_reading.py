"""The rows of a topic as `verify` compares them: as digests, because a topic is larger than memory.

The topic is read once from its beginning. The last record of each key is reduced to the primary key and
eight bytes of each column, which go to an unnamed file in the folder for temporary files. A source's
rows are shaped as the route specifies (filter, columns, masks) and digested in the same way. Reading
continues whenever rows are compared again. Only committed records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import cast

import msgspec

from consumer.errors import TargetConfigError, UnitStoppedError
from consumer.ordering.model import TargetTable, TargetTopic
from consumer.targets.kafka.clients import make_admin_client
from consumer.targets.kafka.compacted.row_store import RowStore
from consumer.targets.kafka.compacted.topic_rows import RowIdentity, TopicRows, Values, encode_identity
from consumer.targets.kafka.formats.model import Origin
from consumer.targets.kafka.formats.partition import PARTITIONERS
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.records import get_target_topic
from consumer.targets.kafka.shaping import RowShaper
from consumer.targets.kafka.topics import TargetTopics, TopicFacts
from consumer.targets.kafka.verifying.reading import UNREADABLE_VALUE, build_record_reader, is_key_of_row
from schemas.config.model import KafkaTargetConfig, TargetConfig
from schemas.errors import EnvelopeError
from schemas.table.equality import DIGEST, FLOATS, compute_wire_digest, is_negative_zero
from schemas.table.fills import find_fill
from schemas.table.model import Key, Kind, Row, Table, Value

PLACE = "(record key)"
"""The pseudo-column of a difference for a row that is under another key or in another partition than
the route gives it, or that exists twice.
"""
CUT = "the topic's retention has deleted records: rows whose last record was among them are missing in it"
NEGATIVE_ZERO = "-0.0"
_RIGHT, _WRONG = b"+", b"-"
_UNKNOWN = b"?" * DIGEST
Record = tuple[int, bytes | None, bytes | None]
"""(partition, key, value)."""
Added = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A table's topic and its properties.

    `added`: the values of its added columns; `salt`: prefix of masked values before they are hashed.
    """

    topic: TargetTopic
    facts: TopicFacts
    added: Added = ()
    salt: str = ""


class TopicReading:
    """The rows of a topic; see consumer.targets.batches.EventReading. Close it.

    `records` returns the records committed since its last call, those of a partition in their order.
    """

    def __init__(
        self,
        plan: TopicPlan,
        records: Callable[[], Iterable[Record]],
        note: str = "",
        store: RowStore | None = None,
    ) -> None:
        """Raise TargetConfigError if the route does not fit the table, or if its records do not
        determine the rows.
        """
        topic, options = plan.topic, plan.topic.options
        self.note = note
        self._records, self._partitions = records, plan.facts.partitions
        self._format, self._partition = options.format, PARTITIONERS[options.partitioner]
        self._shaping = RowShaper(topic.whole, options, plan.salt)
        shown: Table = self._shaping.table
        self.primary = topic.whole.key.columns
        self.names = (*self.primary, PLACE, *shown.column_names)
        self._routing = options.key or self.primary
        many = not set(self.primary) <= set(self._routing)
        _check_determines_rows(topic, plan.facts, many=many)
        self._columns = shown.columns
        self._key_at = topic.whole.find_ordinals(self.primary)
        self._floats = [i for i, at in enumerate(self._key_at) if topic.whole.columns[at].type.kind in FLOATS]
        origin = Origin(topic.source, topic.connector, topic.db, topic.table)
        whose = (topic.source, topic.db, topic.table)
        identity = RowIdentity(whose, plan.added, self.primary, many, self._format != "plain")
        self._read = build_record_reader(self._format, shown, origin)
        self._absent = _digest_unknown_columns(topic.whole, self._shaping)
        self._raw = b""
        self._rows = TopicRows(identity, store or RowStore(), self.primary, self._digest_values)

    def close(self) -> None:
        self._rows.store.close()

    def build_expected_row(self, row: Row) -> tuple[Key, Row] | None:
        shown = self._shaping.reshape_row(row)
        if shown is None:
            return None
        key = tuple(row[i] for i in self._key_at)
        digests = [
            compute_wire_digest(each.type.kind, value)
            for each, value in zip(self._columns, shown, strict=True)
        ]
        return self._mark_negative_zero(key), _build_row(key, _RIGHT, digests)

    def follow_topic(self) -> None:
        for partition, key, value in self._records():
            self._raw = value or b""
            try:
                state = self._read(key, value)
            except EnvelopeError as error:
                raise UnitStoppedError.from_problem(error.problem) from error
            self._rows.take_record(partition, key, state)

    def read_pages(self, size: int) -> Iterator[dict[Key, Row]]:
        for page in self._rows.store.yield_key_pages(size):
            yield self._find_rows(page)

    def read_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        return self._find_rows([encode_identity(self._restore_key_values(key)) for key in keys])

    def _digest_values(self, partition: int, key: bytes | None, values: Values) -> bytes:
        right = self._partition(key or b"", self._partitions) == partition and is_key_of_row(
            self._format, key, self._raw, self._routing
        )
        digests = [
            _digest_value(each.type.kind, values[each.name]) if each.name in values else absent
            for each, absent in zip(self._columns, self._absent, strict=True)
        ]
        return b"".join((_RIGHT if right else _WRONG, *digests))

    def _find_rows(self, keys: Sequence[bytes]) -> dict[Key, Row]:
        found: dict[Key, Row] = {}
        for _, raw, value in self._rows.store.find_rows(keys):
            values: Key = tuple(msgspec.json.decode(raw))
            key = self._mark_negative_zero(values)
            place = _WRONG if key in found else value[:1]  # twice: one of the two keys is wrong
            digests = [value[at : at + DIGEST] for at in range(1, len(value), DIGEST)]
            found[key] = _build_row(values, place, digests)
        return found

    def _mark_negative_zero(self, key: Key) -> Key:
        """Return a key with the text "-0.0" in place of that number.

        Python considers -0.0 and 0.0 equal, but in a topic they are two keys.
        """
        if not self._floats:
            return key
        return tuple(
            NEGATIVE_ZERO if at in self._floats and is_negative_zero(value) else value
            for at, value in enumerate(key)
        )

    def _restore_key_values(self, key: Key) -> list[Value]:
        """Return the values of a key of `_mark_negative_zero`."""
        return [
            -0.0 if at in self._floats and value == NEGATIVE_ZERO else value for at, value in enumerate(key)
        ]


def _digest_value(kind: Kind, value: object) -> bytes:
    return _UNKNOWN if value is UNREADABLE_VALUE else compute_wire_digest(kind, cast(Value, value))


def _digest_unknown_columns(whole: Table, shaping: RowShaper) -> list[bytes]:
    """Return the digests of columns that a record is too old to contain.

    A reader knows such a value from the definition; an unknown one differs from every value.
    """
    fills = {column.name: find_fill(column) for column in whole.columns}
    row = shaping.mask_row(tuple(None if fill is None else fill.value for fill in fills.values()))
    return [
        _UNKNOWN if fills[column.name] is None else compute_wire_digest(column.type.kind, value)
        for column, value in zip(shaping.table.columns, row, strict=True)
    ]


def _build_row(key: Key, place: bytes, digests: Iterable[bytes]) -> Row:
    values: list[Value] = [*key, place.decode(), *(each.hex() for each in digests)]
    return tuple(values)


def _check_determines_rows(topic: TargetTopic, facts: TopicFacts, *, many: bool) -> None:
    """Raise TargetConfigError if the topic does not determine which rows exist."""
    if not many:
        return
    if topic.options.format == "plain":
        raise TargetConfigError(
            f"the routing key {list(topic.options.key)} does not hold the primary key, and a null value of "
            "format plain does not show which of a key's rows was deleted, so nothing was compared",
            "add the primary key's columns to `key`, or take another format",
        )
    if facts.compacted:
        raise TargetConfigError(
            f"the routing key {list(topic.options.key)} does not hold the primary key, and the topic is "
            "compacted: of the rows that share a key it keeps the last one, so nothing was compared",
            "add the primary key's columns to `key`, or do not compact the topic",
        )


@contextmanager
def topic_reading(target: TargetConfig, table: TargetTable, added: Added) -> Iterator[TopicReading]:
    """Open the topic of a table for reading.

    Raises TargetConfigError if the topic does not exist or does not determine its rows, TransientError
    if no broker answers.
    """
    config, topic = cast(KafkaTargetConfig, target), get_target_topic(table)
    topics = TargetTopics(lambda on_error: make_admin_client(config, on_error), config.replication)
    facts = topics.read_topic_facts(topic.name)
    if facts is None:
        raise TargetConfigError(f"the target has no topic {topic.name}")
    reader = CommittedReader(config, topics, topic.name, facts.partitions)

    def records() -> Iterator[Record]:
        for message in reader.to_end(stable=True):
            yield message.partition(), message.key(), message.value()

    try:
        plan = TopicPlan(topic, facts, added, config.mask_salt.get_secret_value())
        with closing(TopicReading(plan, records, CUT if reader.cut else "")) as reading:
            yield reading
    finally:
        reader.close()
