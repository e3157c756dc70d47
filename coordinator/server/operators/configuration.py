"""The interface of the configuration that a coordinator runs by: read it anew, take what was read. rowlock/coordinator implements it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FoundConfiguration:
    """The configuration that the file holds. `parts`: part → digest; `changed`: parts that differ from what is held, if only in a
    secret; `gone`: those that are no more; `changes`: key by key, as text."""

    digest: str
    parts: Mapping[str, str] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    changes: tuple[str, ...] = ()


class ConfigurationRefusedError(Exception):
    """The configuration in the file cannot be taken; `lines`: everything that is wrong with it."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Configuration(Protocol):
    """From any thread."""

    def read_file(self) -> FoundConfiguration:
        """Read the file and keep what it holds for `take`. Raises ConfigurationRefusedError."""

    def adopt_config(self, digest: str) -> None:
        """From now on go by what was read last, if that is it; never waits."""

    def catch_up(self, digest: str) -> None:
        """An earlier owner has put this in force: take it if the file holds it. Reads the file once for each."""
