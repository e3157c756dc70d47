"""The wire at scale: bytes and processor time of one heartbeat of many units, as rows (the product) and as
columns.

Columns are what one might do instead: a list a field of all units, so that a mark is three list entries and
not a list of its own. They are kept here to be measured against, and nowhere else (docs/adr/0015).

python -m bench.wire [--units 100 1000 10000]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import msgspec

from coordinator.core.messages import Header, Heartbeat, UnitStatus
from coordinator.transport import wire
from schemas.units import UnitPhase, UnitProgress

ROUNDS = 7
#: Units handled in one round of a measurement, whatever their number in a message.
WORK = 100_000
NOW = 1_790_000_000_000


class Columns(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Statuses of units that all have a mark with a position and no error: what nearly all are."""

    units: list[str]
    assignments: list[int]
    states: bytes
    checkpoints: list[int]
    resolved: list[int]
    positions: list[int]
    rows_per_s: list[int]
    steps: list[int]


_STATES = list(UnitPhase)
_NUMBER = {state: number for number, state in enumerate(_STATES)}
_columns = msgspec.msgpack.Decoder(Columns)


def heartbeat(units: int) -> Heartbeat:
    """Return what an agent says of so many units that replicate."""
    statuses = [
        UnitStatus(
            f"apply/to-head-office-{number % 10}/rowlock.branch{number // 10 % 10}.bank.account_{number:06}",
            NOW - 5_000_000 + number,
            UnitPhase.REPLICATING,
            UnitProgress(NOW + number, NOW + number + 5, (0, 3, 4_000_000 + 173 * number, 17)),
            100 + number % 50,
        )
        for number in range(units)
    ]
    return Heartbeat(Header(812_345, NOW - 9_000_000, 0, 4711), "agent-0042", 123_456.789, tuple(statuses))


def put_columns(beat: Heartbeat) -> bytes:
    """Return the statuses as columns."""
    statuses = beat.statuses
    marks = [s.mark for s in statuses if s.mark is not None]
    columns = Columns(
        [s.unit for s in statuses],
        [s.assignment for s in statuses],
        bytes([_NUMBER[s.state] for s in statuses]),
        [m.checkpoint_ts for m in marks],
        [m.resolved_ts for m in marks],
        [part for m in marks for part in m.position or ()],
        [s.rows_per_s for s in statuses],
        [],
    )
    return msgspec.msgpack.encode(columns)


def get_columns(data: bytes) -> tuple[UnitStatus, ...]:
    """Return what `put_columns` was given."""
    found = _columns.decode(data)
    parts = iter(found.positions)
    positions = zip(parts, parts, parts, parts, strict=True)
    marks = map(UnitProgress, found.checkpoints, found.resolved, positions)
    states = [_STATES[number] for number in found.states]
    return tuple(map(UnitStatus, found.units, found.assignments, states, marks, found.rows_per_s))


def seconds(work: Callable[[], Any], times: int) -> float:
    """Return the processor time of one call: the best of several rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        for _ in range(times):
            work()
        best = min(best, time.process_time() - began)
    return best / times


def report(name: str, units: int, put: Callable[[], bytes], get: Callable[[bytes], Any]) -> None:
    """Print bytes and time for each unit of a message."""
    data, times = put(), max(1, WORK // units)
    writing, reading = seconds(put, times), seconds(lambda: get(data), times)
    print(
        f"{name:8} {units:6} units: {len(data) / units:6.1f} bytes a unit, "
        f"{1e6 * writing / units:6.3f} µs to write, {1e6 * reading / units:6.3f} µs to read"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[100, 1000, 10_000])
    for units in parser.parse_args().units:
        beat = heartbeat(units)
        report("product", units, lambda beat=beat: wire.encode_frame([beat]), wire.decode_agent_frame)  # type: ignore[misc]
        assert get_columns(put_columns(beat)) == beat.statuses
        report("columns", units, lambda beat=beat: put_columns(beat), get_columns)  # type: ignore[misc]


if __name__ == "__main__":
    main()
