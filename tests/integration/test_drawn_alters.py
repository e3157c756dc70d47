"""Random statements on a table at a real source, published as capture does and applied under each policy:
target = source after each.

There is no log and no Kafka: rows are compared around each statement. What capture decides by is the
product's; so are the attempts.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymysql
import pytest

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.tables.router import SchemaChangePolicy, build_target_table
from consumer.tables.stored import decode_stored
from consumer.targets.dialect import open_session
from producer.binlog_format.log_event import LoggedStatement, SessionSettings
from producer.sources.converted import may_be_converted
from producer.sources.mariadb.flavour import MARIADB_FLAVOUR
from producer.sources.mysql.flavour import MYSQL_FLAVOUR
from producer.sources.source_session import SourceSession
from producer.statements.columns import compute_column_changes
from producer.statements.conversions import find_alter_doubt
from producer.statements.judgement import judge_statement
from producer.statements.statement import parse_statement
from schemas.config.model import TargetConfig
from schemas.io.mysql_catalog import read_table
from schemas.io.mysql_connection import connect_mysql
from schemas.problems import decode_problem
from schemas.table.model import Table, Value, is_same_definition
from schemas.wire.codec import encode_event_value
from schemas.wire.copies import CopyMark
from schemas.wire.event import Chunk
from schemas.wire.records import TableStop
from tests.kits.apply import FakeSource
from tests.kits.attempts import GrowingTopics, Real, TopicUnit
from tests.kits.drawn_alters import TableHistory
from tests.kits.drawn_settings import MAKE_ZONE, logged, spelled
from tests.kits.played_changes import BY_HAND, plain
from tests.kits.targets import Target, fresh

FORM = "(id INT PRIMARY KEY, v VARCHAR(10), n INT, version INT NOT NULL) CHARACTER SET utf8mb4"
POLICIES: tuple[SchemaChangePolicy, ...] = ("lenient", "evolve", "ignore", "stop")
SEEDS = int(os.environ.get("ROWLOCK_DRAWN_ALTERS", "3"))
STEPS = int(os.environ.get("ROWLOCK_DRAWN_STEPS", "20"))
FROM = int(os.environ.get("ROWLOCK_DRAWN_FROM", "0"))


class DrawnSource:
    """A table `h` with its topic. `ran`: statements that the server took."""

    def __init__(self, database: Any, db: str, seed: int) -> None:
        self.database, self.db = database, db
        self.kind = "mariadb" if type(database).__name__ == "MariaDB" else "mysql"
        self.history = TableHistory("h", random.Random(seed))
        self.ran: list[str] = []
        self.refused: list[str] = []
        self.settings, self.modes = SessionSettings(), frozenset[str]()
        self.topic: list[bytes] = []
        self.link = database.connect(db)
        self.catalog = connect_mysql(database.host, database.port, "root", "", db)
        values = {
            "type": self.kind,
            "host": database.host,
            "port": database.port,
            "user": database.user,
            "password": "",
            "database": db,
        }
        self.session = open_session(TargetConfig.model_validate(values), name="judge")
        self.asked = SourceSession(self.catalog, MYSQL_FLAVOUR if self.kind == "mysql" else MARIADB_FLAVOUR)
        for statement in MAKE_ZONE:
            database.execute(statement)
        self._run(f"CREATE TABLE h {FORM}")
        self.table = self.defined()
        self.fake = FakeSource(table=self.table, name="s")
        self.rows: dict[Any, dict[str, Value]] = {}
        self._write("m", definition=self.table)

    def close(self) -> None:
        for each in (self.link, self.catalog, self.session):
            each.close()

    def _run(self, text: str, settings: Sequence[str] = ()) -> str | None:
        """Return the statement as the server took it; None: it did not. `settings`: of a session of its
        own."""
        apart = self.database.connect(self.db) if settings else None
        link = apart or self.link
        taken: list[str] = []
        try:
            with link.cursor() as cursor:
                for each in settings:
                    with contextlib.suppress(pymysql.MySQLError):  # the server has none, or not for a session
                        cursor.execute(f"SET SESSION {each}")
                        taken.append(each)
                cursor.execute("SELECT @@sql_mode, @@time_zone")
                [(mode, zone)] = cursor.fetchall()
                self.modes = frozenset(str(mode).split(","))
                text = spelled(text, self.modes)
                cursor.execute(text)
            link.commit()
            self.settings = logged(self.modes, str(zone) if self.kind == "mysql" else "")
        except pymysql.MySQLError as error:
            self.refused.append(f"{text} -- {error.args}")
            return None
        finally:
            if apart is not None:
                apart.close()
        self.ran.append(f"{text}{f'  -- {taken}' if taken else ''}")
        return text

    def defined(self) -> Table:
        return read_table(self.catalog, self.db, "h")

    def read_topic(self) -> dict[Any, dict[str, Value]]:
        names = self.table.column_names
        real = self.session.read_table(self.db, "h")
        assert real is not None
        found = self.session.fetch_rows(build_target_table(self.table, real), None, 1000)
        at = self.table.find_ordinals(self.table.key.columns)
        return {tuple(row[i] for i in at): dict(zip(names, row, strict=True)) for row in found}

    def _write(self, op: Any, before: Any = None, after: Any = None, **more: Any) -> None:
        self.topic.append(encode_event_value(self.fake.event(op, before, after, **more)))

    def step(self, altering: float) -> bool:
        taken = self.take(self.history.statement(altering), self.history.session())
        if taken:
            self.history.done()
        return taken

    def take(self, text: str, settings: Sequence[str] = ()) -> bool:
        """Tell whether the server took the statement; then it is told."""
        taken = self._run(text, settings)
        if taken is None:
            return False
        text = taken
        if text.startswith("TRUNCATE"):
            self._write("t", ddl=text)
            self.rows = {}
        elif text.startswith("ALTER"):
            self._altered(text)
        else:
            self._changed()
        return True

    def _changed(self) -> None:
        now = self.read_topic()
        for key in sorted(self.rows.keys() - now.keys(), key=str):
            self._write("d", self.rows[key], None)
        for key, row in now.items():
            before = self.rows.get(key)
            if before != row:
                self._write("c" if before is None else "u", before, row)
        self.rows = now

    def _altered(self, text: str) -> None:
        """As producer.barriers does it."""
        escapes = "NO_BACKSLASH_ESCAPES" not in self.modes
        statement = parse_statement(LoggedStatement(self.db, text, escapes, settings=self.settings))
        (verdict,) = judge_statement(statement)
        before, self.table = self.table, self.defined()
        same = is_same_definition(before, self.table)
        self.fake.table = self.table
        doubt = find_alter_doubt(statement, before, self.table)
        converted = doubt is not None and may_be_converted(self.asked, (self.db, "h"), doubt)
        if verdict.must_stop(same_definition=same) or converted:
            at = (0, 1, self.fake.pos, -1)
            stop = TableStop(
                cause="rows-replaced",
                at=at,
                file="binlog.000001",
                pos=self.fake.pos,
                reason=text,
                remedy="rowlock copy",
                since_ms=0,
            )
            self._write("m", stop=stop)
            self.rows = self.read_topic()
            self.copied()
            return
        columns = compute_column_changes([statement], before, self.table)
        effect = verdict.get_effect(same_definition=same)
        self._write("m", definition=self.table, ddl=text, columns=columns, effect=effect)
        self.rows = self.read_topic()

    def zero_dates(self) -> dict[str, str]:
        """Return the keys of rows with a date that is none, which PostgreSQL refuses: a column that is added
        as NOT NULL gets them, unless the session's sql_mode has NO_ZERO_DATE."""
        dates = ((str(row["id"]), value) for row in self.rows.values() for value in row.values())
        return {
            key: value for key, value in dates if isinstance(value, str) and value.startswith("0000-00-00")
        }

    def copied(self) -> int:
        """Write a copy; keys that are gone are said to be, as no marker ends it."""
        self._write("m", definition=self.table, copy=CopyMark(id=str(len(self.topic))))
        begin = len(self.topic) - 1
        for row in self.rows.values():
            self._write("r", None, row)
        chunk = Chunk(
            number=1, after=None, upto=None, first_row=-1, rows=len(self.rows), last=True, repeated=True
        )
        self._write("m", chunk=chunk, copy=CopyMark(id=str(begin), begins=begin, since=begin))
        return begin


