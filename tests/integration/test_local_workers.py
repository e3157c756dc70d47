"""Capture units of two agents on a real source: opened, started, moved and paused; one process at a time
counts."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rowlock.agent.capture import CaptureWorkers
from rowlock.agent.reported import ReportedFigures
from rowlock.agent.unit_ledger import UnitLedger
from schemas.config.model import load_config
from schemas.units import Prepared, UnitProgressed, WorkerEnded, WorkerEvent
from tests.kits.capture import events, replay, size, source, source_rows, topic_rows, write_config
from tests.kits.families import standing_still
from tests.kits.waiting import until

COLUMNS = ["id", "name"]
EPOCH = 1_795_000_000_000


class Agent:
    """Capture workers, with what they say."""

    def __init__(self, config: Path) -> None:
        self.reported: queue.SimpleQueue[WorkerEvent] = queue.SimpleQueue()
        ledger = UnitLedger()
        ledger.listen(lambda _unit, event: self.reported.put(event))
        self._ledger = ledger
        self.workers = CaptureWorkers(load_config(config), ledger, ReportedFigures())

    def open(self, epoch: int) -> None:
        self._ledger.register_unit("capture/s", epoch)
        self.workers.prepare("capture/s", epoch, None)
        assert self.reported.get(timeout=60) == Prepared(epoch)

    def start(self, epoch: int) -> None:
        self.workers.start("capture/s", epoch)

    def progressed(self) -> UnitProgressed:
        event = self.reported.get(timeout=60)
        assert isinstance(event, UnitProgressed), event
        return event

    def stop(self, epoch: int) -> WorkerEnded:
        self.workers.remove("capture/s", epoch)
        while not isinstance(event := self.reported.get(timeout=60), WorkerEnded):
            pass
        return event

    @property
    def pid(self) -> int:
        unit = self.workers._units["capture/s"]
        assert unit.process is not None
        return unit.process.pid


@pytest.fixture
def agents(kafka: Any, mariadb: Any, mariadb_db: str, unique: str, tmp_path: Path) -> Iterator[list[Agent]]:
    mariadb.execute(f"CREATE TABLE {mariadb_db}.acct (id INT PRIMARY KEY, name VARCHAR(20))")
    config = write_config(
        tmp_path, kafka.bootstrap, unique, {"s": source(mariadb, [f"{mariadb_db}.*"], snapshot="never")}
    )
    found = [Agent(config), Agent(config)]
    yield found
    for agent in found:
        agent.workers.close()


def test_a_capture_unit_moves_and_a_paused_process_counts_no_more(
    agents: list[Agent], kafka: Any, mariadb: Any, mariadb_db: str, unique: str
) -> None:
    here, there = agents
    topic = f"{unique}.s.{mariadb_db}.acct"

    def insert(key: int) -> None:
        mariadb.execute(f"INSERT INTO {mariadb_db}.acct VALUES ({key}, 'n{key}')")
        until(
            lambda: any(e.after and e.after["id"] == key for e in events(kafka.bootstrap, topic)),
            f"row {key}",
        )

    here.open(EPOCH)
    assert size(kafka.bootstrap, topic) == 0, "opened, it touches nothing"
    here.start(EPOCH)
    until(lambda: size(kafka.bootstrap, topic), "the definition")
    insert(1)
    mark = here.progressed().mark
    there.open(EPOCH + 7)
    insert(2)
    ended = here.stop(EPOCH)
    assert ended.error is None
    assert ended.mark is not None
    assert ended.mark >= mark
    there.start(EPOCH + 7)
    insert(3)
    with standing_still(there.pid):
        here.open(EPOCH + 8)
        here.start(EPOCH + 8)
        insert(4)
    insert(5)
    rows = source_rows(mariadb, mariadb_db, "acct")

    def kept() -> bool:
        """Whether readers have all rows; they drop what the process that was paused may have written of the
        last one."""
        return bool(topic_rows(replay(events(kafka.bootstrap, topic)), mariadb_db, "acct", COLUMNS) == rows)

    until(kept, "the rows that readers keep are the source's")
    found = events(kafka.bootstrap, topic)
    gens = {event.after["id"]: event.source.gen for event in found if event.after}
    assert [gens[1], gens[2]] == [EPOCH] * 2
    assert replay(found).gen == EPOCH + 8
