"""Formats of records: what a change of a routed table is in a topic."""

from __future__ import annotations

from collections.abc import Callable

from consumer.targets.kafka.formats.model import Format, RoutedTable
from consumer.targets.kafka.formats.plain import PlainFormat
from consumer.targets.kafka.formats.rowlock import RowlockFormat

FORMATS: dict[str, Callable[[RoutedTable], Format]] = {
    "rowlock": RowlockFormat,
    "plain": PlainFormat,
}
