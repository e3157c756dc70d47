"""The settings of a pipeline and of its units, derived from the configuration."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from confluent_kafka import KafkaException

from consumer.attempt.spec import UnitSpec, build_initial_layout
from consumer.errors import TransientError
from consumer.ordering.lanes.lane import LaneLimits
from consumer.ordering.model import ApplyUnit
from consumer.tables.discovery import find_debezium_table, select_topics
from consumer.tables.router import TableRoute
from schemas.config.changes.pipeline_text import PipelineText, select_pipeline_text
from schemas.config.kinds.targets import find_target_kind
from schemas.config.load import build_config
from schemas.config.model import Config, KafkaConfig, PipelineConfig, SourceConfig, TargetConfig
from schemas.errors import EnvelopeError
from schemas.table.names import TableName
from schemas.wire.debezium import ConnectorModes
from schemas.wire.records import format_source_topic, parse_topic_origin
from schemas.wire.topic_tables import TopicTables, make_topic_tables

WHOLE_BATCH = LaneLimits(max_gather=50_000, max_bytes=64 * 2**20)
"""The largest commit into a whole-batch target. Each commit writes files, and its rows are in the apply
process's memory."""
COMMIT_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The part of the configuration that is needed to apply a pipeline."""

    name: str
    config: PipelineConfig
    target: TargetConfig
    bootstrap: str
    prefix: str
    kafka_options: Mapping[str, str] = field(repr=False)
    state_dir: Path
    kafka: KafkaConfig = field(repr=False)
    routes: tuple[TableRoute, ...] = field(default=())
    debezium: Mapping[str, SourceConfig] = field(default_factory=dict)
    """The sources with topics written by Debezium, by name."""
    batches: bool = False
    """Whether the target takes whole batches."""
    tables: TopicTables | None = field(default=None, repr=False, compare=False)
    """Reads from Kafka to which table each topic belongs."""
    text: PipelineText | None = field(default=None, repr=False)
    """From what executors make these settings if they read the secrets themselves."""

    @classmethod
    def from_config(cls, config: Config, name: str) -> PipelineSettings:
        """Return the settings of the pipeline `name`. Raises KeyError if it is not configured."""
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
            kafka=config.kafka,
            routes=build_pipeline_routes(config, pipeline),
            debezium=select_debezium_sources(config, pipeline.sources),
            tables=make_topic_tables(config.kafka),
            text=select_pipeline_text(config.made_of, name) if config.spark.secrets == "executor" else None,
        )

    def encode(self) -> bytes:
        """Return the settings, secrets included, as `decode_pipeline` takes them in this process."""
        return pickle.dumps(replace(self, tables=None))

    def encode_for_executor(self) -> bytes:
        """Return the settings as `decode_pipeline` takes them in an executor; without secrets if executors
        read them.
        """
        return self.encode() if self.text is None else pickle.dumps(self.text)

    def select_topics(self, topics: Iterable[str], assigned: Mapping[str, TableName]) -> dict[str, str]:
        """Return topic → source for those of `topics` that the pipeline applies.

        `assigned`: topic → table, of the topics that rowlock writes.
        """
        return select_topics(
            topics,
            prefix=self.prefix,
            sources=self.config.sources,
            routes=self.routes,
            assigned=assigned,
            debezium={name: source.tables for name, source in self.debezium.items()},
        )

    def find_source(self, topic: str) -> str | None:
        """Return the source of a table's topic; None if the pipeline does not have it."""
        origin = parse_topic_origin(topic)
        if origin is None or origin[0] != self.prefix or origin[1] not in self.config.sources:
            return None
        return origin[1]

    def find_table(self, source: str, topic: str) -> TableName | None:
        """Return the table of a topic. Raises TransientError.

        None if no record of capture names it, or if Debezium writes the topic and the table is not
        selected.
        """
        if (debezium := self.debezium.get(source)) is not None:
            head = format_source_topic(self.prefix, source) + "."
            return find_debezium_table(topic.removeprefix(head), debezium.tables)
        if self.tables is None:
            return None
        try:
            return self.tables.find_tables([source], [topic]).get(topic)
        except (KafkaException, EnvelopeError) as error:
            raise TransientError(
                f"{topic}: the record in which capture names the topic's table cannot be read: {error}"
            ) from error

    @property
    def limits(self) -> LaneLimits:
        most = self.config.max_gather
        usual = WHOLE_BATCH if self.batches else LaneLimits()
        return usual if most is None else replace(usual, max_gather=most)

    @property
    def commit_every(self) -> float:
        """Seconds from one commit to the next in a whole-batch target; 0: lanes commit as changes arrive."""
        return (self.config.commit_every or COMMIT_EVERY_S) if self.batches else 0.0

    @property
    def layout(self) -> str:
        """The encoded layout of a unit that has no progress yet."""
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
        """Return the settings of the unit `topic` for a worker.

        `epoch`: its fencing token. `assigned`: its assignment. `real`: the target table, see UnitSpec.
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
            sources=tuple(self.config.sources),
            scratch=str(self.state_dir.resolve() / "scratch"),
        )


def decode_pipeline(raw: bytes, state_dir: Path | None = None) -> PipelineSettings:
    """Return the settings that `encode` has written: only what the process that started this one sends.

    `state_dir`: the folder of a slot that cannot use that of its apply process. Raises ConfigErrors if a
    secret that this process has to read is missing.
    """
    settings: PipelineSettings | PipelineText = pickle.loads(raw)  # noqa: S301  # see above
    if isinstance(settings, PipelineText):
        file, changes = Path(settings.file), dict(settings.changes)
        config = build_config(file, settings.text, os.environ, changes)
        settings = PipelineSettings.from_config(config, settings.name)
    folder = settings.state_dir if state_dir is None else state_dir
    return replace(settings, state_dir=folder, tables=make_topic_tables(settings.kafka))


def build_pipeline_routes(config: Config, pipeline: PipelineConfig) -> tuple[TableRoute, ...]:
    """Return the routes of a pipeline; they lead to topics if its target takes events."""
    events = find_target_kind(config.targets[pipeline.target].type).events
    kinds = {name: config.sources[name].type for name in pipeline.sources} if events else None
    return TableRoute.build_routes(pipeline, topics=kinds)


def select_debezium_sources(config: Config, names: Iterable[str]) -> dict[str, SourceConfig]:
    """Return those of the sources `names` that have topics written by Debezium."""
    chosen = {name: config.sources[name] for name in names}
    return {name: source for name, source in chosen.items() if source.events == "debezium"}


def build_connector_modes(source: SourceConfig | None) -> ConnectorModes | None:
    """Return the settings of the Debezium connector of a source; None if rowlock captures the source."""
    if source is None or source.events != "debezium":
        return None
    return ConnectorModes(
        decimal_strings=source.decimals == "string",
        binaries="bytes" if source.binaries == "base64" else source.binaries,
        times=source.times is not None,
    )
