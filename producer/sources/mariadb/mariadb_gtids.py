"""Sets of captured MariaDB GTIDs. Pure. MySQL's sets are producer.sources.mysql.mysql_gtids.GtidSet."""

from __future__ import annotations

from typing import Protocol


class SeenGtids(Protocol):
    """The GTIDs of transactions that have ended; `str` returns their text in a position record."""

    def add(self, gtid: str) -> None: ...


class MariadbGtids:
    """The last number of each domain and server, which is all that MariaDB's log guarantees to be in order.

    Mutable.

    The text has the form of gtid_binlog_state, "0-1-42,1-7-9".
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    @classmethod
    def parse(cls, text: str) -> MariadbGtids:
        found = cls()
        for gtid in text.replace("\n", "").split(","):
            if gtid.strip():
                found.add(gtid.strip())
        return found

    def add(self, gtid: str) -> None:
        """Add one transaction, "domain-server-number"."""
        stream, _, number = gtid.rpartition("-")
        last = int(number)
        if last > self._last.get(stream, -1):
            self._last[stream] = last

    def __contains__(self, gtid: str) -> bool:
        """Return whether the transaction, or a later one of its domain and server, was added."""
        stream, _, number = gtid.rpartition("-")
        return int(number) <= self._last.get(stream, -1)

    def __str__(self) -> str:
        return ",".join(f"{stream}-{number}" for stream, number in sorted(self._last.items()))


def has_reached_gtids(stored: str | None, now: str | None) -> bool:
    """Return whether MariaDB's `now` (gtid_binlog_state) reaches every "domain-server-number" of
    `stored`.
    """
    reached = _group_by_stream(now)
    return all(reached.get(stream, -1) >= number for stream, number in _group_by_stream(stored).items())


def _group_by_stream(gtids: str | None) -> dict[tuple[str, str], int]:
    reached: dict[tuple[str, str], int] = {}
    for gtid in (gtids or "").replace("\n", "").split(","):
        parts = gtid.strip().split("-")
        if len(parts) == 3:
            reached[parts[0], parts[1]] = int(parts[2])
    return reached
