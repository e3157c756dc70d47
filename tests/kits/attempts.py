"""Attempts at units of a real target, without Spark: a target's database, units whose topics are lists."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from consumer.attempt.copies.begin import find_begin
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.lock_watch import LockWatch
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.reports import Report
from consumer.attempt.spec import UnitAssignment, UnitSpec, build_initial_layout
from consumer.ordering.model import ApplyUnit, TargetTable
from consumer.slots.connections import ConnectionCache
from consumer.tables.definition import ActiveDefinition
from consumer.tables.router import SchemaChangePolicy, TableRoute, build_target_table
from consumer.tables.stored import decode_stored
from consumer.targets.dialect import open_session
from consumer.targets.session import SqlSession
from rowlock.inspect.placement import Placement
from rowlock.views.kafka import OffsetSpan
from schemas.config.model import Config, TargetConfig
from schemas.table.model import Row, Table
from schemas.table.names import TableName
from schemas.wire.codec import decode_event, encode_event_value
from schemas.wire.event import EventEnvelope
from schemas.wire.records import format_former_table_topic
from tests.capturing import Capturing
from tests.kits.apply import FakeSource
from tests.kits.capture import messages
from tests.kits.targets import Target, fresh
from tests.kits.topic import usual_tables
from tools.docs.schema_changes import STATEMENTS, Statement


class Real:
    """A target database with units of the pipeline "p" in it."""

    lanes = 4

    def __init__(self, target: Target, config: TargetConfig | None = None) -> None:
        """`config`: how units connect, if not as the tests do."""
        self.target, self.schema, self.config = target, target.schema, config or target.config()
        self.locks: LockWatch | None = None
        self.cache = ConnectionCache(self.config, "rowlock p")
        self.session: SqlSession = open_session(self.config, name="test")
        self.session.ensure_bookkeeping()
        self.tables: dict[UnitAssignment, ActiveDefinition] = {}

    def execute(self, sql: str) -> Any:
        return self.target.sql(sql)

    def displaced(self) -> int:
        return int(self.execute("SELECT count(*) FROM rowlock_displaced")[0][0])

    def closed(self) -> list[tuple[object, ...]]:
        """(topic, offset, why) of the entries that have left the quarantine."""
        where = "public.rowlock_quarantine_closed" if self.schema == "public" else "rowlock_quarantine_closed"
        return [tuple(row) for row in self.execute(f"SELECT topic, kafka_offset, closed FROM {where}")]

    def narrow(self, table: str, column: str, length: int) -> None:
        self.target.narrow(table, column, length)

    def apply(
        self,
        spec: UnitSpec,
        slices: Iterable[RecordSlice],
        read_missing: Callable[[int, int], list[RecordSlice]],
    ) -> Report:
        def rest(start: int) -> list[RecordSlice]:
            return read_missing(start, 2**62)

        return apply_topic(
            spec,
            self.cache,
            AttemptInputs(
                slices,
                read_missing=read_missing,
                find_begin=lambda after, hint: find_begin(read_missing, rest, after, hint),
                **({} if self.locks is None else {"watch_transaction": self.locks.watch_transaction}),
            ),
            self.tables,
        )

    def rows(self, unit: ApplyUnit, table: TargetTable) -> list[Row]:
        return self.target.as_given(table.table, self.session.fetch_rows(table, None, 10_000))

    def close(self) -> None:
        if self.locks is not None:
            self.locks.close()
        self.cache.close()
        self.session.close()


class RealUnit:
    """A unit of `real` whose topic is a list."""

    def __init__(self, real: Real, source: FakeSource, route: TableRoute, **spec: Any) -> None:
        self.real, self.source, self.spec = real, source, {"trial_interval_s": 0.0, **spec}
        self.unit = ApplyUnit(
            "p", format_former_table_topic("topic", source.name, source.table.db, source.table.name)
        )
        self.topic: list[bytes] = []
        self.routes = (route,)
        self.lanes = int(self.spec.pop("lanes", real.lanes))
        self.take_over()
        self.write([source.definition()])

    def take_over(self) -> None:
        layout = build_initial_layout(self.routes, self.lanes).encode()
        self.epoch, _, _ = self.real.session.take_over(self.unit, "id", layout, self.lanes)

    def write(self, events: Iterable[EventEnvelope]) -> None:
        self.topic += [encode_event_value(event) for event in events]

    def apply(self, start: int = 0) -> Report:
        spec = UnitSpec(
            unit=self.unit,
            source=self.source.name,
            epoch=self.epoch,
            topic_id="id",
            routes=self.routes,
            lanes=self.lanes,
            **{"sweep_s": 3600.0, **self.spec},
        )
        return self.real.apply(spec, self._slices(start, len(self.topic)), self._slices)

    def _slices(self, start: int, upto: int) -> list[RecordSlice]:
        records: RecordSlice = list(enumerate(self.topic))[start:upto]
        return [records[at : at + 100] for at in range(0, len(records), 100)]

    def rows(self) -> list[tuple[object, ...]]:
        in_force = self.real.tables[self.unit, self.epoch]
        return sorted(self.real.rows(self.unit, in_force.target), key=str)


def rows_of(source: FakeSource, *added: str) -> list[tuple[object, ...]]:
    return sorted(((*row.values(), *added) for row in source.rows.values()), key=str)


def reals(*kinds: str) -> Any:
    """Return the fixture `real`: each of `kinds` in turn."""

    def real(request: pytest.FixtureRequest) -> Iterator[Real]:
        with fresh(request.param, request) as target, contextlib.closing(Real(target)) as made:
            yield made

    return pytest.fixture(real, params=kinds)


def reals_apart(*kinds: str) -> Any:
    """Return the fixture `real`: each of `kinds` in a database of its own, for the source may be on the same
    server."""

    def real(request: pytest.FixtureRequest, unique: str) -> Iterator[Real]:
        service = request.getfixturevalue(request.param)
        service.create_database(f"{unique}_target")
        target = Target(request.param, service, f"{unique}_target")
        with contextlib.closing(Real(target)) as made:
            yield made
        for session in target.sessions:
            session.close()
        service.drop_database(f"{unique}_target")

    return pytest.fixture(real, params=kinds)


def route_of(real: Real, **add: str) -> TableRoute:
    return TableRoute("bank.*", real.schema + ".{table}", tuple(add.items()))


def config_of(real: Real) -> Config:
    nowhere = {"type": "mariadb", "host": "h", "user": "u", "password": "", "tables": ["bank.*"]}
    return Config.model_validate(
        {
            "kafka": {"bootstrap": "h:1", "prefix": "topic"},
            "sources": {"north": nowhere, "south": nowhere},
            "targets": {"t": real.config},
            "pipelines": {
                "p": {
                    "sources": ["north", "south"],
                    "target": "t",
                    "routes": [{"from": "bank.*", "to": real.schema + ".{table}"}],
                }
            },
        }
    )


class TopicLists:
    """`KafkaView` of the units' lists."""

    def __init__(self, units: list[RealUnit], _kafka: object) -> None:
        self._ends = {unit.unit.topic: unit for unit in units}

    def read_watermark(self, _source: str) -> None:
        return None

    def has_unreadable_watermark(self, _source: str) -> bool:
        return False

    def count_partitions(self) -> dict[str, int]:
        return dict.fromkeys(self._ends, 1)

    def read_topic_tables(self, _sources: object, topics: Collection[str]) -> dict[str, TableName]:
        return usual_tables(topics)

    def read_span(self, topic: str) -> OffsetSpan:
        return OffsetSpan(0, len(self._ends[topic].topic))

    def read_event(self, _topic: str, _offset: int) -> None:
        return None


