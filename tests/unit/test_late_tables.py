"""A table that is born, filled and altered while capture is behind: every history, against a model of what was in force."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from producer.barriers import Barriers
from producer.decoders.row_codec import SourceContext, TransactionContext
from producer.definitions.places import Place, Proof, Proven, Unproven
from producer.errors import TableStoppedError
from producer.flavours.mariadb import MARIADB
from producer.resume.startup import Started
from producer.sources.binlog.transactions import Barrier, TransactionHeader
from producer.statements import ddl
from producer.tables import Captured, TableName
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.table.names import Names
from schemas.wire.records import Identity, StoredPosition

NAME: TableName = ("bank", "n")
RECORD = StoredPosition(
    source="b1", gen=1, epoch=0, file="binlog.000003", pos=0, ts_ms=7,
    identity=Identity(server_uuid=None, server_id=1, version="11", gtid_set=None),
)  # fmt: skip
CONTEXT = SourceContext(connector="mariadb", form=MARIADB.table_map, name="b1", epoch=0, gen=1)


def version(number: int) -> Table:
    """The table after its `number`-th statement."""
    columns = tuple(
        Column(name=f"c{n}", type=ColumnType(kind=Kind.INT, bits=32), nullable=False) for n in range(number)
    )
    return Table(
        db="bank", name="n", columns=columns, key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="c0"),))
    )


class World:
    """`history`: of each place of the log whether a statement or a row of the table stands there. `ahead`: how far the
    catalogue is beyond what capture reads."""

    def __init__(self, history: list[str], ahead: int, *, snapshots: bool) -> None:
        self.history, self.ahead = history, ahead
        self.here = 0
        self.published: list[tuple[int, int]] = []  # (place, version it was decoded by)
        self.snapshot_at: int | None = None
        self.stopped_at: int | None = None
        self.captured = Captured("rowlock", "b1")
        self.errors: dict[TableName, str] = {}
        self.started = Started(RECORD, CONTEXT, self.captured, {}, self.errors, fresh=False)
        nothing: Any = SimpleNamespace(
            send=lambda *_: None, drain=lambda: None, ensure=lambda *_: None, at=self.proof
        )
        self.barriers = Barriers(
            CONTEXT, self.captured, nothing, nothing, lambda *_: True, self.errors, self.changed,
            nothing, self.started, snapshots, Names(), nothing,
        )  # fmt: skip

    def statements(self, upto: int) -> list[int]:
        return [at for at, what in enumerate(self.history[:upto]) if what == "statement"]

    def proof(self, place: Place, _name: TableName) -> Proof:
        """What producer.definitions says: the catalogue is `ahead` places beyond the stream."""
        end = min(len(self.history), self.here + self.ahead + 1)
        shown = self.statements(end)
        if shown and shown[-1] > place.pos:
            return Unproven((3, shown[-1]))
        return Proven(version(len(shown)) if shown else None, None)

    def changed(self, *_: object) -> None:
        if self.snapshot_at is None:
            self.snapshot_at = self.here

    def run(self) -> None:
        for at, what in enumerate(self.history):
            self.here = at
            try:
                self.statement() if what == "statement" else self.row()
            except TableStoppedError:
                self.stopped_at = self.here
                return

    def statement(self) -> None:
        sql = "ALTER TABLE n ADD COLUMN x INT" if self.statements(self.here) else "CREATE TABLE n (id INT)"
        header = TransactionHeader("binlog.000003", self.here, 0, 1, None)
        barrier = Barrier(header, ddl.classify(sql, "bank"), sql, 0, self.here, "bank", True)  # type: ignore[arg-type]
        _, stop = self.barriers.carry_out(barrier, self.barriers.concerned(barrier), self.transaction())
        if stop is not None:
            raise stop

    def row(self) -> None:
        state = self.captured.tables.get(NAME)
        waits = NAME in self.errors or NAME in self.started.late
        if state is None and not waits:
            state = self.barriers.first_sight(NAME, self.transaction())
        if state is not None:
            self.published.append((self.here, len(state.table.columns)))

    def transaction(self) -> TransactionContext:
        return TransactionContext(
            id="x",
            gtid=None,
            file="binlog.000003",
            file_number=3,
            pos=self.here,
            ts_ms=1,
            server_id=1,
            made_ms=1,
        )


def histories() -> list[tuple[list[str], int]]:
    randomness = random.Random(7)
    found: list[tuple[list[str], int]] = []
    for _ in range(400):
        rest = randomness.choices(["statement", "row", "row"], k=randomness.randrange(8))
        found.append((["statement", *rest], randomness.choice([0, 1, 2, 3, 20])))
    return found


@pytest.mark.parametrize("snapshots", [True, False])
def test_a_new_table_is_right_late_or_stopped(snapshots: bool) -> None:
    outcomes = set()
    for history, ahead in histories():
        world = World(history, ahead, snapshots=snapshots)
        world.run()
        for place, decoded_by in world.published:
            assert decoded_by == len(world.statements(place)), (history, ahead, "a wrong definition")
        rows = [at for at, what in enumerate(history) if what == "row"]
        seen = {place for place, _ in world.published}
        if world.stopped_at is None:
            missed = [at for at in rows if at not in seen]
            late = world.snapshot_at if world.snapshot_at is not None else len(history)
            assert all(at < late for at in missed), (history, ahead, "rows behind the beginning are lost")
            assert snapshots or not missed, (history, ahead, "nothing brings these rows")
            outcomes.add("late" if missed else "whole")
        else:
            assert ahead, "with capture running nothing stops"
            outcomes.add("stopped")
    assert outcomes >= ({"late", "whole"} if snapshots else {"stopped", "whole"})
