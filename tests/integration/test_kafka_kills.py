"""A worker dies in each commit of a copy, of a TRUNCATE that is written row by row and of a retry from the
quarantine, before Kafka's commit or after it.

The worker that goes on leaves the rows of the source, and each record of what was asked once: judged by a
consumer of the tests' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from consumer.ordering.lanes.lane import LaneLimits
from consumer.tables.router import TableRoute
from consumer.targets.kafka import records
from consumer.targets.kafka.compacted import row_store, topic_contents
from consumer.targets.kafka.formats.rowlock import RowlockFormat
from consumer.targets.kafka.store.state import KnownUnit
from consumer.targets.kafka.writer import Outgoing, UnitWriter
from rowlock.inspect.quarantine import EntrySelection, list_quarantined_events, resolve_quarantine
from tests.kits.apply import FakeSource
from tests.kits.attempts import RealUnit, config_of, rows_of
from tests.kits.copy import CopyOf
from tests.kits.kafka_attempts import clusters, unit_of
from tests.kits.kafka_target import documents, make_topic, messages
from tests.stands.kafka_target import Cluster

real = clusters()
pytestmark = pytest.mark.timeout(400)
MOMENTS = 40
"""More than any of these has commits."""


class DiedError(BaseException):
    """The process is gone: nothing that catches errors sees it."""


class Kills:
    """Lets a worker die in one of the commits to come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._at, self._behind = 0, False
        self._dead: list[UnitWriter] = []
        commit, discard = UnitWriter.commit_records, UnitWriter.discard

        def dying(writer: UnitWriter, records: Sequence[Outgoing], after: KnownUnit) -> None:
            self._at -= 1
            if self._at:
                commit(writer, records, after)
                return
            self._dead.append(writer)
            if self._behind:
                commit(writer, records, after)
            else:
                writer._producer.begin_transaction()
                for record in records:
                    writer._produce_record(record)
                assert writer._producer.flush(30) == 0
            raise DiedError

        def left(writer: UnitWriter) -> None:
            if writer not in self._dead:  # a process that is gone ends no transaction
                discard(writer)

        monkeypatch.setattr(UnitWriter, "commit_records", dying)
        monkeypatch.setattr(UnitWriter, "discard", left)
        self._discard = discard

    def died(self, moment: int, behind: bool, step: Callable[[], object]) -> bool:
        """Do `step`, and die in its commit number `moment`, or not if it has fewer. Return whether."""
        self._at, self._behind = moment, behind
        try:
            step()
        except DiedError:
            return True
        finally:
            self._at = 0
        return False

    def close(self) -> None:
        for writer in self._dead:
            self._discard(writer)


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kills]:
    with closing(Kills(monkeypatch)) as made:
        yield made


def applied(unit: RealUnit) -> None:
    report = unit.apply()
    assert report.state == "ok", report


def successor(unit: RealUnit, real: Cluster) -> None:
    """Go on as another process, to which the unit is given."""
    real.worker = None
    real.tables.clear()
    real.session.close()
    real.session = real.open()
    unit.take_over()
    applied(unit)


def documents_of(real: Cluster) -> list[tuple[Any, Any]]:
    return documents(messages(real.kafka, f"{real.schema}.acct"))


def deleted(found: Sequence[tuple[Any, Any]]) -> list[int]:
    return sorted(key["id"] for key, value in found if value is not None and value["op"] == "d")


def moments() -> Iterator[tuple[int, bool]]:
    return ((moment, behind) for moment in range(1, MOMENTS) for behind in (False, True))


def test_a_copy_that_is_broken_off_deletes_each_row_once(
    real: Cluster, kills: Kills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_store, "MAX_PENDING_ROWS", 3)
    monkeypatch.setattr(topic_contents, "ROWS_PER_PAGE", 4)
    unit = unit_of(real, topic={"key": ("owner", "id")})
    source, deaths = unit.source, 0
    for moment, behind in moments():
        unit.write([source.put(source.row(key, None, moment)) for key in range(6)])
        applied(unit)
        before = len(documents_of(real))
        for key in (1, 2, 3, 5):  # while nobody captures it
            del source.rows[key]
        CopyOf(source, unit.topic, id=f"copy-{moment}-{behind}").all()
        died = kills.died(moment, behind, unit.apply)
        successor(unit, real)
        found = documents_of(real)[before:]
        assert unit.rows() == rows_of(source), (moment, behind)
        assert deleted(found) == [1, 2, 3, 5], (moment, behind)
        deaths += died
        if not died:
            break
    assert deaths >= 6, "pages of deletes are commits of their own"


def test_a_truncate_that_is_broken_off_deletes_each_row_once(
    real: Cluster, kills: Kills, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "CLEARED", 2)
    make_topic(real.kafka, f"{real.schema}.acct", cleanup_policy="compact")
    unit = unit_of(real)
    source, deaths = unit.source, 0
    for moment, behind in moments():
        unit.write([source.put(source.row(key, None, moment)) for key in range(4)])
        applied(unit)
        before = len(documents_of(real))
        unit.write([source.truncate(), source.put(source.row(9, None, moment))])
        died = kills.died(moment, behind, unit.apply)
        successor(unit, real)
        found = documents_of(real)[before:]
        assert unit.rows() == rows_of(source), (moment, behind)
        assert deleted(found) == sorted({0, 1, 2, 3, *([9] if deaths else [])}), (moment, behind)
        deaths += died
        if not died:
            break
    assert deaths >= 4


def test_a_retry_that_is_broken_off_writes_its_row_once(real: Cluster, kills: Kills) -> None:
    source = FakeSource(name="north")
    unit = unit_of_north(real, source)
    deaths, config = 0, config_of(real)  # type: ignore[arg-type]
    unit.write([source.put(source.row(1, None, 1))])
    applied(unit)
    for moment, behind in moments():
        real.narrow("acct", "owner", 20)
        good, bad = f"mended {moment} {behind}", {**source.rows[1], "owner": "x" * 30}
        unit.write([source.put(bad), source.put({**bad, "owner": good})])
        unit.take_over()
        assert unit.apply().held == 2

        def retry() -> object:
            return resolve_quarantine(config, "retry", EntrySelection())

        died = kills.died(moment, behind, retry)
        retry()
        assert list_quarantined_events(config) == []
        written = [value["after"] for _, value in documents_of(real) if value and value["after"]]
        assert [each["owner"] for each in written].count(good) == 1, (moment, behind)
        real.formats(RowlockFormat)
        successor(unit, real)
        assert unit.rows() == rows_of(source), (moment, behind)
        deaths += died
        if not died:
            break
    assert deaths >= 2


def unit_of_north(real: Cluster, source: FakeSource) -> RealUnit:
    route = TableRoute("bank.*", f"{real.schema}.{{table}}")
    return RealUnit(real, source, route, limits=LaneLimits(pause=0.01))  # type: ignore[arg-type]