class UnplacedUnits:
    """`PlacementReader` where no coordinator was ever asked."""

    def __init__(self, _config: object) -> None: ...

    def read_placement(self) -> Placement:
        return Placement(known=False)


def quoted(real: Real, table: str) -> str:
    return f'public."{table}"' if real.schema == "public" else f"`{real.schema}`.`{table}`"


ROWS = (
    (1, "'one'", 10, "'u1'", "'é1'", "'a'"),
    (2, "'two'", 20, "'u2'", "NULL", "'b'"),
    (3, "'three'", 30, "NULL", "'ü'", "NULL"),
)


def notified(statement: Statement, server: str) -> bool:
    return "(mariadb)" not in statement.sql or server == "mariadb"


def of_table(text: str, name: str) -> str:
    """A text about `t` and others whose names begin with `t_`, of table `name`."""
    return re.sub(r"\bt(_\w+)?\b", lambda found: name + (found[1] or ""), text)


def on(statement: Statement, name: str) -> str:
    """The statement, of table `name`."""
    return of_table(statement.sql.removesuffix(" (mariadb)"), name).replace("TO gone", f"TO {name}_gone")


class Played:
    """A source where every statement was run on a table of its own, with rows before and after it, and what
    capture made of that."""

    def __init__(self, capturing: Capturing, server: str) -> None:
        self.capturing, self.server = capturing, server
        self.names = {f"t{n}": each for n, each in enumerate(STATEMENTS) if notified(each, server)}
        inserts = [
            f"INSERT INTO {name} VALUES ({', '.join(map(str, row))})" for name in self.names for row in ROWS
        ]
        creates = [each.create.format(name=name) for name, each in self.names.items()]
        capturing.change(*creates)
        capturing.run(*inserts)
        changes: list[str] = []
        for name, statement in self.names.items():
            changes += [*(of_table(each, name) for each in statement.first), on(statement, name)]
            changes += behind(statement, name + statement.makes)
        capturing.run(*changes)
        capturing.run_until(self._all_swept, "the key sweeps of what was removed")
        self.raw = {
            name + of.makes: [
                (m.offset(), m.value())
                for m in messages(capturing.kafka.bootstrap, self.topic(name + of.makes))
            ]
            for name, of in self.names.items()
        }

    def _all_swept(self) -> bool:
        """Return whether every table that lost rows by a statement has been read by its keys."""
        return all(
            any(
                event.copy is not None and event.copy.keys and event.chunk is not None and event.chunk.last
                for event in self.capturing.events(name)
            )
            for name, statement in self.names.items()
            if statement.removes
        )

    def topic(self, name: str) -> str:
        return f"{self.capturing.db}.s.{self.capturing.db}.{name}"

    def renames(self, name: str) -> tuple[tuple[str, str], ...]:
        """The route's names of a table's columns; none for a table that a statement makes."""
        return tuple(self.names[name].renames.items()) if name in self.names else ()

    def rows(self, name: str) -> tuple[Table, list[Row]]:
        database = self.capturing.database
        values = {
            "type": self.server, "host": database.host, "port": database.port, "user": database.user,
            "password": "", "database": self.capturing.db,
        }  # fmt: skip
        with contextlib.closing(open_session(TargetConfig.model_validate(values), name="judge")) as session:
            table = session.read_table(self.capturing.db, name)
            assert table is not None
            return table, session.fetch_rows(build_target_table(table, table), None, 1000)