class DrawnUnit(TopicUnit):
    def __init__(self, real: Real, source: DrawnSource, policy: SchemaChangePolicy, folder: Path) -> None:
        super().__init__(real, GrowingTopics(lambda name: f"p.s.{source.db}.{name}"), "h", policy)
        self.of, self.policy, self.folder, self.reported = source, policy, folder, list[str]()
        self.start = 0

    def apply(self, start: int = 0) -> Report:
        self.topic = self.of.topic
        spec = UnitSpec(
            unit=self.unit, source="s", epoch=self.epoch, topic_id="id", routes=self.routes, lanes=self.lanes,
            patient=True, scratch=str(self.folder), sweep_s=3600.0,
        )  # fmt: skip
        report = apply_topic(
            spec,
            self.real.cache,
            AttemptInputs(
                self._slices(self.start, len(self.topic)),
                read_missing=self._slices,
                find_begin=lambda after, hint: find_begin(
                    self._slices, lambda first: self._slices(first, len(self.topic)), after, hint
                ),
            ),
            self.real.tables,
        )
        assert report.state in ("ok", "stopped"), why(self.of, self, f"{report.state}: {report.message}")
        self.start = len(self.topic) if report.state == "ok" else 0
        return report

    def has(self, column: str) -> bool:
        """Also by a name that is the column's to the target's server."""
        session = self.real.session
        real, (_, state) = session.read_table(*self.place), session.read_progress(self.unit)
        assert state is not None
        name = session.column_names.fold_name(decode_stored(state.definition or "").get_target_name(column))
        return real is not None and name in map(session.column_names.fold_name, real.column_names)

    def tended(self, report: Report) -> bool:
        """Do what a person does for a unit that is stopped: a copy follows."""
        self.reported.append(report.message)
        assert decode_problem(report.message).action, "what was seen, and what to do"
        if report.copy is None or report.copy.cause == "policy":
            by_hand = self.policy in ("ignore", "stop") or (
                self.policy == "lenient" and BY_HAND in report.message
            )
            assert by_hand, why(self.of, self, report.message)
            self.real.execute(f"DROP TABLE IF EXISTS {self.real.schema}.{self.place[1]}")
        return True

    def judge(self) -> None:
        """Under `ignore` what the target lacks is not compared, nor are rows that it cannot take."""
        names = [each for each in self.of.table.column_names if self.policy != "ignore" or self.has(each)]
        held = self.held()
        zero = {} if self.real.schema != "public" else self.of.zero_dates()
        assert held <= zero.keys() or self.policy in ("ignore", "stop"), why(self.of, self, f"held {held}")
        of_source = [tuple(row[name] for name in names) for row in self.of.rows.values()]
        key = names.index("id")
        expected, found = (
            sorted((row for row in plain(each, self.policy) if str(row[key]) not in held), key=str)
            for each in (of_source, self.target_rows(names))
        )
        assert expected == found, why(self.of, self, f"{names}\nsource {expected}\ntarget {found}")

    def held(self) -> set[str]:
        return {str(json.loads(each.key)[0]) for each in self.real.session.read_quarantine(self.unit)}


