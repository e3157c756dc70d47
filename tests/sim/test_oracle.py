"""Capture of an Oracle in the simulation: the product's start, loop, writer, poll and purge over the model's
Oracle and Kafka.

Writers commit whenever capture waits; it is killed at each moment that the model reports, a successor starts
beside it, messages fail. The judge: no row's version falls in the topic, no row of the log is in two events
that count, no watermark's time is later than a commit without an event, nothing stops, and in the end the
topic has the source's rows and the log is empty. Each rule of docs/adr/0028 is switched off, and found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from unittest import mock

import pytest

from producer.loop.position import CapturePosition
from producer.sources.changes import Boundary
from producer.sources.oracle import log as log_module
from producer.sources.oracle import mlog, sql
from producer.sources.oracle.chunks import OracleChunkQueue
from producer.sources.oracle.following import FollowedTables
from producer.sources.oracle.log import OracleLog
from producer.sources.oracle.mlog import LogPlace, LogRow
from producer.sources.oracle.poll import LogReader
from producer.sources.oracle.purge import LogPurger
from producer.start.positions import PositionStore
from producer.tables import TableName
from tests.sim.oracle import KEYS, Kind
from tests.sim.oracle_life import judged
from tests.sim.seeds import over_seeds

SEEDS, MANY = 25, 500
KINDS: tuple[Kind, ...] = ("whole", "keys", "lob", "scn")


@pytest.mark.parametrize("kind", KINDS)
def test_every_life_ends_well(kind: Kind) -> None:
    assert [(seed, wrong) for seed in range(SEEDS) if (wrong := judged(seed, kind))] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_lives_end_well(kind: Kind) -> None:
    notified = over_seeds(partial(judged, kind=kind), range(SEEDS, SEEDS + MANY))
    assert [(seed, wrong) for seed, wrong in enumerate(notified, SEEDS) if wrong] == []


# --- rules that are switched off


def _nothing(*_: object) -> None: ...


_milestone = CapturePosition.make_milestone


def _passing(self: CapturePosition, *, held: bool) -> Any:
    """Anchors move on though rows are not deleted."""
    with mock.patch.object(self, "_used_up", None):
        return _milestone(self, held=held)


def _undrained(self: CapturePosition) -> Iterator[Any]:
    """What is sent may not have come."""
    if self._used_up is not None and self._used_up.outstanding:
        yield from self._used_up.purge_published()


def _present(self: LogPurger, log: TableName) -> dict[str, int]:
    return {
        rowid: sequence
        for rowid, sequence, *_ in self._session.fetch_rows(*sql.select_log_rows(log, [], (), 1 << 20))
    }


def _by_watermark(self: LogPurger, log: TableName, places: Collection[LogPlace]) -> int:
    """Everything up to the highest number is deleted."""
    highest = max((place.sequence for place in places), default=0)
    rows = _present(self, log)
    below = [(rowid, sequence) for rowid, sequence in rows.items() if sequence <= highest]
    self._session.change_many(sql.delete_places(log), below)
    return len(places)


_delete = LogPurger._delete_rows


def _by_rowid(self: LogPurger, log: TableName, places: Collection[LogPlace]) -> int:
    """Whoever has the ROWID now is deleted."""
    rows = _present(self, log)
    return _delete(self, log, [LogPlace(each.rowid, rows.get(each.rowid, 0)) for each in places])


def _before_the_log(self: LogReader) -> Any:
    """Rows of the table are read in front of its log."""
    readable = {name: each.logged for name, each in self._following.tables.items() if each.logged is not None}
    seen = {
        name: dict(self._read_current_rows(logged, _every_key(logged)))
        for name, logged in readable.items()
        if logged.unlogged
    }
    with mock.patch.object(
        LogReader,
        "_read_current_rows",
        lambda _self, logged, _rows: seen.get((logged.table.db, logged.table.name), {}),
    ):
        return _logged(self)


_logged = LogReader.read_logs


_look = OracleLog.read_changes


def _each_poll_is_complete(self: OracleLog, timeout: float) -> Iterator[Any]:
    """A poll that leaves rows behind counts, too."""
    for change in _look(self, timeout):
        yield (
            change._replace(header=change.header._replace(ts_ms=self.moment.ts_ms))
            if isinstance(change, Boundary)
            else change
        )


def _logs_first(self: OracleLog, timeout: float) -> Iterator[Any]:
    """The server's time is read behind its logs."""
    read, time = LogReader.read_logs, self._catalog.read_server_time
    logs: list[Any] = []

    def read_time() -> Any:
        logs.append(read(self._reader))
        return time()

    with (
        mock.patch.object(self._catalog, "read_server_time", read_time),
        mock.patch.object(self._reader, "read_logs", logs.pop),
    ):
        yield from _look(self, timeout)