def behind(statement: Statement, name: str) -> list[str]:
    """Changes of rows that are the same under every definition that a statement may leave."""
    if statement.stop is not None:
        return []
    there = {*statement.after.column_names}
    some = next(column for column in ("v", "w", "l") if column in there)
    other = next(column for column in ("l", "v_2", "v") if column in there)
    needed = [
        each.name
        for each in statement.after.columns
        if not each.nullable and each.default is None and each.name != "id"
    ]
    more, values = "".join(f", {column}" for column in needed), ", 50" * len(needed)
    return [
        f"INSERT INTO {name} (id{more}) VALUES (5{values})",
        f"UPDATE {name} SET {other} = 'later' WHERE id = 2",
        f"DELETE FROM {name} WHERE id = 3",
        f"UPDATE {name} SET {some} = {some} WHERE id = 1",
    ]


@dataclass(frozen=True)
class GrowingTopics:
    """The topics of a source that goes on: a unit reads what they have each time, and begins with nothing."""

    topic: Callable[[str], str]
    raw: Mapping[str, list[tuple[int, bytes | None]]] = field(default_factory=lambda: defaultdict(list))

    def renames(self, name: str) -> tuple[tuple[str, str], ...]:
        return ()


class TopicUnit(RealUnit):
    """A unit whose topic was captured."""

    def __init__(
        self, real: Real, played: Played | GrowingTopics, name: str, policy: SchemaChangePolicy, **spec: Any
    ) -> None:
        self.real, self.spec, self.lanes = real, spec, real.lanes
        self.unit = type(self)._unit(played.topic(name), policy)
        self.raw = played.raw[name]
        self.routes = (
            TableRoute(
                "*.*", f"{real.schema}.{{table}}_{policy}", policy=policy, renames=played.renames(name)
            ),
        )
        self.place = (real.schema, f"{name}_{policy}")
        self.source = type("Named", (), {"name": "s"})()  # type: ignore[assignment]
        self.topic = [value for _, value in self.raw]
        assert [offset for offset, _ in self.raw] == list(range(len(self.raw)))
        self.take_over()

    @staticmethod
    def _unit(topic: str, policy: str) -> Any:
        from consumer.ordering.model import ApplyUnit

        return ApplyUnit(f"p_{policy}", topic)

    def map_columns(self, statement: Statement) -> None:
        """Apply what comes before the statement, and make the target what an earlier version left."""
        whole, place = self.topic, ".".join(self.place)
        self.topic = whole[: next(at for at, raw in enumerate(whole) if decode_event(raw).ddl is not None)]
        report = self.apply()
        assert report.state == "ok", report
        for name, there in statement.names.items():
            self.real.execute(f"ALTER TABLE {place} RENAME COLUMN {name} TO {there}")
            self.real.execute(f"ALTER TABLE {place} ADD {name} DATE")
        _, state = self.real.session.read_progress(self.unit)
        assert state is not None
        stored = replace(
            decode_stored(state.definition or ""),
            names=statement.names,
            retained_columns=tuple(statement.names),
        )
        self.real.execute(
            f"UPDATE rowlock_unit SET definition = '{stored.encode()}' "
            f"WHERE topic = '{self.unit.topic}' AND pipeline = '{self.unit.pipeline}'"
        )
        self.topic = whole
        self.take_over()

    def target_rows(self, columns: list[str]) -> list[Row]:
        """Rows by the source's columns, as far as the target has them."""
        session = self.real.session
        real = session.read_table(*self.place)
        assert real is not None
        rows = session.fetch_rows(build_target_table(real, real), None, 1000)
        _, state = session.read_progress(self.unit)
        assert state is not None
        stored = decode_stored(state.definition or "")
        at = [real.column_names.index(stored.get_target_name(column)) for column in columns]
        return [tuple(row[i] for i in at) for row in rows]

    def has(self, column: str) -> bool:
        real = self.real.session.read_table(*self.place)
        return real is not None and column in real.column_names
