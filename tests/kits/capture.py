"""What tests of capture share: a unit as a process, the content of topics, and the replay that judges it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from producer.checks.preflight import check_source
from schemas.config.model import load_config
from schemas.findings import Finding
from schemas.table.model import Table
from schemas.wire.codec import decode_stored_position
from schemas.wire.event import EventEnvelope
from schemas.wire.position import Position
from schemas.wire.records import StoredPosition, Watermark
from tests.kits.waiting import until

_decode = msgspec.json.Decoder(EventEnvelope).decode
ROOT = Path(__file__).parents[2]


class Database(Protocol):
    @property
    def kind(self) -> str: ...

    host: str
    port: int
    user: str

    def connect(self, database: str | None = None) -> Any: ...
    def execute(self, sql: str, arguments: Any = ..., database: str | None = None) -> list[Any]: ...


def source(database: Database, tables: list[str], **more: Any) -> dict[str, Any]:
    """A source of the configuration, for a server of the fixtures."""
    return {
        "type": database.kind.lower(), "host": database.host, "port": database.port, "user": database.user,
        "password": getattr(database, "password", ""),
        "tables": tables, **more,
    }  # fmt: skip


def write_config(folder: Path, bootstrap: str, prefix: str, sources: Mapping[str, Any], **kafka: Any) -> Path:
    file = folder / "rowlock.yaml"
    settings = {"bootstrap": bootstrap, "prefix": prefix, **kafka}
    file.write_text(
        yaml.safe_dump({"kafka": settings, "state_dir": str(folder / "state"), "sources": dict(sources)})
    )
    return file


_EXPECTED = ("after a crash", "does not see")


def source_findings(config: Path, name: str = "s") -> list[Finding]:
    """Return what `check` finds at a source, but for what a crash may cost (the tests' servers do not wait
    for the disk), and for the optional rights."""
    found = check_source(load_config(config, {}), name)
    return [each for each in found if not any(words in each.message for words in _EXPECTED)]


@dataclass
class Unit:
    """`python -m producer.main`; its log goes to `log`."""

    config: Path
    name: str
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0

    @property
    def log(self) -> Path:
        return self.config.parent / f"capture-{self.name}.log"

    def start(self) -> Unit:
        command = [sys.executable, "-m", "producer.main", "--config", str(self.config), "--source", self.name]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.arguments], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT
            )
        self.starts += 1
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(timeout=600)
        self._close()
        return code

    def wait(self, seconds: float = 60) -> int:
        assert self.process is not None
        code = self.process.wait(timeout=seconds)
        self._close()
        return code

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextlib.contextmanager
def running(config: Path, name: str, *arguments: str) -> Iterator[Unit]:
    unit = Unit(config, name, arguments).start()
    try:
        yield unit
    finally:
        if unit.process is not None and unit.process.poll() is None:
            unit.kill()
        unit._close()


def messages(bootstrap: str, topic: str) -> list[Any]:
    """Everything that is in a topic now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "capture-test",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        low, high = until(lambda: _offsets(consumer, topic), f"topic {topic} is there", 120)
        consumer.assign([TopicPartition(topic, 0, low)])
        found: list[Any] = []
        while low < high:
            for message in consumer.consume(min(10000, high - low), timeout=1.0):
                assert message.error() is None, message.error()
                found.append(message)
                low = message.offset() + 1
        return found
    finally:
        consumer.close()


def _offsets(consumer: Consumer, topic: str) -> tuple[int, int] | None:
    """Return the first and the next offset of a topic; None while a broker that has just come back does not
    know it."""
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
            raise
        return None
    return low, high


