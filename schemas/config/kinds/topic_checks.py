"""Rules for a Kafka target and for the topics of its routes; what cannot work is refused when the file
is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from schemas.config.kinds.targets import find_target_kind
from schemas.config.yaml_lines import YamlDocument

if TYPE_CHECKING:
    from schemas.config.kinds.topics import TopicConfig
    from schemas.config.model import KafkaConfig, KafkaTargetConfig, PipelineConfig, Route, TargetConfig

KeyPath = tuple[str, ...]

_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,80}\Z")
_TOPIC = re.compile(r"[A-Za-z0-9._-]*\Z")
_FILLED = re.compile(r"\{\w+\}|`")
#: Keys of a database's section → the equivalent for a Kafka target.
_OTHERS = {
    "host": "write bootstrap: host:port",
    "port": "write bootstrap: host:port",
    "user": "write options: {sasl.username: …}",
    "password": "write options: {sasl.password_file: …}",
    "database": "remove it: the routes select the topics",
    "tls": "write options: {security.protocol: SSL, ssl.ca.location: …}",
}


def check_brokers(bootstrap: str, place: KeyPath, document: YamlDocument) -> None:
    """Add a problem for each invalid broker."""
    for broker in bootstrap.split(","):
        host, _, port = broker.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            document.add_problem(place, f"{broker.strip()!r} is no broker", "write host:port[,host:port…]")


def check_fixed_client_options(
    options: Mapping[str, str], fixed: Mapping[str, str], place: KeyPath, document: YamlDocument
) -> None:
    """Add a problem for each client setting that rowlock fixes. `fixed`: setting → the reason."""
    for name in options:
        if name in fixed:
            document.add_problem((*place, name), "this setting cannot be changed", fixed[name])


def check_topic_target(
    name: str, target: TargetConfig, fixed: Mapping[str, str], document: YamlDocument
) -> None:
    """Check the section of a Kafka target; other sections are ignored."""
    kafka = _find_kafka_target(target)
    if kafka is None:
        return
    place = ("targets", name)
    for key, right in _OTHERS.items():
        if getattr(kafka, key) != type(kafka).model_fields[key].default:
            document.add_problem((*place, key), "it is about a database", right)
    if not _PREFIX.match(kafka.prefix) or kafka.prefix.strip(".") == "":
        seen = f"{kafka.prefix!r} cannot begin a topic's name"
        document.add_problem((*place, "prefix"), seen, "use up to 80 letters, digits, '.', '_' and '-'")
    check_brokers(kafka.bootstrap, (*place, "bootstrap"), document)
    check_fixed_client_options(kafka.options, fixed, (*place, "options"), document)


def check_topics(
    pipeline: PipelineConfig,
    target: TargetConfig,
    own: KafkaConfig | None,
    place: KeyPath,
    document: YamlDocument,
) -> None:
    """Check a pipeline's topic settings; for a target without topics, check that it has none."""
    kafka = _find_kafka_target(target)
    for i, route in enumerate(pipeline.routes):
        at = (*place, "routes", str(i))
        if kafka is None:
            if route.kafka is not None:
                seen = f"a target of type {target.type!r} has no topics"
                document.add_problem((*at, "kafka"), seen, "remove it")
            continue
        _check_name(route, kafka, own, at, document)
        if route.schema_changes == "ignore":
            document.add_problem((*at, "schema_changes"), *_IGNORE)
        if route.kafka is not None:
            _check_topic(route.kafka, route, (*at, "kafka"), document)
    if kafka is None:
        return
    if pipeline.schema_changes == "ignore":
        document.add_problem((*place, "schema_changes"), *_IGNORE)
    if pipeline.on_drop == "drop":
        seen = "'drop' would delete a topic, which no transaction can hold"
        document.add_problem((*place, "on_drop"), seen, "use keep or empty, and delete the topic yourself")
    if pipeline.conflicts != "replace":
        document.add_problem((*place, "conflicts"), "a topic has no unique values to conflict", "remove it")
    if pipeline.history != "30d":
        seen = "the history of a Kafka target is a topic, which has a retention of its own"
        document.add_problem((*place, "history"), seen, "remove it, and set the topic's retention.ms")


_IGNORE = (
    "'ignore' leaves out what the target lacks, and a topic lacks nothing",
    "use lenient, evolve or stop; `columns` of the route's `kafka` selects what is written",
)


def _check_name(
    route: Route, kafka: KafkaTargetConfig, own: KafkaConfig | None, place: KeyPath, document: YamlDocument
) -> None:
    """Check the literal parts of a route's topic name; the filled-in parts are checked for each table."""
    text = _FILLED.sub("", route.to)
    if not _TOPIC.match(text):
        seen = f"{route.to!r} cannot be a topic's name"
        document.add_problem((*place, "to"), seen, "use letters, digits, '.', '_' and '-'")
    same = own is not None and bool(_parse_brokers(own.bootstrap) & _parse_brokers(kafka.bootstrap))
    if same and own is not None and route.to.replace("`", "").startswith(f"{own.prefix}."):
        seen = f"topics that begin with {own.prefix!r} are rowlock's own on this cluster"
        document.add_problem((*place, "to"), seen, "write to another schema, or set another kafka.prefix")


def _parse_brokers(bootstrap: str) -> set[str]:
    return {each.strip() for each in bootstrap.split(",")}


def _check_topic(topic: TopicConfig, route: Route, place: KeyPath, document: YamlDocument) -> None:
    if topic.format == "plain" and not topic.tombstones:
        seen = "format plain marks a deleted row by a null value alone"
        document.add_problem((*place, "tombstones"), seen, "remove it, or use another format")
    for i, column in enumerate(topic.key):
        if column in topic.key[:i]:
            document.add_problem((*place, "key", str(i)), f"column {column!r} is named twice", "name it once")
    renames = route.rename.columns
    new_names = {there: name for name, there in renames.items() if there not in renames}
    for key in ("key", "columns", "where", "masks"):
        for column in new_names.keys() & {*getattr(topic, key)}:
            seen = f"{column!r} is the name that `rename` gives to {new_names[column]!r} in the records"
            document.add_problem((*place, key), seen, f"write the source's name, {new_names[column]!r}")
        for column in renames.keys() & route.add.keys() & {*getattr(topic, key)}:
            seen = f"{column!r} may be the column of `add`, or the source's, to which `rename` gives a name"
            document.add_problem((*place, key), seen, "give the added column another name under `add`")
    needed = dict.fromkeys(topic.key, "the routing key") | dict.fromkeys(
        route.add, "`add` puts it into the primary key"
    )
    for column, why in needed.items():
        if topic.columns and column not in topic.columns:
            document.add_problem((*place, "columns"), f"{column!r} is missing: {why}", f"add {column!r}")
    for column, mask in topic.masks.items():
        if column in topic.key and mask != "sha256":
            seen = f"{column!r} is in the routing key: one fixed text would be the key of all rows"
            document.add_problem((*place, "masks", column), seen, "use sha256")
        elif column in route.add:
            seen = f"{column!r} is in the primary key, which identifies the rows"
            document.add_problem((*place, "masks", column), seen, "remove it")
        elif topic.columns and column not in topic.columns:
            document.add_problem((*place, "masks", column), f"{column!r} is not written", "remove it")


def _find_kafka_target(target: TargetConfig) -> KafkaTargetConfig | None:
    """Return the section as a Kafka target's; None: it is a database's."""
    return cast("KafkaTargetConfig", target) if find_target_kind(target.type).events else None
