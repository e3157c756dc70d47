"""The texts that a configuration was made from: enough to make it again in another process, whatever
the files contain by then.
"""

from __future__ import annotations

import msgspec


class ConfigText(msgspec.Struct, frozen=True, tag_field="kind", tag="configuration"):
    """The texts of one configuration. It contains secrets: never log it."""

    file: str = msgspec.field(name="file")
    """The file's absolute path."""
    text: str = msgspec.field(name="text")
    """The file's content."""
    secrets: dict[str, str] = msgspec.field(name="secrets", default_factory=dict)
    """Name of a secret's file in the configuration → its content."""
    changes: tuple[tuple[tuple[str, ...], str], ...] = msgspec.field(name="changes", default=())
    """Values of the command line that replaced the file's, by place."""
