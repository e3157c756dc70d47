"""A unit that writes to a cluster of three brokers under load; kill -9 of the one that leads its topic, or
coordinates its transactions, at one moment of a commit.

Everything is replicated three times, and two of three acknowledge. What the topic has in the end is compared
with every change of the source.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import TopicOptions
from consumer.tables.router import TableRoute
from consumer.targets.kafka import writer
from consumer.targets.kafka.writer import build_transactional_id
from schemas.wire.event import EventEnvelope
from tests.kits.apply import FakeSource
from tests.kits.attempts import RealUnit, rows_of
from tests.kits.kafka_target import documents, messages, target_config
from tests.kits.waiting import until
from tests.servers.kafka_brokers import SIZE, Broker, Brokers
from tests.stands.kafka_target import Cluster

pytestmark = [pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]
ROUNDS, EVENTS = 8, 120
KILLED_IN = 3
"""The round in which a broker is killed."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers() as made:
        yield made


@pytest.fixture
def real(brokers: Brokers, unique: str) -> Iterator[Cluster]:
    config = target_config(brokers, unique).model_copy(update={"replication": SIZE})
    with closing(Cluster(config, brokers)) as made:  # type: ignore[arg-type]
        yield made


class Moment:
    """Calls `act` once it is armed, at one moment of the next commit: before its records are sent, or when
    all are there and it is not yet ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.act: Callable[[], None] | None = None
        made, moment = writer.make_unit_producer, self

        class Watched:
            def __init__(self, *args: Any) -> None:
                self._producer: Any = made(*args)

            def __getattr__(self, called: str) -> Any:
                if called == name and moment.act is not None:
                    act, moment.act = moment.act, None
                    act()
                return getattr(self._producer, called)

        monkeypatch.setattr(writer, "make_unit_producer", Watched)


def leader(brokers: Brokers, real: Cluster, unit: RealUnit) -> Broker:
    return brokers.leader(f"{real.schema}.acct")


def coordinator(brokers: Brokers, real: Cluster, unit: RealUnit) -> Broker:
    return brokers.coordinator(build_transactional_id(real.config, unit.unit))


@pytest.mark.parametrize("moment", ["begin_transaction", "commit_transaction"])
@pytest.mark.parametrize("victim", [leader, coordinator])
def test_every_change_stands_once_whichever_broker_is_killed(
    victim: Callable[..., Broker], moment: str, brokers: Brokers, real: Cluster,
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    route = TableRoute(
        "bank.*",
        f"{real.schema}.{{table}}",
        topic=TopicOptions(kinds=(("branch1", "mariadb"),), partitions=2),
    )
    killing, source = Moment(monkeypatch, moment), FakeSource()
    unit = RealUnit(real, source, route, limits=LaneLimits(pause=0.01))  # type: ignore[arg-type]
    rng, events, killed = random.Random(moment), [], list[Broker]()

    def kill() -> None:
        killed.append(victim(brokers, real, unit))
        killed[0].kill()

    for number in range(ROUNDS):
        unit.write(more := source.history(rng, EVENTS, keys=40))
        events += more
        if number == KILLED_IN:
            killing.act = kill
        until(lambda: unit.apply().state == "ok", f"round {number} is applied", 120)
    assert len(killed) == 1
    killed[0].start()
    until(lambda: brokers.in_sync(f"{real.schema}.acct"), "the broker that came back has all", 120)
    found = [
        value for _, value in documents(messages(real.kafka, f"{real.schema}.acct")) if value is not None
    ]
    assert Counter(
        (tuple(each["source"]["position"]), each["op"]) for each in found if each["op"] in "cud"
    ) == expected(events)
    assert unit.rows() == rows_of(source)
    assert in_order(found)


def expected(events: list[EventEnvelope]) -> Counter[tuple[tuple[int, ...], str]]:
    """Each change once; one that gives a row another key is a delete and a create."""
    desired: Counter[tuple[tuple[int, ...], str]] = Counter()
    for event in events:
        moves = event.op == "u" and event.before["id"] != event.after["id"]  # type: ignore[index, call-overload]
        for op in "dc" if moves else event.op:
            desired[tuple(event.source.position), op] += 1
    return desired


def in_order(found: list[Any]) -> bool:
    places: dict[int, list[list[int]]] = defaultdict(list)
    for each in found:
        if each["op"] != "m":
            places[(each["after"] or each["before"])["id"]].append(each["source"]["position"])
    return all(each == sorted(each) for each in places.values())
