"""The readings of the live view: what is kept of them, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.errors import CommandError
from rowlock.inspect.observed.first_copies import FirstCopyProgress
from rowlock.inspect.observed.first_copy_reader import FirstCopyList
from rowlock.inspect.placement import START_AGAIN, Placement
from rowlock.inspect.status import ApplyUnitStatus, Status
from rowlock.live import reader as reader_module
from rowlock.live.reader import LiveReader, pause_after_reading, pause_after_status
from schemas.config.model import Config, load_config
from tests.kits.waiting import until

CONFIG = """\
kafka: {bootstrap: "127.0.0.1:1"}
sources:
  b1: {type: mariadb, host: 127.0.0.1, port: 1, user: u, password: p, tables: [bank.*]}
"""


class FakeSystem:
    """A system that a test changes. `opened`: the configurations under which it was read."""

    def __init__(self) -> None:
        self.opened: list[Config] = []
        self.closed = 0
        self.placement: Callable[[], Placement] = Placement

    def open(self, config: Config) -> FakeSystem:
        self.opened.append(config)
        return self

    def read_captures(self) -> tuple[Placement, tuple[Any, ...]]:
        return self.placement(), ()

    def list_first_copies(self) -> FirstCopyList:
        return FirstCopyList(total=FirstCopyProgress(7))

    def read_status(self) -> Status:
        return Status(1, 0, units=(ApplyUnitStatus("p", "b1", "t", "hq", "current", quarantined_rows=2),))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "rowlock.yaml").write_text(CONFIG)
    return load_config(tmp_path / "rowlock.yaml")


@pytest.fixture
def system() -> FakeSystem:
    return FakeSystem()


@pytest.fixture
def reader(config: Config, system: FakeSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveReader]:
    monkeypatch.setattr(reader_module, "REFRESH_S", 0.02)
    found = LiveReader(config, system.open)
    yield found
    found.close()


def refuse() -> Placement:
    raise CommandError("it does not answer\nat all")


def test_the_last_two_readings_and_the_quarantine_are_kept(reader: LiveReader) -> None:
    reader.start()
    until(lambda: reader.get_snapshot().earlier and reader.get_snapshot().held, "readings")
    seen = reader.get_snapshot()
    assert seen.latest is not None
    assert seen.latest.first_copies.total == FirstCopyProgress(7)
    assert seen.held is not None
    assert seen.held.by_pipeline == {"p": 2}
    assert seen.latest is not seen.earlier


@pytest.mark.parametrize(
    ("placement", "why"),
    [(refuse, "it does not answer"), (lambda: Placement(problem=f"no leader: {START_AGAIN}"), "no leader")],
)
def test_a_reading_that_fails_keeps_the_one_before(
    reader: LiveReader, system: FakeSystem, placement: Callable[[], Placement], why: str
) -> None:
    reader.start()
    until(lambda: reader.get_snapshot().latest, "a reading")
    system.placement = placement
    until(lambda: reader.get_snapshot().failure == why, "a failure")
    assert reader.get_snapshot().latest is not None
    system.placement = Placement
    until(lambda: not reader.get_snapshot().failure, "an answer")


def test_a_run_that_starts_is_not_one_without_a_coordinator(
    reader: LiveReader, system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def find_none() -> Placement:
        asked.append(1)
        return Placement(problem=f"no leader: {START_AGAIN}")

    system.placement = find_none
    reader.start()
    until(lambda: len(asked) > 2, "readings")
    assert not reader.get_snapshot().failure
    monkeypatch.setattr(reader_module, "COORDINATOR_START_S", 0.0)
    until(lambda: reader.get_snapshot().failure == "no leader", "a failure")


def test_a_coordinator_that_cannot_be_reached_is_shown_at_once(
    reader: LiveReader, system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "COORDINATOR_START_S", 600.0)
    system.placement = lambda: Placement(problem="c1 is out of reach", known=False)
    reader.start()
    until(lambda: reader.get_snapshot().failure == "c1 is out of reach", "a failure")


def test_targets_are_not_asked_before_something_runs(reader: LiveReader, system: FakeSystem) -> None:
    system.placement = refuse
    reader.start()
    until(lambda: reader.get_snapshot().failure, "a failure")
    assert reader.get_snapshot().held is None


def test_a_system_that_cannot_be_opened_is_a_failure(config: Config) -> None:
    def fail(_: Config) -> FakeSystem:
        raise CommandError("no such certificate")

    reader = LiveReader(config, fail)
    reader.start()
    try:
        until(lambda: reader.get_snapshot().failure == "no such certificate", "a failure")
    finally:
        reader.close()


def test_a_new_configuration_is_read_with_a_new_reader_and_all_are_closed(
    reader: LiveReader, system: FakeSystem, config: Config
) -> None:
    reader.start()
    until(lambda: len(system.opened) == 2, "one reader for each thread")
    changed = config.model_copy()
    reader.use_config(changed)
    until(lambda: any(each is changed for each in system.opened), "a reader of the new one")
    reader.close()
    assert system.closed == len(system.opened)


def test_readings_are_a_second_apart_and_leave_the_processor_to_the_run() -> None:
    assert pause_after_reading(0.25, 0.01) == 0.75
    assert pause_after_reading(0.9, 0.2) == pytest.approx(4.0), "a twentieth of a processor"
    assert pause_after_reading(3.0, 0.01) == pytest.approx(0.2)


def test_whole_readings_are_rare() -> None:
    assert pause_after_status(0.001, 0.001) == 1.0, "nothing was read"
    assert pause_after_status(0.2, 0.1) == 15.0
    assert pause_after_status(3.0, 0.1) == pytest.approx(60.0)
    assert pause_after_status(1.0, 2.0) == pytest.approx(40.0)
