"""A source's table beside its topic, as `verify` compares them (rowlock/inspect/verify.py): rows as digests, for a topic is larger than memory.

The topic is read once from its begin, and what its last record of each key says goes to a file without a name in the folder for temporary
files: the primary key, and eight bytes of each column. A source's rows are shaped as the route says (filter, columns, masks) and digested in
the same way. Reading goes on in the topic whenever rows are looked at again. Only what is committed is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from consumer.errors import TargetConfigError
from consumer.ordering.model import TargetTable, TargetTopic
from consumer.tables.evolution.fills import fill_of
from consumer.tables.router import target_table, topic_table, wanted_table
from consumer.targets.kafka.clients import admin_of
from consumer.targets.kafka.compacted.row_store import RowStore
from consumer.targets.kafka.compacted.topic_rows import RowIdentity, TopicRows, Values, encode_identity
from consumer.targets.kafka.formats.model import Origin
from consumer.targets.kafka.formats.partition import PARTITIONERS
from consumer.targets.kafka.reader import CommittedReader
from consumer.targets.kafka.shaping import Shaping
from consumer.targets.kafka.topics import TargetTopics, TopicFacts
from rowlock.errors import CommandError
from rowlock.inspect.compare import Shape
from rowlock.inspect.pairs import Pair
from rowlock.inspect.topics.reading import NAMED, reader_of, same_key
from rowlock.views.target import RowsView
from schemas.config.model import KafkaTargetConfig
from schemas.table.equality import DIGEST, wire_digest
from schemas.table.model import Key, Kind, Row, Table, Value

PLACE = "(record key)"
"""Stands for a column in a difference: the row is under another key or in another partition than the route gives it, or is there twice."""
CUT = "the topic's retention has deleted records: rows whose last record was among them are missing in it"
_RIGHT, _WRONG = b"+", b"-"
_UNKNOWN = b"?" * DIGEST


class MissingTopicError(CommandError):
    """The topic of a pair is not there."""


Record = tuple[int, bytes | None, bytes | None]
"""(partition, key, value)."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A pair whose target is a topic, and what is known of that. `salt`: goes before what a mask hashes."""

    pair: Pair
    topic: TargetTopic
    facts: TopicFacts
    salt: str = ""


class TopicSides:
    """Both ends of a pair. Rows are the primary key's values, whether the record's place is right, and a digest of each written column."""

    def __init__(
        self, plan: TopicPlan, left: RowsView, records: Callable[[], Iterable[Record]], page: int
    ) -> None:
        """`left`: the source; `records`: what is committed in the topic since they were asked for last, those of a partition in their order.

        Raises TargetConfigError: the route does not fit the table, or its records do not say which rows are there.
        """
        pair, topic, facts = plan.pair, plan.topic, plan.facts
        options = topic.options
        self._left, self._records, self._facts, self.page = left, records, facts, page
        self._format, self._partition = options.format, PARTITIONERS[options.partitioner]
        self._shaping = Shaping(topic.whole, options, plan.salt)
        shown: Table = self._shaping.table
        self._columns = shown.columns
        self._primary = topic.whole.key.columns
        self._routing = options.key or self._primary
        many = not set(self._primary) <= set(self._routing)
        _check_told(topic, facts, many=many)
        bare = replace(pair.table, unique=())
        self._source: TargetTable = target_table(bare, bare)
        self._added: Row = tuple(value for _, value in pair.routed.added)
        whole_names = topic.whole.column_names
        self._key_at = tuple(whole_names.index(name) for name in self._primary)
        self._source_key = tuple(self._primary.index(name) for name in pair.table.key.columns)
        names = (*self._primary, PLACE, *shown.column_names)
        key_at = tuple(range(len(self._primary)))
        self.shape = Shape(names, (Kind.VARCHAR,) * len(names), key_at)
        origin = Origin(topic.source, topic.connector, topic.db, topic.table)
        identity = RowIdentity(
            (topic.source, topic.db, topic.table),
            pair.routed.added,
            self._primary,
            many,
            self._format != "plain",
        )
        self._read = reader_of(self._format, shown, origin)
        self._absent = _of_older_records(topic.whole, self._shaping)
        self._raw = b""
        self._rows = TopicRows(identity, RowStore(), self._primary, self._digest)

    def close(self) -> None:
        self._rows.store.close()

    # --- the two sides (rowlock.inspect.verify)

    def source_pages(self) -> Iterator[dict[Key, Row]]:
        """Yield the rows that the filter lets through; read the topic first, so that what it lacks then is a suspect."""
        self._refresh()
        after: Key | None = None
        while rows := self._left.fetch_rows(self._source, after, self.page):
            yield self._shaped(rows)
            if len(rows) < self.page:
                return
            after = tuple(rows[-1][i] for i in self._source.key_at)

    def target_pages(self) -> Iterator[dict[Key, Row]]:
        for page in self._rows.store.pages(self.page):
            yield self._found(page)

    def source_rows(self, rows: Iterable[Row]) -> dict[Key, Row]:
        keys = [tuple(row[i] for i in self._source_key) for row in rows]
        return self._shaped(self._left.fetch_keys(self._source, keys)) if keys else {}

    def target_rows(self, keys: Iterable[Key]) -> dict[Key, Row]:
        self._refresh()
        return self._found([encode_identity(list(key)) for key in keys])

    # --- the source's rows

    def _shaped(self, rows: Iterable[Row]) -> dict[Key, Row]:
        found: dict[Key, Row] = {}
        for bare in rows:
            row = bare + self._added
            shown = self._shaping.row(row)
            if shown is not None:
                key = tuple(row[i] for i in self._key_at)
                digests = [
                    wire_digest(each.type.kind, value)
                    for each, value in zip(self._columns, shown, strict=True)
                ]
                found[key] = _row(key, _RIGHT, digests)
        return found

    # --- the topic's

    def _refresh(self) -> None:
        for partition, key, value in self._records():
            self._raw = value or b""
            self._rows.take(partition, key, self._read(key, value))

    def _digest(self, partition: int, key: bytes | None, values: Values) -> bytes:
        right = self._partition(key or b"", self._facts.partitions) == partition and same_key(
            self._format, key, self._raw, self._routing
        )
        digests = [
            wire_digest(each.type.kind, values[each.name]) if each.name in values else absent  # type: ignore[arg-type]
            for each, absent in zip(self._columns, self._absent, strict=True)
        ]
        return b"".join((_RIGHT if right else _WRONG, *digests))

    def _found(self, keys: list[bytes]) -> dict[Key, Row]:
        found: dict[Key, Row] = {}
        for _, raw, value in self._rows.store.find(keys):
            key: Key = tuple(msgspec.json.decode(raw))
            place = _WRONG if key in found else value[:1]  # twice: under one key of the two it should not be
            digests = [value[at : at + DIGEST] for at in range(1, len(value), DIGEST)]
            found[key] = _row(key, place, digests)
        return found