@contextlib.contextmanager
def beside(source: DrawnSource) -> Iterator[Target]:
    """Another database of the source's server: a second server takes longer to start than the statements."""
    name = f"{source.db}_target"
    source.database.create_database(name)
    target = Target(source.kind, source.database, name)
    yield target
    for session in target.sessions:
        session.close()
    source.database.drop_database(name)


@pytest.mark.parametrize("seed", range(FROM, FROM + SEEDS))
def test_a_statement_leaves_the_target_as_its_source(
    database: Any, db: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with written(database, db, seed, request, tmp_path) as (source, units):
        for _ in range(STEPS):
            for _ in range(4):
                source.step(0.0)
            if not source.step(1.0):
                continue
            source.step(0.0)
            brought(source, units)


@contextlib.contextmanager
def written(
    database: Any, db: str, seed: int, request: pytest.FixtureRequest, folder: Path
) -> Iterator[tuple[DrawnSource, list[DrawnUnit]]]:
    """A source, and units that write what it tells: of each policy into each target."""
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(DrawnSource(database, db, seed)))
        targets = [stack.enter_context(fresh("postgres", request)), stack.enter_context(beside(source))]
        reals = [stack.enter_context(contextlib.closing(Real(each))) for each in targets]
        yield source, [DrawnUnit(real, source, policy, folder) for real in reals for policy in POLICIES]


