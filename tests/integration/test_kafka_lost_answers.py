"""Whichever commit of a unit's life loses its answer: each record is once in the target's topic, TRUNCATE
and definitions among them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from consumer.errors import TransientError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import TopicOptions
from consumer.tables.router import TableRoute
from consumer.targets.kafka.target import KafkaTarget
from schemas.config.model import KafkaTargetConfig
from schemas.wire.records import TableStop
from tests.kits.apply import FakeSource
from tests.kits.attempts import RealUnit
from tests.kits.kafka_attempts import kept
from tests.kits.kafka_target import UNIT, target_config
from tests.kits.waiting import until
from tests.servers.kafka_relays import END_TXN, LostAnswers, RelayedKafka
from tests.stands.kafka_target import Cluster

pytestmark = pytest.mark.timeout(240)
LEASE_S = 3.0
"""A call waits for its answer a little less than that."""


@pytest.fixture(scope="module")
def broker() -> Iterator[RelayedKafka]:
    """The broker has loaded its state of transactions: the first client has to wait for that, which may take
    longer than a call here."""
    with RelayedKafka() as made, closing(KafkaTarget(target_config(made, "first"))) as target:
        target.ensure_bookkeeping()
        until(lambda: taken_over(target), "a coordinator of transactions")
        yield made


def taken_over(target: KafkaTarget) -> bool:
    with contextlib.suppress(TransientError):
        return bool(target.take_over(UNIT, "id", "{}", 1)[0])
    return False


@pytest.fixture(scope="module")
def relay(broker: RelayedKafka) -> Iterator[LostAnswers]:
    with LostAnswers(broker.relayed_port, broker.seen_port, END_TXN) as made:
        yield made


def over(relay: LostAnswers, broker: RelayedKafka, prefix: str) -> KafkaTargetConfig:
    config = target_config(broker, prefix).model_copy(update={"bootstrap": relay.bootstrap})
    config._lease_s = LEASE_S
    return config


class Story:
    """A unit's life: each chapter is one commit or two. Its table is dropped in the last, and the topic is
    emptied for that."""

    def __init__(self, real: Cluster) -> None:
        self.real, self.source = real, FakeSource()
        route = TableRoute(
            "bank.*", f"{real.schema}.{{table}}", topic=TopicOptions(kinds=(("branch1", "mariadb"),))
        )
        self.unit = RealUnit(real, self.source, route, limits=LaneLimits(pause=0.01), on_drop="empty")  # type: ignore[arg-type]

    def chapters(self) -> Iterator[list[Any]]:
        source = self.source
        yield [source.put(source.row(1, None, 1)), source.put(source.row(2, None, 1))]
        yield [source.truncate(), source.put(source.row(3, None, 1))]
        yield [kept(source, "ALTER TABLE acct COMMENT 'x'", source.table), source.put(source.row(3, None, 2))]
        stop = TableStop(
            cause="dropped", at=(0, 1, 9000, -1), file="f", pos=9000,
            reason="bank.acct was dropped: DROP TABLE acct", remedy="rowlock copy", since_ms=7,
        )  # fmt: skip
        yield [source.event("m", stop=stop)]

    def notified(self, lose: Any) -> None:
        """Live it; `lose` is called before each commit of rows. While the unit lags it is applied again, as
        the product does, and each start is repeated."""
        for events in self.chapters():
            self.unit.write(events)
            for _ in range(2):
                while self._applied(lose) == "behind":
                    pass
                self.unit.take_over()

    def _applied(self, lose: Any) -> str:
        self.real.get_connection(0).paused = lose
        return self.unit.apply().state


RECORDS = "mcctcut"
"""The definition, two rows, TRUNCATE, a row, its update (the definition of the third chapter is the same
one), and the drop's TRUNCATE."""


def test_the_story_without_losses(broker: RelayedKafka, relay: LostAnswers, unique: str) -> None:
    with closing(Cluster(over(relay, broker, unique), broker)) as real:
        story, commits, lost = Story(real), [], relay.lost
        story.notified(lambda: commits.append(1))
        assert (real.ops(), relay.lost) == (RECORDS, lost)
        assert len(commits) == COMMITS


COMMITS = 6


@pytest.mark.parametrize("number", range(1, COMMITS + 1))
def test_each_record_stands_once_whichever_commit_loses_its_answer(
    number: int, broker: RelayedKafka, relay: LostAnswers, unique: str
) -> None:
    with closing(Cluster(over(relay, broker, unique), broker)) as real:
        story, commits, lost = Story(real), [0], relay.lost

        def lose() -> None:
            commits[0] += 1
            if commits[0] == number:
                relay.lose()

        story.notified(lose)
        assert relay.lost == lost + 1, "the answer was lost"
        assert real.ops() == RECORDS
