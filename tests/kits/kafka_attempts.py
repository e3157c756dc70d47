"""Attempts at units of a Kafka target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace as other

from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import TopicOptions
from consumer.tables.router import TableRoute
from deploy.embedded.services import Kafka
from schemas.table.model import Table
from schemas.wire.event import ColumnChanges, EventEnvelope
from tests.kits.apply import FakeSource
from tests.kits.attempts import RealUnit
from tests.kits.kafka_target import target_config
from tests.kits.waiting import until
from tests.stands.kafka_target import Cluster


def clusters() -> Any:
    """Return the fixture `real`: Kafka as the target, with a prefix that no other test has."""

    def real(kafka: Kafka, unique: str) -> Iterator[Cluster]:
        with closing(Cluster(target_config(kafka, unique), kafka)) as made:
            yield made

    return pytest.fixture(real)


def unit_of(real: Cluster, *, topic: dict[str, Any] | None = None, **add: str) -> RealUnit:
    options = TopicOptions(kinds=(("branch1", "mariadb"),), **(topic or {}))
    route = TableRoute("bank.*", f"{real.schema}.{{table}}", tuple(add.items()), topic=options)
    return RealUnit(real, FakeSource(), route, limits=LaneLimits(pause=0.01))  # type: ignore[arg-type]


def kept(source: FakeSource, ddl: str, table: Table) -> EventEnvelope:
    """A definition event of a statement that keeps the table's rows."""
    return other(source.definition(ddl, table), columns=ColumnChanges(), effect="kept")


def remove_topic(kafka: Kafka, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([name])[name].result(60)
    until(lambda: name not in admin.list_topics(timeout=15).topics, what="the topic is gone")
