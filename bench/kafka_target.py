"""Events a second into a Kafka target, and through a plain confluent-kafka copy loop: python -m
bench.kafka_target [--events 60000] [--rounds 3].

Both read the same topic of rowlock's events from the same broker, in turns, and write another one. The plain
loop copies bytes: consume, produce, no transaction, nothing parsed, one flush at the end. The second loop
does what a careful reader would write by hand: it parses each event, writes it again as JSON, and commits a
transaction for every batch. rowlock's machine does all of its work (decoding, duplicates, gaps, the image
before, routing, format, progress) without Spark around it: batches come from the same consumer. Updates,
moved keys and deletes are of the load as much as inserts.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import structlog
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.kit import Figures
from consumer.attempt.drivers.driver import AttemptInputs
from consumer.attempt.drivers.run import apply_topic
from consumer.attempt.readers.reader import RecordSlice
from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.ordering.model import ApplyUnit, TopicOptions
from consumer.tables.router import TableRoute
from consumer.targets.kafka.target import KafkaTarget
from deploy.embedded.services import Kafka
from tests.kits.apply import FakeSource, Topic
from tests.kits.kafka_target import make_topic, target_config

BATCH = 5000
BASELINE = "into Kafka, plain copy loop (baseline)"
Rate = tuple[float, float]
"""Events a second, and microseconds of this process's processor time for each."""


class Bench:
    def __init__(self, kafka: Kafka, events: int) -> None:
        self.kafka, self.number = kafka, 0
        source = FakeSource()
        self.topic = Topic(kafka.bootstrap, "bench", source)
        rng = random.Random(7)
        self.topic.write_changes([source.definition()])
        while len(self.topic.written) < events:
            self.topic.write_changes(source.history(rng, 5000, keys=events // 4))
        self.events = len(self.topic.written)

    def batches(self) -> Iterator[list[Any]]:
        """Yield what the topic has, BATCH messages at a time."""
        settings = {
            "bootstrap.servers": self.kafka.bootstrap, "group.id": "bench", "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }  # fmt: skip
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(self.topic.name, 0, 0)])
            left = self.events
            while left:
                found = consumer.consume(min(BATCH, left), 10)
                left -= len(found)
                yield found

    def fresh(self) -> str:
        self.number += 1
        return f"copy{self.number}"

    def copied(self, name: str) -> None:
        make_topic(self.kafka, name)
        producer = Producer(self._settings())
        for batch in self.batches():
            for message in batch:
                producer.produce(name, message.value(), message.key())
                producer.poll(0)
        assert producer.flush(60) == 0

    def by_hand(self, name: str) -> None:
        make_topic(self.kafka, name)
        producer = Producer(self._settings() | {"transactional.id": name})
        producer.init_transactions()
        for batch in self.batches():
            producer.begin_transaction()
            for message in batch:
                producer.produce(name, json.dumps(json.loads(message.value())), message.key())
            producer.commit_transaction()

    def _settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.kafka.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
        }

    def ours(self, name: str, word: str) -> None:
        unit = ApplyUnit("bench", self.topic.name)
        target = KafkaTarget(target_config(self.kafka, name))
        target.ensure_bookkeeping()
        options = TopicOptions(kinds=(("branch1", "mariadb"),), format=word)
        routes = (TableRoute("bank.*", f"{name}.{{table}}", topic=options),)
        epoch, _, _ = target.take_over(unit, "id", build_initial_layout(routes, 1).encode(), 1)
        spec = UnitSpec(
            unit=unit, source="branch1", epoch=epoch, topic_id="id", routes=routes, lanes=1, batches=True
        )
        tables: dict[Any, Any] = {}
        for batch in self.batches():
            records: RecordSlice = [(each.offset(), each.value()) for each in batch]
            report = apply_topic(
                spec, _Alone(target), AttemptInputs([records], read_missing=lambda *_: []), tables
            )  # type: ignore[arg-type]
            assert report.state == "ok", report
        target.close()


class _Alone:
    def __init__(self, target: KafkaTarget) -> None:
        self._target = target

    def get_connection(self, _number: int) -> KafkaTarget:
        return self._target

    def drop_if_broken(self, number: int) -> None: ...

    def drop_connection(self, number: int) -> None: ...


def measured(bench: Bench, work: Callable[[str], None]) -> Rate:
    name = bench.fresh()
    began, cpu = time.monotonic(), time.process_time()
    work(name)
    seconds, used = time.monotonic() - began, time.process_time() - cpu
    return bench.events / seconds, used / bench.events * 1e6


def run(kafka: Kafka, events: int, rounds: int, into: Figures) -> None:
    """Add the medians of the rounds, in each of which every way is measured once."""
    bench = Bench(kafka, events)
    works: dict[str, Callable[[str], None]] = {
        BASELINE: bench.copied,
        "into Kafka, loop that parses, in transactions": bench.by_hand,
        **{
            f"into Kafka, rowlock, format {word}": (lambda name, word=word: bench.ours(name, word))
            for word in ("rowlock", "plain", "debezium", "debezium-schemas", "canal-json")
        },
    }
    found: dict[str, list[Rate]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(measured(bench, work))
    base = statistics.median(rate for rate, _ in found[BASELINE])
    for name, rates in found.items():
        rate, cpu = (statistics.median(each) for each in zip(*rates, strict=True))
        note = (
            f"{rate / base:.2f} of the baseline; {cpu:.0f} µs of processor time an "
            f"event; median of {rounds} rounds"
        )
        into.add_event(name, f"{rate:,.0f} events/s", note)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--events", type=int, default=60_000)
    asked.add_argument("--rounds", type=int, default=3)
    given = asked.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with Kafka() as kafka:
        run(kafka, given.events, given.rounds, Figures())


if __name__ == "__main__":
    main()
