"""The records of a unit in the progress topic of a Kafka target: one for the unit itself, and one for
each quarantined event. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from consumer.ordering.model import ApplyUnit, LaneProgress, QuarantineEntry, UnitState
from consumer.targets.batches import ProgressChange
from consumer.targets.kafka.formats.key_forms import KeyForm, ValueForm

PROGRESS_RECORD_VERSION = 1
EventId = tuple[int, int]


class RecordScheme(msgspec.Struct, frozen=True):
    """The way a unit's records are written; another one would give existing rows other keys or other
    partitions.

    `forms`, `added` None: an older rowlock wrote the record, and they are not compared.
    """

    topic: str = msgspec.field(name="topic")
    format: str = msgspec.field(name="format")
    key: tuple[str, ...] = msgspec.field(name="key")
    partitions: int = msgspec.field(name="partitions")
    partitioner: str = msgspec.field(name="partitioner")
    forms: tuple[KeyForm, ...] | None = msgspec.field(name="forms", default=None)
    """Forms of the key's columns."""
    added: tuple[tuple[str, str], ...] | None = msgspec.field(name="added", default=None)
    """The values of added columns."""
    topic_id: str = msgspec.field(name="topic_id", default="")
    """Kafka's id, by which a topic that was deleted and created again is recognised; "": unknown."""
    values: tuple[ValueForm, ...] | None = msgspec.field(name="values", default=None)
    """The forms of all columns' values, which may change; older records' values of another form are not
    read.
    """
    shape: tuple[tuple[str, str], ...] | None = msgspec.field(name="shape", default=None)
    """Digests of the route's options about rows, which may change, too."""
    outdated: tuple[tuple[str, int], ...] = msgspec.field(name="outdated", default=())
    """Options that changed, each with the offset of the unit's own topic up to which rows were written
    by the old option, until a copy that begins after it has written all of them again.
    """

    def list_incompatibilities(self, now: RecordScheme) -> list[str]:
        """Return the incompatible differences of `now`, each as "… was …, now …"; empty: rows keep
        their keys and partitions.
        """
        found = [
            f"{word} was {_describe_value(was)}, now {_describe_value(other)}"
            for word in ("topic", "format", "key", "partitions", "partitioner")
            if (was := getattr(self, word)) != (other := getattr(now, word))
        ]
        if not found and self.forms is not None and now.forms is not None:
            found += [
                f"key column {was.column} was written as {was.describe_form()}, "
                f"now as {other.describe_form()}"
                for was, other in zip(self.forms, now.forms, strict=True)
                if not was.goes_on_as(other)
            ]
        if self.added is not None and now.added is not None and dict(self.added) != dict(now.added):
            found.append(f"the columns of `add` were {dict(self.added)}, now {dict(now.added)}")
        return found

    def list_reshaped_options(self, now: RecordScheme) -> list[str]:
        """Return the options of the route in which `now` differs.

        Rows keep their keys, and stay unchanged until they are written again.
        """
        if self.shape is None or now.shape is None:
            return []
        was = dict(self.shape)
        return [name for name, digest in now.shape if was.get(name) != digest]