def size(bootstrap: str, topic: str) -> int:
    """How many messages a topic has; 0 when there is none."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "capture-test", "log_level": 0})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)[1])
    except Exception:  # noqa: BLE001 - no such topic, no such broker: both mean "not yet" to a test that waits
        return 0
    finally:
        consumer.close()


def events(bootstrap: str, topic: str) -> list[EventEnvelope]:
    """Everything that is in a topic of a table now. In every topic a row's column `version`, if it has one,
    never goes back."""
    found = [(message.key(), _decode(message.value())) for message in messages(bootstrap, topic)]
    assert (wrong := row_that_goes_back(found)) is None, f"{topic}: {wrong}"
    return [event for _, event in found]


def row_that_goes_back(found: Iterable[tuple[bytes | None, EventEnvelope]]) -> str | None:
    """Return which row (Kafka key) has a lower `version` than one before it, among what a reader does not
    drop; None: none.

    Final states do not show it: a row that goes back may be overwritten later. Writers of tests give each
    change a higher version.
    """
    highest: Position | None = None
    gen, newest = 0, dict[tuple[bytes | None, str, str], int]()
    for key, event in found:
        where = event.source
        if where.gen < gen or (highest is not None and where.position <= highest):
            gen = max(gen, where.gen)
            continue
        gen, highest = where.gen, where.position
        version = (event.after or {}).get("version")
        if (
            isinstance(version, str) and version.isdigit()
        ):  # as a source has it all of whose numbers are decimals
            version = int(version)
        if isinstance(version, int):
            row = (key, where.db, where.table)
            if version < newest.get(row, version):
                return f"row {key!r} goes back from {newest[row]} to {version} at {where.position}"
            newest[row] = version
    return None


def watermarks(bootstrap: str, prefix: str, name: str) -> list[Watermark]:
    if not size(bootstrap, f"{prefix}.{name}.watermark"):
        return []
    found = messages(bootstrap, f"{prefix}.{name}.watermark")
    values = (message.value() for message in found)
    return [msgspec.json.decode(value, type=Watermark) for value in values if value is not None]


def position(bootstrap: str, prefix: str, name: str) -> StoredPosition:
    found = [m for m in messages(bootstrap, f"{prefix}.{name}.position") if m.value() is not None]
    records = [decode_stored_position(message.value()) for message in reversed(found)]
    return max(records, key=lambda record: record.gen)


@dataclass
class Replay:
    """A reader of a topic by the rules that every reader keeps: it drops events of a replaced capture and
    duplicates, stops at a gap, and applies the rest."""

    tables: dict[tuple[str, str], dict[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)
    definitions: dict[tuple[str, str], Table] = field(default_factory=dict)
    transactions: dict[str, list[tuple[int, bool]]] = field(default_factory=dict)
    accepted: list[EventEnvelope] = field(default_factory=list)
    highest: Position | None = None
    gen: int = 0
    dropped: int = 0

    def take(self, event: EventEnvelope) -> None:
        where = event.source
        if where.gen < self.gen or (self.highest is not None and where.position <= self.highest):
            self.gen = max(self.gen, where.gen)
            self.dropped += 1
            return
        if where.prev is not None:
            assert self.highest is not None, f"gap: {where.position} says it comes after {where.prev}"
            assert where.prev <= self.highest, (
                f"gap: {where.position} comes after {where.prev}, not {self.highest}"
            )
        self.gen, self.highest = where.gen, where.position
        self.accepted.append(event)
        self.apply(event)

    def apply(self, event: EventEnvelope) -> None:
        """Apply an accepted event."""
        name = (event.source.db, event.source.table)
        rows = self.tables.setdefault(name, {})
        if event.definition is not None:
            self.definitions[name] = event.definition
        if event.op == "t":
            rows.clear()
        if event.before is not None:
            rows.pop(self._key(name, event.before), None)
        if event.after is not None:
            rows[self._key(name, event.after)] = event.after
        if event.op in "cud" and event.transaction is not None:
            seen = self.transactions.setdefault(event.transaction.id, [])
            seen.append((event.transaction.total_order, event.transaction.last))

    def _key(self, name: tuple[str, str], row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[column] for column in self.definitions[name].key.columns)


def replay(found: list[EventEnvelope]) -> Replay:
    result = Replay()
    for event in found:
        result.take(event)
    return result


def transactions_are_whole(replays: list[Replay]) -> bool:
    """Every transaction's rows count 1, 2, 3 … over all its topics, and exactly the last one is marked."""
    together: dict[str, list[tuple[int, bool]]] = {}
    for each in replays:
        for name, seen in each.transactions.items():
            together.setdefault(name, []).extend(seen)
    return all(
        sorted(seen) == [(n, n == len(seen)) for n in range(1, len(seen) + 1)] for seen in together.values()
    )


def source_rows(database: Database, db: str, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in database.execute(f"SELECT {columns} FROM `{db}`.`{table}` ORDER BY 1")]


def topic_rows(result: Replay, db: str, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
    rows = result.tables.get((db, table), {}).values()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def refused(config: Path, *arguments: str) -> str:
    """Start the unit, which must give up by itself; returns what its last line says."""
    unit = Unit(config, "s", arguments).start()
    assert unit.wait() == 2, unit.output()
    last = json.loads(unit.output().splitlines()[-1])
    assert last["exit"] == 2
    assert "Traceback" not in unit.output()
    return str(last["error"])
