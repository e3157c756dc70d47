"""The keys that live, those that only the target still has, and where that may be asked of a range
(consumer.attempt.copies, key_order)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from consumer.attempt.copies import keys as keys_module
from consumer.attempt.copies import keys_on_disk
from consumer.attempt.copies import sweep as sweep_module
from consumer.attempt.copies.begin import decode_copy_begin, find_first_copy_begin, find_mark_before_copy
from consumer.attempt.copies.keys import KeyComparison, MemoryKeys
from consumer.attempt.copies.keys_on_disk import ScratchKeys
from consumer.attempt.copies.sweep import BoundRefusedError, Sweep, read_topic_after
from consumer.attempt.copies.window import KeyWindow
from consumer.attempt.drivers.driver import AttemptInputs, open_keys
from consumer.attempt.drivers.threads import ThreadDriver
from consumer.attempt.effects import (
    ListKeys,
    LookUpKeys,
    Machine,
    OpenKeys,
    ReadMissing,
    ReadPassed,
    ask_driver,
)
from consumer.attempt.evolution.machine import get_remedy_before_copy
from consumer.attempt.readers.reader import ReaderItem, RowBatch, Truncated
from consumer.errors import CopyNeededError, RefusedError, TakesLongError, TransientError
from consumer.ordering.model import LaneProgress, RowChange, TargetTable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.key_order import are_ranges_alike
from consumer.tables.router import build_key_table
from consumer.tables.stored import StoredDefinition
from consumer.targets.shared.keyed_reads import find_under_keys
from consumer.targets.sql import render_after_key, render_up_to_key
from schemas.findings import START_OVER
from schemas.io.scratch import open_nameless_database
from schemas.table.model import Column, ColumnType, IndexPart, Key, Kind, Table, UniqueIndex
from schemas.wire.codec import encode_event_value
from schemas.wire.copies import CopyMark
from tests.kits.apply import FakeSource, account_table

TABLE = account_table()
TARGET = TargetTable(TABLE, (0,), ((1,),))
MARK = (0, (0, 1, 1, 0), 1, 0)


def change(offset: int, before: int | None, after: int | None) -> RowChange:
    def row(key: int | None) -> Any:
        return None if key is None else (key, None, "o", "1.00", 1, "", "")

    return RowChange((offset, 0), row(before), row(after))


def keyed(*types: ColumnType, name: str = "t", added: bool = False, prefix: int | None = None) -> Table:
    columns = [Column(name=f"k{n}", type=each, nullable=False) for n, each in enumerate(types)]
    if added:
        columns.append(Column(name="branch", type=ColumnType(kind=Kind.VARCHAR, length=64), nullable=False))
    names = (["branch"] if added else []) + [f"k{n}" for n in range(len(types))]
    parts = tuple(IndexPart(column=each, prefix=prefix) for each in names)
    return Table(db="d", name=name, columns=tuple(columns), key=UniqueIndex(name="PRIMARY", parts=parts))


INT = ColumnType(kind=Kind.INT, bits=32)
BIG = ColumnType(kind=Kind.INT, bits=64)
MONEY = ColumnType(kind=Kind.DECIMAL, precision=10, scale=2)
DATE = ColumnType(kind=Kind.DATE)


def seconds(kind: Kind, fsp: int) -> ColumnType:
    return ColumnType(kind=kind, fsp=fsp)


@pytest.mark.parametrize(
    ("source", "real"),
    [
        (INT, BIG), (INT, ColumnType(kind=Kind.DECIMAL)), (BIG, ColumnType(kind=Kind.DECIMAL, precision=20)),
        (MONEY, MONEY), (MONEY, ColumnType(kind=Kind.DECIMAL)), (MONEY, ColumnType(kind=Kind.DECIMAL, precision=20, scale=6)),  # noqa: E501
        (ColumnType(kind=Kind.DECIMAL, precision=10), BIG), (DATE, DATE), (ColumnType(kind=Kind.YEAR), INT),
        *((seconds(kind, 3), seconds(kind, fsp)) for kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP) for fsp in (3, 6)),  # noqa: E501
        (ColumnType(kind=Kind.BINARY, length=4), ColumnType(kind=Kind.BINARY, length=4)),
        (ColumnType(kind=Kind.BINARY, length=4), ColumnType(kind=Kind.BLOB)),
        (ColumnType(kind=Kind.VARBINARY, length=4), ColumnType(kind=Kind.VARBINARY, length=9)),
        (ColumnType(kind=Kind.VARBINARY, length=4), ColumnType(kind=Kind.BLOB)),
    ],
)  # fmt: skip
def test_these_have_one_order_everywhere(source: ColumnType, real: ColumnType) -> None:
    assert are_ranges_alike(keyed(source), keyed(real))
    assert are_ranges_alike(keyed(INT, source), keyed(BIG, real))
    assert are_ranges_alike(keyed(source, INT), keyed(real, INT, added=True), ("branch",))


@pytest.mark.parametrize(
    ("source", "real"),
    [
        *((ColumnType(kind=kind, length=9), ColumnType(kind=kind, length=9)) for kind in (Kind.CHAR, Kind.VARCHAR, Kind.TEXT)),  # noqa: E501
        (ColumnType(kind=Kind.VARCHAR, collation="utf8mb4_bin"), ColumnType(kind=Kind.VARCHAR, collation="utf8mb4_bin")),  # noqa: E501
        *((ColumnType(kind=kind, members=("a",)), ColumnType(kind=kind, members=("a",))) for kind in (Kind.ENUM, Kind.SET)),  # noqa: E501
        (ColumnType(kind=Kind.BIT, length=8), ColumnType(kind=Kind.BIT, length=8)),
        (ColumnType(kind=Kind.FLOAT), ColumnType(kind=Kind.FLOAT)), (ColumnType(kind=Kind.DOUBLE), ColumnType(kind=Kind.DOUBLE)),  # noqa: E501
        (INT, ColumnType(kind=Kind.VARCHAR, length=20)), (INT, ColumnType(kind=Kind.DOUBLE)),
        (MONEY, BIG), (MONEY, ColumnType(kind=Kind.DECIMAL, precision=10, scale=1)),
        (DATE, seconds(Kind.DATETIME, 0)), (seconds(Kind.DATETIME, 6), seconds(Kind.DATETIME, 3)),
        (seconds(Kind.TIMESTAMP, 0), seconds(Kind.DATETIME, 0)), (DATE, ColumnType(kind=Kind.VARCHAR, length=10)),  # noqa: E501
        (ColumnType(kind=Kind.VARBINARY, length=4), ColumnType(kind=Kind.BINARY, length=4)),
        (ColumnType(kind=Kind.BINARY, length=4), ColumnType(kind=Kind.BINARY, length=8)),
        (ColumnType(kind=Kind.BINARY, length=4), ColumnType(kind=Kind.VARCHAR, length=8)),
    ],
)  # fmt: skip
def test_of_these_no_range_is_asked_for(source: ColumnType, real: ColumnType) -> None:
    assert not are_ranges_alike(keyed(source), keyed(real))
    assert not are_ranges_alike(keyed(INT, source), keyed(INT, real))


def test_another_key_or_a_part_of_a_value_is_no_range() -> None:
    two = keyed(INT, INT)
    turned = replace(two, key=UniqueIndex(name="PRIMARY", parts=two.key.parts[::-1]))
    assert are_ranges_alike(two, two)
    assert not are_ranges_alike(two, turned)
    assert not are_ranges_alike(keyed(INT), two)
    assert not are_ranges_alike(keyed(INT), keyed(INT, added=True)), "not a column that all rows share"
    blob = ColumnType(kind=Kind.BLOB)
    assert not are_ranges_alike(keyed(blob, prefix=4), keyed(blob, prefix=4))
    assert not are_ranges_alike(keyed(ColumnType(kind=Kind.VARBINARY, length=9), prefix=4), keyed(blob))


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(-2, 3)), min_size=1, max_size=8), st.data())
def test_the_pages_of_a_range_are_those_between_its_ends(
    keys: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Both ends column by column, as a server evaluates them."""
    low, high = data.draw(st.sampled_from(keys)), data.draw(st.sampled_from(keys))
    for a, b in keys:
        for text, params, expected in (
            (*render_after_key(("a", "b"), low), (a, b) > low),
            (*render_up_to_key(("a", "b"), high), (a, b) <= high),
            (*render_up_to_key(("a",), high[:1]), a <= high[0]),
        ):
            python = text.replace("%s", "{!r}").format(*params).replace(" = ", " == ").lower()
            assert eval(python, {"a": a, "b": b}) is expected


