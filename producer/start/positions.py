"""Positions from which capture resumes, with its assignment number: the records of
`<prefix>.<source>.position`.

First come pure rules (which record is valid, whether the server is the recorded one, whether its log
still reaches back), then the small shell that reads and writes the topic. A start takes the record of
the highest gen, writes gen + 1 with the same position *before* its first event, and removes the older
keys afterwards. So a capture process that is still alive somewhere can never win against its successor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from producer.errors import SourceRefusedError, SupersededError
from producer.ports import EventWriter, TopicRanges
from producer.sources.changes import LogFile
from schemas.findings import START_OVER
from schemas.wire.codec import decode_stored_position, encode_stored_position
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Identity, StoredPosition


@dataclass(slots=True)
class CaptureAssignment:
    """The assignment of a capture process, through all its starts.

    `at_least`: the gen that a coordinator assigned, 0 without one. `claimed`: the last gen that this
    process claimed.
    """

    at_least: int = 0
    claimed: int | None = None

    def record_claim(self, gen: int) -> None:
        """Record the gen that this process has claimed."""
        self.claimed = gen

    def check_not_superseded(self, source: str, stored: StoredPosition | None) -> None:
        """Raise SupersededError when another process has claimed the source since.

        With a coordinator the source was then assigned elsewhere, and another start would push that
        process aside: readers would drop its events. At its first claim a process compares assignments:
        the gen alone grows with every restart, so it may be above that of a later assignment.
        """
        if not self.at_least or stored is None:
            return
        later = stored.assigned > self.at_least
        if later or (self.claimed is not None and stored.gen > self.claimed):
            raise SupersededError(
                f"source {source} is captured by another process now (assignment "
                f"{stored.assigned}, gen {stored.gen}; ours is assignment {self.at_least}): "
                "this one was paused, or cut off, and ends"
            )


class PositionRecords(NamedTuple):
    """The content of the position topic: the valid record, and the keys of older ones."""

    newest: StoredPosition | None
    older_keys: tuple[str, ...]


def select_record(found: Iterable[tuple[str, bytes | None]]) -> PositionRecords:
    """Choose among the topic's (key, value) pairs in offset order: the highest gen, and its latest
    record.

    Raises EnvelopeError for a value that is not a position record.
    """
    latest: dict[str, StoredPosition] = {}
    for key, value in found:
        if value is None:
            latest.pop(key, None)
        else:
            latest[key] = decode_stored_position(value)
    newest = max(latest.values(), key=lambda record: record.gen, default=None)
    older = tuple(key for key, record in latest.items() if newest is not None and record.gen < newest.gen)
    return PositionRecords(newest, older)


def require_recorded_server(stored: StoredPosition, now: Identity) -> None:
    """Raise SourceRefusedError unless `now` is the recorded server by its uuid (MariaDB has none: by its
    id).
    """
    was = stored.identity
    if was.is_same_server(now):
        return
    if was.server_uuid is None and now.server_uuid is None:
        seen = f"server_id {now.server_id}, recorded is {was.server_id}"
    else:
        seen = f"server_uuid {now.server_uuid}, recorded is {was.server_uuid}"
    raise SourceRefusedError(
        f"the source is another server than the one recorded: {seen}",
        "if it is a replica that was promoted, write `hosts` instead of `host` and `port`; else "
        f"{START_OVER}",
    )


def check_gtids(stored: StoredPosition, now: Identity, *, contained: bool) -> None:
    """Raise SourceRefusedError unless the server has all GTIDs that were captured."""
    if not contained:
        raise SourceRefusedError(
            f"the source no longer has transactions that were captured ({stored.identity.gtid_set}; it has "
            f"{now.gtid_set}): it was reset or restored from a backup",
            START_OVER,
        )


def check_log(stored: StoredPosition, files: Sequence[LogFile]) -> None:
    """Raise SourceRefusedError unless the source's log still holds the stored position."""
    sizes = {parse_binlog_file_number(file.name): file.size for file in files}
    number = parse_binlog_file_number(stored.file)
    place = f"{stored.file}:{stored.pos}"
    if not sizes:
        raise SourceRefusedError(
            f"the source lists no binlog files, capture's position is {place}", START_OVER
        )
    if number < min(sizes):
        raise SourceRefusedError(
            f"the source has purged the log that capture needs: its position is {place}, the oldest file is "
            f"{files[0].name}",
            f"keep the log longer (binlog_expire_logs_seconds), and {START_OVER}",
        )
    if number not in sizes or sizes[number] < stored.pos:
        raise SourceRefusedError(
            f"the source's log is shorter than what was captured: capture's position is {place}, the log "
            f"ends at {files[-1].name}:{files[-1].size}: it was reset or restored",
            START_OVER,
        )


class PositionStore:
    """The position topic of one source."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._claimed = 0  # the offset of this process's claim
        self._next = 0  # after the records of this process

    def load_records(self, reader: TopicRanges) -> PositionRecords:
        """Read the whole topic, which is small because it is compacted."""
        low, high = reader.get_bounds(self.topic)
        messages = reader.read_range(self.topic, low, high)
        return select_record((message.key().decode(), message.value()) for message in messages)

    def claim_position(
        self,
        writer: EventWriter,
        reader: TopicRanges,
        record: StoredPosition,
        older: Iterable[str],
        announce: Callable[[int], None] = lambda _gen: None,
    ) -> StoredPosition:
        """Write `record` durably under a gen that no other process has, then remove the `older` keys, and let
        `announce` send what is to be known of the gen before its first event.

        Return the record.

        Two starts at the same moment write the same gen; the one with the later record takes the next.
        """
        while True:
            offsets: list[int] = []
            writer.send(self.topic, str(record.gen).encode(), encode_stored_position(record), offsets.append)
            writer.drain()
            if self._find_first_claim(reader, record.gen) == offsets[0]:
                break
            record = msgspec.structs.replace(record, gen=record.gen + 1)
        self._claimed, self._next = offsets[0], offsets[0] + 1
        for key in older:
            writer.send(self.topic, key.encode(), None)
            self._next += 1
        announce(record.gen)
        writer.drain()
        return record

    def _find_first_claim(self, reader: TopicRanges, gen: int) -> int:
        low, high = reader.get_bounds(self.topic)
        key = str(gen).encode()
        offsets = (
            message.offset() for message in reader.read_range(self.topic, low, high) if message.key() == key
        )
        return int(next(offsets))

    def store_position(self, writer: EventWriter, record: StoredPosition) -> None:
        """Write `record`. Everything before its position must be acknowledged already."""
        writer.send(self.topic, str(record.gen).encode(), encode_stored_position(record), self._is_there)

    def _is_there(self, offset: int) -> None:
        """Count an acknowledged record.

        After a record of another process it is not counted, so that the topic is read.
        """
        if offset == self._next:
            self._next += 1

    def is_superseded(self, reader: TopicRanges, gen: int) -> bool:
        """Return whether a later gen has claimed the source.

        Everything that was sent must be acknowledged.

        If not, all acknowledged events of this process are valid: a later claimant finds them in the
        topics. Without records of other processes, which are few, only the topic's end is read.
        """
        _, end = reader.get_bounds(self.topic)
        if end == self._next:
            return False
        keys = [message.key() for message in reader.read_range(self.topic, self._claimed, end)]
        if any(int(key) > gen for key in keys):
            return True
        self._next = end
        return False
