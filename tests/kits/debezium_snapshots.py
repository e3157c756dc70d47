"""A unit of Debezium's topic with snapshots that heal it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from consumer.attempt.copies.snapshots import find_newest_snapshot
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.effects import TableSnapshot
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import CopyNeed, Report
from consumer.tables.stored import StoredDefinition, decode_stored
from schemas.problems import decode_problem
from schemas.table.model import Key, Table
from tests.kits.debezium import Values
from tests.kits.debezium_unit import TABLE, Bench, row

SIGNAL = '{"type":"execute-snapshot","data":{"data-collections":["bank.acct"],"type":"blocking"}}'


BAD = b'{"op":"c"}'


class HealBench(Bench):
    """`source`: the table's definition at the source now; `there`: rows of it that the source finds, beside
    those of the snapshot; `asked`: for which keys. `beginning`: the offset before which retention
    has deleted the topic's records."""

    patient = True
    beginning = 0

    def __init__(self, *, table: Table = TABLE, **more: Any) -> None:
        super().__init__(table=table, **more)
        self.source: Table | Exception = table
        self.there: list[Values] | Exception = []
        self.asked: list[Key] = []

    def apply(self, start: int = 0, upto: int | None = None) -> Report:
        end = len(self.topic) if upto is None else upto
        return apply_topic(
            replace(self.spec, patient=self.patient),
            self.target,  # type: ignore[arg-type]
            AttemptInputs(
                self.slices(start, end),
                read_missing=self.slices,
                find_snapshot=self.find,
                read_rest=lambda start: self.slices(start, len(self.topic)),
                ask_source=self.request_copy,
            ),
            self.tables,
        )

    def request_copy(self, table: Table, keys: Sequence[Key]) -> Sequence[Key]:
        """Find keys as a source does whose collation tells no case apart."""
        self.asked += keys
        if isinstance(self.there, Exception):
            raise self.there
        found = [tuple(each[name] for name in table.key.columns) for each in self.there]
        expected = {str(key).casefold() for key in keys}
        return [key for key in found if str(key).casefold() in expected]

    def find(self, after: int) -> TableSnapshot | None:
        found = find_newest_snapshot(lambda start: self.slices(start, len(self.topic)), after)
        if found is not None and isinstance(self.source, Exception):
            raise self.source
        return None if found is None else TableSnapshot(*found, self.source)  # type: ignore[arg-type]

    def slices(self, start: int, upto: int) -> list[RecordSlice]:
        return super().slices(max(start, self.beginning), upto)

    def again(self) -> Report:
        """Take the unit over and try it, until nothing more can be applied."""
        while True:
            self.take_over()
            lowest = min(lane.offset for lane in self.target.state.lanes.values())
            report = self.apply(lowest + 1)
            if report.state != "ok" or report.offset == len(self.topic) - 1:
                return report

    def stored(self) -> StoredDefinition:
        return decode_stored(self.target.state.unit.definition or "")


def stopped(**more: Any) -> HealBench:
    """A unit that is stopped at an event that it cannot apply, with five rows applied."""
    bench = HealBench(**more)
    bench.connector.insert(*(row(key, f"{key}@x") for key in range(5)))
    bench.topic.append(BAD)
    report = bench.apply()
    assert (report.state, report.copy) == ("stopped", CopyNeed(5, "event"))
    assert decode_problem(report.message).remedy == (
        f"put {SIGNAL} into the signal topic of Debezium's connector (see `rowlock docs debezium`)"
    )
    bench.connector.delete(row(1, "1@x"))
    bench.connector.update(row(2, "2@x"), row(2, "2@y", 2))
    return bench


def now() -> list[Values]:
    """The rows of `stopped` at the source, after what was not applied: row 1 is deleted, row 7 has a value
    that row 3 had."""
    return [row(0, "0@x"), row(2, "2@y", 2), row(3, None, 3), row(4, "4@x"), row(7, "3@x")]
