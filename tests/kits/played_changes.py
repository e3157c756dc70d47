"""Changes of tables at a real source, captured in stretches, and units that apply what comes of them: what
tests of such histories share.

Where a unit needs a copy it is asked for, as the apply process would; capture makes it while statements go
on. Under `stop`, and where a unit under `ignore` reports that the target's table must be mended, the test
follows the message: it drops the target's table, and a copy makes it anew. Under `ignore` what the target
does not have is not compared. Where a policy leaves the target as it is, no row differs that the quarantine
does not hold.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitSpec
from consumer.process.operations.copy_desk import send_request
from consumer.tables.router import SchemaChangePolicy, build_target_table
from consumer.tables.stored import decode_stored
from consumer.targets.dialect import open_session
from deploy.embedded.services import Kafka
from schemas.config.model import KafkaConfig, TargetConfig
from schemas.problems import decode_problem
from schemas.table.model import Kind, Row, Value
from schemas.wire.codec import decode_event
from schemas.wire.copies import CopyRequest
from schemas.wire.event import EventEnvelope
from tests.kits.attempts import GrowingTopics, Real, TopicUnit
from tests.kits.capture import messages, running, size, source, watermarks, write_config
from tests.kits.waiting import until

BY_HAND = "set `schema_changes: evolve`, or change its type in the target by hand"
"""What `lenient` says of a column that gets a type that the target's column cannot take."""


class Play:
    """A source of which tables `h…` are captured, and what was run there."""

    def __init__(self, kafka: Kafka, database: Any, db: str, folder: Path) -> None:
        self.kafka, self.database, self.db = kafka, database, db
        self.kind = "mariadb" if type(database).__name__ == "MariaDB" else "mysql"
        tables = [f"{db}.h*", f"{db}.beat"]
        self.config = write_config(folder, kafka.bootstrap, db, {"s": source(database, tables)})
        self.ran: list[str] = []
        self._beats = self._asked = 0

    def run(self, *texts: str) -> None:
        with contextlib.closing(self.database.connect(self.db)) as connection, connection.cursor() as cursor:
            for text in texts:
                cursor.execute(text)
                self.ran.append(text)
            connection.commit()

    @contextlib.contextmanager
    def capture(self) -> Iterator[Any]:
        before = self._gen()
        with running(self.config, "s") as unit:
            until(lambda: self._gen() > before, f"a start; {unit.output()[-3000:]}", 300)
            yield unit

    def _gen(self) -> int:
        found = watermarks(self.kafka.bootstrap, self.db, "s")
        return max((each.gen for each in found), default=0)

    def captured(self, unit: Any) -> None:
        """Await that capture has all that the source did, and no copy is under way."""
        self._beats = mark = self._beats + 1
        self.database.execute(f"CREATE TABLE IF NOT EXISTS {self.db}.beat (id INT PRIMARY KEY)")
        self.database.execute(f"REPLACE INTO {self.db}.beat VALUES ({mark})")
        topic = f"{self.db}.s.{self.db}.beat"
        desired = f'"after":{{"id":{mark}}}'.encode()
        until(
            lambda: size(self.kafka.bootstrap,
             topic) and any(desired in (m.value() or b"") for m in messages(self.kafka.bootstrap, topic)),
            f"captured; {unit.output()[-3000:]}", 300,
        )  # fmt: skip

        def quiet() -> bool:
            found = watermarks(self.kafka.bootstrap, self.db, "s")
            last = max(found, key=lambda each: (each.gen, each.ts_ms))
            busy = [each for each in last.copies.values() if each.phase in ("waiting", "running")]
            return not busy and not last.snapshot_pending

        until(quiet, f"no copy under way; {unit.output()[-3000:]}", 300)

    def topic(self, name: str) -> str:
        return f"{self.db}.s.{self.db}.{name}"

    def list_copies(self, name: str) -> tuple[tuple[str, ...], list[Row]]:
        values = {
            "type": self.kind, "host": self.database.host, "port": self.database.port,
            "user": self.database.user, "password": "", "database": self.db,
        }  # fmt: skip
        with contextlib.closing(open_session(TargetConfig.model_validate(values), name="judge")) as session:
            table = session.read_table(self.db, name)
            assert table is not None
            return table.column_names, session.fetch_rows(build_target_table(table, table), None, 1000)

    def has_topic(self, name: str) -> bool:
        return size(self.kafka.bootstrap, self.topic(name)) > 0

    def events(self, name: str) -> list[EventEnvelope]:
        """What a table's topic holds; nothing where there is none."""
        if not self.has_topic(name):
            return []
        found = (message.value() for message in messages(self.kafka.bootstrap, self.topic(name)))
        return [decode_event(raw) for raw in found if raw is not None]

    def request_copy(self, name: str, after: int) -> None:
        self._asked += 1
        request = CopyRequest(
            id=f"{name} {after} {self._asked}",
            db=self.db,
            table=name,
            by="operator",
            requested_ms=0,
            after=after,
        )
        kafka = KafkaConfig.model_validate({"bootstrap": self.kafka.bootstrap, "prefix": self.db})
        send_request(kafka, "s", request)