def test_a_window_knows_the_last_event_of_each_key_behind_an_offset() -> None:
    window = KeyWindow(TARGET, 5)
    window.note_taken(
        RowBatch([change(6, None, 1), change(7, None, 2), change(8, 2, 3), change(9, 1, None)], MARK)
    )
    assert window.list_living_keys(5) == [(3,)]
    window.note_taken(RowBatch([change(11, None, 4), change(12, None, 1)], MARK))
    assert sorted(window.list_living_keys(8)) == [(1,), (4,)]
    assert (window.since, len(window)) == (8, 2)
    window.note_taken(Truncated(MARK))
    window.note_taken(RowBatch([change(14, 7, 8)], MARK))
    assert window.list_living_keys(8) == [(8,)]


def checks(folder: Path) -> list[KeyComparison]:
    return [MemoryKeys(), ScratchKeys(folder, most=3), ScratchKeys(folder, most=0)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_keys_on_disk_and_in_memory_say_the_same(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder, rng = tmp_path_factory.mktemp("keys"), random.Random(seed)
    universe: list[Key] = [(n, f"é{n}") for n in range(12)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys_on_disk, "MAX_BUFFERED_KEYS", rng.randint(1, 5))
        patch.setattr(keys_module, "KEYS_PER_PAGE", rng.randint(1, 4))
        all_of = checks(folder)
        living: set[Key] = set()
        for _ in range(30):
            key, lives = rng.choice(universe), rng.random() < 0.7
            living = living | {key} if lives else living - {key}
            for each in all_of:
                each.note_key(key, lives)
            if rng.random() < 0.03:
                living = set()
                for each in all_of:
                    each.clear()
        there = rng.sample(universe, 8)
        excused = rng.sample(there, 2)
        for each in all_of:
            each.compare_keys(there[:3])
            each.compare_keys(there[3:])
            each.discard_doubts(excused)
            assert {key for page in each.yield_unmatched() for key in page} == living - set(there)
            assert {key for page in each.yield_doubted() for key in page} == set(there) - living - set(
                excused
            )
            each.close()
    assert list(folder.iterdir()) == [], "a file without a name"


def test_a_disk_without_room_is_told_and_not_the_units_fault(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    keys = ScratchKeys(file / "not a folder", most=0)
    with pytest.raises(TransientError, match="make room"):
        keys.note_key((1,), True)
    assert isinstance(open_keys(""), ScratchKeys)


def test_a_key_table_has_the_keys_columns_in_the_keys_order() -> None:
    two = keyed(INT, BIG, added=True)
    table = build_key_table(TargetTable(two, (2, 0, 1), (), ("branch",)))
    assert (table.table.column_names, table.key_at) == (("branch", "k0", "k1"), (0, 1, 2))


def test_records_that_are_read_again_leave_those_that_were_being_read() -> None:
    topic = [(n, b"x") for n in range(10)]
    unused: Any = None

    def read(driver: ThreadDriver, effect: ReadMissing | ReadPassed) -> list[tuple[int, bytes | None]] | None:
        return driver.run_machine(ask_driver(effect))

    inputs = AttemptInputs([], lambda start, upto: [topic[n : n + 1] for n in range(start, upto)])
    driver = ThreadDriver(unused, unused, inputs, {})
    assert read(driver, ReadMissing(2, 5)) == [topic[2]]
    assert [read(driver, ReadPassed(0, 2)) for _ in range(3)] == [[topic[0]], [topic[1]], None]
    assert read(driver, ReadMissing(2, 5)) == [topic[3]]
    assert read(driver, ReadMissing(7, 8)) == [topic[7]], "the other stretch was given up"
    assert read(driver, ReadMissing(7, 8)) is None
    unassigned = ThreadDriver(unused, unused, AttemptInputs(is_assigned=lambda: False), {})
    with pytest.raises(TransientError):
        read(unassigned, ReadPassed(0, 2))


def test_a_unit_goes_on_at_a_begin_with_the_position_of_its_predecessor() -> None:
    source = FakeSource(gen=3)
    source.definition()
    begin = source.event("m", definition=source.table, copy=CopyMark(id="c"))
    raw = encode_event_value(begin)
    lane = LaneProgress(0, 1, 1, "id", 4, (0, 1, 50, 0), 2, "")
    mark = find_mark_before_copy([lane], 5, 9, raw)
    assert mark == (8, begin.source.prev, 3, begin.source.ts_ms)
    assert find_mark_before_copy([lane], 9, 9, raw) is None, "not behind"
    assert find_mark_before_copy([replace_lane(lane, gen=4)], 5, 9, raw) is None
    assert find_mark_before_copy([replace_lane(lane, position=begin.source.position)], 5, 9, raw) is None
    assert find_mark_before_copy([lane], 5, 9, None) is None
    partial = source.event("m", definition=source.table, copy=CopyMark(id="c", partial=True))
    assert decode_copy_begin(encode_event_value(partial)) is None
    assert decode_copy_begin(b'{"copy":{}}') is None
    assert find_first_copy_begin([[(0, None), (1, b"{}")], [(9, raw)]]) == (9, raw)


def test_a_begin_behind_an_event_of_a_later_capture_is_none_to_go_on_at() -> None:
    """Its capture was replaced before it wrote that: what its successor writes may stand below it."""
    source, zombie = FakeSource(), FakeSource()
    source.gen = 2
    late = encode_event_value(zombie.event("m", definition=zombie.table, copy=CopyMark(id="c")))
    row = encode_event_value(source.put(source.row(1, "1@x", 1)))
    begin = encode_event_value(source.event("m", definition=source.table, copy=CopyMark(id="d")))
    assert find_first_copy_begin([[(5, row), (6, late)], [(7, late)]]) is None
    assert find_first_copy_begin([[(5, row), (6, late)], [(7, begin)]]) == (7, begin)


def replace_lane(lane: LaneProgress, **changes: Any) -> LaneProgress:
    return replace(lane, **changes)


EARLIER_START_OVER = "start over (docs/how-to/start-over.md)"
"""The remedy as topics have it that were written before version 0.2.0."""


@pytest.mark.parametrize(
    ("remedy", "first"),
    [
        (START_OVER, ""), ("", ""), ("rowlock copy bank.acct", ""),
        (f"mend it, then {START_OVER}", "mend it"), (f"mend it, reconnect, and {START_OVER}", "mend it, reconnect"),  # noqa: E501
        (f"mend it, then {EARLIER_START_OVER}", "mend it"), (EARLIER_START_OVER, ""),
        ("mend it, then rowlock copy bank.acct", "mend it"), ("add a key", "add a key"),
    ],
)  # fmt: skip
def test_what_must_be_done_before_a_copy_is_the_stops_remedy_without_the_copy(
    remedy: str, first: str
) -> None:
    assert get_remedy_before_copy(remedy) == first
    reported = str(
        CopyNeededError("seen", cause="x", table=("bank", "acct"), first=get_remedy_before_copy(remedy))
    )
    assert reported == f"seen: {first + ', then ' if first else ''}rowlock copy bank.acct"


def test_the_remedy_names_a_table_as_the_configuration_does() -> None:
    assert (
        str(CopyNeededError("seen", cause="x", table=("bank.2024", "acct")))
        == "seen: rowlock copy '`bank.2024`.acct'"
    )
    assert str(CopyNeededError("seen", cause="x")) == "seen: rowlock copy"


@pytest.mark.parametrize("refused", [set(), {0}, {4}, {6}, {2, 3}, set(range(7))])
def test_a_key_that_the_target_refuses_is_not_there_and_hides_no_other(refused: set[int]) -> None:
    def look(keys: Any) -> list[Key]:
        if any(key[0] in refused for key in keys):
            raise RefusedError("no such date")
        return [key for key in keys if key[0] != 1]

    assert find_under_keys(look, [(n,) for n in range(7)]) == [
        (n,) for n in range(7) if n not in {*refused, 1}
    ]
    assert find_under_keys(look, []) == []


def test_only_what_the_target_shows_under_its_very_key_is_deleted() -> None:
    """Between the list and the look a row may have been deleted, or be shown as another: a delete by its key
    could meet one that is alike."""
    deleted: list[list[Key]] = []

    def delete(_table: TargetTable, keys: list[Key]) -> Machine[int]:
        deleted.append(keys)
        yield from ()
        return len(keys)

    sweep = Sweep("t", cast(ActiveDefinition, SimpleNamespace(target=TARGET)), delete, patient=True)
    keys = cast(KeyComparison, SimpleNamespace(yield_doubted=lambda: iter([[(1,), (2,), (3,)]])))
    machine = sweep._delete_doubted_rows(keys)
    assert isinstance(next(machine), LookUpKeys)
    with pytest.raises(StopIteration) as ended:
        machine.send([(2,), ("03",)])
    assert (deleted, ended.value.value) == ([[(2,)]], 1)


def test_rows_in_front_of_a_truncate_of_the_copy_keep_nothing() -> None:
    deleted: list[list[Key]] = []

    def delete(_table: TargetTable, keys: list[Key]) -> Machine[int]:
        deleted.append(keys)
        yield from ()
        return len(keys)

    def read(
        _topic: str, _in_force: ActiveDefinition, _begin: int, _end: int, take: Callable[[ReaderItem], None]
    ) -> Machine[None]:
        take(RowBatch([change(6, None, 1), change(7, None, 2)], MARK))
        take(Truncated(MARK))
        take(RowBatch([change(9, None, 2)], MARK))
        yield from ()

    def answer(effect: Any) -> Any:
        match effect:
            case OpenKeys():
                return MemoryKeys()
            case ListKeys():
                return [(1,), (2,)] if effect.after is None else []
            case LookUpKeys():
                return effect.keys

    def carried_out(machine: Machine[int]) -> int:
        effect = next(machine)
        while True:
            try:
                effect = machine.send(answer(effect))
            except StopIteration as ended:
                return int(ended.value)

    unused: Any = None
    routed: Any = SimpleNamespace(where=None)
    in_force = ActiveDefinition(
        "", StoredDefinition(TABLE), TABLE, routed, TABLE, TABLE, TARGET, unused, unused, unused
    )
    sweep = Sweep("t", in_force, delete, patient=True, read=read)
    assert carried_out(sweep.sweep_table(5, 10)) == 1
    assert deleted == [[(1,)]]


@pytest.mark.parametrize(("offset", "raw"), [(8, b"{}"), (7, None)])
def test_a_copy_whose_event_kafka_has_no_more_is_not_read_again(offset: int, raw: bytes | None) -> None:
    in_force: Any = None
    reading = read_topic_after("rl.b1.bank.acct", in_force, 7, 20, lambda _taken: None)
    next(reading)
    with pytest.raises(CopyNeededError, match="has deleted offset 7") as found:
        reading.send([(offset, raw)])
    assert found.value.cause == "gap"


class TestKeysThatAreTooManyForMemory:
    """They go to the disk as they come, so that a table of any size fits: a disk that takes no more is met at
    once."""

    @pytest.fixture
    def missing(self, tmp_path: Path) -> Path:
        file = tmp_path / "file"
        file.write_text("")
        return file / "not a folder"

    @pytest.mark.parametrize("most", [0, 2, 100])
    def test_none_is_forgotten_on_the_way(self, tmp_path: Path, most: int) -> None:
        """Doubts that were in memory go to the disk, too; and what lives can be asked for where the target
        shows nothing."""
        keys = ScratchKeys(tmp_path, most=most)
        keys.note_key((4,), True)
        keys.note_key((1,), True)
        keys.note_key((4,), False)
        assert list(keys.yield_unmatched()) == [[(1,)]]
        keys.compare_keys([(2,), (1,)])
        keys.compare_keys([(3,)])
        assert list(keys.yield_unmatched()) == []
        assert sorted(key for page in keys.yield_doubted() for key in page) == [(2,), (3,)]

    def test_those_of_the_target_as_those_of_the_source(self, missing: Path) -> None:
        keys = ScratchKeys(missing, most=2)
        keys.note_key((1,), True)
        keys.compare_keys([(1,), (2,)])
        with pytest.raises(TransientError, match="make room"):
            keys.compare_keys([(3,)])

    def test_as_they_are_noted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def small(folder: Path, prefix: str) -> Any:
            database = open_nameless_database(folder, prefix)
            database.execute("PRAGMA max_page_count = 8")
            return database

        monkeypatch.setattr(keys_on_disk, "open_nameless_database", small)
        monkeypatch.setattr(keys_on_disk, "MAX_BUFFERED_KEYS", 10)
        keys = ScratchKeys(tmp_path, most=0)

        def note_all() -> None:
            for number in range(100):
                keys.note_key((f"{number:_>1000}",), True)

        with pytest.raises(TransientError, match="make room"):
            note_all()


class Sweeping:
    """A sweep of a table whose target shows the keys `there`, `page` at a time, each as `shown`; it is the
    last chunk of a copy from offset 5 on."""

    def __init__(
        self,
        *there: int,
        page: int = 100,
        patient: bool = True,
        shown: Callable[[int], int] = lambda key: key,
    ) -> None:
        self.there, self.page, self.shown, self.lists = there, page, shown, 0
        self.deleted: list[Key] = []
        unused: Any = None
        routed: Any = SimpleNamespace(where=None)
        in_force = ActiveDefinition(
            "", StoredDefinition(TABLE), TABLE, routed, TABLE, TABLE, TARGET, unused, unused, unused
        )
        self.sweep = Sweep("t", in_force, self._delete, patient=patient, read=self._read)

    def _read(self, *asked: Any) -> Machine[None]:
        asked[-1](RowBatch([change(6, None, 1)], MARK))
        yield from ()

    def _delete(self, _table: TargetTable, keys: list[Key]) -> Machine[int]:
        self.deleted += keys
        yield from ()
        return len(keys)

    def _answer(self, effect: Any) -> Any:
        match effect:
            case OpenKeys():
                return MemoryKeys()
            case ListKeys():
                self.lists += 1
                after = -1 if effect.after is None else effect.after[0]
                return [(self.shown(key),) for key in self.there if key > after][: self.page]
            case LookUpKeys():
                return [key for key in effect.keys if key[0] in self.there]

    def run(self, end: int = 10) -> int:
        machine = self.sweep.sweep_table(5, end)
        effect = next(machine)
        while True:
            try:
                effect = machine.send(self._answer(effect))
            except StopIteration as ended:
                return int(ended.value)


class TestALongSweep:
    """Whoever has other units to carry leaves it to a hand."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sweep_module, "MAX_QUICK_SWEEP_KEYS", 10)

    @pytest.mark.parametrize(("end", "there", "long"), [
        (15, 0, False), (16, 0, True),  # events of the topic
        (6, 9, False), (6, 10, True),  # keys of the target
        (10, 5, False), (11, 5, True), (10, 6, True),  # both are looked at
    ])  # fmt: skip
    def test_is_one_of_many_events_and_keys_together(self, end: int, there: int, long: bool) -> None:
        for patient in (True, False):
            sweeping = Sweeping(*range(1, there + 1), page=2, patient=patient)
            if long and not patient:
                with pytest.raises(TakesLongError):
                    sweeping.run(end)
                assert sweeping.deleted == []
            else:
                assert sweeping.run(end) == max(0, there - 1)


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_every_page_of_the_target_is_looked_at(page: int) -> None:
    sweeping = Sweeping(1, 2, 3, 4, 5, 6, page=page)
    assert sweeping.run() == 5
    assert sweeping.deleted == [(2,), (3,), (4,), (5,), (6,)]


def test_a_target_that_lists_the_same_page_again_and_again_is_asked_no_more() -> None:
    """It shows a key as one that it orders before it."""
    sweeping = Sweeping(3, 4, page=1, shown=lambda key: 1)
    assert (sweeping.run(), sweeping.deleted, sweeping.lists) == (0, [], 2)


def test_a_stretch_that_kafka_has_nothing_of_was_not_read_again() -> None:
    in_force: Any = None
    reading = read_topic_after("rl.b1.bank.acct", in_force, 7, 20, lambda _taken: None)
    next(reading)
    with pytest.raises(CopyNeededError, match="has deleted offset 7"):
        reading.send(None)


class TestWhatTheTargetIsAsked:
    """Sweeps and the end of a copy, effect by effect."""

    def sweep(self, deleted: list[Key]) -> Sweep:
        def delete(_table: TargetTable, keys: list[Key]) -> Machine[int]:
            deleted.extend(keys)
            yield from ()
            return len(keys)

        unused: Any = None
        routed: Any = SimpleNamespace(where=None, added=())
        in_force = ActiveDefinition(
            "", StoredDefinition(TABLE), TABLE, routed, TABLE, TABLE, TARGET, unused, unused, unused
        )
        return Sweep("t", in_force, delete, patient=True)

    def ended(self, machine: Machine[Any], answer: Callable[[Any], Any]) -> Any:
        """Drive `machine` to its end; what `answer` raises is thrown."""
        effect: Any = next(machine)
        try:
            while True:
                try:
                    result = answer(effect)
                except RefusedError as error:
                    effect = machine.throw(error)
                else:
                    effect = machine.send(result)
        except StopIteration as end:
            return end.value

    @pytest.mark.parametrize(("after", "upto"), [((1,), None), (None, (1,)), ((1,), (5,))])
    def test_a_bound_that_the_target_cannot_hold_is_told_and_the_next_marker_makes_up_for_it(
        self, after: Key | None, upto: Key | None
    ) -> None:
        keys, deleted = MemoryKeys(), list[Key]()

        def answer(effect: Any) -> Any:
            if isinstance(effect, OpenKeys):
                return keys
            raise RefusedError("a zero date")

        with pytest.raises(BoundRefusedError, match="a zero date"):
            self.ended(self.sweep(deleted).sweep_range(KeyWindow(TARGET, 5), 5, after, upto), answer)
        if upto is not None:
            assert self.ended(self.sweep(deleted).sweep_refused_ranges(5, 9, upto), answer) == 0
        assert deleted == []

    def test_what_the_target_refuses_without_a_bound_is_its_own_error(self) -> None:
        def answer(effect: Any) -> Any:
            if isinstance(effect, OpenKeys):
                return MemoryKeys()
            raise RefusedError("no right to read")

        with pytest.raises(RefusedError, match="no right to read"):
            self.ended(self.sweep([]).sweep_range(KeyWindow(TARGET, 5), 5, None, None), answer)

    @pytest.mark.parametrize(("shown", "asked"), [("1", []), ("01", [[("1",)]])])
    def test_living_keys_are_looked_up_only_where_one_of_the_target_is_doubted(
        self, shown: str, asked: list[list[Key]]
    ) -> None:
        """A row that the target shows otherwise lives: what it finds under the living key is excused."""
        deleted: list[Key] = []
        looked: list[list[Key]] = []

        def answer(effect: Any) -> Any:
            match effect:
                case OpenKeys():
                    return MemoryKeys()
                case ListKeys():
                    return [(shown,)] if effect.after is None else []
                case LookUpKeys():
                    looked.append(list(effect.keys))
                    return [(shown,)]

        window = KeyWindow(TARGET, 5)
        living: Any = "1"
        window.note_taken(RowBatch([change(6, None, living)], MARK))
        assert self.ended(self.sweep(deleted).sweep_range(window, 5, None, None), answer) == 0
        assert (looked, deleted) == (asked, [])
