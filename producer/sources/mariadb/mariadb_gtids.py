"""Sets of MariaDB GTIDs, "domain-server-number", and the comparison of a log with them. Pure.

Numbers rise along every log within their domain, whichever server wrote them (gtid_strict_mode = ON). So all
that MariaDB keeps, the last number of each domain and server, is a set: of each of these streams the numbers
up to the last. Most of these numbers are no transactions of the stream, because other servers had them.
"""

from __future__ import annotations

from producer.errors import SourceRefusedError
from producer.sources.mysql.mysql_gtids import GtidSet
from schemas.findings import START_OVER

STRICT_MODE = (
    "SET GLOBAL gtid_strict_mode = ON; on all servers of the source, and set it in their configuration"
)


class MariadbGtidSet(GtidSet):
    """Numbers of each stream ("domain-server"). Its text has the form of gtid_binlog_state, "0-1-42,1-7-9",
    in which a number includes all before it; other numbers have the form "0-1-5..42".
    """

    __slots__ = ()

    def _parse_member(self, member: str) -> None:
        self.add_logged(member)

    @staticmethod
    def split_gtid(gtid: str) -> tuple[str, int]:
        stream, _, number = gtid.rpartition("-")
        return stream, int(number)

    @staticmethod
    def name_order(gtid: str) -> str:
        return gtid.partition("-")[0]

    @classmethod
    def split_series(cls, gtid: str) -> tuple[str, int]:
        return cls.name_order(gtid), cls.split_gtid(gtid)[1]

    def add_logged(self, gtid: str) -> None:
        stream, number = self.split_gtid(gtid)
        found = self._intervals.get(stream)
        if found is None or number > found[-1][1]:
            self._intervals[stream] = [[1, number]]

    def find_first_numbers(self) -> dict[str, int]:
        first: dict[str, int] = {}
        for stream, found in self._intervals.items():
            domain = self.name_order(stream)
            first[domain] = min(found[0][0], first.get(domain, found[0][0]))
        return first

    def find_last_numbers(self) -> dict[str, int]:
        """Return the highest number of each domain."""
        last: dict[str, int] = {}
        for stream, found in self._intervals.items():
            domain = self.name_order(stream)
            last[domain] = max(found[-1][1], last.get(domain, 0))
        return last

    def list_last(self) -> dict[str, int]:
        """Return the highest number of each stream."""
        return {stream: found[-1][1] for stream, found in self._intervals.items()}

    def remove_server(self, server: str) -> None:
        for stream in [each for each in self._intervals if each.partition("-")[2] == server]:
            del self._intervals[stream]

    def take_numbers(self, domain: str, first: int, last: int) -> MariadbGtidSet:
        """Remove the numbers up to `last` of all streams of a domain, and return those from `first` on."""
        taken = MariadbGtidSet()
        for stream in [each for each in self._intervals if self.name_order(each) == domain]:
            for low, high in self._intervals[stream]:
                if max(low, first) <= min(high, last):
                    taken._add_interval(stream, max(low, first), min(high, last))
            self._subtract_range(stream, 0, last)
        return taken

    def __str__(self) -> str:
        return ",".join(
            f"{stream}-{last}" if first in (1, last) else f"{stream}-{first}..{last}"
            for stream, found in sorted(self._intervals.items())
            for first, last in found
        )


def find_executed(
    captured: MariadbGtidSet, logged: MariadbGtidSet, applied: MariadbGtidSet
) -> tuple[MariadbGtidSet, tuple[str, ...]]:
    """Return what a server has executed, as far as it concerns what was `captured`, and the last captured
    GTIDs of domains of which it shows nothing.

    `logged`: its gtid_binlog_state; `applied`: its gtid_slave_pos. A server that was built from a backup, or
    whose domain was deleted, has no number of a stream. It has what precedes the last captured transaction
    that it shows in the same domain. An applied number that the log lacks counts only if the log has nothing
    of its stream, and nothing of its domain up to it: a server logs what it executes, so an operator or a
    filter has skipped any other.
    """
    executed, last_logged, streams = logged.copy(), logged.find_last_numbers(), logged.list_last()
    for stream, number in applied.list_last().items():
        if stream not in streams and last_logged.get(logged.name_order(stream), number + 1) > number:
            executed.add_logged(f"{stream}-{number}")
    shown, known = executed.find_last_numbers(), executed.list_last()
    shared = captured.intersect(executed).find_last_numbers()
    unshown = list[str]()
    for stream, number in captured.list_last().items():
        domain = captured.name_order(stream)
        if domain not in shown:
            unshown.append(f"{stream}-{number}")
        elif stream not in known and domain in shared:
            executed.add_logged(f"{stream}-{shared[domain]}")
    return executed, tuple(unshown)


