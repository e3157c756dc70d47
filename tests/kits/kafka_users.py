"""A user of Kafka with the rights that rowlock needs."""

from __future__ import annotations

from confluent_kafka.admin import AclOperation, ResourceType

PASSWORD = "correct-horse"


T, I = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID  # noqa: E741


#: Right → the message where it alone is missing. docs/how-to/kafka-target.md asks for these; each of Read
#: and Write has Describe in it.
RIGHTS = {
    (T, AclOperation.READ): "cannot be read: .*the user may not use the topic: allow Read",
    (T, AclOperation.WRITE): "the user may not use the topic: allow Read, Write",
    (T, AclOperation.DESCRIBE_CONFIGS): "the user may not use the topic: allow Read, Write, DescribeConfigs",
    (T, AclOperation.CREATE): "cannot be created",
    (I, AclOperation.WRITE): "allow Write and Describe on the transactional ids",
}
