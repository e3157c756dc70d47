"""Sets of MySQL GTIDs: the transactions that a SELECT certainly saw, and those that the stream has
delivered.

Has only what snapshots and failovers need. Optimised for appending one transaction at a time, in order.
Sets of MariaDB GTIDs (producer/sources/mariadb/mariadb_gtids.py) differ in what this class documents so.
"""

from __future__ import annotations

import struct
import uuid
from bisect import bisect_right
from typing import Protocol, Self

_LAST = 2**64 - 1
"""Above the highest number of a GTID."""


class GtidSet:
    """Transactions as sorted, disjoint, non-adjacent intervals [first, last] for each UUID (with its
    tag, if it has one).
    """

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: dict[str, list[list[int]]] = {}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the set of "uuid:1-5:7,uuid:tag:3" (newlines allowed). Raises ValueError."""
        found = cls()
        for member in text.replace("\n", "").split(","):
            if member.strip():
                found._parse_member(member.strip())
        return found

    def _parse_member(self, member: str) -> None:
        server, *parts = member.split(":")
        source = server = server.lower()
        for part in parts:
            if not part[:1].isdigit():
                source = f"{server}:{part.lower()}"  # the intervals after it belong to this tag
                continue
            first, _, last = part.partition("-")
            self._add_interval(source, int(first), int(last or first))

    @staticmethod
    def split_gtid(gtid: str) -> tuple[str, int]:
        """Return ("uuid" or "uuid:tag", number); of MariaDB ("domain-server", number)."""
        source, _, number = gtid.rpartition(":")
        return source.lower(), int(number)

    @staticmethod
    def name_order(gtid: str) -> str:
        """Return the name of the part of a log that has the same order at all servers and includes the
        transaction: "", the whole log; of MariaDB the domain.
        """
        del gtid
        return ""

    @classmethod
    def split_series(cls, gtid: str) -> tuple[str, int]:
        """Return the name of the series of numbers that rise along every log, and the number. The series is
        the source of the GTID; of MariaDB the domain.
        """
        return cls.split_gtid(gtid)

    def add(self, gtid: str) -> None:
        """Add one transaction, "uuid:number" or "uuid:tag:number"."""
        source, number = self.split_gtid(gtid)
        self._add_interval(source, number, number)

    def add_logged(self, gtid: str) -> None:
        """Add the transaction that follows in a log. On MariaDB all earlier numbers of its server and domain
        belong to the set then: a transaction that follows in the log never has one of these.
        """
        self.add(gtid)

    def add_all(self, other: GtidSet) -> None:
        """Add the transactions of `other`."""
        for source, found in other._intervals.items():
            for first, last in found:
                self._add_interval(source, first, last)

    def _add_interval(self, source: str, first: int, last: int) -> None:
        intervals = self._intervals.setdefault(source, [])
        if intervals and first == intervals[-1][1] + 1:
            intervals[-1][1] = last
            return
        intervals.append([first, last])
        if len(intervals) > 1 and intervals[-2][1] >= first:
            self._intervals[source] = _merge_intervals(intervals)

    def __contains__(self, gtid: str) -> bool:
        source, number = self.split_gtid(gtid)
        return self._has_range(source, number, number)

    def _has_range(self, source: str, first: int, last: int) -> bool:
        intervals = self._intervals.get(source, [])
        i = bisect_right(intervals, first, key=lambda interval: interval[0]) - 1
        return i >= 0 and intervals[i][1] >= last

    def covers(self, other: GtidSet) -> bool:
        """Return whether every transaction of `other` is in this set."""
        return all(
            self._has_range(source, first, last)
            for source, found in other._intervals.items()
            for first, last in found
        )

    def subtract(self, other: GtidSet) -> Self:
        """Return the transactions of this set that are not in `other`."""
        new = type(self)()
        for source, found in self._intervals.items():
            if left := _subtract_intervals(found, other._intervals.get(source, [])):
                new._intervals[source] = left
        return new

    def intersect(self, other: GtidSet) -> Self:
        """Return the transactions that are in both sets."""
        return self.subtract(self.subtract(other))

    def count(self) -> int:
        """Return the number of transactions."""
        return sum(last - first + 1 for found in self._intervals.values() for first, last in found)

    def find_first_numbers(self) -> dict[str, int]:
        """Return the lowest number of each series (`split_series`)."""
        return {source: found[0][0] for source, found in self._intervals.items()}

    def remove_from(self, gtid: str) -> None:
        """Remove a transaction, and those of its source with higher numbers."""
        source, number = self.split_gtid(gtid)
        self._subtract_range(source, number, _LAST)

    def remove_server(self, server: str) -> None:
        """Remove the transactions that a server wrote first (`server`: its UUID; of MariaDB its id)."""
        for source in [each for each in self._intervals if each.partition(":")[0] == server.lower()]:
            del self._intervals[source]

    def _subtract_range(self, source: str, first: int, last: int) -> None:
        left = _subtract_intervals(self._intervals.pop(source, []), [[first, last]])
        if left:
            self._intervals[source] = left

    def copy(self) -> Self:
        new = type(self)()
        new._intervals = {source: [list(i) for i in found] for source, found in self._intervals.items()}
        return new

    def encode(self) -> bytes:
        """Return the set as COM_BINLOG_DUMP_GTID takes it. Raises ValueError for tagged GTIDs."""
        out = [struct.pack("<Q", len(self._intervals))]
        for source, found in sorted(self._intervals.items()):
            out.append(uuid.UUID(source).bytes + struct.pack("<Q", len(found)))
            out += [struct.pack("<QQ", first, last + 1) for first, last in found]
        return b"".join(out)

    def __str__(self) -> str:
        return ",".join(
            source + "".join(f":{a}-{b}" if b > a else f":{a}" for a, b in found)
            for source, found in sorted(self._intervals.items())
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._intervals == other._intervals

    __hash__ = None  # type: ignore[assignment]


class LogComparison(Protocol):
    """Compares the log of another server, from a file's beginning, with what was captured.

    `missed`: captured transactions that are missing in the log, of those that its numbers pass over.
    """

    @property
    def missed(self) -> GtidSet: ...

    def accept(self, gtid: str) -> None:
        """Take the next transaction of the log. Raises SourceRefusedError."""
        ...

    def is_complete(self) -> bool:
        """True if no captured transaction follows."""
        ...

    @property
    def left(self) -> GtidSet:
        """The captured transactions that the server has logged, and that were not met."""
        ...


class SetComparison:
    """A LogComparison of sets: each transaction has to be met. Nothing is missed."""

    def __init__(self, captured: GtidSet, before: GtidSet, logged: GtidSet) -> None:
        self.left: GtidSet = captured.intersect(logged).subtract(before)
        self.missed = GtidSet()
        self._count = self.left.count()

    def accept(self, gtid: str) -> None:
        self._count -= gtid in self.left

    def is_complete(self) -> bool:
        return not self._count


def _subtract_intervals(found: list[list[int]], others: list[list[int]]) -> list[list[int]]:
    out: list[list[int]] = []
    for first, last in found:
        begin = first
        for low, high in others:
            if high < begin or low > last:
                continue
            if low > begin:
                out.append([begin, low - 1])
            begin = high + 1
        if begin <= last:
            out.append([begin, last])
    return out


def _merge_intervals(intervals: list[list[int]]) -> list[list[int]]:
    out: list[list[int]] = []
    for first, last in sorted(intervals):
        if out and first <= out[-1][1] + 1:
            out[-1][1] = max(out[-1][1], last)
        else:
            out.append([first, last])
    return out
