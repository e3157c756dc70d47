"""The connection from a configured Kafka target to its clients."""

from __future__ import annotations

from typing import cast

from consumer.targets.dialect import Dialect
from consumer.targets.kafka.target import KafkaTarget
from consumer.targets.kafka.verifying.topic_reading import topic_reading
from schemas.config.model import KafkaTargetConfig, TargetConfig


def open_kafka(target: TargetConfig, _name: str) -> KafkaTarget:
    """Connect. Raises TransientError (not reachable) or TargetConfigError."""
    made = KafkaTarget(cast(KafkaTargetConfig, target))
    # Checks that the cluster answers and that its progress topic, if there is one, is usable; creates
    # none.
    made.list_unit_topics("")
    return made


KAFKA = Dialect("kafka", open_kafka, reading=topic_reading)
