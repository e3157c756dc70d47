"""Rows whose unique values move constantly, applied to PostgreSQL and MySQL: python -m bench.contended.

A table has 200 rows with a unique name. Half of the changes delete a row and insert another one with its
name, half let two rows swap their names in three updates, by way of a temporary name. They are applied
with four lanes, with one, and with four lanes that wait for each other at each such event. Each way gets
the same events, in attempts of equal size. "Without contention" has as many updates of another column, so
that no event waits.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.slots.connections import ConnectionCache
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import TableRoute
from consumer.targets.dialect import open_session
from deploy.embedded.services import MySQL, PostgreSQL, combine_services
from schemas.config.model import TargetConfig
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource
from tests.kits.running import target_config

ROWS, ATTEMPT, ATTEMPTS = 200, 9500, 5
WAYS = {
    "four lanes": (4, LaneLimits()),
    "one lane": (1, LaneLimits()),
    "four lanes, each event for itself": (4, LaneLimits(max_waits=1.0)),
}
"""What is compared: (lanes, their limits)."""


def build_table(name: str) -> Table:
    text = ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4", collation="utf8mb4_bin")
    number = ColumnType(kind=Kind.INT, bits=64)
    return Table(
        db="bank",
        name=name,
        columns=(
            Column(name="id", type=number, nullable=False),
            Column(name="name", type=text, nullable=False),
            Column(name="version", type=number, nullable=False),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
        unique=(UniqueIndex(name="name", parts=(IndexPart(column="name"),)),),
    )


class Names:
    """The source's rows, and the events of their changes."""

    def __init__(self, source: FakeSource) -> None:
        self._source, self._random, self._version = source, random.Random(11), 0
        self.rows = {key: f"name{key}" for key in range(ROWS)}

    def _build_row(self, key: int, name: str) -> dict[str, object]:
        self._version += 1
        return {"id": key, "name": name, "version": self._version}

    def insert_all(self) -> list[EventEnvelope]:
        return [self._source.event("c", None, self._build_row(*row)) for row in self.rows.items()]

    def _update(self, key: int, name: str) -> EventEnvelope:
        before, self.rows[key] = self._build_row(key, self.rows[key]), name
        return self._source.event("u", before, self._build_row(key, name))

    def hand_over(self) -> list[EventEnvelope]:
        """Delete a row, and insert one with its name under another key."""
        key = self._random.choice(list(self.rows))
        name = self.rows.pop(key)
        fresh = max(self.rows) + 1
        self.rows[fresh] = name
        return [
            self._source.event("d", self._build_row(key, name), None),
            self._source.event("c", None, self._build_row(fresh, name)),
        ]

    def swap(self) -> list[EventEnvelope]:
        one, other = self._random.sample(list(self.rows), 2)
        first, second = self.rows[one], self.rows[other]
        return [self._update(one, "temporary"), self._update(other, first), self._update(one, second)]

    def touch(self) -> list[EventEnvelope]:
        key = self._random.choice(list(self.rows))
        return [self._update(key, self.rows[key])]


def build_attempt(changes: list[Callable[[], list[EventEnvelope]]]) -> list[EventEnvelope]:
    events: list[EventEnvelope] = []
    number = 0
    while len(events) < ATTEMPT:
        events += changes[number % len(changes)]()
        number += 1
    return events


class Applied:
    """A table of a target that is applied in one of the ways."""

    def __init__(self, config: TargetConfig, place: str, name: str, way: str) -> None:
        lanes, limits = WAYS[way]
        self.source = FakeSource(table=build_table(name))
        self.names = Names(self.source)
        self._session = open_session(config, name="bench")
        self._session.ensure_bookkeeping()
        self._connections = ConnectionCache(config, "bench")
        self._tables: dict[object, ActiveDefinition] = {}
        unit, routes = ApplyUnit("p", f"bench.{name}"), (TableRoute("bank.*", f"{place}.{{table}}"),)
        layout = build_initial_layout(routes, lanes).encode()
        epoch, _, _ = self._session.take_over(unit, "id", layout, lanes)
        self._spec = UnitSpec(
            unit=unit, source=self.source.name, epoch=epoch, topic_id="id", routes=routes, lanes=lanes,
            limits=limits,
        )  # fmt: skip
        self._end = 0
        self.apply([self.source.definition(), *self.names.insert_all()])

    def apply(self, events: list[EventEnvelope]) -> tuple[float, float]:
        """Apply events in one attempt; return the seconds, and the processor seconds of this process."""
        records = [(self._end + at, encode_event_value(event)) for at, event in enumerate(events)]
        self._end += len(records)
        slices = [records[at : at + 1000] for at in range(0, len(records), 1000)]
        started = time.monotonic(), time.process_time()
        report = apply_topic(self._spec, self._connections, AttemptInputs(slices), self._tables)
        spent = time.monotonic() - started[0], time.process_time() - started[1]
        assert (report.state, report.applied) == ("ok", len(records)), report
        return spent

    def close(self) -> None:
        self._connections.close()
        self._session.close()


def measure_target(kind: str, config: TargetConfig, place: str, read: Callable[[str], Any]) -> None:
    for what in ("contended", "without contention"):
        for number, way in enumerate(WAYS):
            name = f"{what.split()[0]}_{number}"
            with closing(Applied(config, place, name, way)) as applied:
                changes = (
                    [applied.names.touch]
                    if what != "contended"
                    else [applied.names.hand_over, applied.names.swap]
                )
                batches = [build_attempt(changes) for _ in range(ATTEMPTS)]
                spent = [applied.apply(batch) for batch in batches]
                events, seconds = sum(map(len, batches)), sum(each[0] for each in spent)
                assert dict(read(f"SELECT id, name FROM {name}")) == applied.names.rows
            used = sum(each[1] for each in spent) / events * 1e6
            print(
                f"{kind}, {what}, {way}: {events / seconds:,.0f} events/s, {used:.1f} µs of processor time",
                flush=True,
            )


def main() -> None:
    postgres, mysql = PostgreSQL(), MySQL()
    with combine_services(postgres, mysql):
        postgres.create_database("bank")
        mysql.create_database("bank")
        for kind, server, place in (("postgres", postgres, "public"), ("mysql", mysql, "bank")):
            config = TargetConfig(**target_config(server, kind, "bank"))
            measure_target(
                kind, config, place, lambda query, server=server: server.execute(query, database="bank")
            )


if __name__ == "__main__":
    main()
