"""The report of an apply process about its slots in Spark, which its agent passes on to the leader."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from schemas.units import Int64

MOST_FAILURES = 8
"""The most hosts whose failures are kept."""
LONGEST_FAILURE = 400
"""Characters of a failure that are kept."""


class SlotReport(msgspec.Struct, frozen=True):
    """The number of slots in Spark's tasks. The apply process's own slot does not count.

    Unlike the parts of other messages it is encoded with the names of its fields, on stdout and by gRPC.
    """

    open: Int64 = msgspec.field(name="open")
    """How many are open."""
    configured: Int64 = msgspec.field(name="configured")
    """How many the configuration asks for: `spark.slots`, or the N of `local[N]`."""
    short_s: Int64 = msgspec.field(name="short_s", default=0)
    """Seconds for which fewer have been open than configured."""
    cores: Int64 | None = msgspec.field(name="cores", default=None)
    """How many tasks Spark could run at once; None: not asked, because all slots are open, or not known."""
    failures: Mapping[str, str] = msgspec.field(name="failures", default_factory=dict)
    """Host → the last failure of a slot there, since fewer are open than configured; "": no host is named."""

    @property
    def is_short(self) -> bool:
        return self.open < self.configured


def limit_failures(failures: Mapping[str, str]) -> dict[str, str]:
    """Return the failures without the oldest hosts, if there are many, and without the ends of long texts."""
    kept = list(failures.items())[-MOST_FAILURES:]
    return {host[:LONGEST_FAILURE]: error[:LONGEST_FAILURE] for host, error in kept}
