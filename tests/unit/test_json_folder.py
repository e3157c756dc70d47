"""A folder of JSON files, written in whole batches by the machine that applies to sessions, passes what of
their tests it can mean."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit, TargetTable
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import TableRoute
from schemas.table.model import Row
from tests.conformance import targets_attempts, targets_session
from tests.kits.apply import FakeSource
from tests.kits.attempts import RealUnit, rows_of
from tests.kits.copy import CopyOf
from tests.stands import json_folder
from tests.stands.json_folder import FolderProgress, JsonFolder

#: The tests of sessions that apply to a batch target, too. What is left out is about locks, lanes, unique
#: indexes, displaced rows, tables that several topics write, or SQL.
SHARED = (
    targets_attempts.test_histories_and_replays_end_as_the_source,
    targets_attempts.test_a_value_the_target_cannot_hold_is_held_until_the_key_has_one_that_fits,
    targets_attempts.test_an_old_epoch_cannot_write,
    targets_session.test_take_over_makes_the_rows_and_raises_the_epoch,
    targets_session.test_an_assignment_is_fenced_by_a_later_one_alone,
    targets_session.test_begin_raises_the_attempt_and_refuses_any_other_epoch,
    targets_session.test_two_take_overs_at_once_get_two_epochs,
)
globals().update({test.__name__: test for test in SHARED})


class Alone:
    """`Connections` to a folder that is always there."""

    def __init__(self, folder: JsonFolder) -> None:
        self._folder = folder

    def get_connection(self, _number: int) -> JsonFolder:
        return self._folder

    def drop_if_broken(self, number: int) -> None: ...

    def drop_connection(self, number: int) -> None: ...


class Folder:
    """What tests.kits.attempts.Real is for databases."""

    lanes = 1
    schema = "s"

    def __init__(self, path: Path) -> None:
        self.folder = JsonFolder(path)
        self.session = self.folder
        self.tables: dict[UnitAssignment, ActiveDefinition] = {}

    def narrow(self, _table: str, column: str, length: int) -> None:
        def refuses(row: Row) -> bool:
            (in_force,) = self.tables.values()
            return len(str(row[in_force.target.table.column_names.index(column)])) > length

        self.folder.refuses = refuses

    def displaced(self) -> int:
        return 0

    def apply(
        self,
        spec: UnitSpec,
        slices: Iterable[RecordSlice],
        read_missing: Callable[[int, int], list[RecordSlice]],
    ) -> Report:
        spec = replace(spec, batches=True)
        return apply_topic(
            spec, Alone(self.folder), AttemptInputs(slices, read_missing=read_missing), self.tables
        )

    def rows(self, unit: ApplyUnit, table: TargetTable) -> list[Row]:
        return self.folder.rows(unit, table)


class Stores:
    """What tests.kits.targets.Target is for databases, as far as progress goes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> FolderProgress:
        return FolderProgress(self._path)


@pytest.fixture
def real(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def target(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@pytest.fixture
def unit(real: Any) -> RealUnit:
    return RealUnit(real, FakeSource(), TableRoute("bank.*", "s.{table}"), limits=LaneLimits(pause=0.001))


def test_what_is_handed_over_at_once_is_one_commit(real: Folder, unit: RealUnit) -> None:
    assert unit.apply().state == "ok"
    unit.write(unit.source.history(random.Random(1), 400, keys=40))
    before = real.folder.commits
    assert unit.apply(1).state == "ok"
    assert real.folder.commits == before + 1
    assert unit.rows() == rows_of(unit.source)


def test_a_truncate_is_a_barrier(real: Folder, unit: RealUnit) -> None:
    unit.write(unit.source.history(random.Random(2), 50, keys=10))
    unit.write([unit.source.truncate(), unit.source.put(unit.source.row(3, "3@x", 1))])
    assert unit.apply().state == "ok"
    assert unit.rows() == rows_of(unit.source)
    assert len(unit.rows()) == 1


def test_a_truncate_ends_what_the_quarantine_holds(real: Folder, unit: RealUnit) -> None:
    assert unit.apply().state == "ok"
    real.narrow("acct", "owner", 20)
    unit.write([unit.source.put({**unit.source.row(5, None, 1), "owner": "x" * 30})])
    assert unit.apply(1).held == 1
    unit.write([unit.source.truncate(), unit.source.put(unit.source.row(5, None, 2))])
    assert unit.apply(2).state == "ok"
    last = real.session.of(unit.unit).last()
    assert (last.held, [why for _, why in last.closed]) == (
        (),
        ["the source's table was emptied at offset 2"],
    )
    assert unit.rows() == rows_of(unit.source)


def test_a_gap_stops_the_unit_in_its_store(real: Folder, unit: RealUnit) -> None:
    assert unit.apply().state == "ok"
    unit.source.put(unit.source.row(1, None, 1))  # lost on the way
    unit.write([unit.source.put(unit.source.row(2, None, 1))])
    report = unit.apply(1)
    assert report.state == "stopped"
    state = real.session.read_progress(unit.unit)[1]
    assert state is not None
    assert "gap in the topic" in str(state.stopped)
    assert real.session.of(unit.unit).last().rows == "", "no commit had rows"


@pytest.mark.parametrize("heir", ["only takes over", "writes as well"])
def test_a_worker_that_pauses_before_its_commit_writes_nothing_after_the_take_over(
    real: Folder, unit: RealUnit, heir: str
) -> None:
    """It compared when it was still the owner: the comparison is no fence, the commit is."""
    assert unit.apply().state == "ok"
    unit.write([unit.source.put(unit.source.row(1, None, 1))])
    zombies_epoch = unit.epoch

    def successor() -> None:
        real.folder.paused = lambda: None
        unit.take_over()
        if heir == "writes as well":
            assert unit.apply(1).state == "ok"
        unit.epoch = zombies_epoch

    real.folder.paused = successor
    with capture_logs():
        report = unit.apply(1)
    assert report.state == "fenced"
    last = real.session.of(unit.unit).last()
    assert last.lanes[0].epoch > zombies_epoch
    wrote = heir == "writes as well"
    assert last.lanes[0].offset == (1 if wrote else 0)
    assert len(real.session.of(unit.unit).rows(last)) == wrote


def test_a_copy_takes_no_row_away_before_its_chunk_comes(real: Folder, unit: RealUnit) -> None:
    """The folder lists all its keys, also those of later chunks: they are compared once, at the end."""
    unit.write([unit.source.put(unit.source.row(n, None, 1)) for n in range(9)])
    assert unit.apply().state == "ok"
    for key in (0, 4, 8):
        unit.source.delete(key)  # and no event of it
    unit.source.previous = None
    copy = CopyOf(unit.source, unit.topic, limit=3)
    start = copy.begin()
    for emitted in (False, True, True):
        if emitted:
            copy.emit()
        assert not copy.done
        assert unit.apply(start).state == "ok"
        assert len(unit.rows()) == 9
    while not copy.done:
        copy.emit()
    assert unit.apply(start).state == "ok"
    assert unit.rows() == rows_of(unit.source)


def test_it_has_one_lane(real: Folder) -> None:
    wide = RealUnit(real, FakeSource(), TableRoute("bank.*", "s.{table}"), lanes=2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one lane"):
        wide.apply()


def test_a_target_takes_few_statements() -> None:
    tree = ast.parse(Path(json_folder.__file__).read_text())
    assert sum(isinstance(node, ast.stmt) for node in ast.walk(tree)) < 207, (
        "lines would count how names wrap"
    )
