"""A Kafka target with the interface that the tests of databases use: sessions, and attempts into it
(tests.kits.targets, tests.integration.test_targets_attempts).

A topic holds the last record of each key, as a consumer of the tests' own reads it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec import structs

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec
from consumer.errors import FencedError, RefusedError, TransientError
from consumer.ordering.model import (
    ApplyUnit,
    LaneProgress,
    NetChange,
    QuarantineEntry,
    TargetTable,
    TopicOptions,
    UnitState,
)
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import ResolvedRoute, build_topic_table
from consumer.targets.batches import BatchFenced, ProgressChange, RowsChange, TableCleared
from consumer.targets.kafka import formats
from consumer.targets.kafka.formats.model import FormattedRecord, Place, RoutedTable
from consumer.targets.kafka.formats.rowlock import RowlockFormat
from consumer.targets.kafka.store.state import KnownUnit, ProgressRecord, yield_progress_pairs
from consumer.targets.kafka.target import KafkaTarget
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from deploy.embedded.services import Kafka
from schemas import clock
from schemas.config.model import KafkaTargetConfig
from schemas.table.model import Key, Kind, Row, Table
from tests.kits.kafka_target import documents, messages, target_config
from tests.kits.waiting import until

OPTIONS = TopicOptions(kinds=(("b1", "mariadb"),))


def state_of(kafka: Kafka, topic: str) -> list[dict[str, Any]]:
    """The rows that a reader of committed records has, who keeps the last one of each key, and knows
    rowlock's envelope."""
    rows: dict[tuple[int, bytes | None], tuple[dict[str, Any], str]] = {}
    for message, (_, value) in zip(found := messages(kafka, topic), documents(found), strict=True):
        at = message.partition(), message.key()
        if value is None or value["op"] == "d":
            rows.pop(at, None)
        elif value["op"] == "t":
            source = value["source"]["name"]
            rows = {key: row for key, row in rows.items() if row[1] != source}
        elif value["op"] != "m":
            rows[at] = value["after"], value["source"]["name"]
    return [row for row, _ in rows.values()]


class KafkaStand:
    """What tests.kits.targets.Target is for databases."""

    kind = "kafka"

    def __init__(self, kafka: Kafka, prefix: str) -> None:
        self.service, self.schema = kafka, prefix
        self.sessions: list[StandSession] = []

    def config(self) -> KafkaTargetConfig:
        return target_config(self.service, self.schema)

    def open(self) -> StandSession:
        made = StandSession(self.config(), self.service)
        self.sessions.append(made)
        return made

    def displaced(self) -> list[dict[str, Any]]:
        return []

    def start_again(self) -> None:
        """Start the broker, and wait until somebody leads the topics."""
        self.service.start()
        until(self._led, "the topics to be led")

    def _led(self) -> bool:
        try:
            for session in self.sessions:
                session.read_quarantine(ApplyUnit("", ""))
        except TransientError:
            return False
        return True

    def put_back(self, unit: ApplyUnit, epoch: int) -> None:
        """Let the progress be what it was, but for this epoch."""
        self._write(
            unit,
            lambda record: msgspec.structs.replace(
                record, lanes=tuple(structs.replace(row, epoch=epoch) for row in record.lanes)
            ),
        )

    def forget(self, unit: ApplyUnit) -> None:
        self._write(unit, lambda _: None)

    def _write(self, unit: ApplyUnit, change: Callable[[ProgressRecord], ProgressRecord | None]) -> None:
        """Write progress as a person would: nobody else has the unit's transactional id meanwhile."""
        store = KafkaTarget(self.config())
        writer = UnitWriter(
            self.config(), unit, 1000, lambda: store._progress.read_new_records().get_unit(unit)
        )
        known = writer.known
        assert known.record is not None
        after = KnownUnit(change(known.record), known.held)
        writer.commit_records(
            [
                Outgoing(f"{self.schema}.rowlock_progress", 0, *pair)
                for pair in yield_progress_pairs(unit, known, after)
            ],
            after,
        )
        writer.discard()
        store.close()


class StandSession:
    """A Kafka target with a session's calls: what a transaction collects is one commit, and so is its
    guard."""

    def __init__(self, config: KafkaTargetConfig, kafka: Kafka | None) -> None:
        self.target = KafkaTarget(config, lambda: clock.read_clock_ms())  # noqa: PLW0108  # it is replaced by tests
        self._kafka = kafka
        self._read_settings: list[Row] = []

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> StandSession:
        """Open a session that reads no rows, from a configuration as JSON has it."""
        return cls(target_config(SimpleNamespace(bootstrap=config["bootstrap"]), config["prefix"]), None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)

    def stop_unit(self, unit: ApplyUnit, epoch: int, message: str, *, was: str | None = None) -> None:
        """By the real clock, whatever epochs go by."""
        clock, self.target._now_ms = self.target._now_ms, lambda: time.time_ns() // 1_000_000
        self.target.stop_unit(unit, epoch, message, was=was)
        self.target._now_ms = clock

    def create_table(self, table: Table) -> None:
        self.target.open_topic(in_topic(table), create=True)

    @contextmanager
    def begin_transaction(
        self, unit: ApplyUnit, guards: Sequence[LaneProgress], lock_wait_s: float | None = None
    ) -> Iterator[Collected]:
        self._commit_transaction(unit, [], ProgressChange(guards, guards))
        collected = Collected(guards)
        yield collected
        self._commit_transaction(unit, collected.changes, collected.progress())

    def _commit_transaction(
        self, unit: ApplyUnit, changes: Sequence[RowsChange], progress: ProgressChange
    ) -> None:
        outcome = self.target.apply_changes(unit, changes, progress)
        if isinstance(outcome, BatchFenced):
            raise FencedError(outcome.seen)

    def fetch_rows(self, table: TargetTable, after: Key | None, limit: int, where: None = None) -> list[Row]:
        assert where is None
        assert self._kafka is not None
        if after is None:  # the next pages are of the same reading
            topic = f"{table.schema}.{table.name}"
            self._read_settings = [tuple(row.values()) for row in state_of(self._kafka, topic)]
        rows = self._read_settings
        numbers = {at for at, column in enumerate(table.table.columns) if column.type.kind is Kind.DECIMAL}
        order = lambda row: tuple(Decimal(row[at]) if at in numbers else row[at] for at in table.key_at)  # noqa: E731
        found = sorted(rows, key=order)
        return [row for row in found if after is None or order(row) > tuple(after)][:limit]