_take_up = FollowedTables.take_up


def _read_at_once(self: FollowedTables, name: TableName, *more: Any) -> None:
    """A log is read, though no record names its table."""
    _take_up(self, name, *more)
    self.tables[name].recorded = True


def _by_number() -> AbstractContextManager[Any]:
    """Rows of two instances are put in the order of their numbers."""
    return mock.patch.multiple(
        mlog, _build_sort_key=lambda row: (0, row.sequence),
        _group_by_transaction=lambda found: [change for _,
         change in sorted(found, key=lambda each: each[0].sequence)],
    )  # fmt: skip


def _every_key(logged: Any) -> list[Any]:
    width = len(logged.columns)
    return [LogRow("", 0, "", "", None, 0, (str(id_), *[None] * (width - 1))) for id_ in range(KEYS)]


Switch = Callable[[], AbstractContextManager[Any]]
SWITCHED_OFF: dict[str, tuple[Kind, Switch]] = {
    "a start deletes what topics have": ("whole",
     lambda: mock.patch.object(LogPurger, "purge_published", _nothing)),
    "a record never passes what is not deleted": ("whole",
     lambda: mock.patch.object(CapturePosition, "make_milestone", _passing)),
    "deleted is what Kafka has": ("whole",
     lambda: mock.patch.object(CapturePosition, "purge_sent_rows", _undrained)),
    "a process that was replaced deletes nothing": ("whole",
     lambda: mock.patch.object(PositionStore, "is_superseded", return_value=False)),
    "never by a watermark": ("whole", lambda: mock.patch.object(LogPurger, "_delete_rows", _by_watermark)),
    "by ROWID and number": ("whole", lambda: mock.patch.object(LogPurger, "_delete_rows", _by_rowid)),
    "a poll's number is above all": ("whole",
     lambda: mock.patch.object(log_module, "compute_next_poll", lambda stored, *_, **__: stored)),
    "a chunk waits for the whole log": ("whole",
     lambda: mock.patch.object(OracleChunkQueue, "_must_wait", return_value=False)),
    "a poll that leaves rows behind is not complete": ("whole",
     lambda: mock.patch.object(OracleLog, "read_changes", _each_poll_is_complete)),
    "the server's time is read before its logs": ("whole",
     lambda: mock.patch.object(OracleLog, "read_changes", _logs_first)),
    "commits put rows in order": ("scn", _by_number),
    "a log is read once the record names its table": ("lob",
     lambda: mock.patch.object(FollowedTables, "take_up", _read_at_once)),
    "rows are read behind the log (keys)": ("keys",
     lambda: mock.patch.object(LogReader, "read_logs", _before_the_log)),
    "rows are read behind the log (LOBs)": ("lob",
     lambda: mock.patch.object(LogReader, "read_logs", _before_the_log)),
}  # fmt: skip


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_a_rule_that_is_switched_off_is_found(rule: str) -> None:
    kind, switch = SWITCHED_OFF[rule]
    with switch():
        assert any(judged(seed, kind) for seed in range(5 * SEEDS))
