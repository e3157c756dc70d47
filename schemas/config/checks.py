"""Rules between the parts of a configuration.

`check_across_parts` runs at every load. It refuses undefined names, names that Kafka cannot have,
routes of the wrong form, and client settings that the guarantees depend on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING

from schemas.config.addresses import is_any, is_loopback, split_address
from schemas.config.kinds.sources import SOURCE_KINDS
from schemas.config.kinds.targets import find_target_kind
from schemas.config.kinds.topic_checks import (
    check_brokers,
    check_fixed_client_options,
    check_topic_target,
    check_topics,
)
from schemas.config.spark import check_spark
from schemas.config.yaml_lines import YamlDocument
from schemas.table.patterns import PatternError, check_pattern, split_parts

if TYPE_CHECKING:
    from schemas.config.coordination import CoordinationConfig
    from schemas.config.model import (
        KafkaConfig,
        PipelineConfig,
        Route,
        SourceConfig,
        TargetConfig,
    )
    from schemas.config.spark import SparkConfig


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,80}\Z")
_PLACEHOLDERS = {"source", "db", "table"}
#: Topics `<prefix>.<name>` that are rowlock's own (schemas.wire.topic_names.OWN_TOPICS).
_RESERVED_SOURCES = {"control", "watermark", "position", "copy", "audit"}

#: Client settings that rowlock fixes → why they cannot be set.
FIXED_OPTIONS: Mapping[str, str] = {
    "bootstrap.servers": "set kafka.bootstrap instead",
    "metadata.broker.list": "set kafka.bootstrap instead",
    "message.timeout.ms": "a message that times out is a lost row",
    "delivery.timeout.ms": "a message that times out is a lost row",
    "enable.gapless.guarantee": "without it a failed message leaves a gap",
    "enable.idempotence": "without it retries reorder and repeat rows",
    "acks": "an event counts only when all replicas have it",
    "request.required.acks": "an event counts only when all replicas have it",
    "max.in.flight": "idempotence bounds it",
    "max.in.flight.requests.per.connection": "idempotence bounds it",
    "message.send.max.retries": "a failed send is tried until it succeeds",
    "retries": "a failed send is tried until it succeeds",
    "transactional.id": "rowlock names its own",
    "group.id": "positions live in the target, not in a consumer group",
    "enable.auto.commit": "positions live in the target, not in a consumer group",
    "enable.auto.offset.store": "positions live in the target, not in a consumer group",
    "auto.offset.reset": "the progress rows define where to start",
    "isolation.level": "rowlock sets it where it matters",
    "partitioner": "every topic has one partition",
    "minPartitions": "it is an option of Spark's Kafka source, which is not used",
    "maxRecordsPerPartition": "it is an option of Spark's Kafka source, which is not used",
    "allow.auto.create.topics": "topics must have exactly one partition, rowlock creates them",
}


@dataclass(frozen=True, slots=True)
class ValidParts:
    """The parts of a file that are valid on their own; `names`: all names of each section, valid or not."""

    kafka: KafkaConfig | None
    coordination: CoordinationConfig | None
    spark: SparkConfig | None
    names: Mapping[str, list[str]]
    sources: Mapping[str, SourceConfig]
    targets: Mapping[str, TargetConfig]
    pipelines: Mapping[str, PipelineConfig]


def check_across_parts(parts: ValidParts, document: YamlDocument) -> None:
    """Add a problem to `document` for every broken rule."""
    _check_names(parts, document)
    if parts.kafka:
        _check_kafka(parts.kafka, document)
    if parts.coordination:
        _check_coordination(parts.coordination, parts.names["sources"], document)
    if parts.spark:
        check_spark(parts.spark, document)
    for name, source in parts.sources.items():
        _check_source(name, source, document)
    for name, target in parts.targets.items():
        check_topic_target(name, target, FIXED_OPTIONS, document)
    for name, pipeline in parts.pipelines.items():
        _check_pipeline(name, pipeline, parts, document)


def _check_names(parts: ValidParts, document: YamlDocument) -> None:
    right = "use up to 64 letters, digits, '_' and '-'"
    for section, names in parts.names.items():
        for name in names:
            if not _NAME.match(name):
                document.add_problem((section, name), f"the name {name!r} cannot be used", right)
            elif section == "sources" and name in _RESERVED_SOURCES:
                document.add_problem(
                    (section, name), f"the name {name!r} is one of rowlock's own topics", "choose another"
                )


def _check_kafka(kafka: KafkaConfig, document: YamlDocument) -> None:
    if not _PREFIX.match(kafka.prefix) or kafka.prefix.strip(".") == "":
        seen = f"{kafka.prefix!r} cannot begin a topic's name"
        document.add_problem(("kafka", "prefix"), seen, "use up to 80 letters, digits, '.', '_' and '-'")
    check_brokers(kafka.bootstrap, ("kafka", "bootstrap"), document)
    check_fixed_client_options(kafka.options, FIXED_OPTIONS, ("kafka", "options"), document)


def _check_source(name: str, source: SourceConfig, document: YamlDocument) -> None:
    for i, pattern in enumerate(source.tables):
        _check_pattern(pattern.removeprefix("!"), ("sources", name, "tables", str(i)), document)
    if source.tables and all(pattern.startswith("!") for pattern in source.tables):
        place = ("sources", name, "tables")
        document.add_problem(
            place,
            "every pattern excludes tables",
            'begin with patterns of tables to capture, for example ["bank.*", "!bank.tmp_*"]',
        )
    _check_columns(name, source, document)
    _check_addresses(name, source, document)
    if source.type == "oracle":
        _check_oracle(name, source, document)
    elif source.database:
        document.add_problem(
            ("sources", name, "database"),
            f"a source of type {source.type!r} has no service",
            "remove it: `tables` selects what is captured",
        )
    if source.events == "debezium":
        _check_debezium(name, source, document)
        return
    for key, value in (("decimals", source.decimals), ("binaries", source.binaries), ("times", source.times)):
        if value not in (None, "precise"):
            seen = f"{value!r} is about a connector of Debezium's"
            document.add_problem(("sources", name, key), seen, "remove it, or set events: debezium")


def _check_columns(name: str, source: SourceConfig, document: YamlDocument) -> None:
    place = ("sources", name, "columns")
    if source.columns and source.events == "debezium":
        seen = "rowlock does not capture this source"
        right = "remove it, and set column.exclude.list in the connector"
        document.add_problem(place, seen, right)
        return
    if source.columns and not SOURCE_KINDS[source.type].leaves_columns_out:
        seen = f"capture publishes every column of a source of type {source.type!r}"
        document.add_problem(place, seen, "remove it: for now only MySQL and MariaDB have this option")
        return
    for pattern, columns in source.columns.items():
        if pattern.startswith("!"):
            right = "write a pattern of the tables that have the columns"
            document.add_problem((*place, pattern), f"{pattern!r} would exclude tables", right)
        else:
            _check_pattern(pattern, (*place, pattern), document)
        folded = [column.lower() for column in columns.leave_out]
        if len(set(folded)) < len(folded):
            seen = "a column is named twice, upper and lower case do not matter"
            document.add_problem((*place, pattern, "leave_out"), seen, "name it once")


def _check_addresses(name: str, source: SourceConfig, document: YamlDocument) -> None:
    place = ("sources", name)
    if not source.hosts:
        if not source.host:
            document.add_problem((*place, "host"), "'host' is missing", "add host: Host name or address.")
        return
    for key in ("host", "port"):
        if key in source.model_fields_set:
            document.add_problem((*place, key), f"{key!r} and 'hosts' exclude each other", f"remove {key!r}")
    at = (*place, "hosts")
    if not SOURCE_KINDS[source.type].fails_over:
        document.add_problem(
            at, f"capture does not follow a source of type {source.type!r} to another server",
            "use 'host' and 'port': 'hosts' is for MySQL and MariaDB",
        )  # fmt: skip
    elif source.events != "rowlock":
        document.add_problem(at, "rowlock does not capture this source", "use 'host' and 'port'")
    for address in source.hosts:
        try:
            split_address(address)
        except ValueError:
            document.add_problem(at, f"{address!r} is no address", "write host:port (IPv6: [address]:port)")
    if len(set(source.hosts)) < len(source.hosts):
        document.add_problem(at, "an address is named twice", "name it once")


def _check_oracle(name: str, source: SourceConfig, document: YamlDocument) -> None:
    """Add a problem for settings that only a source with a binlog uses, instead of ignoring them."""
    place = ("sources", name)
    if not source.database:
        document.add_problem(
            (*place, "database"),
            "an Oracle needs the service to connect to",
            "write database: NAME, for example FREEPDB1",
        )
    if source.events != "rowlock":
        document.add_problem(
            (*place, "events"),
            "Debezium's events of Oracle are not read",
            "remove it: rowlock captures the source",
        )
    for key in ("large_transactions", "online_ddl"):
        if key in source.model_fields_set:
            document.add_problem((*place, key), "it is about a binlog, and an Oracle has none", "remove it")


def _check_debezium(name: str, source: SourceConfig, document: YamlDocument) -> None:
    """Add a problem for settings that only capture uses, instead of ignoring them: rowlock does not
    capture such a source.
    """
    if source.snapshot != "initial":
        seen = f"{source.snapshot!r} is not possible here: Debezium takes the snapshot"
        document.add_problem(
            ("sources", name, "snapshot"), seen, "remove it, and set snapshot.mode in the connector"
        )


def _check_pipeline(name: str, pipeline: PipelineConfig, parts: ValidParts, document: YamlDocument) -> None:
    place = ("pipelines", name)
    if pipeline.target not in parts.names["targets"]:
        document.add_unknown_name((*place, "target"), "target", pipeline.target, parts.names["targets"])
    elif pipeline.target in parts.targets:
        _check_pace(pipeline, parts.targets[pipeline.target].type, place, document)
        check_topics(pipeline, parts.targets[pipeline.target], parts.kafka, place, document)
    for i, source in enumerate(pipeline.sources):
        if source not in parts.names["sources"]:
            document.add_unknown_name((*place, "sources", str(i)), "source", source, parts.names["sources"])
        if source in pipeline.sources[:i]:
            document.add_problem(
                (*place, "sources", str(i)), f"source {source!r} is named twice", "name it once"
            )
    for i, route in enumerate(pipeline.routes):
        _check_route(route, pipeline.routes[:i], (*place, "routes", str(i)), document)
        if route.partitions == "keep":
            _check_kept_partitions(pipeline, parts, (*place, "routes", str(i), "partitions"), document)


def _check_pace(pipeline: PipelineConfig, kind: str, place: tuple[str, ...], document: YamlDocument) -> None:
    """Add a problem for an option that only the other kind of target uses, instead of ignoring it."""
    batches = find_target_kind(kind).batches
    if batches and pipeline.lanes != type(pipeline).model_fields["lanes"].default:
        seen = f"a target of type {kind!r} takes whole batches and has no lanes"
        document.add_problem((*place, "lanes"), seen, "remove it")
    if not batches and pipeline.commit_every is not None:
        seen = f"a target of type {kind!r} is committed to by each lane, as changes come"
        document.add_problem((*place, "commit_every"), seen, "remove it")


def _check_route(route: Route, earlier: list[Route], place: tuple[str, ...], document: YamlDocument) -> None:
    _check_pattern(route.from_, (*place, "from"), document)
    if any(other.from_ in (route.from_, "*.*") for other in earlier):
        document.add_problem(
            (*place, "from"), f"an earlier route takes all of {route.from_!r}", "remove one of them"
        )
    try:
        split_parts(route.to, dots=False)
    except PatternError as error:
        right = "write schema.table, for example public.{table}; names with dots in backticks"
        document.add_problem((*place, "to"), f"{route.to!r} is no target table: {error}", right)
    _check_placeholders(route.to, (*place, "to"), document)
    for column, text in route.add.items():
        _check_placeholders(text, (*place, "add", column), document)
    _check_renames(route, (*place, "rename", "columns"), document)


def _check_kept_partitions(
    pipeline: PipelineConfig, parts: ValidParts, place: tuple[str, ...], document: YamlDocument
) -> None:
    """Add a problem if the target cannot keep rows that a statement removed, or if a source does not show
    such statements.
    """
    target = parts.targets.get(pipeline.target)
    if target is not None and find_target_kind(target.type).batches:
        seen = f"a target of type {target.type!r} cannot keep rows that a statement removed"
        document.add_problem(place, seen, "remove it: such a statement leads to a copy of the table")
    for name in pipeline.sources:
        source = parts.sources.get(name)
        if source is not None and (source.type == "oracle" or source.events == "debezium"):
            kind = "Debezium" if source.events == "debezium" else "an Oracle"
            seen = f"of the source {name}, {kind} does not show which statements remove rows"
            document.add_problem(place, seen, "remove it, or put that source into a pipeline of its own")


def _check_renames(route: Route, place: tuple[str, ...], document: YamlDocument) -> None:
    """Add a problem for a new name that is empty, or that another column of the route has in the target."""
    taken = dict.fromkeys(route.add, "the route adds a column of that name (`add`)")
    for column, name in route.rename.columns.items():
        if not name or name in taken:
            seen = (
                f"{name!r} cannot be the name of {column!r} in the target: {taken.get(name, 'it is empty')}"
            )
            document.add_problem((*place, column), seen, "choose another name")
        taken[name] = f"{column!r} has that name, too"


def _check_pattern(pattern: str, place: tuple[str, ...], document: YamlDocument) -> None:
    try:
        check_pattern(pattern)
    except PatternError as error:
        right = (
            "write database.table, with * and ? as needed; names with special characters in "
            "backticks, for example bank.`a.b`"
        )
        document.add_problem(place, f"{pattern!r} is no table pattern: {error}", right)


def _check_placeholders(text: str, place: tuple[str, ...], document: YamlDocument) -> None:
    right = "use {source}, {db} and {table}"
    try:
        fields = list(Formatter().parse(text))
    except ValueError as error:
        document.add_problem(place, f"{text!r} is no template: {error}", right)
        return
    for _, field, spec, conversion in fields:
        if field is not None and (field not in _PLACEHOLDERS or spec or conversion):
            document.add_problem(place, f"{text!r} has an unknown placeholder {{{field}}}", right)


_PLACE = "coordination"


def _check_coordination(config: CoordinationConfig, sources: Sequence[str], document: YamlDocument) -> None:
    """Add a problem to `document` for every broken rule."""
    for i, address in enumerate(config.coordinators):
        host = _read_host(address, ("coordinators", str(i)), document)
        if host is not None and is_any(host):
            right = "name the host that agents can connect to"
            document.add_problem(
                (_PLACE, "coordinators", str(i)), f"{address!r} is no place to connect to", right
            )
    _check_servers(config, document)
    if config.interval_s * 3 > config.lease_s:
        seen = f"heartbeats every {config.interval_s:g} s are too few for a lease of {config.lease_s:g} s"
        right = "make lease_s at least three times interval_s: a lost heartbeat or two must not end a lease"
        document.add_problem((_PLACE, "interval_s"), seen, right)
    for first, most in (("retry_first_s", "retry_most_s"), ("agent_retry_first_s", "agent_retry_most_s")):
        if getattr(config, first) > getattr(config, most):
            seen = f"{getattr(config, first):g} s is more than {most}, {getattr(config, most):g} s"
            document.add_problem((_PLACE, first), seen, f"make {most} at least as long")
    for source in config.apart:
        if source not in sources:
            document.add_unknown_name((_PLACE, "apart", source), "source", source, sources)


def _check_servers(config: CoordinationConfig, document: YamlDocument) -> None:
    listen = _read_host(config.listen, ("listen",), document)
    rest = _read_host(config.rest, ("rest",), document)
    for name, host in (("listen", listen), ("rest", rest)):
        if host is not None and is_any(host) and config.advertise is None:
            seen = f"{host} means every address of this machine, so agents cannot learn where to connect"
            document.add_problem((_PLACE, name), seen, "set coordination.advertise to this machine's name")
    if listen is not None and not is_loopback(listen):
        _check_listen(config, listen, document)
    metrics = None
    if config.agent_metrics is not None:
        metrics = _read_host(config.agent_metrics, ("agent_metrics",), document)
    for name, host in (("rest", rest), ("agent_metrics", metrics)):
        if host is not None and not is_loopback(host) and not _get_secret(config):
            seen = f"{host} can be reached from other machines and requires no token"
            document.add_problem((_PLACE, name), seen, "set coordination.token or token_file")


def _check_listen(config: CoordinationConfig, host: str, document: YamlDocument) -> None:
    """Require TLS and authentication for an open address, because an agent receives units and so the
    databases' rows.
    """
    if config.tls is None:
        seen = (
            f"{host} can be reached from other machines without TLS: any of them can act as an "
            "agent, and read the messages"
        )
        document.add_problem((_PLACE, "listen"), seen, "set coordination.tls, or listen on 127.0.0.1")
    elif not config.tls.mutual and not _get_secret(config):
        seen = f"{host} can be reached from other machines, and agents are not authenticated"
        document.add_problem(
            (_PLACE, "tls"), seen, "set coordination.tls.mutual: true, or coordination.token or token_file"
        )


def _get_secret(config: CoordinationConfig) -> str:
    return config.token.get_secret_value() if config.token else ""


def _read_host(address: str, place: tuple[str, ...], document: YamlDocument) -> str | None:
    try:
        return split_address(address)[0]
    except ValueError as error:
        seen, _, right = str(error).partition("; ")
        document.add_problem((_PLACE, *place), seen, right)
        return None
