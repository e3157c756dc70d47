"""How far the first copies of tables are: their rows, estimates, rates and remaining times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from rowlock.errors import CommandError
from rowlock.inspect.observed.first_copies import (
    FIRST_COPY_RATE_WINDOW_S,
    FirstCopy,
    FirstCopyProgress,
    RateWindow,
)
from rowlock.inspect.observed.first_copy_reader import FirstCopyReader
from schemas.config.model import SourceConfig, load_config
from schemas.table.names import TableName
from schemas.wire.records import Watermark

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}
  b2: {type: mariadb, host: 127.0.0.1, user: u, password: x, tables: [bank.*]}
"""
BIG, SMALL = "bank.big", "bank.small"


class Sources:
    """Two sources, their estimates, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.estimates: dict[str, int] | None = {BIG: 10_000, SMALL: 1000}
        self.asked: list[tuple[str, list[TableName]]] = []
        self.background: list[Callable[[], None]] = []

    def find_tables(self, sources: Iterable[str], topics: Collection[str]) -> Mapping[str, TableName]:
        heads = tuple(f"rowlock.{source}." for source in sources)
        return {topic: ("bank", topic.rpartition(".")[2]) for topic in topics if topic.startswith(heads)}

    def estimate(
        self, _: SourceConfig, name: str, tables: Sequence[TableName]
    ) -> Mapping[str, tuple[int, int]]:
        self.asked.append((name, list(tables)))
        if self.estimates is None:
            raise CommandError("source b1 does not answer")
        return {table: (rows, 0) for table, rows in self.estimates.items()}


@pytest.fixture
def system() -> Sources:
    return Sources()


@pytest.fixture
def reader(system: Sources, tmp_path: Path) -> FirstCopyReader:
    (file := tmp_path / "c.yaml").write_text(CONFIG)
    return FirstCopyReader(
        load_config(file),
        system.find_tables,
        system.estimate,
        clock_s=lambda: system.now_s,
        start_work=system.background.append,
    )


def mark(*pending: str, epoch: int = 0, **offsets: int) -> Watermark:
    """A watermark. `offsets`: table of the database bank → the last offset of its topic."""
    return Watermark(
        source="b1", gen=1, position=(epoch, 1, 4, -1), file="log.1", commit_ts_ms=1, ts_ms=1, idle=False,
        snapshot_pending=pending, topics={f"rowlock.b1.bank.{table}": at for table, at in offsets.items()},
    )  # fmt: skip


def note(system: Sources, reader: FirstCopyReader, *marks: Watermark) -> None:
    """Read watermarks of b1, each a second after the one before; the source answers after the first."""
    for each in marks:
        reader.note_watermark("b1", each)
        while system.background:
            system.background.pop()()
        system.now_s += 1


def tables(reader: FirstCopyReader) -> dict[str, FirstCopyProgress]:
    return {each.table: each.progress for each in reader.list_copies().copies}


def test_rows_are_counted_by_offsets_and_the_rest_is_estimated(
    system: Sources, reader: FirstCopyReader
) -> None:
    pending = (BIG, SMALL)
    note(
        system,
        reader,
        mark(*pending),
        mark(*pending, big=1000, small=0),
        mark(*pending),
        mark(*pending, big=3000),
    )
    assert tables(reader) == {
        BIG: FirstCopyProgress(3000, 10_000, 1000.0, 7.0),
        SMALL: FirstCopyProgress(0, 1000),
    }
    total = reader.list_copies().total
    assert total is not None
    assert (total.rows, total.estimate) == (3000, 11_000)
    assert total.rows_per_s == 1000.0
    assert total.eta_s == 8.0
    assert total.describe() == "3,000 of about 11,000 rows, 1,000 rows/s, about 8 s left"


def test_the_source_is_asked_once_and_in_the_background(system: Sources, reader: FirstCopyReader) -> None:
    reader.note_watermark("b1", mark(BIG, SMALL))
    assert system.asked == [], "the reading does not wait for the source"
    assert tables(reader)[BIG] == FirstCopyProgress(0)
    note(system, reader, *[mark(BIG)] * 3)
    assert system.asked == [("b1", [("bank", "big"), ("bank", "small")])]


def test_without_an_estimate_there_are_rows_and_rate_alone(system: Sources, reader: FirstCopyReader) -> None:
    system.estimates = None
    note(system, reader, mark(BIG, big=0), mark(BIG, big=500))
    assert tables(reader) == {BIG: FirstCopyProgress(500, None, 500.0)}
    assert reader.list_copies().total == FirstCopyProgress(500, None, 500.0)


def test_a_source_without_first_copies_is_not_asked(system: Sources, reader: FirstCopyReader) -> None:
    note(system, reader, mark(big=7))
    reader.note_watermark("b2", None)
    assert (system.asked, reader.list_copies().copies, reader.compute_total("b1")) == ([], (), None)


def test_a_copy_that_was_under_way_before_has_no_wrong_rate(system: Sources, reader: FirstCopyReader) -> None:
    """The first watermark may not name its topic, because nothing was written in that second."""
    note(system, reader, mark(BIG), mark(BIG, big=5000), mark(BIG, big=5100))
    assert tables(reader)[BIG] == FirstCopyProgress(5100, 10_000, 100.0, 49.0)
    total = reader.compute_total("b1")
    assert total is not None
    assert total.rows_per_s == 100.0


def test_a_source_that_started_over_does_not_count_its_earlier_rows(
    system: Sources, reader: FirstCopyReader
) -> None:
    note(system, reader, mark(BIG, epoch=1, big=70_000), mark(BIG, epoch=1, big=71_000))
    assert tables(reader)[BIG] == FirstCopyProgress(1000, 10_000, 1000.0, 9.0)


def test_more_rows_than_estimated_leave_no_known_time(system: Sources, reader: FirstCopyReader) -> None:
    note(system, reader, mark(SMALL, small=1500), mark(SMALL, small=1700))
    assert tables(reader)[SMALL] == FirstCopyProgress(1700, 1000, 200.0)
    assert reader.compute_total("b1") == FirstCopyProgress(1700, 1700, 200.0)


def test_tables_whose_copy_has_ended_count_in_the_sum(system: Sources, reader: FirstCopyReader) -> None:
    """A table that was copied between two readings counts with its estimate."""
    system.estimates = {BIG: 10_000, SMALL: 1000, "bank.mid": 2000}
    pending = (BIG, "bank.mid", SMALL)
    note(system, reader, mark(*pending, mid=100, small=0), mark(BIG, mid=2200, big=0))
    total = reader.compute_total("b1")
    assert total == FirstCopyProgress(3200, 13_200, 3100.0, pytest.approx(10_000 / 3100))
    note(system, reader, mark(big=10_050))
    assert reader.compute_total("b1") is None
    assert reader.list_copies().total is None


def test_running_copies_come_first_and_then_the_largest(system: Sources, reader: FirstCopyReader) -> None:
    system.estimates = {f"bank.t{n}": n for n in range(1000)}
    note(system, reader, mark(*system.estimates, t5=3, t7=0))
    found = reader.list_copies()
    assert [each.table for each in found.copies[:3]] == ["bank.t5", "bank.t999", "bank.t998"]
    assert found.copies[0] == FirstCopy("b1", "bank.t5", FirstCopyProgress(3, 5))
    assert found.total is not None
    assert (found.total.rows, found.total.estimate) == (3, sum(range(1000)))


def test_the_slowest_source_has_the_last_row(system: Sources, reader: FirstCopyReader) -> None:
    note(system, reader, mark(BIG, big=0), mark(BIG, big=1000))
    reader.note_watermark("b2", mark(SMALL))
    system.background.pop()()
    total = reader.list_copies().total
    assert total == FirstCopyProgress(1000, 11_000, 1000.0, 9.0)


def test_the_wait_for_its_turn_does_not_lower_the_rate_of_a_table(
    system: Sources, reader: FirstCopyReader
) -> None:
    """The definition, at offset 0, is no row."""
    note(system, reader, mark(BIG, big=0), *[mark(BIG)] * 5)
    assert tables(reader)[BIG] == FirstCopyProgress(0, 10_000)
    note(system, reader, mark(BIG, big=200))
    assert tables(reader)[BIG] == FirstCopyProgress(200, 10_000, 200.0, 49.0)


def test_a_rate_forgets_what_is_long_ago() -> None:
    window = RateWindow.open_at(0.0, 0)
    for second in range(1, 200):
        window.note_count(float(second), 100 * min(second, 100))
    assert window.rate == 0.0
    for second in range(200, 200 + round(FIRST_COPY_RATE_WINDOW_S)):
        window.note_count(float(second), 10_000 + 50 * (second - 199))
    assert window.rate == pytest.approx(50.0, rel=0.1)