LONG = "a" * 63
#: What is one name for a MySQL target, and two for PostgreSQL; a name that no target takes with a number
#: appended.
SPELLINGS: tuple[tuple[str, ...], ...] = (
    ("DROP COLUMN v", "ADD COLUMN V VARCHAR(10) DEFAULT 'x'"),
    ("RENAME COLUMN v TO V",),
    ("CHANGE v V VARCHAR(30)", "CHANGE V v TEXT"),
    ("DROP COLUMN v, ADD COLUMN V VARCHAR(10) DEFAULT 'x'",),
    ("RENAME COLUMN v TO N, RENAME COLUMN n TO V",),
    ("DROP COLUMN v", "RENAME COLUMN n TO V"),
    ("ADD COLUMN g INT AS (version) STORED, CHANGE v V VARCHAR(10)",),
    (f"CHANGE n {LONG} INT", f"MODIFY {LONG} DATE"),
)


@pytest.mark.parametrize("alters", SPELLINGS, ids=lambda alters: alters[0][:40])
def test_a_name_in_another_spelling_leaves_the_target_as_its_source(
    database: Any, db: str, alters: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with written(database, db, 0, request, tmp_path) as (source, units):
        assert source.take("INSERT INTO h (id, v, n, version) VALUES (1, 'a', NULL, 1), (2, 'b', NULL, 2)")
        for at, alter in enumerate(alters, 3):
            assert source.take(f"ALTER TABLE h {alter}"), source.refused
            assert source.take(f"INSERT INTO h (id, version) VALUES ({at}, {at})")
            assert source.take(f"UPDATE h SET {source.table.column_names[1]} = NULL WHERE id = 1")
            brought(source, units)


def brought(source: DrawnSource, units: list[DrawnUnit]) -> None:
    """Bring all units to the topic's end and judge them; no copy is written before those have been judged
    that need none."""
    for _ in range(4):
        stopped = [
            unit for unit in units if (report := unit.apply()).state == "stopped" and unit.tended(report)
        ]
        for unit in units:
            if unit not in stopped:
                unit.judge()
        if not stopped:
            return
        source.copied()
        for unit in stopped:
            unit.take_over()
    raise AssertionError([why(source, unit, "does not come to an end") for unit in stopped])


def why(source: DrawnSource, unit: DrawnUnit, what: str) -> str:
    return (
        f"{source.kind} → {unit.real.target.kind} {unit.policy}: {what}\n"
        + "\n".join(source.ran[-12:])
        + "\nsaid "
        + "\n".join(unit.reported[-3:])
    )
