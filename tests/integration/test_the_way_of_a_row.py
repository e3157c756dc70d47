"""docs/explanation/architecture.md is true: a row, followed from commit to commit, passes what the page
names, in its order."""

from __future__ import annotations

import json
import queue
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from consumer.ordering.model import ApplyUnit
from consumer.slots import served_pipeline
from consumer.slots.messages import ServeUnit, SlotAnswer, SlotReports, UnitReleased, UsePipeline
from consumer.slots.pipeline import PipelineSettings
from consumer.slots.runner import SlotRunner
from consumer.targets.dialect import open_session
from deploy.embedded.services import Kafka, MariaDB, PostgreSQL
from producer.capture import run_capture
from schemas.config.model import load_config
from schemas.wire.records import Watermark, format_former_table_topic
from tests.gates.path import list_repeated, measure_way
from tests.gates.ratchet import compare_values, load_baseline
from tests.kits.capture import messages, size, source, write_config
from tests.kits.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
ROWS = 240
"""Rows of a transaction."""
FEW, MANY = 2, 10
"""Transactions that are followed. A function is on the way if its calls grow with their number."""
LANES = 4
SERVER = {"host": "127.0.0.1", "port": 1, "user": "x", "password": "x"}

pytestmark = pytest.mark.integration


def steps(heading: str) -> list[str]:
    """Return "file: function" of every step that the page has under `heading`, in order."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found, f"the page has no heading {heading!r}"
    named = [
        re.findall(r"`([^`]+)`", line)[:2] for line in found[1].splitlines() if re.match(r"\| \d+ \|", line)
    ]
    return [f"{file}: {function}" for file, function in named]


class Tracer:
    """How often each function of the product ended, in all threads that begin while it watches."""

    def __init__(self) -> None:
        self._first: dict[str, None] = {}
        self._counters: list[Counter[str]] = []
        self._of_thread = threading.local()

    @contextmanager
    def watching(self) -> Iterator[None]:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def forget_order(self) -> None:
        self._first = {}

    @property
    def order(self) -> list[str]:
        """Return the functions in the order in which they ended for the first time."""
        return list(self._first)

    def count_calls(self) -> Counter[str]:
        """Return function → calls until now."""
        return sum((counter.copy() for counter in self._counters), Counter[str]())

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event != "return" or not path.startswith(str(ROOT)):
            return
        name = f"{path[len(str(ROOT)) + 1 :]}: {frame.f_code.co_qualname}"
        self._first.setdefault(name)
        counter: Counter[str] | None = getattr(self._of_thread, "counter", None)
        if counter is None:  # one for each thread: adding to a shared one would lose calls
            counter = self._of_thread.counter = Counter()
            self._counters.append(counter)
        counter[name] += 1


class Work(NamedTuple):
    """Pieces of work at the source, each of which is one transaction or statement."""

    render_sql: Callable[[str, int], str]
    """(database, number from 0 on) → the statement."""
    messages: int
    """What Kafka has of each."""


INSERTS = Work(
    lambda db, number: (
        f"INSERT INTO {db}.acct SELECT seq, seq FROM {db}.seq_{number * ROWS + 1}_to_{(number + 1) * ROWS}"
    ),
    ROWS,
)
ALTERS = Work(lambda db, number: f"ALTER TABLE {db}.acct ADD COLUMN c{number} INT", 1)


class Followed(NamedTuple):
    """What ran while work was done: the order of the first calls, and the calls of `FEW` and of `MANY` pieces
    of it."""

    order: list[str]
    few: Counter[str]
    many: Counter[str]

    def list_repeated(self) -> list[str]:
        """Return the functions that ran for each piece of work."""
        return list_repeated(self.few, self.many, MANY - FEW)


def in_order(named: list[str], seen: list[str]) -> None:
    assert set(named) <= set(seen), f"not passed: {sorted(set(named) - set(seen))}"
    assert named == sorted(named, key=seen.index), "passed in another order"


def test_every_place_that_the_page_names_exists() -> None:
    for heading in ("The way of a row", "The way of a unit"):
        assert len(steps(heading)) > 8
        for step in steps(heading):
            file, _, function = step.partition(": ")
            text, name = (ROOT / file).read_text(), function.rpartition(".")
            assert re.search(rf"\bdef {re.escape(name[2])}\(", text), step
            assert not name[0] or re.search(rf"\bclass {re.escape(name[0])}\b", text), step


def test_a_row_passes_what_the_page_names(
    kafka: Kafka,
    mariadb: MariaDB,
    mariadb_db: str,
    postgres: PostgreSQL,
    pg_db: str,
    unique: str,
    tmp_path: Path,
) -> None:
    named = steps("The way of a row")
    captured, applied = follow_rows(kafka, mariadb, mariadb_db, postgres, pg_db, tmp_path)
    in_order([step for step in named if step.startswith("producer/")], captured.order)
    in_order([step for step in named if step.startswith("consumer/")], applied.order)
    assert postgres.execute("SELECT count(*) FROM acct", database=pg_db) == [((1 + FEW + MANY) * ROWS,)]
    way = measure_way([*captured.list_repeated(), *applied.list_repeated()])
    assert compare_values(way, load_baseline(way)) == [], way.figure


def follow_rows(
    kafka: Kafka,
    mariadb: MariaDB,
    db: str,
    postgres: PostgreSQL,
    target_db: str,
    folder: Path,
    work: Work = INSERTS,
) -> tuple[Followed, Followed]:
    """Follow transactions of `ROWS` rows each, or other work, through capture, and then through one worker of
    Spark."""
    mariadb.execute(f"CREATE TABLE {db}.acct (id INT PRIMARY KEY, name VARCHAR(20) UNIQUE)")
    captured = follow_capture(kafka, mariadb, db, folder, work)
    topic = format_former_table_topic(db, "s", db, "acct")
    records = [(each.offset(), each.value()) for each in messages(kafka.bootstrap, topic)]
    return captured, follow_apply(postgres, target_db, topic, records, folder, work)


def follow_capture(kafka: Kafka, mariadb: MariaDB, db: str, folder: Path, work: Work = INSERTS) -> Followed:
    """Capture one piece of work, then `FEW`, then `MANY`. The next one is committed when Kafka has the one
    before it.

    What the first one needs alone, as decoders for its table, is in the order and not in the counts.
    Capture's timer is stopped while transactions are counted: a slow machine would have more of its ticks for
    more of them.
    """
    config = load_config(write_config(folder, kafka.bootstrap, db, {"s": source(mariadb, [f"{db}.*"])}), {})
    topic = format_former_table_topic(db, "s", db, "acct")
    tracer, stop, idle, committed = Tracer(), threading.Event(), threading.Event(), count()

    def watermark(mark: Watermark) -> None:
        if mark.idle and not mark.snapshot_pending:
            ticks.setattr("producer.loop.ticker._TICK", 3600)
            idle.set()

    def has_rows(messages: int) -> bool:
        return size(kafka.bootstrap, topic) >= messages

    def commit(pieces: int) -> Counter[str]:
        before = tracer.count_calls()
        for _ in range(pieces):
            expected = size(kafka.bootstrap, topic) + work.messages
            mariadb.execute(work.render_sql(db, next(committed)))
            until(partial(has_rows, expected), "the rows are in Kafka", 120)
        return tracer.count_calls() - before

    def write() -> Followed:
        try:
            assert idle.wait(120)
            tracer.forget_order()
            commit(1)
            order = tracer.order
            return Followed(order, commit(FEW), commit(MANY))
        finally:
            stop.set()

    with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as ticks, tracer.watching():
        written = pool.submit(write)
        run_capture(config, "s", stop, on_watermark=watermark)
        followed = written.result()
    return followed._replace(order=tracer.order)


def follow_apply(
    postgres: PostgreSQL,
    database: str,
    topic: str,
    records: list[tuple[int, Any]],
    folder: Path,
    work: Work = INSERTS,
) -> Followed:
    """Apply the records in three slots, one after the other: all but the last transactions, `FEW` of them,
    and `MANY`.

    Each lane commits several times for a transaction of the source, so the number of its commits is not left
    to chance.
    """
    start = len(records) - (FEW + MANY) * work.messages
    transactions = [records[at : at + work.messages] for at in range(start, len(records), work.messages)]
    first, few, many = apply_tasks(
        postgres,
        database,
        topic,
        [[records[:start]], transactions[:FEW], transactions[FEW:]],
        folder,
        ROWS // LANES // 3,
    )
    return Followed(first.order, few.count_calls(), many.count_calls())


def apply_tasks(
    postgres: PostgreSQL,
    database: str,
    topic: str,
    tasks: list[list[list[tuple[int, Any]]]],
    folder: Path,
    max_gather: int,
) -> list[Tracer]:
    """Apply the batches of each task in one slot, and return what ran in each task."""
    file = folder / "way.yaml"
    file.write_text(
        json.dumps(
            {
                "kafka": {"bootstrap": "127.0.0.1:1", "prefix": "way"},
                "sources": {"s": {**SERVER, "type": "mariadb", "tables": ["*.*"]}},
                "targets": {
                    "t": {
                        **SERVER, "type": "postgres", "port": postgres.port, "user": postgres.user,
                        "database": database,
                    }
                },
                "pipelines": {
                    "way": {
                        "sources": ["s"], "target": "t", "lanes": LANES, "max_gather": max_gather,
                        "routes": [{"from": "*.*", "to": "public.{table}"}],
                    }
                },
            }
        )
    )  # fmt: skip
    settings = PipelineSettings.from_config(load_config(file, {}), "way")
    session = open_session(settings.target, name="test")
    session.ensure_bookkeeping()
    epoch, _, _ = session.take_over(ApplyUnit("way", topic), "id", settings.layout, LANES)
    session.close()
    followed: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[SlotAnswer] = queue.SimpleQueue()
    reader = SimpleNamespace(
        follow_topic=lambda _topic, _offset, number: followed.put(number), leave_topic=lambda _topic: None,
        close=lambda: None,
    )  # fmt: skip
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served_pipeline, "TopicFollower", lambda *_: reader)
        end = 0
        for batches in tasks:
            tracer = Tracer()
            with tracer.watching():
                runner = SlotRunner(answers.put)
                runner.handle_command(UsePipeline("r", settings.encode()))
                if len(batches) == 1:  # new records, of a topic that is followed
                    runner.handle_command(ServeUnit("r", topic, "s", 1, "id", epoch, end - 1, end))
                    runner._take_records("r", topic, followed.get(timeout=60), batches[0])
                    end = batches[0][-1][0] + 1
                else:  # several transactions in one attempt
                    patch.setattr(served_pipeline, "read_new_records", partial(_read_batches, batches))
                    begin, end = end, batches[-1][-1][0] + 1
                    runner.handle_command(ServeUnit("r", topic, "s", 1, "id", epoch, begin - 1, end))
                answer = answers.get(timeout=60)
                assert isinstance(answer, SlotReports), answer
                assert [(each.state, each.offset) for each in answer.reports] == [("ok", end - 1)]
                runner.close()
            assert isinstance(answers.get(timeout=60), UnitReleased)
            found.append(tracer)
    return found


def _read_batches(
    batches: list[list[tuple[int, Any]]], _options: Any, _topic: str, _start: int, _most: int, note_end: Any
) -> Iterator[list[tuple[int, Any]]]:
    note_end(batches[-1][-1][0] + 1)
    yield from batches