def _of_older_records(whole: Table, shaping: Shaping) -> list[bytes]:
    """Return the digests of columns that a record is older than: a reader knows what is there by the definition, or it differs."""
    fills = {column.name: fill_of(column) for column in whole.columns}
    row = shaping.shown(tuple(None if fill is None else fill.value for fill in fills.values()))
    return [
        _UNKNOWN if fills[column.name] is None else wire_digest(column.type.kind, value)
        for column, value in zip(shaping.table.columns, row, strict=True)
    ]


def _row(key: Key, place: bytes, digests: Iterable[bytes]) -> Row:
    values: list[Value] = [*key, place.decode(), *(each.hex() for each in digests)]
    return tuple(values)


def topic_of_pair(pair: Pair) -> TargetTopic:
    """Return the topic that a pair's table is written to."""
    table = topic_table(wanted_table(pair.table, pair.routed), pair.routed, pair.source, pair.table)
    if table.topic is None:
        raise ValueError(f"{pair.label} goes to no topic")
    return table.topic


def _check_told(topic: TargetTopic, facts: TopicFacts, *, many: bool) -> None:
    """Raise TargetConfigError where nobody can tell from the topic which rows are there."""
    if not many:
        return
    if topic.options.format == "plain":
        raise TargetConfigError(
            f"the routing key {list(topic.options.key)} does not hold the primary key, and a null value of format plain does not say which of "
            "a key's rows is gone: nothing was compared; add the primary key's columns to `key`, or take another format"
        )
    if facts.compacted:
        raise TargetConfigError(
            f"the routing key {list(topic.options.key)} does not hold the primary key, and the topic is compacted: of the rows that share a key "
            "it keeps the last one; nothing was compared; add the primary key's columns to `key`, or do not compact the topic"
        )


@contextmanager
def topic_sides(
    pair: Pair, left: RowsView, config: KafkaTargetConfig, page: int
) -> Iterator[tuple[TopicSides, str]]:
    """Open both ends of a pair; also what is to be said of the topic. Raises TargetConfigError, MissingTopicError: they cannot be compared; TransientError: no broker answers."""
    topic = topic_of_pair(pair)
    topics = TargetTopics(lambda: admin_of(config), config.replication)
    facts = topics.facts(topic.name)
    if facts is None:
        raise MissingTopicError(f"the target has no topic {topic.name}")
    reader = CommittedReader(config, topics, topic.name, facts.partitions)

    def records() -> Iterator[Record]:
        for message in reader.to_end(stable=True):
            yield message.partition(), message.key(), message.value()

    try:
        plan = TopicPlan(pair, topic, facts, config.mask_salt.get_secret_value())
        with closing(TopicSides(plan, left, records, page)) as sides:
            yield sides, CUT if reader.cut else ""
    finally:
        reader.close()


def unclaimed(pair: Pair, others: Iterable[Pair]) -> str:
    """Return why records do not tell whose rows they are; "": they do. `others`: pairs that write to the same topic."""
    topic = pair.routed.topic
    if topic is None or topic.format in NAMED:
        return ""
    mine = dict(pair.routed.added)
    for other in others:
        same = (other.pipeline, other.source, other.table.db, other.table.name) == (
            pair.pipeline, pair.source, pair.table.db, pair.table.name,
        )  # fmt: skip
        place = (other.target, other.routed.schema, other.routed.table)
        if same or place != (pair.target, pair.routed.schema, pair.routed.table):
            continue
        theirs = dict(other.routed.added)
        if all(theirs.get(name, value) == value for name, value in mine.items()):
            return (
                f"records of format {topic.format} do not say which table they are of, and {other.source}:{other.table.db}.{other.table.name} "
                "goes to the topic, too: nothing was compared; tell them apart by a column of the route (`add`), or take format rowlock or debezium"
            )
    return ""
