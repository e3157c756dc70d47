"""A unit with copies of its table, applied to a target in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.copies.key_sweep import KeySweep
from consumer.attempt.copies.table_sweep import TableSweep
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec
from consumer.ordering.model import NetChange
from consumer.tables.stored import decode_stored
from schemas.table.model import Column, ColumnType, Key, Kind, Table
from schemas.wire.records import TableStop
from tests.kits.apply import TEXT, FakeSource, account_table
from tests.kits.copy import CopyOf
from tests.kits.unit_apply import Bench
from tests.stands.fake_target import FakeSession, FakeTransaction

STOP = TableStop(
    cause="rows-replaced", at=(0, 1, 500, -1), file="binlog.000001", pos=500,
    reason="bank.acct: ALTER TABLE acct DROP PARTITION p0 removed rows", remedy="look at it", since_ms=7,
)  # fmt: skip


def by_text(key: int) -> str:
    return str(key)


def keyed_by_text() -> Table:
    """The account's table with a key of text: no range of it is asked for at the target."""
    table = account_table()
    key = Column(name="id", type=ColumnType(kind=Kind.VARCHAR, length=20, **TEXT), nullable=False)
    return replaced(table, columns=(key, *table.columns[1:]))


class TextSource(FakeSource):
    def row(self, key: int, email: str | None, version: int, note: str = "") -> dict[str, Any]:
        return {**super().row(key, email, version, note), "id": str(key)}


class CopyBench(Bench):
    """`hint`: what the process knows of the last copy's begin. `key_sweeps`: what it remembers of the unit's
    key sweep."""

    hint: int | None = None
    patient = True
    reads: int = 0
    expired: int = 0
    """What Kafka has deleted of the topic: the records before this offset."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.key_sweeps: dict[UnitAssignment, KeySweep | TableSweep] = {}
        super().__init__(*args, **options)

    def apply(self, start: int = 0, *, slice_size: int = 50, topic_id: str = "id") -> Report:
        spec = UnitSpec(
            unit=self.unit, source="branch1", epoch=self.epoch, topic_id=topic_id, routes=self.routes,
            lanes=self.lanes,
            copy_at=self.hint, patient=self.patient, **self.more,  # type: ignore[arg-type]
        )  # fmt: skip
        return apply_topic(
            spec,
            self.target,  # type: ignore[arg-type]
            AttemptInputs(
                self.slices(start, len(self.topic), slice_size),
                read_missing=lambda first, upto: self._read(first, upto, slice_size),
                find_begin=lambda after, hint: find_begin(
                    lambda first, upto: self.slices(first, upto, 10),
                    lambda first: self.slices(first, len(self.topic), 10),
                    after,
                    hint,
                ),
                key_sweeps=self.key_sweeps,
            ),
            self.tables,
        )

    def _read(self, first: int, upto: int, size: int) -> list[RecordSlice]:
        self.reads += 1
        return self.slices(max(first, self.expired), upto, size)

    @property
    def sweep_since(self) -> int | None:
        return decode_stored(self.target.state.unit.definition or "").sweep_since

    @property
    def has_debt(self) -> bool:
        return decode_stored(self.target.state.unit.definition or "").removed is not None

    def plant(self, *keys: int, text: bool = False) -> None:
        """Leave rows in the target that the source does not have."""
        rows = self.target.state.rows.setdefault("public.acct", {})
        for key in keys:
            named: Any = str(key) if text else key
            rows[named,] = (named, None, "stale", "1.00", 0, "2026-01-01 00:00:00.000000", "")


def copy_of(source: FakeSource, topic: list[bytes], **options: Any) -> CopyOf:
    value: Callable[[int], Any] = str if isinstance(source, TextSource) else int
    return CopyOf(source, topic, value=value, **options)


def sweep_of(source: FakeSource, topic: list[bytes], **options: Any) -> CopyOf:
    """Return a key sweep of the source's table."""
    return copy_of(source, topic, keys=True, id="sweep-1", **options)


def settle(bench: CopyBench) -> int:
    """Apply until nothing is left to compare; return the number of attempts."""
    for attempts in range(1, 200):
        report = bench.apply()
        assert report.state == "ok", report.message
        if not report.trial_in_s:
            return attempts
    raise AssertionError("the comparison never ends")


def benched(*, text: bool = False, **options: Any) -> tuple[CopyBench, FakeSource]:
    bench = CopyBench(**options)
    source = TextSource(table=keyed_by_text()) if text else FakeSource()
    bench.write([source.definition()])
    return bench, source


def stopped_at(bench: CopyBench, source: FakeSource) -> int:
    """Let the unit stop behind three rows; returns the offset of what stops it."""
    bench.write([source.put(source.row(n, f"{n}@x", 1)) for n in range(3)])
    bench.write([source.event("m", stop=STOP)])
    assert bench.apply().state == "stopped"
    bench.take_over()
    return len(bench.topic) - 1


def show_keys_as_decimals(bench: CopyBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the target's key be a DECIMAL(12,2), which shows 5 as 5.00."""
    table = bench.target.tables["public.acct"]
    key = replaced(table.columns[0], type=ColumnType(kind=Kind.DECIMAL, precision=12, scale=2))
    bench.target.tables["public.acct"] = replaced(table, columns=(key, *table.columns[1:]))
    page, find, write = FakeSession.fetch_rows, FakeSession.fetch_keys, FakeTransaction.apply_net_change

    def shown(keys: Sequence[Key]) -> list[Key]:
        return [(f"{key[0]}.00",) for key in keys]

    def meant(key: Key | None) -> Key | None:
        return key and (int(str(key[0]).removesuffix(".00")),)

    def fetch_rows(self: FakeSession, of: Any, after: Key | None, *more: Any, upto: Key | None) -> list[Key]:
        return shown(page(self, of, meant(after), *more, upto=meant(upto)))

    def fetch_keys(self: FakeSession, of: Any, keys: Sequence[Key]) -> list[Key]:
        return shown(find(self, of, [meant(key) for key in keys]))

    def apply_net_change(self: FakeTransaction, net: NetChange, **more: Any) -> int:
        return write(self, replace(net, deletes=[meant(key) for key in net.deletes]), **more)

    monkeypatch.setattr(FakeSession, "fetch_rows", fetch_rows)
    monkeypatch.setattr(FakeSession, "fetch_keys", fetch_keys)
    monkeypatch.setattr(FakeTransaction, "apply_net_change", apply_net_change)
