"""Stretches of many topics, read together."""

from __future__ import annotations

import random

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.embedded.services import Kafka
from producer.kafka.settings import MAX_MESSAGE_BYTES
from producer.kafka.topic_reader import TopicReader
from schemas.config.model import KafkaConfig


def test_stretches_of_many_topics_come_in_order(kafka: Kafka, unique: str) -> None:
    """Also those that begin below what retention has left, that are empty, and again with the same reader."""
    names = [f"{unique}.{number}" for number in range(5)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for name in names:
        for number in range(20):
            producer.produce(name, value=str(number).encode(), partition=0)
    producer.flush()
    for missing in admin.delete_records([TopicPartition(names[0], 0, 4)]).values():
        missing.result(60)
    expected = {name: [(2, 3), (5, 7), (10, 20)] for name in names[1:]}
    expected[names[0]] = [(4, 5), (6, 6), (12, 14)]
    with TopicReader(KafkaConfig(bootstrap=kafka.bootstrap)) as reader:
        for _ in range(2):
            found: dict[str, list[int]] = {name: [] for name in names}
            for topic, message in reader.read_all(expected):
                found[topic].append(message.offset())
            assert found.pop(names[0]) == [4, 12, 13]
            assert all(offsets == [2, 5, 6, *range(10, 20)] for offsets in found.values())
        assert [m.offset() for m in reader.read_range(names[2], 18, 20)] == [18, 19]
        assert list(reader.read_range(names[2], 20, 20)) == []
        assert list(reader.read_all({})) == []
        assert reader.get_bounds(names[0]) == (4, 20)


def test_a_message_as_large_as_they_get_is_read(kafka: Kafka, unique: str) -> None:
    """It is larger than what is asked for at once."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    limit = {"max.message.bytes": str(MAX_MESSAGE_BYTES + 65536)}
    for made in admin.create_topics([NewTopic(unique, 1, 1, config=limit)]).values():
        made.result(60)
    sizes = [10, MAX_MESSAGE_BYTES - 65536, 10, MAX_MESSAGE_BYTES - 65536]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.max.bytes": MAX_MESSAGE_BYTES})
    for size in sizes:
        producer.produce(unique, value=random.Random(1).randbytes(size), partition=0)
    producer.flush()
    with TopicReader(KafkaConfig(bootstrap=kafka.bootstrap)) as reader:
        assert [len(message.value()) for message in reader.read_range(unique, 0, len(sizes))] == sizes
