"""JSON lines on stdout for the supervisor of the apply process; stdout carries nothing else.

`{"kind":"status","pipeline":P,"state":"running|stopping","units":{topic:{offset,state,applied,dropped,held,
displaced,commit_ts_ms,lanes,message?,left?}},"applied":N}` at most once a second and only when something
changed;
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
        self._last: dict[str, Any] = {}
        self._units: Mapping[str, WatchedUnit] = {}

    def write_changes(self, now: float, state: str, units: Mapping[str, WatchedUnit]) -> None:
        """Write the status if it is due and has changed; also before a unit is left out, so that its last
        figures are known.
        """
        if self._units.keys() - units.keys():
            self.write_status(state, self._units)
        self._units = units
        if now >= self._next:
            self._next = now + STATUS_INTERVAL_S
            self.write_status(state, units)

    def write_status(self, state: str, units: Mapping[str, WatchedUnit]) -> None:
        """Write the status unless it equals the last one written."""
        line = {
            "kind": "status",
            "state": state,
            "units": {
                topic: _build_unit_status(replace(unit, left=self._count_left(topic, unit)))
                for topic, unit in sorted(units.items())
            },
            "applied": sum(unit.applied for unit in units.values()),
        }
        if line != self._last:
            self._last = line
            self._write_line(line)

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
