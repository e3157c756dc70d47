"""Rows that a topic has of transactions after the stored position, and that the log of the source's new
server brings again (docs/adr/0047). Pure.

Invariant: of each table the new log brings first exactly the rows that its topic has already, in the same
order and in the same transactions. They are left out. At the first difference the table stops: rows of
another transaction may be older than what the topic has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from producer.errors import TableStoppedError
from producer.sources.mysql.mysql_gtids import GtidSet
from producer.tables import TableName, format_table_name
from schemas.findings import format_copy_remedy
from schemas.wire.position import Position

_ROW_OPS = frozenset({"c", "u", "d"})
_SNAPSHOT = "r"


class _Source(msgspec.Struct):
    row: int = msgspec.field(name="row")
    position: Position = msgspec.field(name="position")
    gen: int = msgspec.field(name="gen")
    gtid: str | None = msgspec.field(name="gtid", default=None)


class _Images(msgspec.Struct):
    op: str = msgspec.field(name="op")
    before: msgspec.Raw = msgspec.field(name="before", default=msgspec.Raw(b"null"))
    after: msgspec.Raw = msgspec.field(name="after", default=msgspec.Raw(b"null"))


class PlacedEvent(msgspec.Struct):
    """An event, as far as it shows to which transaction it belongs."""

    op: str = msgspec.field(name="op")
    source: _Source = msgspec.field(name="source")
    chunk: object = msgspec.field(name="chunk", default=None)
    stop: object = msgspec.field(name="stop", default=None)

    @property
    def is_change(self) -> bool:
        """True if it is a row of the log."""
        return self.op in _ROW_OPS and self.source.row >= 0

    @property
    def fits_any_log(self) -> bool:
        """True if any log with the same transactions allows it: rows of a snapshot and their markers. A stop
        is stored with the position.
        """
        return self.op == _SNAPSHOT or self.chunk is not None or self.stop is not None

    @property
    def is_in_order(self) -> bool:
        """True if its position is above those of the events before it, unlike that of a repeated event."""
        return self.op not in ("m", "k")


decode_placed_event = msgspec.json.Decoder(PlacedEvent).decode
_decode_images = msgspec.json.Decoder(_Images).decode


class RowDigest:
    """A digest of rows in their order: their keys and images, without positions."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.rows = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Add a row event."""
        images = _decode_images(value)
        for part in (images.op.encode(), key, bytes(images.before), bytes(images.after)):
            self._hash.update(len(part).to_bytes(8, "big") + part)
        self.rows += 1

    def digest(self) -> bytes:
        return self._hash.digest()


class CoveredTransaction(NamedTuple):
    """The rows that a topic has of one transaction. `rows`: their number; `digest`: see RowDigest."""

    gtid: str
    rows: int
    digest: bytes


class CoveredRows:
    """The rows of one table that the log must bring before any other."""

    def __init__(self, name: TableName, expected: Iterable[CoveredTransaction]) -> None:
        self._name = name
        self._expected = deque(expected)
        self._digest = RowDigest()

    @property
    def is_pending(self) -> bool:
        """True if rows are expected."""
        return bool(self._expected)

    def count_covered(self, gtid: str | None, records: list[tuple[bytes, bytes]]) -> int:
        """Return how many of the records of a transaction, from the first on, the topic has already.

        Raises TableStoppedError for records that are not the expected ones.
        """
        for number, (key, value) in enumerate(records):
            if not self._expected:
                return number
            expected = self._expected[0]
            if gtid != expected.gtid:
                raise self.build_stop(f"transaction {gtid} precedes {expected.gtid} in its log")
            self._digest.add(key, value)
            if self._digest.rows < expected.rows:
                continue
            if self._digest.digest() != expected.digest:
                raise self.build_stop(f"transaction {gtid} has other rows in its log")
            self._expected.popleft()
            self._digest = RowDigest()
        return len(records)

    def build_stop(self, seen: str) -> TableStoppedError:
        """Return the stop of the table. `seen`: the difference."""
        return build_failover_stop(
            self._name,
            "the log of the source's new server differs from the topic of "
            f"{format_table_name(self._name)}: {seen}",
        )


def build_failover_stop(name: TableName, reason: str) -> TableStoppedError:
    """Return the stop of a table whose topic does not fit the log of the source's new server."""
    return TableStoppedError(frozenset([name]), "failover", reason, format_copy_remedy(*name))


@dataclass(slots=True)
class LateEvents:
    """The events of a topic after its anchors, read in the topic's order.

    `captured`: the transactions that the stored position includes. `eras`: the first era of the source's
    history, and the new server's, whose own events do not count. `here`: the position (era, file, pos) in the
    former log, at the switch; None: a later start, for which the switch has judged all but the rows.
    `gen`: the highest before the events. `problem`: why the new log cannot be compared with the topic, "": it
    can.
    """

    captured: GtidSet
    eras: tuple[int, int]
    here: tuple[int, int, int] | None = None
    gen: int = 0
    problem: str = ""
    _highest: Position | None = None
    _rows: dict[str, RowDigest] = field(default_factory=dict)

    def add_event(self, key: bytes, value: bytes) -> None:
        """Add an event of the topic."""
        event = decode_placed_event(value)
        source = event.source
        if source.gen < self.gen:  # of a superseded process
            return
        self.gen = source.gen
        if not self.eras[0] <= source.position[0] < self.eras[1]:
            return
        if event.is_change:
            self._add_row(event, key, value)
        elif self.here is not None and not event.fits_any_log and self._comes_again(event, self.here):
            self.problem = f"it has a statement or the begin of a copy at {source.position}"

    def _comes_again(self, event: PlacedEvent, here: tuple[int, int, int]) -> bool:
        """Return whether the new log brings the statement of an event again, or may bring it. A statement's
        own event has its GTID; definitions are repeated without it."""
        gtid = event.source.gtid
        return event.source.position[:3] > here or (gtid is not None and gtid not in self.captured)

    def _add_row(self, event: PlacedEvent, key: bytes, value: bytes) -> None:
        source = event.source
        if self._highest is not None and source.position <= self._highest:
            return  # sent twice
        self._highest = source.position
        if source.gtid is not None:
            if source.gtid not in self.captured:
                self._rows.setdefault(source.gtid, RowDigest()).add(key, value)
        elif self.here is not None and source.position[:3] >= self.here:
            self.problem = f"it has rows without GTID at {source.position}"

    def list_transactions(self) -> list[CoveredTransaction]:
        """Return the transactions in the topic's order."""
        return [CoveredTransaction(gtid, each.rows, each.digest()) for gtid, each in self._rows.items()]
