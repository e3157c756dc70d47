"""A unit of a topic that Debezium writes, applied to a target in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic, define_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec, build_initial_layout
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import TableRoute
from schemas.table.model import Table
from schemas.wire.debezium import ConnectorModes
from tests.kits.apply import account_table
from tests.kits.debezium import Connector, Record, Values
from tests.stands.fake_target import FakeSession, FakeTarget

ROUTES = (TableRoute("bank.*", "public.{table}"),)


TABLE = account_table()


def row(key: int, email: str | None = None, version: int = 1) -> Values:
    return {
        "id": key, "email": email, "owner": f"owner {key}", "balance": f"{version * 10}.50",
        "version": version, "opened": "2026-11-21 10:00:00.000001", "note": None,
    }  # fmt: skip


class Bench:
    """A unit whose definition was read from the source, its connector and topic, and the target."""

    def __init__(
        self,
        *,
        lanes: int = 3,
        schemas: bool = False,
        routes: tuple[TableRoute, ...] = ROUTES,
        table: Table = TABLE,
    ) -> None:
        self.connector = Connector(table, schemas=schemas)
        self.target = FakeTarget()
        self.tables: dict[UnitAssignment, ActiveDefinition] = {}
        self.spec = UnitSpec(
            unit=ApplyUnit("p", "t"), source="b1", epoch=0, topic_id="id", routes=routes, lanes=lanes,
            limits=LaneLimits(pause=0.001, max_pause=0.002), debezium=ConnectorModes(),
        )  # fmt: skip
        self.take_over()
        define_topic(self.spec, self.target, table)  # type: ignore[arg-type]

    def take_over(self) -> None:
        layout = build_initial_layout(self.spec.routes, self.spec.lanes).encode()
        epoch, _, _ = FakeSession(self.target).take_over(self.spec.unit, "id", layout, self.spec.lanes)
        self.spec = replace(self.spec, epoch=epoch)

    @property
    def topic(self) -> list[Record]:
        return self.connector.records

    def apply(self, start: int = 0, upto: int | None = None) -> Report:
        end = len(self.topic) if upto is None else upto
        return apply_topic(
            self.spec,
            self.target,  # type: ignore[arg-type]
            AttemptInputs(self.slices(start, end), read_missing=self.slices),
            self.tables,
        )

    def slices(self, start: int, upto: int) -> list[RecordSlice]:
        records: RecordSlice = list(enumerate(self.topic))[start:upto]
        return [records[at : at + 7] for at in range(0, len(records), 7)]

    def list_copies(self) -> Sequence[tuple[object, ...]]:
        return self.target.rows_of()

    def offsets(self) -> set[int]:
        return {lane.offset for lane in self.target.state.lanes.values()}


def of(*rows: Values) -> list[tuple[object, ...]]:
    return sorted((tuple(each.values()) for each in rows), key=str)
