"""The configuration of the topics of a Kafka target's route: `routes[].kafka`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.config.base import ConfigModel


class TopicConfig(ConfigModel):
    """Records of a route's topics, for a Kafka target. Columns are named as at the source, also if `rename`
    gives them another name in the records; columns of `add:` by the names given there."""

    format: Literal["rowlock", "debezium", "debezium-schemas", "canal-json", "plain"] = Field(
        default="rowlock",
        description="Form of the records: rowlock's own envelope, Debezium's without or with schemas, "
        "Canal-JSON, or the row as a JSON object.",
    )
    key: list[str] = Field(
        default_factory=list,
        description="Columns of the routing key, which is the record's key and chooses the partition "
        "(default: the primary key). A row whose routing key changes is deleted under the old one "
        "and created under the new one.",
    )
    partitions: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Partitions of the topic (default: those that it has; 1 if rowlock creates it). A topic "
        "with another number is refused.",
    )
    partitioner: Literal["murmur2", "crc32"] = Field(
        default="murmur2",
        description="Partition of a key, as other producers choose it: `murmur2` is Java's default, "
        "`crc32` librdkafka's `consistent`.",
    )
    tombstones: bool = Field(
        default=True, description="A null value follows each delete, so that compaction forgets the key."
    )
    columns: list[str] = Field(
        default_factory=list,
        description="Only these columns are written (default: all). They must hold the "
        "primary key and the routing key.",
    )
    where: dict[str, Annotated[list[str | None], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Only rows that have one of these values in the column, in each of the columns named; "
        "`null` is NULL. A row that leaves is a delete, one that enters a create.",
    )
    masks: dict[str, str] = Field(
        default_factory=dict,
        description="Column → `sha256` (of the target's `mask_salt` followed by the text, in hexadecimal) or "
        "a fixed text instead of its values. NULL stays NULL. Not for columns of the primary key; in "
        "the routing key only `sha256`.",
    )
