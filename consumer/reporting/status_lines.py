"""JSON lines on stdout for the supervisor of the apply process; stdout carries nothing else.

`{"kind":"status","pipeline":P,"units":{topic:{offset,state,applied,dropped,held,displaced,commit_ts_ms,lanes,
message?,left?}}}` at most once a second, with the units that have changed;
`{"kind":"problem","pipeline":P,"what":…,"why":…}` for each problem. `{"kind":"ready",…}`, once Spark is up,
is written by consumer.process.instructions, `{"kind":"slots",…}` by consumer.reporting.slot_lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from consumer.reporting.protocol import LineWriter
from consumer.units.supervision import WatchedUnit

STATUS_INTERVAL_S = 1.0


class StatusWriter:
    """Writes a pipeline's status lines."""

    def __init__(
        self,
        pipeline: str,
        out: LineWriter,
        count_left: Callable[[str, WatchedUnit], int | None] = lambda _topic, unit: unit.left,
    ) -> None:
        """`count_left(topic, unit)`: see WatchedUnit.left."""
        self._pipeline, self._count_left = pipeline, count_left
        self._out = out
        self._next = 0.0
        self._written: dict[str, WatchedUnit] = {}
        """Topic → what was written last."""
        self._units: Mapping[str, WatchedUnit] = {}

    def write_changes(self, now: float, units: Mapping[str, WatchedUnit]) -> None:
        """Write the status of all units that have changed if it is due, and at once the last figures of
        units that are left out.
        """
        if left_out := self._units.keys() - units.keys():
            self.write_status({topic: self._units[topic] for topic in left_out})
            for topic in left_out:
                self._written.pop(topic, None)
        self._units = units
        if now >= self._next:
            self._next = now + STATUS_INTERVAL_S
            self.write_status(units)

    def write_status(self, units: Mapping[str, WatchedUnit]) -> None:
        """Write the status of those units whose last one differs."""
        present = {topic: replace(unit, left=self._count_left(topic, unit)) for topic, unit in units.items()}
        changed = {topic: unit for topic, unit in present.items() if self._written.get(topic) != unit}
        if changed:
            self._written.update(changed)
            shown = {topic: _build_unit_status(unit) for topic, unit in sorted(changed.items())}
            self._write_line({"kind": "status", "units": shown})

    def write_problem(self, what: str, why: str) -> None:
        self._write_line({"kind": "problem", "what": what, "why": why})

    def _write_line(self, line: Mapping[str, Any]) -> None:
        self._out.write(json.dumps({"pipeline": self._pipeline, **line}, ensure_ascii=False) + "\n")


def _build_unit_status(unit: WatchedUnit) -> dict[str, Any]:
    left_out = {"message": "", "left": None}
    return {
        name: value
        for name, value in msgspec.to_builtins(unit).items()
        if name not in left_out or value != left_out[name]
    }
