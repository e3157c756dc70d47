"""CPU time of the ordering core per event, by part: python -m bench.ordering_core. One core, no I/O, no
threads.

100 thousand events of a table of 7 columns (half inserts, 40 % updates, 10 % deletes), 4 lanes, with and
without a unique index.
"""

from __future__ import annotations

import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from consumer.ordering.dedup import Deduplicator
from consumer.ordering.dispatch import Dispatcher
from consumer.ordering.lanes.lane import ApplyBatch, Lane, LaneLimits
from consumer.ordering.layout import Layout
from consumer.ordering.model import LaneProgress, RowChange, TargetTable
from consumer.ordering.tickets import TicketTable
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Row, Table, UniqueIndex
from schemas.wire.position import ZERO

EVENTS, CHUNK, BATCH = 100_000, 500, 10_000
Images = tuple[Row | None, Row | None]


def table(*, unique: bool) -> TargetTable:
    text = ColumnType(kind=Kind.VARCHAR, length=40, collation="utf8mb4_general_ci")
    columns = [Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False)]
    columns += [
        Column(name=name, type=text) for name in ("acct_no", "owner", "balance", "branch", "opened", "note")
    ]
    indexes = (UniqueIndex(name="u", parts=(IndexPart(column="acct_no"),)),) if unique else ()
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return TargetTable(
        Table(db="bank", name="acct", columns=tuple(columns), key=key, unique=indexes), (0,), ((1,),) * unique
    )


def workload() -> list[Images]:
    rng, live, out = random.Random(1), [], []

    def row(key: int, version: int) -> Row:
        return (
            key,
            f"ACC-{key:010d}",
            f"customer {key}",
            f"{version}.25",
            "b1",
            "2026-01-01 00:00:00",
            "note",
        )

    for n in range(EVENTS):
        luck = rng.random()
        if luck < 0.5 or not live:
            live.append(n)
            out.append((None, row(n, n)))
        elif luck < 0.9:
            key = rng.choice(live)
            out.append((row(key, 1), row(key, n)))
        else:
            out.append((row(live.pop(rng.randrange(len(live))), 1), None))
    return out


def measure(target: TargetTable, changes: list[Images]) -> dict[str, float]:
    """Return µs of CPU per event, by part."""
    spent: dict[str, float] = defaultdict(float)

    def timed(part: str, work: Callable[[], Any]) -> Any:
        begin = time.thread_time()
        result = work()
        spent[part] += time.thread_time() - begin
        return result

    layout, locks = Layout(lanes=4), TicketTable(4)
    rows = [LaneProgress(n, 1, 1, "id", -1, ZERO, 0, layout.encode()) for n in range(4)]
    marks, dispatcher = Deduplicator(rows), Dispatcher(layout, locks, rows)
    plan = dispatcher.plan_table(target)
    lanes = [Lane(n, locks, LaneLimits()) for n in range(4)]

    def judged(begin: int) -> list[RowChange]:
        out: list[RowChange] = []
        for offset in range(begin, begin + CHUNK):
            position = (0, 1, offset + 1, 0)
            if not marks.judge_record(offset, position, None, 1):
                out.append(RowChange((offset, 0), *changes[offset], position, 1))
        return out

    for begin in range(0, EVENTS, CHUNK):
        routed = timed("duplicates", lambda begin=begin: judged(begin))
        timed("dispatch", lambda routed=routed: dispatcher.dispatch(plan, routed))
        for lane, items in zip(lanes, dispatcher.take_queued(), strict=True):
            timed("gather", lambda lane=lane, items=items: lane.queue_items(items))
        if (begin + CHUNK) % BATCH == 0:
            for lane in lanes:
                lane.drain_to((begin + CHUNK, (0, 1, begin + CHUNK, 0), 1, 0))
            _drain(lanes, timed)
    return {part: seconds / EVENTS * 1e6 for part, seconds in spent.items()}


def _drain(lanes: list[Lane], timed: Callable[[str, Callable[[], Any]], Any]) -> None:
    busy = True
    while busy:
        busy = False
        for lane in lanes:
            if isinstance(timed("gather", lane.choose_effect), ApplyBatch):
                busy = True
                timed("net change", lane.build_batch)
                timed("release", lane.record_applied)


def main() -> None:
    changes = workload()
    gc.collect()
    gc.freeze()
    gc.disable()  # as the worker does
    for unique in (True, False):
        spent = min(
            (measure(table(unique=unique), changes) for _ in range(3)), key=lambda parts: sum(parts.values())
        )
        parts = ", ".join(f"{part} {micro:.2f}" for part, micro in spent.items())
        print(f"unique index: {unique}: {sum(spent.values()):.2f} µs an event ({parts})")


if __name__ == "__main__":
    main()
