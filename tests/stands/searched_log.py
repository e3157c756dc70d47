"""A log as a search for the place of a failover reads it, made of changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from producer.sources.changes import Barrier, Boundary, Evidence, TransactionHeader


class FakeLog:
    """A log as it is read from one of its files on."""

    def __init__(self, changes: list[Any], captured: Callable[[str, str], bool], end: int) -> None:
        self._changes, self._captured, self._end = changes, captured, end
        self.inside = False
        self.point = ("binlog.000002", 4)
        self.kept: tuple[str, int] | None = None

    def read_changes(self, _timeout: float) -> Iterator[Any]:
        for change in self._changes:
            if isinstance(change, tuple) and not isinstance(change, Barrier | Boundary):
                self._captured(*change)
                yield None
            else:
                yield change
        self._changes, self.point = [], ("binlog.000002", self._end)

    def keep_evidence(self, file: str, pos: int) -> None:
        self.kept = (file, pos)

    def find_evidence(self) -> Evidence:
        return Evidence((), None)

    def close(self) -> None: ...


def end(gtid: str | None, pos: int, **more: Any) -> Boundary:
    header = TransactionHeader("binlog.000002", pos - 10, 0, 1, gtid)
    return Boundary(header, "binlog.000002", pos, **more)
