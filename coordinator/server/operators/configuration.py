"""The interface of a coordinator's configuration: read the file, adopt what was read.
rowlock/coordinator implements it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FoundConfiguration:
    """The configuration in the file, compared with the one in use."""

    digest: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """The digest of each part."""
    changed: frozenset[str] = frozenset()
    """The parts that differ, if only in a secret."""
    removed: frozenset[str] = frozenset()
    """The parts that no longer exist."""
    changes: tuple[str, ...] = ()
    """The changes key by key, as text."""


class ConfigurationRefusedError(Exception):
    """The configuration in the file cannot be used. `lines` are the problems."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class Configuration(Protocol):
    """A coordinator's configuration. All methods may be called from any thread."""

    def read_file(self) -> FoundConfiguration:
        """Read the file and keep its content for `adopt_config`. Raises ConfigurationRefusedError."""

    def read_checked_file(self) -> FoundConfiguration:
        """Like `read_file`, for a reload: also refuse what a start would leave out. It asks servers."""

    def adopt_config(self, digest: str) -> None:
        """Use the configuration that was read last, if it has this digest. Never waits."""

    def catch_up(self, digest: str) -> None:
        """Use the configuration that an earlier leader activated, if the file holds it. Reads the file
        once for each digest.
        """
