"""Follows the first copies of all sources: by the watermarks that others read, and one query of a source."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rowlock.errors import CommandError
from rowlock.inspect.observed.first_copies import FirstCopy, FirstCopyProgress, SourceFirstCopies, add_sources
from rowlock.views.source import estimate_tables
from schemas.config.model import Config, SourceConfig
from schemas.table.names import TableName, find_meant_tables, format_table_text
from schemas.wire.records import Watermark

FindTables = Callable[[Iterable[str], Collection[str]], Mapping[str, TableName]]
"""(sources, topics) → the table of each topic; raises CommandError."""
EstimateTables = Callable[[SourceConfig, str, Sequence[TableName]], Mapping[str, tuple[int, int]]]
"""(source, its name, tables) → "db.table" → (rows, bytes); raises CommandError."""


@dataclass(frozen=True, slots=True)
class FirstCopyList:
    """The first copies that are not complete: those that run first, then the largest; and their sum."""

    copies: tuple[FirstCopy, ...] = ()
    total: FirstCopyProgress | None = None
    """None: there are none."""


def start_thread(work: Callable[[], None]) -> None:
    """Do the work in the background. A source that does not answer delays nothing, and no exit."""
    threading.Thread(target=work, name="estimate of first copies", daemon=True).start()


class FirstCopyReader:
    """Knows how far the first copies of the sources are."""

    def __init__(
        self,
        config: Config,
        find_tables: FindTables,
        estimate: EstimateTables = estimate_tables,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        start_work: Callable[[Callable[[], None]], None] = start_thread,
    ) -> None:
        self._config, self._find_tables, self._estimate = config, find_tables, estimate
        self._clock_s, self._start_work = clock_s, start_work
        self._sources: dict[str, SourceFirstCopies] = {}

    def note_watermark(self, name: str, mark: Watermark | None) -> None:
        """Note the last watermark of the source `name`; None: it has none."""
        if mark is None or not (mark.snapshot_pending or name in self._sources):
            return
        if name not in self._sources:
            self._sources[name] = copies = SourceFirstCopies(name, self._clock_s)
            tables = [table for text in mark.snapshot_pending for table in find_meant_tables(text)]
            self._start_work(lambda: self._read_estimates(copies, tables))
        self._sources[name].note_watermark(mark, self._name_tables(name, mark.topics))
        if self._sources[name].is_complete:
            del self._sources[name]

    def _name_tables(self, name: str, topics: Collection[str]) -> Mapping[str, str]:
        """Return topic → "db.table"; nothing if that cannot be read now: the figures wait for it."""
        with contextlib.suppress(CommandError):
            return {
                topic: format_table_text(*table) for topic, table in self._find_tables([name], topics).items()
            }
        return {}

    def _read_estimates(self, copies: SourceFirstCopies, tables: Sequence[TableName]) -> None:
        """Ask the source once; without an answer the figures have rows and rates alone."""
        name = copies.source
        with contextlib.suppress(CommandError):
            sizes = self._estimate(self._config.sources[name], name, tables)
            copies.set_estimates({table: rows for table, (rows, _) in sizes.items()})

    def compute_total(self, name: str) -> FirstCopyProgress | None:
        """Return the progress of all first copies of a source; None: it has none."""
        copies = self._sources.get(name)
        return None if copies is None else copies.compute_total()

    def list_copies(self) -> FirstCopyList:
        """Return the first copies of all sources that are not complete."""
        sources = self._sources.values()
        copies = sorted((copy for source in sources for copy in source.list_copies()), key=_rank_copy)
        return FirstCopyList(
            tuple(copies), add_sources(each.compute_total() for each in sources) if copies else None
        )


def _rank_copy(copy: FirstCopy) -> tuple[bool, int, str, str]:
    size = max(copy.progress.rows, copy.progress.estimate or 0)
    return (not copy.has_begun, -size, copy.source, copy.table)
