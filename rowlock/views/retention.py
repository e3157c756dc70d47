"""Retention: how long the source's log and Kafka keep a backlog of capture or apply. Pure.

Both delete what is older than their limit, whole files at a time and the oldest first. So the remaining
time (the headroom) is at least the limit less the age of the oldest part that is still needed. A log may
also be limited in size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.findings import Finding

ALARM_SHARE = 0.5
"""The share of a limit above which a backlog is an alarm: half of the limit is left to find the cause
and repair it.
"""
SHORT_S = 86_400.0
"""A shorter retention, in seconds, is a warning of `check`: an outage of a night would outlast it."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of age and size beyond which data is deleted, with the names of their settings. None:
    no limit.
    """

    seconds: float | None
    """How old a part may become."""
    by: str
    """The setting of that limit."""
    bytes: int | None = None
    """How large the whole may become."""
    bytes_by: str = ""
    """The setting of that limit."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """A backlog: the part of a log or topic that is still needed."""

    place: str
    """"source b1" or "topic t"."""
    what: str
    """What is kept there ("its log")."""
    kept: RetentionLimits
    age_s: float
    """The age of its oldest part; 0: there is no backlog."""
    reader: str
    """The reader that still needs it ("capture has not read")."""
    size: int | None = 0
    """The bytes of all files from there on; None: not known."""
    rows: int | None = None
    """The waiting rows, counted up to a limit, of a log that consists of rows."""

    @property
    def headroom_s(self) -> float | None:
        """Seconds until its oldest part may be deleted because of its age, at least 0; None: never."""
        return None if self.kept.seconds is None else max(0.0, self.kept.seconds - self.age_s)

    @property
    def headroom_bytes(self) -> int | None:
        """Bytes that may still be written until its oldest part is deleted because of the size; None:
        never.
        """
        return None if self.kept.bytes is None or self.size is None else max(0, self.kept.bytes - self.size)

    def list_alarms(self) -> list[Finding]:
        """Return warnings if parts that are needed may be deleted soon."""
        found = []
        if self.kept.seconds is not None and self.age_s > ALARM_SHARE * self.kept.seconds:
            found.append(
                self._build_alarm(
                    f"is kept for {format_period(self.kept.seconds)} ({self.kept.by}), and the oldest that "
                    f"{self.reader} is {format_period(self.age_s)} old: it may be deleted in "
                    f"{format_period(self.headroom_s or 0.0)}",
                    self.kept.by,
                )
            )
        if (
            self.kept.bytes is not None
            and self.size is not None
            and self.size > ALARM_SHARE * self.kept.bytes
        ):
            found.append(
                self._build_alarm(
                    f"is kept up to {format_bytes(self.kept.bytes)} ({self.kept.bytes_by}), and from the "
                    f"oldest that {self.reader} on it has {format_bytes(self.size)}: that may be deleted "
                    f"once {format_bytes(self.headroom_bytes or 0)} more are written",
                    self.kept.bytes_by,
                )
            )
        return found

    def list_short_warnings(self) -> list[Finding]:
        """Return warnings if an ordinary outage may outlast the retention."""
        found, kept = [], self.kept
        if kept.seconds is not None and kept.seconds < SHORT_S:
            found.append(
                self._build_short_warning(
                    f"is kept for {format_period(kept.seconds)} only ({kept.by}): an outage that "
                    "lasts longer means to start over",
                    kept.by,
                )
            )
        if kept.bytes is not None and self.size is None:
            found.append(
                self._build_short_warning(
                    f"is cut to {format_bytes(kept.bytes)} ({kept.bytes_by}), "
                    f"however much of it {self.reader}",
                    kept.bytes_by,
                )
            )
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the documented JSON object."""
        return {
            "place": self.place,
            "kept_seconds": self.kept.seconds,
            "kept_bytes": self.kept.bytes,
            "backlog_seconds": round(self.age_s, 3),
            "backlog_bytes": self.size,
            "backlog_rows": self.rows,
            "headroom_seconds": self.headroom_s,
            "headroom_bytes": self.headroom_bytes,
        }

    def __str__(self) -> str:
        age = self.headroom_s
        retained = [
            "kept for ever"
            if age is None
            else f"kept for {format_period(self.kept.seconds or 0.0)} ({self.kept.by})"
        ]
        if self.kept.bytes is not None:
            retained.append(f"up to {format_bytes(self.kept.bytes)} ({self.kept.bytes_by})")
        needed = (
            f"the oldest that {self.reader} is {format_period(self.age_s)} old"
            if self.age_s
            else "no backlog"
        )
        if self.rows is not None:
            needed += f", {self.rows} rows wait in it"
        left = [] if age is None else [format_period(age)]
        left += [] if self.headroom_bytes is None else [format_bytes(self.headroom_bytes)]
        return f"{self.place}: {self.what} is {', '.join(retained)}; {needed}" + (
            f"; headroom {' and '.join(left)}" if left else ""
        )

    def _build_short_warning(self, seen: str, setting: str) -> Finding:
        return Finding(
            "warning", self.place, f"{self.what} {seen}", f"set {setting} so that several days are kept"
        )

    def _build_alarm(self, seen: str, setting: str) -> Finding:
        remedy = (
            f"see `rowlock status` for what holds it back, and set {setting} higher until it has caught up"
        )
        return Finding("warning", self.place, f"{self.what} {seen}", remedy)


_SPANS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_period(seconds: float) -> str:
    """Return a duration for people, in the largest unit with a value of at least two."""
    for unit, name in _SPANS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def format_bytes(count: int) -> str:
    """Return an amount of bytes for people."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} bytes"
