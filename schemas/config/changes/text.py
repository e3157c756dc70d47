"""Holds what a configuration was made of: enough to make the same again in another process, whatever the files say by then."""

from __future__ import annotations

import msgspec


class ConfigText(msgspec.Struct, frozen=True, tag_field="kind", tag="configuration"):
    """`file`: its absolute path; `text`: what stood in it; `secrets`: what stood in the files that it names, by the name given there.

    `changes`: values that the command line gave instead of the file's, by place. It holds secrets: never log it.
    """

    file: str = msgspec.field(name="file")
    text: str = msgspec.field(name="text")
    secrets: dict[str, str] = msgspec.field(name="secrets", default_factory=dict)
    changes: tuple[tuple[tuple[str, ...], str], ...] = msgspec.field(name="changes", default=())
