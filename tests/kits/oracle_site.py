"""Capture of Oracle's stand (a): the product's start, loop and writer, stepped in this thread, on the
simulation's Kafka."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from producer.errors import SourceRefusedError, TransientSourceError
from producer.kafka.writer import KafkaWriter
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, Ports
from producer.sources.oracle.log import PollPace
from producer.sources.oracle.source import OracleSource
from producer.start.positions import CaptureAssignment, PositionStore
from producer.start.startup import CaptureStarter
from producer.tables import CapturedTables
from schemas.config.model import Config
from schemas.wire.codec import decode_event
from schemas.wire.copies import CopyRequest
from schemas.wire.event import EventEnvelope
from schemas.wire.records import StoredPosition, Watermark, format_former_table_topic, format_position_topic
from tests.kits.capture import row_that_goes_back
from tests.sim.kafka import Broker, Client
from tests.stands.oracle_source import OWNER, KilledError, OracleStand

PREFIX = "o"
POSITIONS = format_position_topic(PREFIX, "s")
Step = Callable[[], object]
NUMBER, WIDE = ("NUMBER(10)", "numeric(10)"), ("NUMBER(18)", "numeric(18)")


class Asked:
    """Requests for copies."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, CopyRequest | None]] = []

    def poll_requests(self) -> list[tuple[int, CopyRequest | None]]:
        found, self.waiting = self.waiting, []
        return found


class OracleSite:
    """`SourceSite` of tests/integration/test_sources.py; chunks of three rows, polls of five."""

    chunk_rows = 3
    db = OWNER

    def __init__(self, stand: OracleStand, seed: int = 7, poll_rows: int = 5) -> None:
        self.stand, self.broker, self.rng = stand, Broker(), random.Random(seed)
        self.now, self.requests, self.poll_rows = 0.0, Asked(), poll_rows
        self.wait: Callable[[float], None] = lambda _seconds: None
        self._asked = 0
        self.make_tables()

    def make_tables(self) -> None:
        for table in "ab":
            self.stand.create(table, {"id": NUMBER, "version": WIDE})

    # --- the source

    def put(self, table: str, version: int, *ids: int) -> None:
        with self.stand.own.transaction():
            for id_ in ids:
                self.stand.do(
                    f'INSERT INTO "{OWNER}"."{table}" (id, version) VALUES (%s, %s) ON CONFLICT '
                    "(id) DO UPDATE SET version = %s",
                    (id_, version, version),
                )

    def delete(self, table: str, *ids: int) -> None:
        self.stand.do(f'DELETE FROM "{OWNER}"."{table}" WHERE id = ANY(%s)', (list(ids),))

    def truncate(self, table: str) -> None:
        self.stand.truncate(table)

    def drop(self, table: str) -> None:
        self.stand.drop(table)

    def widen(self, table: str) -> None:
        self.stand.add_column(table, "note", "VARCHAR2(10)", "varchar(10)")

    def become_another(self) -> None:
        self.stand.do('UPDATE "v$database" SET dbid = 8')

    def rows(self, table: str) -> dict[int, int]:
        return {int(id_): int(v) for id_, v in self.stand.do(f'SELECT id, version FROM "{OWNER}"."{table}"')}

    def copy(self, table: str, where: str | None = None) -> None:
        self._asked += 1
        request = CopyRequest(
            id=f"copy {self._asked}", db=self.db, table=table, by="a test", cause="asked", requested_ms=1,
            where=where
        )  # fmt: skip
        self.requests.waiting.append((self._asked, request))

    # --- capture

    def config(self, tables: str = "*", snapshot: str = "initial") -> Config:
        own = {
            "type": "oracle", "host": "h", "port": 1521, "database": "PDB1", "user": "u", "password": "p",
            "tables": [f"{self.db}.{tables}"], "snapshot": snapshot,
        }  # fmt: skip
        return Config.model_validate({"kafka": {"bootstrap": "h:1", "prefix": PREFIX}, "sources": {"s": own}})

    def source(self, config: Config) -> OracleSource:
        pace = PollPace(self.poll_rows, 0.0, lambda: self.now, self.wait)
        return OracleSource(config.sources["s"], "s", self.stand.driver(), pace)

    def run(
        self,
        *steps: Step,
        kill: bool = False,
        tables: str = "*",
        snapshot: str = "initial",
        before: Callable[[str], None] = lambda _sql: None,
        until: Callable[[], bool] = lambda: True,
    ) -> None:
        """Capture, take the steps meanwhile, and end once all is in Kafka; or killed. `before`: sees each
        statement, and may kill."""
        config = self.config(tables, snapshot)
        source = self.source(config)
        client = Client(self.broker, self.rng, lambda: 0.0, lambda: None)
        self.stand.before = before
        try:
            self._run(source, config, client, steps, kill=kill, until=until)
        except KilledError:
            client.end(share=0.5)
        finally:
            self.stand.before = lambda _sql: None
            source.close()

    def _run(
        self,
        source: OracleSource,
        config: Config,
        client: Client,
        steps: tuple[Step, ...],
        *,
        kill: bool,
        until: Callable[[], bool],
    ) -> None:
        loop, notified = self.start(source, config, client)
        try:
            for step in steps:
                self.step(loop)
                step()
            for _ in range(5 if kill else 2000):
                self.step(loop)
                if not kill and notified and self._caught_up(notified[-1], config) and until():
                    break
            else:
                assert kill, "capture of everything"
            if kill:
                client.end(share=0.5)
            else:
                loop.shut_down("asked to", restarts=False)
        except TransientSourceError as error:
            loop.shut_down(str(error), restarts=True)
            raise
        finally:
            loop.close()

    def start(
        self, source: OracleSource, config: Config, client: Client
    ) -> tuple[CaptureLoop, list[Watermark]]:
        own, store = config.sources["s"], PositionStore(POSITIONS)
        writer = KafkaWriter(lambda _on_error: client, lambda: False)
        self.broker.ensure([POSITIONS], {})
        source.require_usable()
        source.open_source(lambda: None)
        parts: Any = self.broker, self.broker, store, CapturedTables(PREFIX, "s"), CaptureAssignment()
        started = CaptureStarter(source, own, writer, *parts).start_capture(new_snapshot=False)
        notified: list[Watermark] = []
        loop = CaptureLoop(own, started, Ports(
            writer=writer, store=store, topics=self.broker, open_log=source.open_log,
            open_reader=source.open_reader, server=lambda: source, names=source.tables.names,
            definitions=source.definitions, reaches=source.make_impact_finder,
            clock=Clock(lambda: self.now, lambda: int(self.now * 1000)), stopping=lambda: False,
            on_watermark=notified.append, poll_requests=self.requests.poll_requests, reader=self.broker,
            chunk_rows=self.chunk_rows,
        ))  # fmt: skip
        return loop, notified

    def step(self, loop: CaptureLoop) -> None:
        loop.step_capture()
        self.now += 0.4

    def _caught_up(self, last: Watermark, config: Config) -> bool:
        patterns = config.sources["s"].tables
        names = [name for name in "ab" if patterns == [f"{self.db}.*"] or patterns == [f"{self.db}.{name}"]]
        left = [name for name in names if f"{self.db}.{name}" not in last.stops and self.stand.logged(name)]
        return last.idle and not last.snapshot_pending and not left and not self.requests.waiting

    def refused(self) -> str:
        try:
            self.run()
        except SourceRefusedError as refusal:
            return str(refusal)
        raise AssertionError("it was not refused")

    # --- Kafka

    def events(self, table: str) -> list[EventEnvelope]:
        """Return the events of its topic, with numbers as the site has them."""
        name = format_former_table_topic(PREFIX, "s", self.db, table)
        records = self.broker.topics[name].records if name in self.broker.topics else []
        found = [(each.key(), _counted(decode_event(each.value() or b""))) for each in records]
        assert (wrong := row_that_goes_back(found)) is None, wrong
        return [event for _, event in found]

    def position(self) -> StoredPosition:
        found = PositionStore(POSITIONS).load_records(self.broker).newest  # type: ignore[arg-type]
        assert found is not None
        return found

    def watermarks(self) -> list[Watermark]:
        topic = self.broker.topics.get(f"{PREFIX}.s.watermark")
        values = [each.value() for each in topic.records] if topic else []
        return [msgspec.json.decode(value, type=Watermark) for value in values if value is not None]


