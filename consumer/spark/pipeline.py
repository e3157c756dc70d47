"""A pipeline before anything runs: its part of the configuration, and the settings of its units that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import KafkaException

from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.errors import TransientError
from consumer.ordering.lanes.limits import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.tables.discovery import find_debezium_table, select_topics
from consumer.tables.router import TableRoute
from schemas.config.kinds.targets import find_target_kind
from schemas.config.model import Config, KafkaConfig, PipelineConfig, SourceConfig, TargetConfig
from schemas.errors import EnvelopeError
from schemas.table.names import TableName
from schemas.wire.debezium import ConnectorModes
from schemas.wire.records import format_source_topic, parse_topic_origin
from schemas.wire.topic_tables import TopicTables, make_topic_tables

WHOLE_BATCH = LaneLimits(max_gather=50_000, max_bytes=64 * 2**20)
"""What goes into one commit of a target of whole batches, at most: each commit makes files, and what is in it is in the driver's memory."""
COMMIT_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """The settings that a query hands to its workers. Pickled, never printed: it holds the target's password.

    `run`: through which workers keep what they have (connections, definitions); `query`: this start of the query.
    `units`: what the query reads; `board`: the file that says which of them it applies now, under which epoch.
    `attempts`: the file of the locks that running attempts hold (consumer.spark.active_units).
    """

    run: str
    query: str
    pipeline: str
    target: TargetConfig = field(repr=False)
    bootstrap: str
    kafka_options: Mapping[str, str] = field(repr=False)
    units: Mapping[str, UnitSpec]
    board: str
    attempts: str
    report_port: int
    report_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The part of the configuration that applying a pipeline needs. `slots`: tasks of one query that run at once.

    `debezium`: the sources whose topics Debezium writes, by name. `batches`: the target takes whole batches. `tables`: reads which table each
    topic is of.
    """

    name: str
    config: PipelineConfig
    target: TargetConfig
    bootstrap: str
    prefix: str
    kafka_options: Mapping[str, str]
    state_dir: Path
    slots: int
    kafka: KafkaConfig = field(repr=False)
    routes: tuple[TableRoute, ...] = field(default=())
    debezium: Mapping[str, SourceConfig] = field(default_factory=dict)
    batches: bool = False
    tables: TopicTables | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_config(cls, config: Config, name: str, slots: int) -> PipelineSettings:
        """Raises KeyError when there is no pipeline `name`."""
        pipeline = config.pipelines[name]
        target = config.targets[pipeline.target]
        batches = find_target_kind(target.type).batches
        return cls(
            name=name,
            config=pipeline.model_copy(update={"lanes": 1}) if batches else pipeline,
            target=target,
            batches=batches,
            bootstrap=config.kafka.bootstrap,
            prefix=config.kafka.prefix,
            kafka_options=config.kafka.options,
            state_dir=config.state_dir / "apply" / name,
            slots=slots,
            kafka=config.kafka,
            routes=build_pipeline_routes(config, pipeline),
            debezium=select_debezium_sources(config, pipeline.sources),
            tables=make_topic_tables(config.kafka),
        )

    def select_topics(self, topics: Iterable[str], assigned: Mapping[str, TableName]) -> dict[str, str]:
        """Return topic → source of what the pipeline applies of the topics `topics`. `assigned`: topic → table, of those that rowlock writes."""
        return select_topics(
            topics,
            prefix=self.prefix,
            sources=self.config.sources,
            routes=self.routes,
            assigned=assigned,
            debezium={name: source.tables for name, source in self.debezium.items()},
        )

    def find_source(self, topic: str) -> str | None:
        """Return the source of a table's topic; None: it is none of the pipeline's."""
        origin = parse_topic_origin(topic)
        if origin is None or origin[0] != self.prefix or origin[1] not in self.config.sources:
            return None
        return origin[1]

    def find_table(self, source: str, topic: str) -> TableName | None:
        """Return the table of a topic; None: no record of capture names it, or Debezium writes it and it is not selected. Raises TransientError."""
        if (debezium := self.debezium.get(source)) is not None:
            head = format_source_topic(self.prefix, source) + "."
            return find_debezium_table(topic.removeprefix(head), debezium.tables)
        if self.tables is None:
            return None
        try:
            return self.tables.find_tables([source], [topic]).get(topic)
        except (KafkaException, EnvelopeError) as error:
            raise TransientError(
                f"{topic}: the record of capture that names its table cannot be read: {error}"
            ) from error

    @property
    def limits(self) -> LaneLimits:
        most = self.config.max_gather
        usual = WHOLE_BATCH if self.batches else LaneLimits()
        return usual if most is None else replace(usual, max_gather=most)

    @property
    def commit_every(self) -> float:
        """Seconds from one commit to the next, in a target of whole batches; 0: lanes commit as changes come."""
        return (self.config.commit_every or COMMIT_EVERY_S) if self.batches else 0.0

    @property
    def layout(self) -> str:
        """The layout of a unit that has no progress yet, as it is stored."""
        return build_initial_layout(self.routes, self.config.lanes).encode()

    def build_unit_spec(
        self,
        topic: str,
        source: str,
        *,
        epoch: int,
        topic_id: str,
        assigned: int,
        real: bytes = b"",
    ) -> UnitSpec:
        """Return what a worker must know of the unit `topic`.

        `assigned`: the coordinator's epoch. `real`: the target table, see UnitSpec.
        """
        return UnitSpec(
            unit=ApplyUnit(self.name, topic),
            source=source,
            epoch=epoch,
            topic_id=topic_id,
            routes=self.routes,
            lanes=self.config.lanes,
            create_tables=self.config.create_tables,
            replace=self.config.conflicts == "replace",
            limits=self.limits,
            assigned=assigned,
            real=real,
            on_drop=self.config.on_drop,
            debezium=build_connector_modes(self.debezium.get(source)),
            batches=self.batches,
            table_of=self.find_table if self.batches else None,
            scratch=str(self.state_dir.resolve() / "scratch"),
        )

    def build_task_config(
        self, run: str, query: str, units: Mapping[str, UnitSpec], report_port: int, report_token: str
    ) -> TaskConfig:
        """Return what the query `query` of the run `run` hands to its workers; it puts its board in itself."""
        return TaskConfig(
            run=run,
            query=query,
            pipeline=self.name,
            target=self.target,
            bootstrap=self.bootstrap,
            kafka_options=dict(self.kafka_options),
            units=units,
            board="",
            attempts=str(self.state_dir.resolve() / "attempts"),
            report_port=report_port,
            report_token=report_token,
        )


def build_pipeline_routes(config: Config, pipeline: PipelineConfig) -> tuple[TableRoute, ...]:
    """Return the routes of a pipeline; into topics, where its target takes events."""
    events = find_target_kind(config.targets[pipeline.target].type).events
    kinds = {name: config.sources[name].type for name in pipeline.sources} if events else None
    return TableRoute.build_routes(pipeline, topics=kinds)


def select_debezium_sources(config: Config, names: Iterable[str]) -> dict[str, SourceConfig]:
    """Return those of the sources `names` whose topics Debezium writes."""
    chosen = {name: config.sources[name] for name in names}
    return {name: source for name, source in chosen.items() if source.events == "debezium"}


def build_connector_modes(source: SourceConfig | None) -> ConnectorModes | None:
    """Return how the connector of a source of Debezium's is set; None: rowlock captures it."""
    if source is None or source.events != "debezium":
        return None
    return ConnectorModes(
        decimal_strings=source.decimals == "string",
        binaries="bytes" if source.binaries == "base64" else source.binaries,
        times=source.times is not None,
    )
