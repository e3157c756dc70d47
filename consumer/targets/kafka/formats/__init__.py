"""Formats of records, which represent the changes of a routed table in a topic."""

from __future__ import annotations

from collections.abc import Callable

from consumer.targets.kafka.formats.canal_json import CanalJson
from consumer.targets.kafka.formats.debezium import Debezium, DebeziumWithSchemas
from consumer.targets.kafka.formats.model import RecordFormat, RoutedTable
from consumer.targets.kafka.formats.plain import PlainFormat
from consumer.targets.kafka.formats.rowlock import RowlockFormat

FORMATS: dict[str, Callable[[RoutedTable], RecordFormat]] = {
    "rowlock": RowlockFormat,
    "plain": PlainFormat,
    "canal-json": CanalJson,
    "debezium": Debezium,
    "debezium-schemas": DebeziumWithSchemas,
}
"""Name in the configuration → constructor of the format for a table.

It raises TargetConfigError for a column that the format cannot represent.
"""
