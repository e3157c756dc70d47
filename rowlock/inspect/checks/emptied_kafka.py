"""Sources whose topics Kafka no longer has, although targets have applied them. Pure.

Capture then begins anew, and each table needs a copy: that is right after a loss, and unwanted if the address
is that of another Kafka.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from schemas.config.model import Config
from schemas.findings import Finding
from schemas.wire.records import format_position_topic, parse_topic_origin

_REMEDY = (
    "correct kafka.bootstrap or kafka.prefix if it is another one; otherwise all tables of the source are "
    "copied again after the start: by themselves within the limits of `repair`, the others by `rowlock copy`"
)


def yield_emptied_kafka_findings(
    config: Config, name: str, topics: Collection[str], applied: Iterable[tuple[str, str]]
) -> Iterator[Finding]:
    """Yield a warning if Kafka has neither a topic of the source `name` that was applied nor its position.

    `topics`: all that Kafka has. `applied`: (target, topic) of each unit that targets have.
    """
    origin = (config.kafka.prefix, name)
    mine = [(target, topic) for target, topic in applied if parse_topic_origin(topic) == origin]
    known = {topic for _, topic in mine} | {format_position_topic(*origin)}
    if config.sources[name].events == "debezium" or not mine or not known.isdisjoint(topics):
        return
    targets = ", ".join(sorted({target for target, _ in mine}))
    yield Finding(
        "warning",
        f"source {name}",
        f"Kafka at {config.kafka.bootstrap} has none of the topics that target {targets} has applied: its "
        "data were removed, or it is another Kafka",
        _REMEDY,
    )
