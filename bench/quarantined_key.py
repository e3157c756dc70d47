"""What a key costs its table that changes 1,000 times a second and never fits, applied to PostgreSQL: python
-m bench.quarantined_key.

Two tables get the same events in turn: other keys, and among them the hot key as often as 1,000 times a
second at the table's full rate. In one table the hot key's rows fit, in the other one none does. Each batch
of events is an attempt, as a query makes them, and the two tables take turns, batch by batch. The processor
time is that of this process, without the server's; it does not depend on what else the machine does.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.ordering.model import ApplyUnit
from consumer.slots.connections import ConnectionCache
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import TableRoute
from consumer.targets.dialect import open_session
from deploy.embedded.services import PostgreSQL
from schemas.config.model import TargetConfig
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource

LANES, BATCHES = 4, 60
SIZES = (5000, 2000, 500)
KEYS = 1000
HOT_RATE = 1000
"""Changes of the hot key a second."""
FITS, TOO_LONG = "owner", "x" * 30


def build_table(name: str) -> Table:
    owner = ColumnType(kind=Kind.VARCHAR, length=40, charset="utf8mb4", collation="utf8mb4_bin")
    return Table(
        db="bank", name=name,
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
            Column(name="owner", type=owner, nullable=False),
            Column(name="version", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)), unique=(),
    )  # fmt: skip


class Spent(NamedTuple):
    """What an attempt took."""

    seconds: float
    processor_seconds: float


class Applied:
    """A table that is applied. `hot`: the owner in the hot key's rows."""

    def __init__(self, config: TargetConfig, name: str, hot: str) -> None:
        self.source, self._hot_owner, self._hot = FakeSource(table=build_table(name)), hot, 0.0
        self.session = open_session(config, name="bench")
        self.session.ensure_bookkeeping()
        self._connections = ConnectionCache(config, "bench")
        self._tables: dict[object, ActiveDefinition] = {}
        unit, routes = ApplyUnit("p", f"bench.{name}"), (TableRoute("bank.*", "public.{table}"),)
        epoch, _, _ = self.session.take_over(unit, "id", build_initial_layout(routes, LANES).encode(), LANES)
        self._spec = UnitSpec(
            unit=unit, source=self.source.name, epoch=epoch, topic_id="id", routes=routes, lanes=LANES
        )
        self._end = self._version = 0
        rows = [self._build_row(key, FITS) for key in range(KEYS)]
        self._apply([self.source.definition(), *(self.source.event("c", None, row) for row in rows)])

    def _build_row(self, key: int, owner: str) -> dict[str, object]:
        self._version += 1
        return {"id": key, "owner": owner, "version": self._version}

    def _apply(self, events: list[EventEnvelope]) -> Spent:
        """Run an attempt over one batch."""
        records = [(self._end + at, encode_event_value(event)) for at, event in enumerate(events)]
        self._end += len(records)
        slices = [records[at : at + 1000] for at in range(0, len(records), 1000)]
        started = time.monotonic(), time.process_time()
        report = apply_topic(self._spec, self._connections, AttemptInputs(slices), self._tables)
        spent = Spent(time.monotonic() - started[0], time.process_time() - started[1])
        assert (report.state, report.applied) == ("ok", len(records)), report
        return spent

    def apply_batch(self, size: int, hot_share: float) -> Spent:
        events = []
        for number in range(size):
            self._hot += hot_share
            key, owner = (0, self._hot_owner) if self._hot >= 1 else (1 + number % (KEYS - 1), FITS)
            self._hot -= self._hot >= 1
            row = self._build_row(key, owner)
            events.append(self.source.event("u", row, row))
        return self._apply(events)

    def close(self) -> None:
        self._connections.close()
        self.session.close()


def measure_cost(fits: Applied, never: Applied, size: int) -> None:
    """Print both rates, and what the hot key costs as a share of the table's rate."""
    rate = size / min(fits.apply_batch(size, 0.05).seconds for _ in range(5))
    spent: dict[Applied, list[Spent]] = {fits: [], never: []}
    for number in range(BATCHES):
        for table in (fits, never) if number % 2 else (never, fits):
            spent[table].append(table.apply_batch(size, HOT_RATE / rate))
    fast, slow = (BATCHES * size / sum(each.seconds for each in spent[table]) for table in (fits, never))
    less, more = (sum(each.processor_seconds for each in spent[table]) for table in (fits, never))
    usual, usual_slow = (statistics.median(each.seconds for each in spent[table]) for table in (fits, never))
    print(
        f"batches of {size:,}: {fast:,.0f} events/s, with a key that never fits {slow:,.0f} "
        f"({1 - slow / fast:.1%} less; by the median batch {1 - usual / usual_slow:.1%}); "
        f"processor time a batch {less / BATCHES * 1000:.1f} and {more / BATCHES * 1000:.1f} ms "
        f"({more / less - 1:.1%} more)",
        flush=True,
    )


def main() -> None:
    with PostgreSQL() as server:
        server.create_database("bank")
        config = TargetConfig(
            type="postgres",
            host=server.host,
            port=server.port,
            user=server.user,
            password="",
            database="bank",
        )  # type: ignore[call-arg]
        fits, never = Applied(config, "fits", "other"), Applied(config, "never", TOO_LONG)
        with server.connect("bank") as connection:
            connection.execute("ALTER TABLE public.never ALTER owner TYPE varchar(20)")
        for size in SIZES:
            measure_cost(fits, never, size)
        fits.close()
        never.close()


if __name__ == "__main__":
    main()
