"""A source that rowlock does not know passes the tests of the real ones: product's capture, on files and the
simulation's Kafka."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from producer.errors import SourceRefusedError
from producer.kafka.writer import KafkaWriter
from producer.loop.loop import CaptureLoop
from producer.ports import Clock, Ports
from producer.sources.known import load_source_database
from producer.start.positions import CaptureAssignment, PositionStore
from producer.start.startup import CaptureStarter
from producer.tables import CapturedTables
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.model import Config
from schemas.table.model import Column, ColumnType, IndexPart, Kind, Table, UniqueIndex
from schemas.wire.codec import decode_event
from schemas.wire.event import EventEnvelope
from schemas.wire.records import StoredPosition, Watermark, format_former_table_topic, format_position_topic
from tests.conformance import sources
from tests.kits.capture import row_that_goes_back
from tests.kits.sources import Step, captured, stopped
from tests.sim.kafka import Broker, Client
from tests.stands import file_source

PREFIX = "f"
POSITIONS = format_position_topic(PREFIX, "s")
INT = ColumnType(kind=Kind.INT, bits=32)

ALL = {name: each for name, each in vars(sources).items() if name.startswith("test_")}
globals().update(ALL)


def definition(name: str, *more: str) -> Table:
    columns = [Column(name=each, type=INT, nullable=each != "id") for each in ("id", "version", *more)]
    key = UniqueIndex(name="PRIMARY", parts=(IndexPart(column="id"),))
    return Table(db=file_source.DB, name=name, columns=tuple(columns), key=key)


class FileDatabase:
    """Writes the files of a source: a transaction is in the log before the tables show it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables: dict[str, tuple[Table, dict[int, dict[str, Any]]]] = {}
        self.lags = False
        (folder / "id").write_text("one")
        self.next_file()
        for name in "ab":
            self.define(definition(name))

    def next_file(self) -> None:
        (self.folder / f"log.{len(file_source.log_files(self.folder)) + 1:06d}").touch()

    def define(self, table: Table) -> None:
        _, rows = self.tables.get(table.name, (table, {}))
        for row in rows.values():
            row.update({name: row.get(name) for name in table.column_names})
        self.tables[table.name] = table, rows
        self.log({"define": msgspec.to_builtins(table)})

    def change(self, table: str, images: dict[int, dict[str, Any] | None]) -> None:
        """Give rows these images; None: they are deleted."""
        definition, rows = self.tables[table]
        done = []
        for id_, image in images.items():
            before = rows.pop(id_, None)
            after = image and {name: image.get(name) for name in definition.column_names}
            if after:
                rows[id_] = after
            if before or after:
                done.append({"row": table, "before": before, "after": after})
        self.log(*done)

    def log(self, *done: dict[str, Any]) -> None:
        with file_source.log_files(self.folder)[-1].open("a") as log:
            print(json.dumps({"ts": 1_700_000_000_000, "do": done}), file=log)
        if not self.lags:
            self.show()

    def show(self) -> None:
        """Let SELECTs see all that is in the log."""
        file, pos = file_source.end(self.folder)
        shown = {
            name: {
                "definition": msgspec.to_builtins(table),
                "rows": [list(row.values()) for row in rows.values()],
            }
            for name, (table, rows) in self.tables.items()
        }
        (self.folder / "tables.json").write_text(json.dumps({"file": file, "pos": pos, "tables": shown}))