def _counted(event: EventEnvelope) -> EventEnvelope:
    for image in (event.before, event.after):
        if image is not None:
            numbers = {name: image[name] for name in ("id", "version")}
            image.update(
                {name: None if value is None else int(str(value)) for name, value in numbers.items()}
            )
    return event


class Writers:
    """Three sessions of applications with open transactions: what they log in one order is committed in
    another, or not at all. `instances`: of each session."""

    def __init__(self, stand: OracleStand, seed: int, instances: Sequence[str] = ("", "", "")) -> None:
        self.rng, self.version = random.Random(seed), 0
        self.sessions = [stand.session(each) for each in instances]
        self.locked: list[set[int]] = [set(), set(), set()]

    def go_on(self) -> None:
        for _ in range(self.rng.randint(0, 3)):
            self._once(self.rng.randrange(3))

    def _once(self, number: int) -> None:
        session, locked = self.sessions[number], self.locked[number]
        if self.rng.random() < 0.3:
            session.commit() if self.rng.random() < 0.7 else session.rollback()
            locked.clear()
            return
        others = set().union(*(each for each in self.locked if each is not locked))
        free = [id_ for id_ in range(12) if id_ not in others]
        one, other = self.rng.sample(free, 2) if len(free) > 1 else (None, None)
        if one is None or other is None:
            return
        self.version += 1
        choice, table = self.rng.random(), f'"{OWNER}"."a"'
        if choice < 0.6:
            sql = f"INSERT INTO {table} VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET version = %s"
            session.execute(sql.encode(), (one, self.version, self.version))
            locked.add(one)
        elif choice < 0.8:
            session.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (one,))
            locked.add(one)
        else:  # the key of a row changes
            session.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (other,))
            sql = f"UPDATE {table} SET id = %s, version = %s WHERE id = %s"
            session.execute(sql.encode(), (other, self.version, one))
            locked |= {one, other}

    def settle(self) -> None:
        for session in self.sessions:
            session.commit()

    def end(self) -> None:
        self.settle()
        for session in self.sessions:
            session.close()
