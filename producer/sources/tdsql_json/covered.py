"""The transactions of one set that the door has passed on completely. Pure.

They are the position of the door (docs/adr/0049-tdsql-json-subscription.md): a message of a covered
transaction is a repeated delivery.
"""

from __future__ import annotations

from producer.sources.mariadb.mariadb_gtids import MariadbGtidSet
from producer.sources.mysql.mysql_gtids import GtidSet


class CoveredGtids:
    """GTIDs in both forms of TDSQL's servers: intervals of numbers for "uuid:number", and the last number
    of each domain and server for "domain-server-number". Mutable.

    The text contains the members of both, "0-1-42,35be190b-…:1-5:7"; a member of the first form has no
    colon.
    """

    __slots__ = ("_intervals", "_last")

    def __init__(self, intervals: GtidSet | None = None, last: MariadbGtidSet | None = None) -> None:
        self._intervals = intervals if intervals is not None else GtidSet()
        self._last = last if last is not None else MariadbGtidSet()

    @classmethod
    def parse(cls, text: str) -> CoveredGtids:
        """Return the set of `str`. Raises ValueError."""
        members = [member for member in text.split(",") if member]
        return cls(
            GtidSet.parse(",".join(member for member in members if ":" in member)),
            MariadbGtidSet.parse(",".join(member for member in members if ":" not in member)),
        )

    def add(self, gtid: str) -> None:
        """Add one transaction of which everything was passed on."""
        (self._intervals if ":" in gtid else self._last).add_logged(gtid)

    def __contains__(self, gtid: str) -> bool:
        return gtid in (self._intervals if ":" in gtid else self._last)

    def __str__(self) -> str:
        return ",".join(part for part in (str(self._last), str(self._intervals)) if part)
