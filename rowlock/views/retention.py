"""Retention: how long the source's log and Kafka go on keeping a backlog of capture or apply. Pure.

Both delete what is older than they keep it, whole files at a time and the oldest first: what is left (the headroom) is at least
the time that they keep it less the age of the oldest thing that is still needed. A log may also be limited in size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.findings import Finding

ALARM_SHARE = 0.5
"""The part of what is kept beyond which a backlog is an alarm: half is left to find out why, and to mend it."""
SHORT_S = 86_400.0
"""What is kept for less is a warning of `check`: an outage of a night would outlast it."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of age and of size beyond which something is deleted, with the settings that say so. None: nothing does.

    `seconds`, `by`: how old a part may become; `bytes`, `bytes_by`: how large the whole may become.
    """

    seconds: float | None
    by: str
    bytes: int | None = None
    bytes_by: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part that is still needed of something at `place` ("source b1", "topic t"), and `what` that is ("its log").

    `age_s`: of the oldest of it, 0: nothing is; `size`: bytes of all files from there on, None: not known; `rows`: of a log that has rows,
    that wait, counted up to a limit. `reader`: who still needs it ("capture has not read").
    """

    place: str
    what: str
    kept: RetentionLimits
    age_s: float
    reader: str
    size: int | None = 0
    rows: int | None = None

    @property
    def headroom_s(self) -> float | None:
        """Seconds until the oldest of it may be deleted for its age, at least 0; None: it never is."""
        return None if self.kept.seconds is None else max(0.0, self.kept.seconds - self.age_s)

    @property
    def headroom_bytes(self) -> int | None:
        """Bytes that may still be written until the oldest of it is deleted for want of room; None: it never is."""
        return None if self.kept.bytes is None or self.size is None else max(0, self.kept.bytes - self.size)

    def list_alarms(self) -> list[Finding]:
        """Return what is to be said before something is deleted that is needed."""
        found = []
        if self.kept.seconds is not None and self.age_s > ALARM_SHARE * self.kept.seconds:
            found.append(
                self._build_alarm(
                    f"is kept for {format_period(self.kept.seconds)} ({self.kept.by}), and the oldest that {self.reader} is {format_period(self.age_s)} old: "
                    f"it may be deleted in {format_period(self.headroom_s or 0.0)}",
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
                    f"is kept up to {format_bytes(self.kept.bytes)} ({self.kept.bytes_by}), and from the oldest that {self.reader} on it has "
                    f"{format_bytes(self.size)}: that may be deleted once {format_bytes(self.headroom_bytes or 0)} more are written",
                    self.kept.bytes_by,
                )
            )
        return found

    def list_short_warnings(self) -> list[Finding]:
        """Return warnings where an ordinary outage may outlast what is kept."""
        found, kept = [], self.kept
        if kept.seconds is not None and kept.seconds < SHORT_S:
            found.append(
                self._build_short_warning(
                    f"is kept for {format_period(kept.seconds)} only ({kept.by}): an outage that lasts longer means to start over",
                    kept.by,
                )
            )
        if kept.bytes is not None and self.size is None:
            found.append(
                self._build_short_warning(
                    f"is cut to {format_bytes(kept.bytes)} ({kept.bytes_by}), however much of it {self.reader}",
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
        told = [
            "kept for ever"
            if age is None
            else f"kept for {format_period(self.kept.seconds or 0.0)} ({self.kept.by})"
        ]
        if self.kept.bytes is not None:
            told.append(f"up to {format_bytes(self.kept.bytes)} ({self.kept.bytes_by})")
        needed = (
            f"the oldest that {self.reader} is {format_period(self.age_s)} old"
            if self.age_s
            else "no backlog"
        )
        if self.rows is not None:
            needed += f", {self.rows} rows wait in it"
        left = [] if age is None else [format_period(age)]
        left += [] if self.headroom_bytes is None else [format_bytes(self.headroom_bytes)]
        return f"{self.place}: {self.what} is {', '.join(told)}; {needed}" + (
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
    """Return a time for people, in the largest unit of which there are two at least."""
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
