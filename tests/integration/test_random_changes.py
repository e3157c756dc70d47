"""Random histories of rows and of tables at real sources, captured in stretches and with kills, applied under
each policy: target = source.

They are drawn by Hypothesis (tests/kits/drawn_steps.py). Several are played at once in one system, each with
tables of its own.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from consumer.attempt.reports import Report
from consumer.tables.router import SchemaChangePolicy
from deploy.embedded.services import Kafka
from schemas.problems import decode_problem
from schemas.table.model import is_same_definition
from schemas.wire.event import EventEnvelope
from tests.kits.attempts import Real
from tests.kits.drawn_steps import Drawn, Rows, Step, drawn
from tests.kits.drawn_tables import FORM, Tables
from tests.kits.played_changes import Play, PlayedUnit, Whole, begun, differs, history_of, in_common
from tests.kits.targets import fresh
from tests.kits.waiting import until

POLICIES: tuple[SchemaChangePolicy, ...] = ("ignore", "lenient", "evolve", "stop")
TOGETHER = 2
"""Histories in one system."""
SEEDS = int(os.environ.get("ROWLOCK_DRAWN_SEEDS", "8"))
ROUNDS = 8
"""Copies that one unit may need: a history has so many changes at most, with all of them apart."""


class Story:
    """Histories that are played at once. `left`: name → what the source's table had whenever it left that
    name. `copied`: names that capture copied without a request."""

    def __init__(self, play: Play, histories: list[Drawn], rng: random.Random) -> None:
        self.play, self.histories, self._rng = play, histories, rng
        self.tables = [Tables(number) for number in range(len(histories))]
        self.left: dict[str, list[Whole]] = {}
        self.copied: set[str] = set()
        for each in self.tables:
            play.run(*each.create())

    @property
    def names(self) -> list[str]:
        return [name for each in self.tables for name in each.captured]

    def there(self, name: str) -> bool:
        return any(name in each.there for each in self.tables)

    def run(self, stretch: int, *, behind: bool, part: int = 0, parts: int = 1) -> None:
        """Run the steps of a stretch, those of all histories mixed; `part` of `parts`."""
        waiting: list[tuple[Tables, list[Step]]] = []
        for tables, history in zip(self.tables, self.histories, strict=True):
            of = history[stretch].behind if behind else history[stretch].live
            waiting.append((tables, list(of[len(of) * part // parts : len(of) * (part + 1) // parts])))
        with contextlib.closing(self.play.database.connect(self.play.db)) as connection:
            while waiting := [(tables, left) for tables, left in waiting if left]:
                tables, left = self._rng.choice(waiting)
                self._step(connection, tables, left.pop(0))
            connection.commit()

    def _step(self, connection: Any, tables: Tables, step: Step) -> None:
        connection.commit()
        before = dict(tables.there)
        had = (
            {}
            if isinstance(step, Rows)
            else {name: self.play.list_copies(name) for name in tables.captured if name in before}
        )
        with connection.cursor() as cursor:
            for text, done in tables.reported(step):
                try:
                    cursor.execute(text)
                except pymysql.MySQLError as error:
                    self.play.ran.append(f"-- {text} ({error.args[0]})")
                else:
                    done()
                    self.play.ran.append(text)
        for name, rows in had.items():
            if tables.there.get(name) is not before[name]:
                self.left.setdefault(name, []).append(rows)


@contextlib.contextmanager
def reals(play: Play, request: pytest.FixtureRequest) -> Iterator[list[Real]]:
    """Target databases on two kinds of server, of which none is the source's."""
    with contextlib.ExitStack() as stack:
        kinds = ("postgres", "mysql" if play.kind == "mariadb" else "mariadb")
        targets = [stack.enter_context(fresh(kind, request)) for kind in kinds]
        yield [stack.enter_context(contextlib.closing(Real(target))) for target in targets]


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, SEEDS))])
def test_whatever_happens_at_the_source_the_target_ends_equal(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, seed: int, request: pytest.FixtureRequest
) -> None:
    play = Play(kafka, database, db, tmp_path)
    story = Story(play, drawn(seed, TOGETHER), random.Random(seed))
    who = random.Random(seed)  # the history is the same whatever units there are
    with reals(play, request) as targets:
        units = [
            PlayedUnit(real, play, name, policy)
            for real in targets
            for policy in POLICIES
            for name in story.names
        ]
        for stretch in range(len(story.histories[0])):
            first = story.histories[0][stretch]
            story.run(stretch, behind=True)
            with play.capture() as unit:
                story.run(stretch, behind=False, part=0, parts=2)
                if first.applied:
                    play.captured(unit)
                    for each in who.sample(units, len(units) // 2):
                        if play.has_topic(each.name):
                            each.apply()
                story.run(stretch, behind=False, part=1, parts=2)
                unit.kill() if first.killed else unit.stop()
        with play.capture() as unit:
            play.captured(unit)
            ended = heal(story, units, unit)
            wrong = [
                why for each in units if (why := ends_wrong(story, each, ended.get(each.unit))) is not None
            ]
            assert not wrong, "\n".join(wrong)


def heal(story: Story, units: list[PlayedUnit], unit: Any) -> dict[Any, Report]:
    """Apply and tend the units until none waits for a copy of a table that is there; returns their last
    reports."""
    play, ended = story.play, dict[Any, Report]()
    story.copied = {
        name for name in story.names if any(event.copy is not None for event in play.events(name))
    }
    for _ in range(ROUNDS):
        waiting = []
        captured = {name for name in story.names if play.has_topic(name)}
        for each in [each for each in units if each.name in captured]:
            each.take_over()
            ended[each.unit] = report = each.apply()
            assert report.state in ("ok", "stopped"), report.message
            if report.state == "stopped" and story.there(each.name):
                waiting.append((each, each.tended(report)))
        if not waiting:
            return ended
        for name in {each.name for each, _ in waiting}:
            play.request_copy(name, max(after for each, after in waiting if each.name == name))
        until(
            lambda waiting=waiting: all(begun(play, each, after) for each, after in waiting),  # type: ignore[misc]
            f"copies begin; {unit.output()[-3000:]}", 300,
        )  # fmt: skip
        play.captured(unit)
    raise AssertionError([(each.unit, each.reported) for each, _ in waiting])


def ends_wrong(story: Story, unit: PlayedUnit, report: Report | None) -> str | None:
    """Return what is not as the policy promises; None: nothing."""
    play, name = story.play, unit.name
    if story.there(name):
        if report is None:
            return f"{name} has no topic\n{history_of(play, name)}"
        return _not_asked(story, unit) or differs(play, unit)
    if report is None or report.state == "stopped":
        return None if report is None else _left(story, unit, report)
    return f"{unit.unit}: {report.state}, and its table is gone\n{history_of(play, name)}"


def _not_asked(story: Story, unit: PlayedUnit) -> str | None:
    """Under `stop` the first statement that changes the definition stops the unit; where capture made a copy
    by itself, that carries it past."""
    if unit.policy != "stop" or unit.name in story.copied:
        return None
    before = None
    for event in story.play.events(unit.name):
        if event.stop is not None or event.copy is not None:
            return None
        if event.definition is not None:
            if (
                before is not None
                and event.ddl is not None
                and not is_same_definition(before, event.definition)
            ):
                reported = any("`schema_changes` is stop" in each for each in unit.reported)
                return None if reported else f"{unit.unit} did not stop: {event.ddl}; it said {unit.reported}"
            before = event.definition
    return None


def _left(story: Story, unit: PlayedUnit, report: Report) -> str | None:
    """A unit of a dropped table reports that and what to do; the target keeps what it had, which is what the
    source's had when it left the name.

    That may be an earlier life: a table that comes and goes while capture lags has no row in the topic.
    """
    by_hand = unit.policy in ("ignore", "stop")  # what the target must be given by hand
    if not decode_problem(report.message).action or (report.copy is None and not by_hand):
        return f"{unit.unit}: {report.message}"
    real = unit.real.session.read_table(*unit.place)
    if report.copy is None or report.copy.cause != "dropped" or unit.reported or real is None:
        return None  # it had stopped before, and no copy can come
    if (
        "no longer exists (" in report.message
    ):  # found at a start: what the log had before the table went was not read
        return None
    if _copy_broken_off(
        story.play.events(unit.name)
    ):  # the table went while it ran: the target has some rows of each life
        return None
    lives = [rows for rows in story.left.get(unit.name, []) if sorted(rows[0]) == sorted(unit.writes())]
    whys = [differs(story.play, unit, rows) for rows in lives]
    return None if not whys or None in whys else str(whys[-1])


def _copy_broken_off(events: list[EventEnvelope]) -> bool:
    """Tell whether the topic's last copy has a begin and no end."""
    begins = [
        at for at, event in enumerate(events) if event.copy is not None and event.definition is not None
    ]
    return bool(begins) and not any(
        event.chunk is not None and event.chunk.last for event in events[begins[-1] :]
    )


#: Table → statements at the source, of which each is captured and applied before the next one; "…" at the
#: target; and whether a copy is needed.
COMES_BACK: dict[str, tuple[tuple[str, ...], bool]] = {
    "h0": (("ALTER TABLE h0 RENAME COLUMN v TO w", "UPDATE h0 SET w = 'new' WHERE id = 1",
     "ALTER TABLE h0 RENAME COLUMN w TO v"), True),
    "h1": (("ALTER TABLE h1 DROP COLUMN v", "UPDATE h1 SET n = 5 WHERE id = 1",
     "ALTER TABLE h1 ADD COLUMN v VARCHAR(10) DEFAULT 'd'"), True),
    "h2": (("ALTER TABLE h2 ADD COLUMN c INT DEFAULT 7", "UPDATE h2 SET c = 8 WHERE id = 1",
     "… ADD COLUMN c INT"), True),
    "h3": (("ALTER TABLE h3 DROP COLUMN v", "ALTER TABLE h3 ADD COLUMN w VARCHAR(10)",
     "ALTER TABLE h3 RENAME COLUMN w TO v"), True),
    "h4": (("ALTER TABLE h4 ADD COLUMN c INT", "ALTER TABLE h4 DROP COLUMN c",
     "ALTER TABLE h4 ADD COLUMN c INT DEFAULT 7"), False),
    "h5": (("ALTER TABLE h5 ADD COLUMN c INT", "ALTER TABLE h5 RENAME COLUMN c TO d",
     "UPDATE h5 SET d = 3, v = 'w' WHERE id = 2"), False),
}  # fmt: skip


def test_a_column_that_leaves_what_is_written_and_comes_back_has_the_values_of_the_source(
    kafka: Kafka, database: Any, db: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Under `ignore` nothing is altered, and what was left out comes back with old values in rows that have
    not changed since: they are copied."""
    play = Play(kafka, database, db, tmp_path)
    for name in COMES_BACK:
        values = ", ".join(f"({key}, 'old{key}', {key}, 1)" for key in range(1, 7))
        play.run(f"CREATE TABLE {name} {FORM}", f"INSERT INTO {name} (id, v, n, version) VALUES {values}")
    with contextlib.ExitStack() as stack:
        real = stack.enter_context(contextlib.closing(Real(stack.enter_context(fresh("postgres", request)))))
        units = {name: PlayedUnit(real, play, name, "ignore") for name in COMES_BACK}
        with play.capture() as unit:
            reports: dict[str, Report] = {}
            for step in range(3):
                for name, (texts, _) in COMES_BACK.items():
                    if texts[step].startswith("…"):
                        real.execute(f"ALTER TABLE {units[name].place[1]} {texts[step][2:]}")
                    else:
                        play.run(texts[step])
                play.captured(unit)
                for name, each in units.items():
                    each.take_over()
                    reports[name] = report = each.apply()
                    assert report.state == "ok" or step == 2, (name, report.message)
            needed = {name: report for name, report in reports.items() if report.state == "stopped"}
            assert set(needed) == {name for name, (_, copied) in COMES_BACK.items() if copied}
            for name, report in needed.items():
                assert report.copy is not None, (name, report.message)
                play.request_copy(name, units[name].tended(report))
            until(
                lambda: all(begun(play, units[name], report.copy.after) for name,
                 report in needed.items() if report.copy),
                f"copies begin; {unit.output()[-3000:]}", 300,
            )  # fmt: skip
            play.captured(unit)
            for each in units.values():
                each.take_over()
                report = each.apply()
                assert report.state == "ok", (each.name, report.message)
                why = differs(play, each)
                assert why is None, why
            assert in_common(units["h2"], ["c"]) == ["c"]
            assert in_common(units["h4"], ["c"]) == []