class Collected:
    """What a transaction is told."""

    def __init__(self, guards: Sequence[LaneProgress]) -> None:
        self.changes: list[RowsChange] = []
        self._guards = guards
        self._made: dict[str, Any] = {"rows": guards}

    def progress(self) -> ProgressChange:
        return ProgressChange(self._guards, **self._made)

    def apply_net_change(self, net: NetChange, *, displacing: str | None = None) -> int:
        self.changes.append(replace(net, table=in_topic(net.table.table, net.table.added)))
        return 0

    def truncate_table(self, table: TargetTable, where: dict[str, str] | None) -> None:
        self.changes.append(TableCleared(in_topic(table.table, table.added), where))

    def write_progress(self, rows: Sequence[LaneProgress]) -> None:
        self._made["rows"] = rows

    replace_lanes = write_progress

    def write_unit(self, state: UnitState) -> None:
        self._made["state"] = state

    def write_quarantine(self, held: Sequence[QuarantineEntry]) -> None:
        self._made["held"] = [*self._made.get("held", ()), *held]

    def close_held(self, ids: Sequence[tuple[int, int]], why: str) -> None:
        self._made |= {"closed": [*self._made.get("closed", ()), *ids], "why": why}


def in_topic(table: Table, added: tuple[str, ...] = ()) -> TargetTable:
    """A table of a test in a topic, as if its source were `b1`."""
    routed = ResolvedRoute(table.db, table.name, tuple((name, "") for name in added), topic=OPTIONS)
    return build_topic_table(table, routed, "b1", table)


class Cluster:
    """What tests.kits.attempts.Real is for databases; and `Connections` to it."""

    lanes = 1

    def __init__(self, config: KafkaTargetConfig, kafka: Kafka) -> None:
        self.schema, self.config, self.kafka = config.prefix, config, kafka
        self.session = self.open()
        self.worker: KafkaTarget | None = None
        self.tables: dict[UnitAssignment, ActiveDefinition] = {}

    def open(self) -> KafkaTarget:
        made = KafkaTarget(self.config, lambda: 0)
        made.ensure_bookkeeping()
        return made

    def get_connection(self, _number: int) -> KafkaTarget:
        """The worker's own, as it is another process than who takes over."""
        if self.worker is None:
            self.worker = self.open()
        return self.worker

    def drop_if_broken(self, number: int) -> None: ...

    def drop_connection(self, _number: int) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close()

    def displaced(self) -> int:
        return 0

    def closed(self) -> list[tuple[object, ...]]:
        """(topic, offset, why) of the entries that have left the quarantine."""
        found = documents(messages(self.kafka, f"{self.schema}.rowlock_quarantine_closed"))
        return [(value["topic"], value["offset"], value["closed"]) for _, value in found]

    def narrow(self, _table: str, column: str, length: int) -> None:
        """Let the format refuse longer values from now on, as one does that cannot carry them."""

        class Narrow(RowlockFormat):
            def build_change_records(
                self, before: Row | None, after: Row | None, place: Place
            ) -> list[FormattedRecord]:
                at = self._routed.table.column_names.index(column)
                if any(row is not None and len(str(row[at])) > length for row in (before, after)):
                    raise RefusedError(f"column {column}: too long")
                return super().build_change_records(before, after, place)

        self.formats(Narrow)

    def formats(self, made: Callable[[RoutedTable], Any]) -> None:
        formats.FORMATS["rowlock"] = made
        self.drop_connection(0)
        self.tables.clear()

    def apply(
        self,
        spec: UnitSpec,
        slices: Iterable[RecordSlice],
        read_missing: Callable[[int, int], list[RecordSlice]],
    ) -> Report:
        options = TopicOptions(kinds=((spec.source, "mariadb"),))
        routes = tuple(replace(each, topic=each.topic or options) for each in spec.routes)
        spec = replace(spec, batches=True, routes=routes)
        return apply_topic(
            spec,
            self,
            AttemptInputs(
                slices,
                read_missing=read_missing,
                find_begin=lambda after, hint: find_begin(
                    read_missing, lambda first: read_missing(first, 1 << 30), after, hint
                ),
            ),
            self.tables,
        )

    def rows(self, unit: ApplyUnit, table: TargetTable) -> list[Row]:
        """What a reader of committed records has, who keeps the last one of each key."""
        return [tuple(row.values()) for row in state_of(self.kafka, f"{self.schema}.acct")]

    def ops(self) -> str:
        """The operations of the records, in order; a tombstone is `-`."""
        found = documents(messages(self.kafka, f"{self.schema}.acct"))
        return "".join("-" if value is None else value["op"] for _, value in found)

    def close(self) -> None:
        self.drop_connection(0)
        self.session.close()
        formats.FORMATS["rowlock"] = RowlockFormat