class FileSite:
    """`SourceSite`: the product's start, loop and writer, stepped in this thread; chunks of three rows."""

    chunk_rows = 3
    db = file_source.DB

    def __init__(self, folder: Path) -> None:
        self.folder, self.database, self.broker = folder, FileDatabase(folder), Broker()
        self.rng, self.now = random.Random(7), 0.0

    # --- the source

    def put(self, table: str, version: int, *ids: int) -> None:
        self.database.change(table, {id_: {"id": id_, "version": version} for id_ in ids})

    def delete(self, table: str, *ids: int) -> None:
        self.database.change(table, dict.fromkeys(ids))

    def truncate(self, table: str) -> None:
        self.database.tables[table][1].clear()
        self.database.log({"truncate": table})

    def drop(self, table: str) -> None:
        del self.database.tables[table]
        self.database.log({"drop": table})

    def widen(self, table: str) -> None:
        self.database.define(definition(table, "note"))

    def become_another(self) -> None:
        (self.folder / "id").write_text("another")

    def rows(self, table: str) -> dict[int, int]:
        return {id_: row["version"] for id_, row in self.database.tables[table][1].items()}

    # --- capture

    def config(self, tables: str = "*", snapshot: str = "initial") -> Config:
        own = {
            "type": "file", "host": str(self.folder), "port": 1, "user": "u", "password": "p",
            "tables": [f"{self.db}.{tables}"], "snapshot": snapshot,
        }  # fmt: skip
        return Config.model_validate({"kafka": {"bootstrap": "h:1", "prefix": PREFIX}, "sources": {"s": own}})

    def run(self, *steps: Step, kill: bool = False, tables: str = "*", snapshot: str = "initial") -> None:
        config = self.config(tables, snapshot)
        source, own = load_source_database(config, "s"), config.sources["s"]
        client = Client(self.broker, self.rng, lambda: 0.0, lambda: None)
        writer, store = KafkaWriter(lambda _on_error: client, lambda: False), PositionStore(POSITIONS)
        self.broker.ensure([POSITIONS], {})
        source.require_usable()
        source.open_source(lambda: None)
        started = CaptureStarter(
            source,
            own,
            writer,
            self.broker,
            self.broker,
            store,
            CapturedTables(PREFIX, "s"),
            CaptureAssignment(),
        ).start_capture(new_snapshot=False)
        notified: list[Watermark] = []
        loop = CaptureLoop(own, started, Ports(
            writer=writer, store=store, topics=self.broker, open_log=source.open_log,
            open_reader=source.open_reader, server=lambda: source, names=source.tables.names,
            definitions=source.definitions, reaches=source.make_impact_finder,
            clock=Clock(lambda: self.now, lambda: int(self.now * 1000)), stopping=lambda: False,
            on_watermark=notified.append, chunk_rows=self.chunk_rows,
        ))  # fmt: skip
        for step in steps:
            self._step(loop)
            step()
        for _ in range(5 if kill else 2000):
            self._step(loop)
            if not kill and notified and self._caught_up(notified[-1]):
                break
        else:
            assert kill, "capture of everything"
        if kill:
            client.end(share=0.5)
        else:
            loop.shut_down("asked to", restarts=False)
        loop.close()
        source.close()

    def _step(self, loop: CaptureLoop) -> None:
        loop.step_capture()
        self.now += 0.4

    def _caught_up(self, last: Watermark) -> bool:
        end = file_source.end(self.folder)
        return last.idle and not last.snapshot_pending and (last.file, last.position[2]) == end

    def refused(self) -> str:
        with pytest.raises(SourceRefusedError) as refusal:
            self.run()
        return str(refusal.value)

    # --- Kafka

    def events(self, table: str) -> list[EventEnvelope]:
        name = format_former_table_topic(PREFIX, "s", self.db, table)
        found = [(each.key(), decode_event(each.value() or b"")) for each in self.broker.topics[name].records]
        assert (wrong := row_that_goes_back(found)) is None, wrong
        return [event for _, event in found]

    def position(self) -> StoredPosition:
        found = PositionStore(POSITIONS).load_records(self.broker).newest  # type: ignore[arg-type]
        assert found is not None
        return found

    def watermarks(self) -> list[Watermark]:
        values = [each.value() for each in self.broker.topics[f"{PREFIX}.s.watermark"].records]
        return [msgspec.json.decode(value, type=Watermark) for value in values if value is not None]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[FileSite]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SOURCE_KINDS, "file", file_source.KIND)
        yield FileSite(tmp_path)


def test_the_log_goes_on_in_the_next_file(site: FileSite) -> None:
    site.run(lambda: site.put("a", 1, 1), site.database.next_file, lambda: site.put("a", 2, 1))
    site.database.next_file()
    site.put("a", 3, 1)
    site.run()
    assert [event.source.position[1] for event in site.events("a") if event.op in "cu"] == [1, 2, 3]
    assert captured(site, "a") == {1: 3}


def test_a_snapshot_waits_until_it_sees_what_the_log_has(site: FileSite) -> None:
    site.put("a", 1, *range(6))
    site.database.lags = True
    site.put("a", 2, 0, 1)
    site.run(lambda: None, lambda: None, site.database.show)
    assert captured(site, "a") == site.rows("a")


def test_another_history_of_the_log_is_refused(site: FileSite) -> None:
    site.run(lambda: site.put("a", 1, 1))
    path = file_source.log_files(site.folder)[-1]
    path.write_text(path.read_text().replace('"version": 1', '"version": 7'))
    assert "not the one that was captured" in site.refused()


def test_a_row_that_does_not_fit_its_definition_stops_its_table_alone(site: FileSite) -> None:
    site.put("b", 1, 1)
    site.run()
    odd = {"id": 1, "version": 2, "odd": 3}
    site.run(
        lambda: site.database.log({"row": "a", "before": None, "after": odd}), lambda: site.put("b", 2, 1)
    )
    stopped(site, "a", "definition")
    assert captured(site, "b") == {1: 2}


def test_a_table_whose_name_is_too_long_for_a_topic_gets_a_shorter_one(site: FileSite) -> None:
    name = "n" * 250
    site.database.define(definition(name))
    site.put("a", 1, 1)
    site.put(name, 1, 2)
    site.run()
    (topic,) = (topic for topic in site.broker.topics if "nnn" in topic)
    assert len(topic) == 249
    rows = [decode_event(each.value() or b"") for each in site.broker.topics[topic].records]
    assert {(event.source.table, event.after["id"]) for event in rows if event.after} == {(name, 2)}
    assert {event.after["id"] for event in site.events("a") if event.after} == {1}


def test_a_folder_without_a_log_is_refused(site: FileSite) -> None:
    (site.folder / "id").unlink()
    findings, tables = load_source_database(site.config(), "s").check_source()
    assert (len(findings), tables) == (1, None)
    assert "no log" in site.refused()


def test_the_suite_is_there_and_the_source_is_small() -> None:
    """What a source must bring is little."""
    assert len(ALL) >= 10
    assert len(Path(file_source.__file__).read_text().splitlines()) <= 315
