"""The end of a polled source for `--until-caught-up`: its log has no end that a watermark could pass.

The rows that the logs held at the start must have been deleted from them, because capture deletes what
Kafka has. Then a whole poll must have begun and ended with no snapshot pending, so that tables created
before the start are not missed either.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from producer.sources.source_view import SourceView
from schemas.table.names import format_table_text
from schemas.wire.records import Watermark


class PolledStart:
    """A polled source as it was at the start.

    `view` opens the source, and raises CommandError; `written` returns the offset of the next watermark,
    at the start `watermark_from`.
    """

    def __init__(
        self, view: Callable[[], AbstractContextManager[SourceView]], written: Callable[[], int]
    ) -> None:
        self._view, self._written = view, written
        with view() as source:
            self._ends = source.log_ends()
        self.watermark_from = written()
        self._from: int | None = None
        self._first: Watermark | None = None

    def is_captured(self, seen: tuple[int, Watermark] | None) -> bool:
        """Return whether all changes from before the start are in Kafka. `seen`: the last watermark,
        with its offset.
        """
        if self._from is None:
            if seen is None or self._has_unread_log(seen[1]):
                return False
            self._from = self._written()
            return False
        if seen is None or seen[0] < self._from:
            return False
        mark = seen[1]
        if self._first is None or mark.gen != self._first.gen or mark.position[0] != self._first.position[0]:
            self._first = mark
        with self._view() as source:
            polled = source.ends_by(self._first.position[2], mark.position[2])
        return polled and not mark.snapshot_pending

    def _has_unread_log(self, mark: Watermark) -> bool:
        """Return whether a log holds rows from before the start. Logs of stopped tables do not count,
        because capture does not read them.
        """
        recorded = {*mark.stops, *mark.left_out}
        out = [name for name in self._ends if {".".join(name), format_table_text(*name)} & recorded]
        with self._view() as source:
            return bool(source.list_unread_tables(self._ends, out))