class DomainOrder:
    """Checks that the numbers of each domain rise along a log. `before`: the GTIDs of all that is before."""

    def __init__(self, before: MariadbGtidSet) -> None:
        self.last = before.find_last_numbers()

    def accept(self, gtid: str) -> None:
        """Take the next transaction of the log. Raises SourceRefusedError if its number does not rise."""
        domain, number = MariadbGtidSet.split_series(gtid)
        if number <= self.last.get(domain, 0):
            raise SourceRefusedError(
                f"the log has transaction {gtid} after number {self.last[domain]} of the same GTID domain: "
                "with numbers that repeat or fall nothing shows after a failover what was captured",
                f"{STRICT_MODE}; do not set gtid_seq_no, and {START_OVER}",
            )
        self.last[domain] = number


class DomainComparison:
    """Compares the log of another server, from a file's beginning, with what was captured.

    `before`: the GTIDs of all that is before the file; `logged`: all that the server has logged. `missed`:
    numbers of captured transactions that are missing in the log between others of their domain.
    """

    def __init__(self, captured: MariadbGtidSet, before: MariadbGtidSet, logged: MariadbGtidSet) -> None:
        self._captured = captured
        self._order = DomainOrder(before)
        self._left = captured.intersect(logged).subtract(before)
        self._unmet = logged.find_last_numbers().keys() - self._order.last.keys()
        self._last_captured = captured.find_last_numbers()
        self.missed = MariadbGtidSet()

    def accept(self, gtid: str) -> None:
        """Take the next transaction. Raises SourceRefusedError if numbers fall, or if the log begins after
        transactions that Kafka lacks."""
        domain, number = MariadbGtidSet.split_series(gtid)
        before = self._order.last.get(domain)
        captured = self._last_captured.get(domain, 0)
        if before is None and number > captured + 1:
            raise SourceRefusedError(
                f"the log of the source's new server begins with transaction {gtid} of its GTID domain, and "
                f"Kafka has the domain up to number {captured}: those between may be missing",
                "keep the log longer on all servers of the source (binlog_expire_logs_seconds), and "
                f"{START_OVER}",
            )
        self._order.accept(gtid)
        self._unmet.discard(domain)
        first = number if before is None else before + 1
        if gtid in self._captured:
            self.missed.add_all(self._left.take_numbers(domain, first, number - 1))
            self._left.take_numbers(domain, number, number)
        else:
            self.missed.add_all(self._left.take_numbers(domain, first, number))

    def is_complete(self) -> bool:
        """True if no captured transaction follows, and each domain of the server was met."""
        return not self._left.count() and not self._unmet

    @property
    def left(self) -> GtidSet:
        """The captured transactions that the server has logged, and that were not met."""
        return self._left


def has_reached_gtids(stored: str | None, now: str | None) -> bool:
    """Return whether MariaDB's `now` (see producer.sources.mariadb.flavour) reaches every
    "domain-server-number" of `stored`.

    A stream that it no longer shows is reached if its domain has a higher number. A domain that it does not
    show was deleted, or its log is another one, which the proofs of the log show; but then it shows others.
    """
    wanted, reached = MariadbGtidSet.parse(stored or ""), MariadbGtidSet.parse(now or "")
    streams, domains = reached.list_last(), reached.find_last_numbers()
    if wanted.count() and not domains:
        return False
    return all(
        streams.get(stream, domains.get(reached.name_order(stream), number)) >= number
        for stream, number in wanted.list_last().items()
    )
