"""JSON lines on stdout for whoever supervises the apply process; nothing else is ever written there.

`{"kind":"status","pipeline":P,"state":"running|stopping","units":{topic:{offset,state,applied,dropped,held,
displaced,commit_ts_ms,message?}},"applied":N}` at most once a second and only when something changed;
`{"kind":"problem","pipeline":P,"what":…,"why":…}` when something went wrong. `{"kind":"ready",…}`, once Spark is up, comes from consumer.main.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from consumer.units.supervision import Watched

INTERVAL_S = 1.0


class Out(Protocol):
    """A text stream, as far as it is needed."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> None: ...


class StatusWriter:
    """Writes the lines. A reader that is gone is no error: the process ends when its stdin does."""

    def __init__(self, pipeline: str, out: Out) -> None:
        self._pipeline = pipeline
        self._out: Out = out
        self._next = 0.0
        self._last: dict[str, Any] = {}

    def tick(self, now: float, state: str, units: Mapping[str, Watched]) -> None:
        """Write the status when it is time and something changed."""
        if now >= self._next:
            self._next = now + INTERVAL_S
            self.write(state, units)

    def write(self, state: str, units: Mapping[str, Watched]) -> None:
        """Write the status unless it is the one written last."""
        line = {
            "kind": "status",
            "state": state,
            "units": {topic: _facts(unit) for topic, unit in sorted(units.items())},
            "applied": sum(unit.applied for unit in units.values()),
        }
        if line != self._last:
            self._last = line
            self._emit(line)

    def problem(self, what: str, why: str) -> None:
        self._emit({"kind": "problem", "what": what, "why": why})

    def _emit(self, line: Mapping[str, Any]) -> None:
        try:
            self._out.write(json.dumps({"pipeline": self._pipeline, **line}, ensure_ascii=False) + "\n")
            self._out.flush()
        except (BrokenPipeError, ValueError):
            self._out = _Nowhere()


class _Nowhere:
    """Drops the lines once their reader is gone."""

    def write(self, _text: str, /) -> int:
        return 0

    def flush(self) -> None:
        """Nothing to flush."""


def _facts(unit: Watched) -> dict[str, Any]:
    return {
        name: value for name, value in msgspec.to_builtins(unit).items() if value != "" or name != "message"
    }
