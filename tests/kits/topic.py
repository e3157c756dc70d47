"""Topics of tests: whose they are, where every table has its usual name."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from schemas.table.names import TableName
from schemas.wire.codec import encode_stored_position
from schemas.wire.records import Identity, StoredPosition, format_position_topic, unescape_topic_part
from schemas.wire.topic_names import OWN_TOPICS, as_stored

IDENTITY = Identity(server_uuid=None, server_id=1, version="11.4.5-MariaDB", gtid_set=None)


def usual_tables(topics: Iterable[str]) -> dict[str, TableName]:
    """Return topic → table, as the records of capture name them."""
    found = {}
    for topic in topics:
        parts = topic.rsplit(".", 2)
        if topic.count(".") >= 3 and parts[-1] not in OWN_TOPICS:
            found[topic] = unescape_topic_part(parts[1]), unescape_topic_part(parts[2])
    return found


def make_topics(bootstrap: str, prefix: str, source: str, topics: Iterable[str]) -> None:
    """Make empty topics and the record of capture that names their tables, as capture leaves them before the
    first event."""
    names = sorted(topics)
    record = StoredPosition(
        source=source, gen=1, epoch=0, file="binlog.000001", pos=4, ts_ms=1, identity=IDENTITY,
        topics=as_stored({table: topic for topic, table in usual_tables(names).items()}),
    )  # fmt: skip
    kept = format_position_topic(prefix, source)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in (kept, *names)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(kept, encode_stored_position(record), key=b"1")
    assert producer.flush(30) == 0, "Kafka does not answer"
