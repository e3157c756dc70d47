"""A target that cannot commit progress with its rows names another place for it: what takes units over and
fences them goes there."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.errors import FencedError
from consumer.ordering.model import ApplyUnit
from consumer.process.takeover import take_unit
from consumer.targets import dialect
from consumer.targets.bookkeeping import Bookkeeping
from consumer.targets.dialect import Dialect, open_progress, open_session
from consumer.targets.progress import SqlProgressStore
from rowlock.coordinator.fences import FirstProgress, fence_unit
from schemas.config.model import TargetConfig
from tests.kits.targets import SqliteTarget, targets
from tests.stands import sqlite_target

target = targets("sqlite")
UNIT = ApplyUnit("p", "t")
BEGINNING = FirstProgress("id", "{}", 2)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqliteTarget:
    """Where progress is kept of whatever target there is."""
    other = SqliteTarget(tmp_path / "progress.db")

    def progress(_target: TargetConfig, _name: str) -> SqlProgressStore:
        books = Bookkeeping(sqlite_target.SCHEMA, sqlite_target.SYNTAX)
        return SqlProgressStore(
            sqlite_target.SqliteLink(other.database),
            books,
            lambda: sqlite_target.SqliteLink(other.database),
        )

    kept = Dialect("sqlite", sqlite_target.open_sqlite, progress=progress)
    monkeypatch.setattr(dialect, "load_dialect", lambda _target: kept)
    return other


def epochs(place: SqliteTarget) -> set[int]:
    return {int(row[0]) for row in place.sql("SELECT epoch FROM rowlock_progress")}


def test_a_unit_is_fenced_where_its_progress_is(target: SqliteTarget, elsewhere: SqliteTarget) -> None:
    with contextlib.closing(open_progress(target.config(), name="test")) as store:
        store.ensure_bookkeeping()
        fence_unit(store, UNIT, 7, BEGINNING)
        assert epochs(elsewhere) == {7 << 16}
        assert target.sql("SELECT name FROM sqlite_master") == []
        with pytest.raises(FencedError):
            store.begin_attempt(UNIT, (6 << 16) + 1)
        rows, _, _ = store.begin_attempt(UNIT, 7 << 16)
        assert [row.attempt for row in rows] == [1, 1]


def test_a_unit_is_taken_over_where_its_progress_is(target: SqliteTarget, elsewhere: SqliteTarget) -> None:
    pipeline: Any = SimpleNamespace(name="p", layout="{}", config=SimpleNamespace(lanes=3))
    with contextlib.closing(open_progress(target.config(), name="test")) as store:
        store.ensure_bookkeeping()
        assert take_unit(store, pipeline, "t", "id", (5, 9), assigned=2).lost is None
        taken = take_unit(store, pipeline, "t", "other", (5, 9), assigned=3)
        assert taken.epoch == 3 << 16
        assert taken.lost is not None
        assert "created again" in taken.lost.seen
    assert epochs(elsewhere) == {3 << 16}


def test_without_another_place_it_is_the_target(target: SqliteTarget) -> None:
    with contextlib.closing(open_progress(target.config(), name="test")) as store:
        store.ensure_bookkeeping()
        fence_unit(store, UNIT, 7, BEGINNING)
    with contextlib.closing(open_session(target.config(), name="test")) as session:
        assert {row.epoch for row in session.read_progress(UNIT)[0]} == epochs(target) == {7 << 16}