class PlayedUnit(TopicUnit):
    """A unit over a topic that grows."""

    def __init__(self, real: Real, play: Play, name: str, policy: SchemaChangePolicy) -> None:
        self.play, self.name = play, name
        super().__init__(real, GrowingTopics(play.topic), name, policy)
        self.policy = policy
        self.reported: list[str] = []

    def apply(self, start: int = 0) -> Report:
        self.topic = [m.value() for m in messages(self.play.kafka.bootstrap, self.play.topic(self.name))]
        spec = UnitSpec(
            unit=self.unit, source="s", epoch=self.epoch, topic_id="id", routes=self.routes, lanes=self.lanes,
            patient=True, scratch=str(self.play.config.parent), sweep_s=3600.0,
        )  # fmt: skip
        return apply_topic(
            spec,
            self.real.cache,
            AttemptInputs(
                self._slices(start, len(self.topic)),
                read_missing=self._slices,
                find_begin=lambda after, hint: find_begin(
                    self._slices, lambda first: self._slices(first, len(self.topic)), after, hint
                ),
            ),
            self.real.tables,
        )

    def tended(self, report: Report) -> int:
        """Do what a person does for a stopped unit; returns the offset after which its copy begins."""
        self.reported.append(report.message)
        assert decode_problem(report.message).action, "what was seen, and what to do"
        if report.copy is not None:
            assert "rowlock copy" in report.message, (self.unit, report.message)
        if report.copy is None or report.copy.cause == "policy":
            by_hand = self.policy in ("ignore", "stop") or (
                self.policy == "lenient" and BY_HAND in report.message
            )
            assert by_hand, (self.unit, report.message, history_of(self.play, self.name))
            self.real.execute(f"DROP TABLE IF EXISTS {self.real.schema}.{self.place[1]}")
        return len(self.topic) - 1 if report.copy is None else report.copy.after

    def writes(self) -> tuple[str, ...]:
        """The source's columns by the active definition."""
        _, state = self.real.session.read_progress(self.unit)
        return (
            ()
            if state is None or state.definition is None
            else decode_stored(state.definition).table.column_names
        )

    def held(self) -> set[str]:
        """Return the keys of the rows that the quarantine holds."""
        return {str(json.loads(each.key)[0]) for each in self.real.session.read_quarantine(self.unit)}


def begun(play: Play, unit: PlayedUnit, after: int) -> bool:
    found = watermarks(play.kafka.bootstrap, play.db, "s")
    last = max(found, key=lambda each: (each.gen, each.ts_ms))
    state = last.copies.get(f"{play.db}.{unit.name}")
    by_limits = (
        state is not None and state.by != "operator"
    )  # what capture asked for by itself; a person's request has none
    assert state is None or by_limits or state.phase != "refused", state
    return state is not None and state.offset is not None and state.offset > after


def in_common(unit: PlayedUnit, columns: Sequence[str]) -> list[str]:
    """Return the columns of the source to compare: under `ignore` those that the target has."""
    return [each for each in columns if unit.policy != "ignore" or unit.has(each)]


def history_of(play: Play, name: str) -> str:
    return "\n".join(text for text in play.ran if f" {name} " in text)


Whole = tuple[tuple[str, ...], list[Row]]
"""Columns and rows of a table at the source."""


def differs(play: Play, unit: PlayedUnit, desired: Whole | None = None) -> str | None:
    """Return how the target differs from `desired`; None: it does not. `desired` None: what the source has
    now."""
    names, rows = desired or play.list_copies(unit.name)
    columns = in_common(unit, names)
    at = [names.index(each) for each in columns]
    exact = decimals(unit, columns)
    of_source = [
        tuple(
            str(row[i]) if isinstance(row[i], int) and name in exact else row[i]
            for i, name in zip(at, columns, strict=True)
        )
        for row in rows
    ]
    held = unit.held()
    assert not held or unit.policy in ("ignore", "stop"), (unit.unit, held)
    key = columns.index("id")
    expected, found = (
        sorted((row for row in plain(each, unit.policy) if str(row[key]) not in held), key=str)
        for each in (of_source, unit.target_rows(columns))
    )
    if expected == found:
        return None
    return (
        f"{unit.real.target.kind} {unit.place}: {columns}\nsource {expected}\ntarget "
        f"{found}\n{history_of(play, unit.name)}"
    )


def decimals(unit: PlayedUnit, columns: Sequence[str]) -> set[str]:
    """Return the source's columns that the target has as DECIMAL: a whole number of the source is the text of
    one there."""
    session = unit.real.session
    real, (_, state) = session.read_table(*unit.place), session.read_progress(unit.unit)
    assert real is not None
    assert state is not None
    stored = decode_stored(state.definition or "")
    return {
        name for name in columns if real.get_column(stored.get_target_name(name)).type.kind is Kind.DECIMAL
    }


def plain(rows: Sequence[Row], policy: str) -> list[Row]:
    """Under `lenient` a DECIMAL keeps its digits after the point at the target: zeros at the end mean nothing
    there. Under `ignore` every column keeps its type: a number may be text there, and a time has fewer
    digits."""
    if policy not in ("ignore", "lenient"):
        return list(rows)
    return [
        tuple(_plain(str(value) if policy == "ignore" and value is not None else value) for value in row)
        for row in rows
    ]


def _plain(value: Value) -> Value:
    if isinstance(value, str) and re.fullmatch(r"(-?\d+|[-\d]{10}[ T][:\d]{8})\.\d+Z?", value):
        return value.removesuffix("Z").rstrip("0").removesuffix(".") + ("Z" if value.endswith("Z") else "")
    return value
