"""What the tests of apply share: a source that exists only as events, a topic that holds them, a judge.

`FakeSource` keeps rows like a database with a primary key and a unique key, and returns the events a capture
task would write; the judge compares whole rows of the target with it.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex, Value
from schemas.wire.codec import encode_event_value
from schemas.wire.event import Chunk, EventEnvelope, EventOp, Source, Transaction, choose_event_version
from schemas.wire.records import format_former_table_topic
from tests.kits.waiting import EVERY_S, awaited

TEXT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
ROOT = Path(__file__).resolve().parents[2]

Values = dict[str, Value]


def account_table(db: str = "bank", name: str = "acct") -> Table:
    """A primary key, a nullable unique key, and a few kinds of values."""
    return Table(
        db=db,
        name=name,
        columns=(
            Column(name="id", type=ColumnType(kind=Kind.INT, bits=64), nullable=False),
            Column(name="email", type=ColumnType(kind=Kind.VARCHAR, length=60, **TEXT)),
            Column(name="owner", type=ColumnType(kind=Kind.VARCHAR, length=40, **TEXT), nullable=False),
            Column(name="balance", type=ColumnType(kind=Kind.DECIMAL, precision=12, scale=2), nullable=False),
            Column(name="version", type=ColumnType(kind=Kind.INT, bits=32), nullable=False),
            Column(name="opened", type=ColumnType(kind=Kind.DATETIME, fsp=6), nullable=False),
            Column(name="note", type=ColumnType(kind=Kind.VARCHAR, length=200, **TEXT)),
        ),
        key=UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),)),
        unique=(UniqueIndex(name="email", parts=(IndexPart(column="email"),)),),
    )


@dataclass
class FakeSource:
    """Rows and the log of one table of one source."""

    table: Table = field(default_factory=account_table)
    name: str = "branch1"
    gen: int = 1
    rows: dict[int, Values] = field(default_factory=dict)
    pos: int = 100
    previous: tuple[int, int, int, int] | None = None

    def event(
        self, op: EventOp, before: Values | None = None, after: Values | None = None, **more: Any
    ) -> EventEnvelope:
        """Return the next event of the log; a position of its own."""
        self.pos += 10
        position = (0, 1, self.pos, 0)
        event = EventEnvelope(
            op=op,
            before=before,
            after=after,
            source=Source(
                version=choose_event_version(op, None),
                connector="mariadb",
                name=self.name,
                ts_ms=int(time.time() * 1000),
                snapshot="true" if op == "r" else "false",
                db=self.table.db,
                table=self.table.name,
                server_id=1,
                gtid=None,
                file="binlog.000001",
                pos=self.pos,
                row=0,
                position=position,
                prev=self.previous,
                gen=self.gen,
            ),
            transaction=Transaction(id=f"1:{self.pos}", total_order=1, last=True),
            ts_ms=int(time.time() * 1000),
            **more,
        )
        self.previous = position
        return event

    def definition(self, ddl: str | None = None, table: Table | None = None) -> EventEnvelope:
        return self.event("m", definition=table or self.table, ddl=ddl)

    def chunk_end(self, rows: int, *, last: bool = True) -> EventEnvelope:
        return self.event(
            "m", chunk=Chunk(number=1, after=None, upto=None, first_row=-1, rows=rows, last=last)
        )

    def row(self, key: int, email: str | None, version: int, note: str = "") -> Values:
        return {
            "id": key,
            "email": email,
            "owner": f"owner {key}",
            "balance": f"{version * 10}.50",
            "version": version,
            "opened": "2026-11-21 10:00:00.000001",
            "note": note,
        }

    def put(self, row: Values, op: EventOp = "c") -> EventEnvelope:
        """Insert or update (also of the key, with `moved_from` in `move`)."""
        key = int(str(row["id"]))
        before = self.rows.get(key)
        self.rows[key] = row
        if before is None:
            return self.event(op, None, row)
        return self.event("u", before, row)

    def move(self, old: int, row: Values) -> EventEnvelope:
        before = self.rows.pop(old)
        self.rows[int(str(row["id"]))] = row
        return self.event("u", before, row)

    def delete(self, key: int) -> EventEnvelope:
        return self.event("d", self.rows.pop(key), None)

    def remove_rows(self, *keys: int) -> EventEnvelope:
        """Remove rows by a statement that the log shows only as text."""
        for key in keys:
            del self.rows[key]
        return self.event("p", ddl="ALTER TABLE acct DROP PARTITION p0")

    def truncate(self) -> EventEnvelope:
        self.rows.clear()
        return self.event("t")

    def history(self, rng: random.Random, count: int, keys: int = 40) -> list[EventEnvelope]:
        """Return `count` random changes: inserted, updated, deleted and moved keys, emails handed from row to
        row."""
        out: list[EventEnvelope] = []
        while len(out) < count:
            out += self._change(rng, keys)
        return out[:count] if len(out) == count else out

    def _change(self, rng: random.Random, keys: int) -> list[EventEnvelope]:
        key, version = rng.randrange(keys), rng.randrange(1000)
        taken = {row["email"]: k for k, row in self.rows.items() if row["email"] is not None}
        email = rng.choice([None, f"e{rng.randrange(keys)}@x"])
        owner = taken.get(email)
        out: list[EventEnvelope] = []
        if owner is not None and owner != key:  # the value is handed over: its holder gives it up first
            out.append(
                self.delete(owner)
                if rng.random() < 0.5
                else self.put({**self.rows[owner], "email": None, "version": version})
            )
        choice = rng.random()
        row = self.row(key, email, version)
        if choice < 0.2 and key in self.rows:
            out.append(self.delete(key))
        elif choice < 0.3 and self.rows and key not in self.rows:
            out.append(self.move(rng.choice(sorted(self.rows)), row))
        else:
            out.append(self.put(row))
        return out


class Topic:
    """A topic with one partition; remembers what was written, so that a test can write a stretch again."""

    def __init__(self, bootstrap: str, prefix: str, source: FakeSource, name: str | None = None) -> None:
        self.name = name or format_former_table_topic(prefix, source.name, source.table.db, source.table.name)
        self.source = source
        self.written: list[EventEnvelope] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        create_topic(bootstrap, self.name)

    def write_changes(self, events: Iterable[EventEnvelope]) -> None:
        key = self.source.table.key.columns
        failed: list[object] = []
        for event in events:
            image = event.after or event.before
            raw_key = msgspec.json.encode({name: image[name] for name in key}) if image else b"{}"
            self._producer.produce(
                self.name,
                encode_event_value(event),
                raw_key,
                on_delivery=lambda error, _m: failed.append(error) if error else None,
            )
            self._producer.poll(0)
            self.written.append(event)
        assert self._producer.flush(120) == 0
        assert not failed


def create_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(300)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([name]).values():
        future.result(300)
    until(lambda: name not in admin.list_topics(timeout=120).topics, what="topic gone")


def until(
    condition: Callable[[], Any], *, seconds: float = 150, what: str = "condition", every: float = EVERY_S
) -> Any:
    """Wait until `condition()` is true and return its value."""
    return awaited(condition, what, seconds, every)


def write_config(folder: Path, *, kafka: Any, prefix: str, target: dict[str, Any], **pipeline: Any) -> Path:
    """Write a configuration with the pipeline "p". Sources need no server here: only their names count."""
    sources = pipeline.pop("sources", ["branch1"])
    config = {
        "kafka": {"bootstrap": kafka.bootstrap, "prefix": prefix},
        "state_dir": str(folder / "state"),
        "sources": {
            name: {
                "type": "mariadb",
                "host": "127.0.0.1",
                "port": 1,
                "user": "x",
                "password": "x",
                "tables": ["bank.*", "many.*"],
            }
            for name in sources
        },
        "targets": {"t": target},
        "pipelines": {"p": {"sources": sources, "target": "t", "lanes": 4, **pipeline}},
    }
    path = folder / "rowlock.yaml"
    path.write_text(json.dumps(config))
    return path


def expected(sources: Sequence[FakeSource]) -> list[tuple[object, ...]]:
    """All rows of the sources in key order, in the types the databases' drivers return as text."""
    return sorted(tuple(row.values()) for source in sources for row in source.rows.values())
