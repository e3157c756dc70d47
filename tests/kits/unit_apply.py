"""A unit applied to a target in memory, from a topic that is a list."""

from __future__ import annotations

from collections.abc import Iterable

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec, build_initial_layout
from consumer.errors import RefusedError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import TableRoute
from schemas.table.model import Column, ColumnType, Kind, Table
from schemas.wire.codec import encode_event_value
from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource, Values
from tests.stands.fake_target import FakeSession, FakeTarget

ROUTES = (TableRoute("bank.*", "public.{table}"),)


FAST = LaneLimits(pause=0.001, max_pause=0.002)


class Bench:
    """A unit, its topic as a list of records, and the target."""

    def __init__(
        self, *, lanes: int = 3, routes: tuple[TableRoute, ...] = ROUTES, topic: str = "t", **spec: object
    ) -> None:
        self.target = FakeTarget()
        self.unit = ApplyUnit("p", topic)
        self.topic: list[bytes] = []
        self.lanes, self.routes = lanes, routes
        self.more = {"limits": FAST, "trial_interval_s": 0.0, "sweep_s": 3600.0, **spec}
        self.tables: dict[UnitAssignment, ActiveDefinition] = {}
        self.epoch = 0
        self.take_over()

    def take_over(self) -> None:
        layout = build_initial_layout(self.routes, self.lanes).encode()
        self.epoch, _, _ = FakeSession(self.target).take_over(self.unit, "id", layout, self.lanes)

    def write(self, events: Iterable[EventEnvelope]) -> None:
        self.topic += [encode_event_value(event) for event in events]

    def apply(self, start: int = 0, *, slice_size: int = 50, topic_id: str = "id") -> Report:
        """Run an attempt over the batch that begins at offset `start`."""
        spec = UnitSpec(
            unit=self.unit,
            source="branch1",
            epoch=self.epoch,
            topic_id=topic_id,
            routes=self.routes,
            lanes=self.lanes,
            **self.more,  # type: ignore[arg-type]
        )
        report = apply_topic(
            spec,
            self.target,  # type: ignore[arg-type]
            AttemptInputs(
                self.slices(start, len(self.topic), slice_size),
                read_missing=lambda first, upto: self.slices(first, upto, slice_size),
            ),
            self.tables,
        )
        counted = report.lanes.open_quarantine
        known = report.state == "ok"  # of a commit of unknown outcome only the next attempt knows the result
        assert not known or counted in {None, len(self.target.state.held)}, (
            "the report counts another quarantine"
        )
        return report

    def slices(self, start: int, upto: int, size: int) -> list[RecordSlice]:
        records: RecordSlice = list(enumerate(self.topic))[start:upto]
        return [records[at : at + size] for at in range(0, len(records), size)]

    def offsets(self) -> list[int]:
        return [row.offset for _, row in sorted(self.target.state.lanes.items())]


def rows_of(*sources: FakeSource) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for source in sources for row in source.rows.values()), key=str)


def started(**options: object) -> tuple[Bench, FakeSource]:
    bench, source = Bench(**options), FakeSource()  # type: ignore[arg-type]
    bench.write([source.definition()])
    return bench, source


def with_generated(table: Table, expression: str | None) -> Table:
    extra = Column(name="g", type=ColumnType(kind=Kind.INT, bits=32), generated=True, expression=expression)
    return Table(
        db=table.db, name=table.name, columns=(*table.columns, extra), key=table.key, unique=table.unique
    )


def refusing(lanes: int, **options: object) -> tuple[Bench, FakeSource]:
    """Return a unit whose target refuses the owner "poison"."""
    bench, source = started(lanes=lanes, **options)
    bench.target.refuse = lambda row: RefusedError("too long") if row[2] == "poison" else None
    return bench, source


def poisoned(source: FakeSource, key: int, email: str | None, version: int) -> Values:
    return {**source.row(key, email, version), "owner": "poison"}


def apply(bench: Bench, *events: EventEnvelope) -> str:
    start = len(bench.topic)
    bench.write(events)
    return bench.apply(start if start > 1 else 0).state
