"""The inventory, derived from the configuration's sources and pipelines and from the cluster's topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from confluent_kafka import KafkaException

from consumer.errors import TransientError
from consumer.tables.discovery import KafkaCluster
from coordinator.core.leader.state import Inventory
from coordinator.core.schedulers import InventoryUnit, UnitKind
from rowlock.coordinator.units import ApplyUnitName, list_apply_units, list_sources_to_capture
from schemas.config.changes.parts import (
    compute_config_digest,
    compute_part_digests,
    format_pipeline_part,
    format_source_part,
    format_table_part,
)
from schemas.config.changes.plan import find_judged_pipelines
from schemas.config.model import Config, KafkaConfig
from schemas.errors import EnvelopeError
from schemas.table.names import TableName, format_table_text
from schemas.units import ApplyName, build_apply_unit_name, build_capture_unit_name, parse_unit_name
from schemas.wire.topic_tables import make_topic_tables

IDS_EVERY_S = 10.0
"""Seconds for which topic ids are reused while the names are unchanged, because requesting them costs
the broker more.
"""


class NamedCluster(KafkaCluster):
    """The cluster's topics, and the tables that capture's records name for them."""

    def __init__(self, kafka: KafkaConfig) -> None:
        super().__init__(kafka.bootstrap, {**kafka.options, "log_level": "2"})
        self._tables = make_topic_tables(kafka)

    def find_topic_tables(self, sources: Sequence[str], topics: Sequence[str]) -> Mapping[str, TableName]:
        """Return topic → table for the topics of `sources`. Raises TransientError if a record cannot be
        read, so that no table is known.
        """
        try:
            return self._tables.find_tables(sources, topics)
        except (KafkaException, EnvelopeError) as error:
            raise TransientError(f"the tables of topics cannot be read: {error}") from error


class InventoryReader:
    """Returns the present inventory when called. For one thread at a time; raises TransientError if
    Kafka does not answer.
    """

    def __init__(
        self,
        config: Config,
        topics: NamedCluster | None = None,
        clock: Callable[[], float] = time.monotonic,
        without: Collection[str] = (),
    ) -> None:
        """`without`: the "source/NAME", "pipeline/NAME" and "pipeline/NAME/SOURCE/DB.TABLE" to leave out."""
        self._clock = clock
        self._going_by: tuple[Config, frozenset[str]] = (config, frozenset(without))
        # librdkafka would repeat on stderr that a broker is away; the caller gets an error that is
        # logged once
        self._topics = topics or NamedCluster(config.kafka)
        self._ids: dict[str, str] = {}
        self._asked: tuple[frozenset[str], float] = (frozenset(), float("-inf"))

    def use_config(self, config: Config, changed: Collection[str]) -> None:
        """Use this configuration. A part that was left out is included again once it has changed; a table of
        a pipeline, once the pipeline or one of its sources has changed.
        """
        parts = frozenset(changed)
        judged = tuple(f"{format_pipeline_part(name)}/" for name in find_judged_pipelines(config, parts))
        left = frozenset(each for each in self._going_by[1] - parts if not each.startswith(judged))
        self._going_by = (config, left)

    def __call__(self) -> Inventory:
        config, without = self._going_by
        topics = self._topics.list_topics()
        assigned = self._topics.find_topic_tables(list_sources_to_capture(config), topics)
        found = [
            unit
            for unit in list_apply_units(config, topics, assigned)
            if without.isdisjoint(_name_parts(unit))
        ]
        return build_inventory(config, found, self._find_ids(frozenset(unit.topic for unit in found)))

    def _find_ids(self, topics: frozenset[str]) -> Mapping[str, str]:
        known, at = self._asked
        if topics != known or self._clock() >= at + IDS_EVERY_S:
            self._ids = self._topics.fetch_topic_ids(sorted(topics))
            self._asked = (topics, self._clock())
        return self._ids


def _name_parts(unit: ApplyUnitName) -> tuple[str, ...]:
    """Return the parts of the configuration without which the unit does not run."""
    parts = format_source_part(unit.source), format_pipeline_part(unit.pipeline)
    if unit.table is None:
        return parts
    return *parts, format_table_part(unit.pipeline, unit.source, format_table_text(*unit.table))


def build_inventory(config: Config, found: Sequence[ApplyUnitName], ids: Mapping[str, str]) -> Inventory:
    """Return the inventory of the `found` apply units and of all captured sources. Pure.

    A unit is left out if its topic has no id, because the topic has just been deleted.
    """
    apart = config.coordination.apart
    captures = [
        InventoryUnit(build_capture_unit_name(source), UnitKind.CAPTURE, source, apart=apart.get(source))
        for source in list_sources_to_capture(config)
    ]
    applies = [
        InventoryUnit(
            build_apply_unit_name(unit.pipeline, unit.topic),
            UnitKind.APPLY,
            unit.source,
            unit.pipeline,
            build_unit_uid(unit.target, ids[unit.topic]),
            apart.get(unit.source),
        )
        for unit in found
        if unit.topic in ids
    ]
    sources = {name: tuple(pipeline.sources) for name, pipeline in config.pipelines.items()}
    return Inventory(
        (*captures, *applies), sources, compute_config_digest(config), compute_part_digests(config)
    )


def build_unit_uid(target: str, topic_id: str) -> str:
    """Return what distinguishes an apply unit from a later one of the same name: its target and its
    topic's id.
    """
    return f"{target}/{topic_id}"


def split_unit_name(unit: str, uid: str) -> tuple[str, str, str, str] | None:
    """Return (pipeline, topic, target, topic id) of an apply unit; None for a capture unit."""
    named = parse_unit_name(unit)
    if not isinstance(named, ApplyName):
        return None
    target, _, topic_id = uid.partition("/")
    return *named, target, topic_id
