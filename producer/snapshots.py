"""stub"""

from __future__ import annotations
from typing import Any


class Snapshots:
    def __init__(self, source: Any, started: Any, writer: Any) -> None:
        self.ready = False
        self.active = False
        self.pending: set[str] = set()
        self.done: set[str] = set()

    def advance(self, b: Any) -> None: ...
    def rows_seen(self, *a: Any) -> None: ...
    def table_changed(self, s: Any) -> None: ...
    def progressed(self) -> bool:
        return False

    def close(self) -> None: ...
