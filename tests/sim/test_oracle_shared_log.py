"""The rules for a log from which others refresh their views, too, over a log in memory: many lives.

The log is Oracle's by what is documented: a refresh stamps what has no stamp yet, and purges up to the
oldest of all views' last refreshes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest

from producer.sources.oracle.mlog import LogBrokenError
from producer.sources.oracle.table_checks import Constraint, LoggedTable, MlogOptions, judge_oracle_table
from producer.sources.oracle.types import OracleColumn
from tests.kits import oracle_shared_rules as shared
from tests.kits.oracle_shared import OWN, SWITCHED_OFF, Acknowledged, SharedCapture, table_of
from tests.stands.oracle_source import OWNER, KilledError

SEEDS, ROUNDS = 200, 40
OTHERS = ("SALES_MV", "RISK_MV")
_NEVER = "4000-01-01 00:00:00"
_KEYS = 5


def logged() -> LoggedTable:
    """Return what the catalogue says of the table: a key and a number."""
    name, log = (OWNER, "a"), "MLOG$_a"
    columns = [OracleColumn(each, "NUMBER", 22, 0, 18, 0, True, False, False) for each in ("id", "version")]
    own = [columns[0]._replace(name=each) for each in ("SEQUENCE$$", "DMLTYPE$$", "OLD_NEW$$", "XID$$")]
    options = MlogOptions(name, log, True, True, True, False, False)
    _, found = judge_oracle_table(
        name, {name: columns, (OWNER, log): [*columns, *own]}, [Constraint("PK", "P", ("id",))], options
    )
    assert found is not None
    return found


LOGGED = logged()


class SharedLog:
    """The log, its views, an application's transaction, and a clock of whole seconds; answers as a session.
    `busy`: others do something before each statement, and capture may be killed there. Rows of the log: as
    they are selected, and their stamp before the image."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log: list[list[Any]] = []
        self.views: dict[str, str] = {}
        self.rows_now: dict[str, str] = {}
        self.committed: set[int] = set()
        self.busy = False
        self._open: list[list[Any]] = []
        self._second = self._sequence = self._version = 0
        for name in OWN:
            self.come(name)
        self.tick()

    @property
    def now(self) -> str:
        return f"2026-11-25 00:{self._second // 60:02d}:{self._second % 60:02d}"

    def tick(self) -> None:
        self._second += 1

    # --- views

    def come(self, name: str) -> None:
        self._stamp()
        self.views[name] = self.now

    def refresh(self, name: str) -> None:
        self._stamp()
        self.views[name] = self.now
        oldest = min(self.views.values())
        self.log = [row for row in self.log if row[6] > oldest]

    def _stamp(self) -> None:
        for row in self.log:
            if row[6] == _NEVER:
                row[6] = self.now

    @property
    def others(self) -> list[str]:
        return [name for name in OTHERS if name in self.views]

    # --- applications

    def write(self) -> None:
        key, self._version = str(self.rng.randrange(_KEYS)), self._version + 1
        seen = self.rows_now | {row[7]: row[8] for row in self._open}
        images = [("U", "U", seen[key])] if key in seen else []
        images.append(("U" if images else "I", "N", str(self._version)))
        for dml, old_new, version in images:
            self._sequence += 1
            self._open.append(
                [f"R{self._sequence}", self._sequence, dml, old_new, "1", 0, _NEVER, key, version]
            )

    def commit(self) -> None:
        self.log += self._open
        self.committed |= {row[1] for row in self._open}
        self.rows_now |= {row[7]: row[8] for row in self._open}
        self._open = []

    def _meanwhile(self) -> None:
        if not self.busy:
            return
        if self.rng.random() < 0.02:
            raise KilledError
        for _ in range(self.rng.randint(0, 3)):
            draw = self.rng.random()
            if draw < 0.25:
                self.write()
            elif draw < 0.4:
                self.commit()
            elif draw < 0.65:
                self.tick()
            elif draw < 0.95 and self.others:
                self.refresh(self.rng.choice(self.others))
            elif (name := self.rng.choice(OTHERS)) in self.views:
                del self.views[name]
            else:
                self.come(name)

    # --- a session

    def fetch_rows(self, sql: str, binds: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        self._meanwhile()
        if sql == shared.SELECT_SERVER_TIME:
            return [(self.now,)]
        if "ALL_BASE_TABLE_MVIEWS" in sql:
            return [(name, self.views[name]) for name in OWN]
        low, high = map(str, binds)
        found = sorted((row for row in self.log if low < row[6] <= high), key=lambda row: row[1])
        return [(*row[:6], *row[7:]) for row in found]

    def change_many(self, sql: str, binds: Sequence[Sequence[object]]) -> int:
        self._meanwhile()
        assert sql == shared.REFRESH
        self.refresh(str(binds[0][0]))
        return 1


def judged(seed: int) -> str:
    """Return what is wrong with the life of a seed."""
    log, topic = SharedLog(seed), Acknowledged([])
    session: Any = log
    capture, log.busy = SharedCapture(session, LOGGED, topic), True
    try:
        for _ in range(ROUNDS):
            try:
                capture.round()
            except KilledError:
                continue
        log.busy = False
        log.commit()
        for _ in range(8):
            log.tick()
            for name in log.others:
                log.refresh(name)
            capture.round()
    except LogBrokenError as error:  # half of an update was purged
        return str(error)
    published = Counter(place.sequence for place in topic.places())
    if lost := log.committed - set(published):
        return f"purged unread: {sorted(lost)}"
    if twice := [number for number, times in published.items() if times > 1]:
        return f"published twice: {twice}"
    if (rows := {key: values[0] for key, values in table_of(topic).items()}) != log.rows_now:
        return f"other rows: {rows} for {log.rows_now}"
    return "the log is not emptied" if log.log else ""


def test_nothing_is_purged_that_kafka_does_not_have() -> None:
    assert [(seed, wrong) for seed in range(SEEDS) if (wrong := judged(seed))] == []


@pytest.mark.parametrize("rule", SWITCHED_OFF)
def test_a_rule_that_is_switched_off_is_found(rule: str) -> None:
    where, name, instead = SWITCHED_OFF[rule]
    with mock.patch.object(where, name, instead):
        assert any(judged(seed) for seed in range(SEEDS))
