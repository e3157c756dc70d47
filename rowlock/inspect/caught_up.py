"""The goal of `rowlock run --until-caught-up`: all that was in the sources at the start is in the
targets.

First the end of each source's log is noted, and a watermark *written since* must have passed it with no
snapshot pending. Then the ends of the topics are noted, and every lane of every unit must have reached
them. Each end is noted after the step before it is complete, so no event that existed at the start can
be missed.

A source that is polled has no such end (rowlock/inspect/observed/polled_sources.py). For a source that
Debezium captures, the lag of Debezium is not known; its topics count up to the ends that they have at the
start.

A table that is left out or has stopped does not keep the others from arriving; it is named once they
have arrived, unless a copy of it is on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from rowlock.coordinator.units import (
    NO_TOPICS_REMEDY,
    ApplyUnitName,
    explain_missing_topics,
    list_apply_units,
    list_debezium_sources,
    list_sources_to_capture,
    split_refusal,
)
from rowlock.errors import CommandError
from rowlock.inspect.observed.first_copy_reader import FirstCopyReader
from rowlock.inspect.observed.polled_sources import PolledStart
from rowlock.inspect.observed.remaining_work import RemainingWork
from rowlock.inspect.observed.unit_goals import RemainingUnits, UnitGoals
from rowlock.views.kafka import KafkaView
from rowlock.views.source import has_view, read_log_end, source_view
from schemas.config.model import Config, SourceConfig
from schemas.wire.position import parse_binlog_file_number
from schemas.wire.records import Watermark

LogEnd = tuple[int, int]
"""(number of the log file, position in it)."""


@dataclass(frozen=True, slots=True)
class SourceStart:
    """A source as it was at the start: the end of its log, and the offset of its next watermark."""

    end: LogEnd
    watermark_from: int

    def is_captured(self, seen: tuple[int, Watermark] | None) -> bool:
        """Return whether a watermark written since the start shows that all changes before `end` are in
        Kafka.
        """
        if seen is None or seen[0] < self.watermark_from or seen[1].snapshot_pending:
            return False
        watermark = seen[1]
        return watermark.idle or (parse_binlog_file_number(watermark.file), watermark.position[2]) >= self.end


class CaughtUpGoal:
    """Returns whether the goal is reached, when called. Raises CommandError if it cannot be reached: at
    once if a whole source has ended, or, if tables have stopped, once all others have arrived.
    """

    def __init__(self, config: Config, report: Callable[[str], None] = lambda _: None) -> None:
        self._config = config
        self._report = report
        self.summary = ""
        """What has arrived, as one sentence, once the goal is reached."""
        self._stopped: dict[str, str] = {}
        self._last_logged = ""
        self._work = RemainingWork()
        self._kafka = KafkaView(config.kafka)
        self._units = UnitGoals(config, self._kafka)
        self._first_copies = FirstCopyReader(config, self._kafka.read_topic_tables)
        self._starts = {
            name: self._read_start(config.sources[name], name) for name in list_sources_to_capture(config)
        }
        self._written = self._read_debezium_ends()
        self._ends: dict[ApplyUnitName, int] | None = None

    def __call__(self) -> bool:
        if self._ends is None and not self._has_captured_all():
            return False
        if self._ends is None:
            self._ends = self._read_topic_ends(self._starts) | self._written
        if not self._has_applied_all(self._ends):
            return False
        stopped = self._stopped | {
            _describe_unit(unit): why for unit, why in self._units.describe_stops().items()
        }
        if stopped:
            tables = "\n".join(f"{where}: {why}" for where, why in sorted(stopped.items()))
            raise CommandError(f"everything else has arrived; these have not:\n{tables}")
        self.summary = _summarize_units(self._ends)
        return True

    def _read_start(self, source: SourceConfig, name: str) -> SourceStart | PolledStart:
        if has_view(source):
            return PolledStart(
                lambda: source_view(source, name), lambda: self._kafka.read_watermark_end(name)
            )
        return SourceStart(read_log_end(source, name), self._kafka.read_watermark_end(name))

    def _read_debezium_ends(self) -> dict[ApplyUnitName, int]:
        """Return the ends of the topics that Debezium writes. Raises CommandError if it has written none
        of a source.
        """
        names = list_debezium_sources(self._config)
        if not names:
            return {}
        there = {unit.source for unit in self._list_units(self._kafka.count_partitions())}
        for name in names:
            if name not in there:
                raise CommandError(explain_missing_topics(self._config, name), NO_TOPICS_REMEDY)
        return self._read_topic_ends(names)

    def _list_units(self, topics: Collection[str]) -> list[ApplyUnitName]:
        return list_apply_units(
            self._config, topics, self._kafka.read_topic_tables(list_sources_to_capture(self._config), topics)
        )

    def _has_captured_all(self) -> bool:
        for name, start in self._starts.items():
            seen = self._kafka.read_watermark(name)
            if seen and seen[0] >= start.watermark_from and seen[1].error:
                self._stopped[f"source {name}"] = seen[1].error
            if not start.is_captured(seen):
                self._log_capture(name, None if seen is None else seen[1])
                return False
        return True

    def _log_capture(self, name: str, mark: Watermark | None) -> None:
        """Log that a source is not captured yet, at once and then now and then how far first copies are."""
        wait = f"waiting for capture of {name}"
        if mark is None or not mark.snapshot_pending:
            self._log_remaining(wait)
            return
        self._first_copies.note_watermark(name, mark)
        wait = f"{wait}, first copies left"
        progress = self._first_copies.compute_total(name)
        if self._work.is_line_due(wait) and progress is not None:
            self._log_remaining(f"{wait}: {len(mark.snapshot_pending):,} ({progress.describe()})")

    def _read_topic_ends(self, sources: Collection[str]) -> dict[ApplyUnitName, int]:
        partitions = self._kafka.count_partitions()
        found = []
        for unit in (each for each in self._list_units(partitions) if each.source in sources):
            if refusal := split_refusal(self._config, unit, partitions[unit.topic]):
                self._stopped[unit.pipeline] = str(refusal)
            else:
                found.append(unit)
        spans = self._kafka.read_spans({unit.topic for unit in found})
        return {unit: spans[unit.topic].high for unit in found if spans[unit.topic].high > 0}

    def _has_applied_all(self, ends: dict[ApplyUnitName, int]) -> bool:
        left = self._units.read_remaining(ends)
        if left.late:
            self._log_events(ends, left)
        elif left.awaited:
            topics = ", ".join(sorted(unit.topic for unit in left.awaited))
            self._log_remaining(f"waiting for the copy after a stop of {topics}")
        return not (left.late or left.awaited)

    def _log_events(self, ends: dict[ApplyUnitName, int], left: RemainingUnits) -> None:
        """Log how much of the topics is left, at once and then now and then."""
        events = sum(ends[unit] - 1 - left.offsets.get(unit, -1) for unit in left.late)
        line = self._work.format_line(f"waiting for {len(left.late)} of {len(ends)} topics", events)
        if line is not None:
            self._log_remaining(line)

    def _log_remaining(self, text: str) -> None:
        if text != self._last_logged:
            self._last_logged = text
            self._report(text)


def _describe_unit(unit: ApplyUnitName) -> str:
    return f"{unit.pipeline}: {unit.topic} has stopped"


def _summarize_units(units: Collection[ApplyUnitName]) -> str:
    count, targets = len({unit.topic for unit in units}), ", ".join(sorted({unit.target for unit in units}))
    if not count:
        return "caught up: the tables of the sources have no rows"
    tables = "1 table" if count == 1 else f"{count:,} tables"
    return f"caught up: all that the sources had in {tables} at the start is in {targets}"
