"""A copy that a process applies to a real target, and that dies, is cut off or is paused at each step: from
the jump to the copy's begin over the sweeps of its ranges to that at its end. No living row is missing
meanwhile, and the process that takes over ends with the source's rows."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.errors import LockWaitError
from consumer.tables.router import TableRoute
from schemas.table.model import Row
from tests.kits.apply import FakeSource
from tests.kits.attempts import Real, reals
from tests.kits.copy import CopyOf
from tests.kits.killed import BLOWS, Moments, MortalUnit, turn
from tests.kits.targets import KINDS, as_target
from tests.kits.unit_copies import STOP, TextSource, by_text, keyed_by_text

real = reals(*KINDS)
#: Of these keys a range is never asked for at the target; of others it is.
BY_TEXT = {"postgres": True, "mariadb": False, "mysql": True}
STALE, POISON = (4, 11, 57), 50


class CopyStory:
    """A unit before a stop, after which a copy begins; its target has rows that the source no longer has, and
    one row is quarantined."""

    def __init__(self, real: Real, number: int, text: bool) -> None:
        name = f"s{number}"
        self.source = TextSource(table=keyed_by_text(), name=name) if text else FakeSource(name=name)
        self.real, self.place = real, f"t{number}"
        self.unit = MortalUnit(real, self.source, TableRoute("bank.*", f"{real.schema}.{self.place}"))
        self._before()
        self.steady = set(self.source.rows) - {POISON, *STALE, 1}
        self._copied(text)

    def _before(self) -> None:
        source, unit = self.source, self.unit
        unit.write([source.put(source.row(key, f"{key}@x", 1)) for key in (*range(10), *STALE)])
        assert unit.apply().state == "ok"
        self.real.narrow(self.place, "owner", 20)
        unit.write([source.put({**source.row(POISON, None, 1), "owner": "x" * 30})])
        assert unit.apply(len(unit.topic) - 1).held == 1

    def _copied(self, text: bool) -> None:
        source, unit = self.source, self.unit
        unit.write([source.event("m", stop=STOP)])
        for key in (*STALE, POISON):
            del source.rows[key]
        source.rows[2] = source.row(2, "two@x", 2)
        copy = CopyOf(
            source, unit.topic, order=by_text if text else int, index=lambda image: int(str(image["id"])),
            value=str if text else int
        )  # fmt: skip
        copy.begin()
        copy.emit()
        unit.write([source.put(source.row(3, "three@x", 3)), source.delete(1)])
        copy.emit()
        unit.write([source.put(source.row(60, "new@x", 1)), source.put(source.row(0, "zero@x", 4))])
        while not copy.done:
            copy.emit()

    def rows(self) -> list[Row]:
        session = self.real.session
        table = session.read_table(self.real.schema, self.place)
        assert table is not None
        return sorted(session.fetch_rows(as_target(table), None, 1000), key=str)

    def away(self) -> set[int]:
        """Return the keys that live and that a reader does not find; who reads a table that a paused process
        is altering waits, and finds nothing wrong."""
        try:
            rows = self.rows()
        except LockWaitError:
            return set()
        return self.steady - {int(str(row[0])) for row in rows}

    def ended(self) -> object:
        """All that must be alike at the end; the rows are the source's."""
        lanes, state = self.real.session.read_progress(self.unit.unit)
        assert self.rows() == sorted((tuple(row.values()) for row in self.source.rows.values()), key=str)
        assert state is not None
        offsets = [(row.lane, row.offset, row.position, row.gen) for row in lanes]
        return state.stopped, offsets, self.real.session.read_quarantine(self.unit.unit)


# psycopg leaves a pipeline's generator half-way when its socket is closed under it, and the collector says so
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whoever_comes_next_ends_as_the_source(
    real: Real, every: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.targets.progress.TAKEOVER_LOCK_TIMEOUT_S", 0.05)
    number, struck, wrong = 0, 0, []
    for text in (True, False) if every else (BY_TEXT[real.target.kind],):
        number += 1
        clean, moments = CopyStory(real, number, text), Moments()
        clean.unit.strike(moments)
        expected: Any = clean.ended()
        assert expected[0] is None
        assert expected[2] == [], "what is held is let go"
        found = moments.between("rowlock_progress", inside=every)
        assert len(found) >= 14, "a jump, a begin, four chunks, and a sweep at least, each before and behind"
        for at in found:
            for blow in turn(at, len(BLOWS) if every else 1):
                number += 1
                tale, moments = CopyStory(real, number, text), Moments(at, blow)
                if (why := met(tale, moments, expected)) is not None:
                    wrong.append(f"{text} {blow} {at}, {moments.seen[at - 1][:60]}: {why[:600]}")
                struck += (
                    moments.struck
                )  # which rows share a lane, and a transaction, depends on the table's name
    assert not wrong, "\n".join(wrong)
    assert struck >= 14


def met(tale: CopyStory, moments: Moments, expected: object) -> str | None:
    """Strike, and let somebody else take the unit over; returns what is not as it shall be."""
    with tale.unit.struck(moments):
        if away := tale.away():
            return f"{away} live, and are away"
        tale.unit.take_over()
        if away := tale.away():
            return f"{away} live, and are away once the unit is another's"
        report = tale.unit.apply(len(tale.unit.topic) - 1)
        if report.state != "ok":
            return f"{report.state} {report.message}"
        if (found := tale.ended()) != expected:
            return f"{found}, and not {expected}"
    return (
        None if (found := tale.ended()) == expected else f"behind the paused one: {found}, and not {expected}"
    )
