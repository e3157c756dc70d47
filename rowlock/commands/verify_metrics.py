"""The results of `rowlock verify` as a file for Prometheus, because the command ends before it could be
scraped: the node exporter's textfile collector reads such files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from coordinator.rest.exposition import MetricDefinition, MetricValue, StateCollector
from rowlock.errors import CommandError
from rowlock.inspect.pairs import TablePair
from rowlock.inspect.verify import PairResult

_TABLE = ("pipeline", "source", "table")
LAST_VERIFY = MetricDefinition(
    "rowlock_verify_last_timestamp_seconds",
    "gauge",
    "When the table was last compared. A comparison that could not be made, or not to the end, does not "
    "count.",
    _TABLE,
)
DIFFERENT_ROWS = MetricDefinition(
    "rowlock_verify_different_rows",
    "gauge",
    "Rows that differed then, were missing in the target, or were there without one in the source. 10,000 "
    "means at least so many.",
    _TABLE,
)
VERIFY_METRICS = (LAST_VERIFY, DIFFERENT_ROWS)

_Labels = tuple[str, ...]


@dataclass(slots=True)
class VerifyMetrics:
    """The file and its values. `wall`: seconds since 1970."""

    path: Path
    wall: Callable[[], float] = time.time
    _values: dict[MetricDefinition, dict[_Labels, float]] = field(default_factory=dict)

    @classmethod
    def open_file(cls, path: Path, tables: Collection[TablePair] | None) -> Self:
        """Return the values of an earlier file, so that a run for some tables keeps those of the others.

        `tables`: all that there are; values of others are dropped. None: not known, and all are kept. Raises
        CommandError if the file cannot be written, or has something else.
        """
        known = None if tables is None else {_list_labels(pair) for pair in tables}
        found = cls(path)
        try:
            values = _read_values(path.read_text()) if path.exists() else {}
            found._values = {
                each: {
                    at: number for at, number in values.get(each, {}).items() if known is None or at in known
                }
                for each in VERIFY_METRICS
            }
            found.write()
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(
                f"--metrics-file {path}: {error}",
                "give a file that does not exist yet, in a folder in which you may write",
            ) from error
        return found

    def record_result(self, result: PairResult) -> None:
        """Record the result of a table, and write the file."""
        if result.problem or not (result.complete or result.findings):
            return
        labels = _list_labels(result.pair)
        self._values[LAST_VERIFY][labels] = self.wall()
        self._values[DIFFERENT_ROWS][labels] = len(result.findings)
        self.write()

    def write(self) -> None:
        """Replace the file as a whole, so that no half of it is ever read."""
        registry = CollectorRegistry()
        registry.register(StateCollector(VERIFY_METRICS, self._list_values))
        write_to_textfile(str(self.path), registry)

    def _list_values(self) -> Iterator[MetricValue]:
        for definition in VERIFY_METRICS:
            for labels, number in sorted(self._values[definition].items()):
                yield definition, labels, number


def _list_labels(pair: TablePair) -> _Labels:
    return pair.pipeline, pair.source, f"{pair.table.db}.{pair.table.name}"


def _read_values(text: str) -> dict[MetricDefinition, dict[_Labels, float]]:
    """Return the values of a file. Raises ValueError or KeyError if it is none of these files."""
    named = {each.name: each for each in VERIFY_METRICS}
    found: dict[MetricDefinition, dict[_Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in _TABLE)
            found.setdefault(named[sample.name], {})[labels] = sample.value
    return found
