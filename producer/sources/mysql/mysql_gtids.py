"""Sets of MySQL GTIDs: the transactions that a SELECT certainly saw, and those that the stream has
delivered.

Has only what snapshots and failovers need. Optimised for appending one transaction at a time, in order.
"""

from __future__ import annotations

import struct
import uuid
from bisect import bisect_right


class GtidSet:
    """Transactions as sorted, disjoint, non-adjacent intervals [first, last] for each UUID (with its
    tag, if it has one).
    """

    __slots__ = ("_intervals",)

    def __init__(self) -> None:
        self._intervals: dict[str, list[list[int]]] = {}

    @classmethod
    def parse(cls, text: str) -> GtidSet:
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

    def add(self, gtid: str) -> None:
        """Add one transaction, "uuid:number" or "uuid:tag:number"."""
        source, number = split_gtid(gtid)
        self._add_interval(source, number, number)

    def _add_interval(self, source: str, first: int, last: int) -> None:
        intervals = self._intervals.setdefault(source, [])
        if intervals and first == intervals[-1][1] + 1:
            intervals[-1][1] = last
            return
        intervals.append([first, last])
        if len(intervals) > 1 and intervals[-2][1] >= first:
            self._intervals[source] = _merge_intervals(intervals)

    def __contains__(self, gtid: str) -> bool:
        source, number = split_gtid(gtid)
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

    def subtract(self, other: GtidSet) -> GtidSet:
        """Return the transactions of this set that are not in `other`."""
        new = GtidSet()
        for source, found in self._intervals.items():
            if left := _subtract_intervals(found, other._intervals.get(source, [])):
                new._intervals[source] = left
        return new

    def intersect(self, other: GtidSet) -> GtidSet:
        """Return the transactions that are in both sets."""
        return self.subtract(self.subtract(other))

    def count(self) -> int:
        """Return the number of transactions."""
        return sum(last - first + 1 for found in self._intervals.values() for first, last in found)

    def find_first_numbers(self) -> dict[str, int]:
        """Return the lowest number of each UUID (with its tag)."""
        return {source: found[0][0] for source, found in self._intervals.items()}

    def copy(self) -> GtidSet:
        new = GtidSet()
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
        return f"GtidSet({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._intervals == other._intervals

    __hash__ = None  # type: ignore[assignment]


def split_gtid(gtid: str) -> tuple[str, int]:
    """Return ("uuid" or "uuid:tag", number)."""
    source, _, number = gtid.rpartition(":")
    return source.lower(), int(number)


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
