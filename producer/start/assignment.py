"""The assignment of a capture process, which proves that it may still capture its source."""

from __future__ import annotations

from dataclasses import dataclass

from producer.errors import SupersededError
from schemas.wire.records import StoredPosition


@dataclass(slots=True)
class CaptureAssignment:
    """The assignment of a capture process, through all its starts.

    `at_least`: the gen that a coordinator assigned, 0 without one. `claimed`: the last gen that this
    process claimed.
    """

    at_least: int = 0
    claimed: int | None = None

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
                f"source {source} is captured by another process now (assignment {stored.assigned}, gen {stored.gen}; "
                f"ours is assignment {self.at_least}): this one was paused, or cut off, and ends"
            )
