"""The lines on stdout about the slots in Spark: `{"kind":"slots","open":N,"configured":N,…}` (SlotReport),
when that changes.

A start of Spark's first tasks takes seconds, and a slot that ends is usually open again after a few. So fewer
open slots than configured are reported only after `OPENING_S` seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import msgspec

from consumer.reporting.protocol import LineWriter
from schemas.slots import SlotReport, limit_failures

OPENING_S = 30.0
"""Seconds for which fewer slots may be open than configured before that is reported: since Spark has
started, or since all were open."""


def build_slot_report(
    count: int, configured: int, short_s: float, cores: int | None, failures: Mapping[str, str]
) -> SlotReport | None:
    """Return what to report of `count` open slots; None: those that are missing may still open in time.

    `short_s`: seconds for which fewer have been open than `configured`.
    """
    if count >= configured:
        return SlotReport(count, configured)
    if short_s < OPENING_S:
        return None
    return SlotReport(count, configured, int(short_s), cores, limit_failures(failures))


class SlotLines:
    """Writes the lines about the slots of one process."""

    def __init__(self, configured: int, out: LineWriter, count_cores: Callable[[], int | None]) -> None:
        """`count_cores()`: how many tasks Spark can run at once; called while slots are missing."""
        self._configured, self._out, self._count_cores = configured, out, count_cores
        self._short_since: float | None = None
        self._failures: dict[str, str] = {}
        self._last: SlotReport | None = None

    def note_failure(self, host: str, error: str) -> None:
        """Keep the last failure of a slot on `host` ("": not known) until all slots are open."""
        self._failures.pop(host, None)  # so that the order is that of time
        self._failures[host] = error

    def write_changes(self, count: int, now: float) -> None:
        """Write how many slots are open if that, or the failures of a host, have changed."""
        if count >= self._configured:
            self._short_since = None
            self._failures.clear()
        elif self._short_since is None:
            self._short_since = now
        short_s = 0.0 if self._short_since is None else now - self._short_since
        cores = self._count_cores() if short_s >= OPENING_S else None
        report = build_slot_report(count, self._configured, short_s, cores, self._failures)
        if report is None or (self._last is not None and _is_same_state(report, self._last)):
            return
        self._last = report
        self._out.write(encode_slot_line(report))


def _is_same_state(one: SlotReport, other: SlotReport) -> bool:
    return msgspec.structs.replace(one, short_s=other.short_s) == other


def encode_slot_line(report: SlotReport) -> str:
    return json.dumps({"kind": "slots", **msgspec.to_builtins(report)}, ensure_ascii=False) + "\n"