def _describe_value(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


class ProgressRecord(msgspec.Struct, frozen=True):
    """The record of a unit."""

    lanes: tuple[LaneProgress, ...] = msgspec.field(name="lanes")
    state: UnitState = msgspec.field(name="state")
    written: RecordScheme | None = msgspec.field(name="written", default=None)
    """None before the unit's first row."""
    version: int = msgspec.field(name="version", default=PROGRESS_RECORD_VERSION)
    commits: int = msgspec.field(name="commits", default=0)
    """How many batches the unit's owner has committed.

    The owner recognises its last commit by it, because not every commit moves an offset.
    """


@dataclass(frozen=True, slots=True)
class KnownUnit:
    """A unit as it was last read or written. `record` None: there is none. `held` by (offset, part)."""

    record: ProgressRecord | None = None
    held: Mapping[EventId, QuarantineEntry] = field(default_factory=dict)

    @property
    def lanes(self) -> tuple[LaneProgress, ...]:
        return () if self.record is None else self.record.lanes

    @property
    def written(self) -> RecordScheme | None:
        return None if self.record is None else self.record.written

    @property
    def commits(self) -> int:
        return 0 if self.record is None else self.record.commits

    @property
    def state(self) -> UnitState:
        return UnitState(None, None, None) if self.record is None else self.record.state


UNKNOWN_UNIT = KnownUnit()
RecordPair = tuple[bytes, bytes | None]
"""(key, value) of a record."""


class TopicUnits:
    """The units of a progress topic, according to the records taken so far."""

    def __init__(self) -> None:
        self._units: dict[ApplyUnit, KnownUnit] = {}

    def take_record(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record.

        Raises msgspec.DecodeError if it is not rowlock's, ValueError if a newer rowlock wrote it.
        """
        pipeline, topic, *event = msgspec.json.decode(key or b"", type=list[str | int])
        unit = ApplyUnit(str(pipeline), str(topic))
        known = self.get_unit(unit)
        if not event:
            record = None if value is None else msgspec.json.decode(value, type=ProgressRecord)
            if record is not None and record.version > PROGRESS_RECORD_VERSION:
                raise ValueError(
                    f"a newer version of rowlock wrote this record (format version {record.version}): run "
                    "that version"
                )
            self._units[unit] = KnownUnit(record, known.held)
            return
        offset, part = map(int, event)
        held = {each: entry for each, entry in known.held.items() if each != (offset, part)}
        if value is not None:
            held[offset, part] = msgspec.json.decode(value, type=QuarantineEntry)
        self._units[unit] = KnownUnit(known.record, held)

    def get_unit(self, unit: ApplyUnit) -> KnownUnit:
        return self._units.get(unit, UNKNOWN_UNIT)

    def list_unit_topics(self, pipeline: str) -> list[str]:
        return sorted(
            unit.topic
            for unit, known in self._units.items()
            if unit.pipeline == pipeline and known.record is not None
        )

    def find_topic_writers(self, unit: ApplyUnit, topic: str) -> dict[str, tuple[UnitState, int]]:
        """See consumer.targets.base.EventTables.

        A unit that has written to another topic does not count: it stops before it writes to this one
        (`RecordScheme.list_incompatibilities`).
        """
        mine = self._get_scheme(unit)
        first = mine is None or mine.topic != topic
        found = {}
        for other, known in self._units.items():
            if other == unit or other.pipeline != unit.pipeline or known.record is None:
                continue
            written = known.record.written
            counts = first and known.state.stopped is None if written is None else written.topic == topic
            if counts:
                found[other.topic] = known.state, min(row.offset for row in known.lanes)
        return found

    def _get_scheme(self, unit: ApplyUnit) -> RecordScheme | None:
        record = self.get_unit(unit).record
        return None if record is None else record.written


def yield_progress_pairs(unit: ApplyUnit, before: KnownUnit, after: KnownUnit) -> Iterator[RecordPair]:
    """Yield the records that turn `before` into `after`; the unit's own comes last."""
    for each in before.held:
        if each not in after.held:
            yield _encode_unit_key(unit, *each), None
    for each, entry in after.held.items():
        if before.held.get(each) != entry:
            yield _encode_unit_key(unit, *each), msgspec.json.encode(entry)
    yield _encode_unit_key(unit), None if after.record is None else msgspec.json.encode(after.record)


class ClosedEntry(msgspec.Struct, frozen=True):
    """A quarantine entry that was closed, with the reason and the time."""

    pipeline: str = msgspec.field(name="pipeline")
    topic: str = msgspec.field(name="topic")
    offset: int = msgspec.field(name="offset")
    part: int = msgspec.field(name="part")
    table: str = msgspec.field(name="table")
    key: str = msgspec.field(name="key")
    folded: str = msgspec.field(name="folded")
    event: str = msgspec.field(name="event")
    error: str = msgspec.field(name="error")
    commit_ts_ms: int = msgspec.field(name="commit_ts_ms")
    closed: str = msgspec.field(name="closed")
    closed_at_ms: int = msgspec.field(name="closed_at_ms")


def list_closed_entries(
    unit: ApplyUnit, before: KnownUnit, after: KnownUnit, why: str, now_ms: int
) -> list[ClosedEntry]:
    """Return the entries that left the quarantine between two states of a unit, in the order of events."""
    return [
        ClosedEntry(
            unit.pipeline, unit.topic, **msgspec.structs.asdict(entry), closed=why, closed_at_ms=now_ms
        )
        for each, entry in sorted(before.held.items())
        if each not in after.held
    ]


def encode_closed_entry(entry: ClosedEntry) -> RecordPair:
    return _encode_unit_key(
        ApplyUnit(entry.pipeline, entry.topic), entry.offset, entry.part
    ), msgspec.json.encode(entry)


def _encode_unit_key(unit: ApplyUnit, *event: int) -> bytes:
    return msgspec.json.encode((unit.pipeline, unit.topic, *event))


def apply_progress_change(
    known: KnownUnit, change: ProgressChange, written: RecordScheme | None
) -> KnownUnit:
    """Return the unit's state after a commit."""
    before = -1 if change.closed_before is None else change.closed_before
    closed = set(change.closed)
    held = {each: entry for each, entry in known.held.items() if each[0] >= before and each not in closed} | {
        (entry.offset, entry.part): entry for entry in change.held
    }
    return KnownUnit(
        ProgressRecord(tuple(change.rows), change.state or known.state, written or known.written), held
    )


def count_commit(known: KnownUnit, after: KnownUnit) -> KnownUnit:
    """Return `after` with the number of the commit by which a batch turns `known` into it."""
    if after.record is None:
        return after
    return KnownUnit(msgspec.structs.replace(after.record, commits=known.commits + 1), after.held)


def list_guards(rows: Sequence[LaneProgress]) -> list[tuple[int, int, int, int]]:
    """Return the values that a commit compares."""
    return sorted((row.lane, row.epoch, row.attempt, row.offset) for row in rows)
