"""Operations of units that run one after the other."""

from __future__ import annotations

from typing import Any


class Chain:
    """A builder that notes what is called on it, in order; `start` returns itself, as all do."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    @property
    def readStream(self) -> Chain:  # noqa: N802 - Spark's name
        return self

    writeStream = readStream  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **more: Any) -> Chain:
            self.calls.append((name, (*arguments, *more.values())))
            return self

        return call
